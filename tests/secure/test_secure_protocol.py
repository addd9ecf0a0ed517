"""Uploads, answers and opening by files: what is refused, and that a task is answered once."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from secure_task import COUNTS, parties

from synthfair.errors import InputError
from synthfair.release.keys import sign_bytes
from synthfair.report.privacy_words import limits
from synthfair.secure import (
    GroupCounts,
    PartialSum,
    SumTask,
    UploadSum,
    answer,
    make_uploads,
    new_aggregator_secret,
    open_sums,
    read_upload,
    receive,
    score_histogram,
)
from synthfair.secure.aggregator import PARTIAL_SUM_DOMAIN, record_of
from synthfair.secure.task import OWNER

ONE = np.array([1, 2, 3, 4])


@pytest.fixture(scope="module")
def group():
    return parties()


@pytest.fixture(scope="module")
def sums(group, tmp_path_factory):
    return group.answers(tmp_path_factory.mktemp("sums"), [ONE] * 2)


def refused(group, folder, content, role=0):
    path = folder / "some.to_0"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        receive(group.task, group.secrets[role], [path])
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def test_a_sum_of_two_and_three_aggregators(tmp_path):
    for aggregators in (2, 3):
        some = parties(aggregators=aggregators)
        folder = tmp_path / f"{aggregators}"
        folder.mkdir()
        sums = some.answers(folder, [[100, 200, 300, 400]] * 3)
        opened = open_sums(some.task, sums[::-1])
        # Noise of scale 1: beyond 40 in no run of 10^16.
        assert np.abs(opened.total - [300, 600, 900, 1200]).max() < 80
        assert {len(path.read_bytes()) for path in folder.glob("*.to_*")} == {
            (folder / "c0.to_0").stat().st_size
        }


def test_what_is_opened_is_a_histogram_with_its_guarantee(tmp_path, group):
    opened = open_sums(group.task, group.answers(tmp_path, [[100] * 4] * 2))
    found = score_histogram(COUNTS, opened)
    assert np.abs(found.array().ravel() - 200).max() < 80
    (guarantee,) = found.origin.guarantees
    assert (guarantee.epsilon, guarantee.unit, found.origin.clients) == (1.0, "row", 2)
    assert (guarantee.relation, guarantee.simulated) == ("add_or_remove", False)
    said = " ".join(limits(guarantee))
    for words in ("collude", "Timing", "how many clients", "False inputs"):
        assert words in said


class TestUploads:
    def test_of_another_task(self, tmp_path, group):
        again = parties()
        other = SumTask.model_validate(
            group.task.model_dump() | {"what": COUNTS.model_dump() | {"epsilon": 0.5}}
        )
        upload = make_uploads(other, ONE, group.keys[0])[0]
        assert "of another task" in refused(group, tmp_path, upload)
        assert "of another task" in refused(
            group, tmp_path, make_uploads(again.task, ONE, again.keys[0])[0]
        )

    def test_under_the_header_of_this_task_it_is_altered(self, tmp_path, group):
        other = SumTask.model_validate(group.task.model_dump() | {"nonce": "7" * 64})
        upload = make_uploads(other, ONE, group.keys[0])[0]
        upload = upload.replace(other.id, group.task.id)
        assert "altered, or not signed" in refused(group, tmp_path, upload)

    def test_for_another_aggregator(self, tmp_path, group):
        upload = make_uploads(group.task, ONE, group.keys[0])[1]
        assert "for aggregator 1; this is aggregator 0" in refused(group, tmp_path, upload)

    def test_encrypted_for_the_other_aggregator_under_this_role(self, group):
        """The client swaps the aggregators' keys: it signs a share that nobody can read."""
        task = group.task
        swapped = task.model_copy(update={"aggregators": task.aggregators[::-1]})
        assert swapped.id == task.id
        upload = make_uploads(swapped, ONE, group.keys[0])[0]
        with pytest.raises(InputError, match="encrypted to another key"):
            read_upload(upload, task, group.secrets[0])

    def test_a_key_of_no_aggregator(self, group):
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        with pytest.raises(InputError, match="none of the task's aggregators"):
            read_upload(upload, group.task, new_aggregator_secret())

    def test_altered_anywhere(self, tmp_path, group):
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        for place in range(0, len(upload), 7):
            wrong = bytearray(upload)
            wrong[place] ^= 1
            refused(group, tmp_path, bytes(wrong))

    def test_of_an_unknown_client(self, tmp_path, group):
        stranger = Ed25519PrivateKey.generate()
        known = group.task.model_copy(
            update={"client_keys": frozenset([stranger.public_key().public_bytes_raw()])}
        )
        upload = make_uploads(known, ONE, stranger)[0]
        assert "whom the task does not know" in refused(group, tmp_path, upload)
        with pytest.raises(InputError, match="none of the clients"):
            make_uploads(group.task, ONE, stranger)

    def test_unsigned_or_signed_by_another_client(self, tmp_path, group):
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        for signature in (bytes(64), group.keys[1].sign(upload[:-64])):
            assert "not signed by" in refused(group, tmp_path, upload[:-64] + signature)

    def test_passed_on_by_another_client_as_its_own(self, tmp_path, group):
        """Signed anew, the share is under another header than it was encrypted for."""
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        first, second = (key.public_key().public_bytes_raw() for key in group.keys[:2])
        stolen = upload[:-64].replace(first, second)
        stolen += group.keys[1].sign(stolen)
        assert "cannot be decrypted" in refused(group, tmp_path, stolen)

    def test_repeated_and_two_of_one_client(self, tmp_path, group):
        first = group.send(tmp_path, 0, ONE)[0]
        second = group.send(tmp_path, 0, ONE, name="again")[0]
        with pytest.raises(InputError, match="repeats an upload"):
            receive(group.task, group.secrets[0], [first, first])
        with pytest.raises(InputError, match="a second upload"):
            receive(group.task, group.secrets[0], [first, second])

    @pytest.mark.parametrize("content", [b"", b"{}", b"synthfair-upload/1\0"])
    def test_hostile_files(self, tmp_path, group, content):
        assert "not an upload of this task" in refused(group, tmp_path, content)
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        assert "bytes" in refused(group, tmp_path, upload[:-1])
        assert "larger than" in refused(group, tmp_path, upload + b"\0" * 10)

    def test_folders_and_missing_files(self, tmp_path, group):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(InputError, match="cannot read"):
                receive(group.task, group.secrets[0], [path])

    def test_all_that_are_refused_are_listed_each_with_its_reason(self, tmp_path, group):
        sent = [group.send(tmp_path, i, ONE) for i in range(2)]
        again = group.send(tmp_path, 1, ONE, name="again")
        sent[0][0].write_bytes(b"junk")
        wrong = [sent[0][0], tmp_path / "none", sent[1][1], again[0]]
        with pytest.raises(InputError) as caught:
            receive(group.task, group.secrets[0], [*wrong[:2], sent[1][0], *wrong[2:]])
        reasons = ["not an upload", "cannot read", "for aggregator 1", "a second upload"]
        lines = str(caught.value).split("\n")
        assert [line.split(": ")[0] for line in lines] == list(map(str, wrong))
        for line, said in zip(lines, reasons, strict=True):
            assert said in line

    @pytest.mark.parametrize("name", ["a\nall.to_0 is well", "b\x1b[2J"])
    def test_a_files_name_cannot_pose_as_another_line(self, tmp_path, group, name):
        (tmp_path / name).write_bytes(b"junk")
        for path in (tmp_path / name, tmp_path / "none" / name):
            with pytest.raises(InputError) as caught:
                receive(group.task, group.secrets[0], [path])
            assert str(caught.value).isprintable()
            assert repr(name)[1:-1] in str(caught.value)

    def test_to_a_key_whose_secret_everybody_knows_nothing_is_encrypted(self, group):
        """The point 0 and one of order 8: whatever a client's key, the shared secret is 0."""
        keys = group.task.aggregators
        order_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
        for weak in ("0" * 64, order_8):
            posed = keys[1].model_copy(update={"encryption": weak})
            task = SumTask.model_validate(
                group.task.model_dump()
                | {"aggregators": [k.model_dump() for k in (keys[0], posed)]}
            )
            with pytest.raises(InputError, match=f"key {weak} of aggregator 1 is unsafe"):
                make_uploads(task, ONE, group.keys[0])

    def test_fewer_clients_than_the_task_asks(self, tmp_path, group):
        sent = group.send(tmp_path, 0, ONE)
        with pytest.raises(InputError, match="of 1 clients; the task asks for 2"):
            receive(group.task, group.secrets[0], sent[:1])

    def test_counts_beyond_the_public_cap_are_not_sent(self, group):
        with pytest.raises(InputError, match="from 0 to 1001; must be from 0 to 1000"):
            make_uploads(group.task, np.array([1001, 0, 0, 0]), group.keys[0])


class TestOpening:
    def test_a_missing_or_repeated_aggregator(self, group, sums):
        for some in (sums[:1], [sums[0], sums[0]], []):
            with pytest.raises(InputError, match="must be one of each"):
                open_sums(group.task, some)

    def test_a_sum_of_another_task(self, sums):
        with pytest.raises(InputError, match="of another task"):
            open_sums(parties().task, sums)

    @pytest.mark.parametrize(
        "change",
        [
            {"total": (1, 2, 3, 4)},
            {"clients": ("1" * 64,)},
            {"clients_hash": "0" * 64},
            {"role": 1},
        ],
    )
    def test_an_altered_sum(self, group, sums, change):
        wrong = sums[0].model_copy(update=change)
        with pytest.raises(InputError, match="altered, or not signed by aggregator"):
            open_sums(group.task, [wrong, sums[1]])
        with pytest.raises(InputError, match="must be 4, of one of 2"):
            open_sums(group.task, [sums[0].model_copy(update={"role": 2}), sums[1]])
        with pytest.raises(InputError, match="must be 4, of one of 2"):
            open_sums(group.task, [sums[0].model_copy(update={"total": (1,)}), sums[1]])

    def signed(self, group, partial, role, **change):
        wrong = partial.model_copy(update=change)
        key = group.secrets[role].signing_key
        signature = sign_bytes(PARTIAL_SUM_DOMAIN, wrong.signed_bytes(), key).hex()
        return wrong.model_copy(update={"signature": signature})

    def test_a_sum_other_than_its_aggregator_had_committed_to(self, group, sums):
        """The last to answer has known what it wanted the total to be."""
        published = [one.commitment for one in sums]
        open_sums(group.task, sums[::-1], commitments=published)
        first, *others = sums[1].total
        chosen = self.signed(group, sums[1], 1, total=((first + 1) % 2**64, *others))
        open_sums(group.task, [sums[0], chosen])
        for some, hashes in [([sums[0], chosen], published), (sums, published[:1])]:
            with pytest.raises(InputError, match="chosen after another was known"):
                open_sums(group.task, some, commitments=hashes)

    def test_a_commitment_cannot_be_guessed_from_the_sum(self, group, sums):
        """Its hash is also of the signature, for which the key is needed."""
        same = sums[0].model_copy(update={"signature": "0" * 128})
        assert same.signed_bytes() == sums[0].signed_bytes()
        assert same.commitment != sums[0].commitment

    def test_different_lists_of_clients(self, group, tmp_path):
        """The same clients, one of which has shared twice: the halves do not belong together."""
        sent = [group.send(tmp_path, i, ONE) for i in range(2)]
        again = group.send(tmp_path, 1, ONE, name="again")
        uploads = ([sent[0][0], sent[1][0]], [sent[0][1], again[1]])
        sums = [
            answer(group.task, s, receive(group.task, s, paths), group.records(tmp_path, role))
            for role, (s, paths) in enumerate(zip(group.secrets, uploads, strict=True))
        ]
        with pytest.raises(InputError, match="saw different uploads"):
            open_sums(group.task, sums)

    def test_other_clients_than_the_task_allows(self, group, sums):
        """Too few, one twice, and one that the task does not know."""
        first, *_ = known = group.task.clients
        for clients in (known[:1], (first, first, first), (*known[:2], "0" * 64)):
            wrong = [self.signed(group, s, i, clients=clients) for i, s in enumerate(sums)]
            with pytest.raises(InputError, match="clients; the task asks for 2 to 3, each once"):
                open_sums(group.task, wrong)

    def test_the_senders_are_those_of_the_uploads(self, group, sums):
        senders = {key.public_key().public_bytes_raw().hex() for key in group.keys[:2]}
        assert set(open_sums(group.task, sums).clients) == senders

    def test_totals_that_cannot_be(self, group, sums):
        wrong = self.signed(group, sums[0], 0, total=(7, 7, 7, 7))
        with pytest.raises(InputError, match="an input was false"):
            open_sums(group.task, [wrong, sums[1]])

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "not JSON"),
            ("[1]", "must hold a JSON object"),
            ("[" * 10**5, "not JSON"),
            ('{"format": "synthfair-partial-sum/1"}', "total: missing"),
            ("TRUNCATED", "not JSON"),
            ("LARGE ENTRY", "total.0"),
            ("EXTRA", "unknown key"),
        ],
    )
    def test_files_that_are_no_sums(self, tmp_path, sums, content, message):
        text = sums[0].model_dump_json()
        content = {
            "TRUNCATED": text[:-30],
            "LARGE ENTRY": json.dumps(json.loads(text) | {"total": [2**64]}),
            "EXTRA": json.dumps(json.loads(text) | {"more": 1}),
        }.get(content, content)
        (tmp_path / "sum.json").write_text(content)
        with pytest.raises(InputError, match=message):
            PartialSum.read(tmp_path / "sum.json")


class TestAnsweredOnce:
    def test_a_task_has_one_answer_however_often_it_is_asked_for(self, tmp_path, group):
        first = group.answers(tmp_path, [ONE] * 2)[0]
        assert group.answers(tmp_path, [ONE] * 2)[0] == first
        record = record_of(group.task, group.secrets[0], group.records(tmp_path))
        assert record.stat().st_mode & 0o077 == 0

    def test_another_task_is_answered(self, tmp_path, group):
        again = SumTask.model_validate(group.task.model_dump() | {"nonce": "5" * 64})
        for task in (group.task, again):
            group._replace(task=task).answers(tmp_path, [ONE] * 2)

    def test_a_kill_9_between_noise_and_answer_loses_nothing(self, tmp_path, group):
        """A real process, killed as it draws noise: nothing of it has left, and it answers later."""
        group.task.write(tmp_path / "task.json")
        (tmp_path / "a.key").write_text(group.secrets[0].model_dump_json())
        records = group.records(tmp_path)
        for i in range(2):
            group.send(tmp_path, i, ONE)
        code = f"""
import os, pathlib, signal
from synthfair.secure import aggregator
from synthfair.secure import SumTask, read_aggregator_secret
folder = pathlib.Path({str(tmp_path)!r})
task, secret = SumTask.read(folder / "task.json"), read_aggregator_secret(folder / "a.key")
received = aggregator.receive(task, secret, sorted(folder.glob("*.to_0")))
type(task.what).noise = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
aggregator.answer(task, secret, received, pathlib.Path({str(records)!r}))
"""
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        received = receive(group.task, group.secrets[0], sorted(tmp_path.glob("*.to_0")))
        first, again = (answer(group.task, group.secrets[0], received, records) for _ in range(2))
        assert first == again

    def test_the_record_is_there_before_any_noise(self, tmp_path, group, monkeypatch):
        seen, records = [], group.records(tmp_path)

        def noise(self, source):
            seen.append(record_of(group.task, group.secrets[0], records).exists())
            return np.zeros(4, np.int64)

        monkeypatch.setattr(GroupCounts, "noise", noise)
        group.answers(tmp_path, [ONE] * 2)
        assert seen == [True, True]

    def test_without_a_place_for_the_record_there_is_no_answer(self, tmp_path, group, monkeypatch):
        def full(**_):
            raise OSError(28, "No space left on device")

        group.records(tmp_path)
        monkeypatch.setattr("tempfile.mkstemp", full)
        with pytest.raises(InputError, match="cannot write: No space left"):
            group.answers(tmp_path, [ONE] * 2)

    def test_only_in_the_folder_that_was_made_with_the_key(self, tmp_path, group):
        """Not in a lost one that was made anew by hand, nor in that of another key."""
        for folder in (tmp_path / "none", tmp_path):
            with pytest.raises(InputError, match="make new keys") as caught:
                record_of(group.task, group.secrets[0], folder)
            assert str(caught.value).startswith(f"{folder}: ")
        other = group.records(tmp_path, 1)
        received = UploadSum(np.zeros(4, np.uint64), ("1" * 64,), "0" * 64)
        with pytest.raises(InputError, match="not the folder of this key's"):
            answer(group.task, group.secrets[0], received, other)
        assert [path.name for path in other.iterdir()] == [OWNER]
