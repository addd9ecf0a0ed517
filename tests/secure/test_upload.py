"""Uploads: each refusal once, at the aggregator that reads them."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from secure_task import COUNTS, parties

from synthfair.errors import InputError
from synthfair.secure import SumTask, make_uploads, new_aggregator_secret, read_upload, receive

ONE = np.array([1, 2, 3, 4])
GROUP = parties(least=3)
TASK, KEYS = GROUP.task, GROUP.keys
UPLOADS = make_uploads(TASK, ONE, KEYS[0])
UPLOAD = UPLOADS[0]
FIRST, SECOND = (key.public_key().public_bytes_raw() for key in KEYS[:2])


def changed(**more):
    return SumTask.model_validate(TASK.model_dump() | more)


OTHER, CHEAPER = changed(nonce="7" * 64), changed(what=COUNTS.model_dump() | {"epsilon": 0.5})
SWAPPED = TASK.model_copy(update={"aggregators": TASK.aggregators[::-1]})  # of the same id
STRANGER = Ed25519PrivateKey.generate()
OPEN = frozenset([STRANGER.public_key().public_bytes_raw()])


def passed_on():
    """Signed anew by another client, the share is under another header than it was made for."""
    stolen = UPLOAD[:-64].replace(FIRST, SECOND)
    return stolen + KEYS[1].sign(stolen)


def made(task, key=KEYS[0]):
    return make_uploads(task, ONE, key)[0]


REFUSED = {
    "short": (UPLOAD[:-1], f"has {len(UPLOAD) - 1}"),
    "other task": (made(CHEAPER), f"of another task, {CHEAPER.id.hex()}"),
    "this header": (made(OTHER).replace(OTHER.id, TASK.id), "altered"),
    "other role": (UPLOADS[1], "for aggregator 1; this is aggregator 0"),
    "unreadable": (made(SWAPPED), "cannot be decrypted"),  # signed by the client
    "stranger": (made(TASK.model_copy(update={"client_keys": OPEN}), STRANGER), "does not know"),
    "other share": (UPLOAD[:120] + bytes([UPLOAD[120] ^ 1]) + UPLOAD[121:], "altered"),
    "signed by another": (UPLOAD[:-64] + KEYS[1].sign(UPLOAD[:-64]), "not signed"),
    "passed on": (passed_on(), f"client {SECOND.hex()}: cannot be decrypted"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_upload_that_is_not_what_it_should_be_is_refused(content, said):
    with pytest.raises(InputError, match=f"^c.to_0: .*{said}"):
        read_upload(content, TASK, GROUP.secrets[0], source="c.to_0")


def test_upload_is_read_as_its_share():
    assert len({len(upload) for upload in UPLOADS}) == 1
    read = [read_upload(u, TASK, s) for u, s in zip(UPLOADS, GROUP.secrets, strict=True)]
    assert {client for client, _, _ in read} == {FIRST}
    assert len({nonce for _, nonce, _ in read}) == 1
    assert (read[0][2] + read[1][2]).tolist() == ONE.tolist()


def test_upload_is_for_no_other_key_and_of_no_other_client():
    with pytest.raises(InputError, match="none of the task's aggregators"):
        read_upload(UPLOAD, TASK, new_aggregator_secret())
    with pytest.raises(InputError, match="none of the clients"):
        make_uploads(TASK, ONE, STRANGER)


ORDER_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"


@pytest.mark.parametrize("weak", ["0" * 64, ORDER_8])
def test_upload_is_not_encrypted_to_a_key_whose_secret_everybody_knows(weak):
    """The point 0 and one of order 8: whatever a client's key, the shared secret is 0."""
    first, second = (keys.model_dump() for keys in TASK.aggregators)
    task = changed(aggregators=[first, second | {"encryption": weak}])
    with pytest.raises(InputError, match=f"key {weak} of aggregator 1"):
        make_uploads(task, ONE, KEYS[0])


def test_uploads_that_are_refused_are_listed_each_with_its_reason(tmp_path):
    sent = [GROUP.send(tmp_path, i, ONE) for i in range(2)]
    again = GROUP.send(tmp_path, 1, ONE, name="again")[0]
    (tmp_path / "large").write_bytes(UPLOAD + bytes(99))
    (tmp_path / "a\nall is well").write_bytes(b"junk")
    reasons = {
        tmp_path / "large": "larger",
        tmp_path / "a\nall is well": "not an upload",
        tmp_path / "none\x1b[2J": "cannot read",
        sent[0][1]: "for aggregator 1",
        sent[1][0]: "repeats an upload",
        again: "a second upload",
    }
    with pytest.raises(InputError) as error:
        receive(TASK, GROUP.secrets[0], [sent[0][0], sent[1][0], *reasons])
    lines = str(error.value).split("\n")
    assert len(lines) == len(reasons)
    for line, (path, reason) in zip(lines, reasons.items(), strict=True):
        assert line.isprintable()
        assert line.startswith(repr(str(path))[1:-1] + ": ")
        assert reason in line


def test_uploads_of_fewer_clients_than_the_task_asks_are_refused(tmp_path):
    sent = [GROUP.send(tmp_path, i, ONE)[0] for i in range(3)]
    assert len(receive(TASK, GROUP.secrets[0], sent).clients) == 3
    with pytest.raises(InputError, match="of 2 clients; .* 3 at least"):
        receive(TASK, GROUP.secrets[0], sent[:2])
