"""Uploads, answers and opening by files: what is refused, and that a task is answered once."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from secure_task import COUNTS, PLAIN, parties

from synthfair.errors import InputError
from synthfair.secure import (
    ClippedVectors,
    GroupCounts,
    Task,
    answer,
    make_task,
    make_uploads,
    new_aggregator_secret,
    open_sums,
    read_aggregator_keys,
    read_aggregator_secret,
    read_partial_sum,
    read_task,
    read_upload,
    receive,
    score_histogram,
    write_task,
)
from synthfair.secure.aggregator import record_of, require_unanswered
from synthfair.secure.aggregator_keys import make_aggregator_keys

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


def test_a_sum_of_two_and_three_aggregators_with_the_full_share_anywhere(tmp_path):
    for aggregators in (2, 3):
        for full in range(aggregators):
            some = parties(aggregators=aggregators, full_share=full)
            folder = tmp_path / f"{aggregators}{full}"
            folder.mkdir()
            sums = some.answers(folder, [[100, 200, 300, 400]] * 3)
            opened = open_sums(some.task, sums[::-1])
            # Noise of scale 1: beyond 40 in no run of 10^16.
            assert np.abs(opened.total - [300, 600, 900, 1200]).max() < 80
            assert {len(path.read_bytes()) for path in folder.glob("*.to_*")} == {
                (folder / "c0.to_0").stat().st_size
            }


def test_what_is_opened_is_a_histogram_with_its_statement(tmp_path, group):
    opened = open_sums(group.task, group.answers(tmp_path, [[100] * 4] * 2))
    found = score_histogram(COUNTS, opened)
    assert np.abs(found.array().ravel() - 200).max() < 80
    statement = found.statement
    assert (statement["epsilon"], statement["unit"], statement["clients"]) == (1.0, "one row", 2)
    assert statement["relation"] == "add_or_remove"
    said = " ".join(statement["not_covered"])
    for words in ("collude", "Timing", "how many clients", "False inputs"):
        assert words in said


class TestUploads:
    def test_of_another_task(self, tmp_path, group):
        again = parties()
        other = Task.model_validate(
            group.task.model_dump() | {"what": COUNTS.model_dump() | {"epsilon": 0.5}}
        )
        upload = make_uploads(other, ONE, group.keys[0])[0]
        assert "of another task" in refused(group, tmp_path, upload)
        assert "of another task" in refused(
            group, tmp_path, make_uploads(again.task, ONE, again.keys[0])[0]
        )

    def test_under_the_header_of_this_task_it_is_altered(self, tmp_path, group):
        other = Task.model_validate(group.task.model_dump() | {"nonce": "7" * 64})
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
            update={"known": frozenset([stranger.public_key().public_bytes_raw()])}
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

    @pytest.mark.parametrize("content", [b"", b"{}", b"synthfair-upload/1\0", b"\xff" * 10**6])
    def test_hostile_files(self, tmp_path, group, content):
        assert "not an upload of this task" in refused(group, tmp_path, content)
        upload = make_uploads(group.task, ONE, group.keys[0])[0]
        assert "bytes" in refused(group, tmp_path, upload[:-1])
        assert "or more" in refused(group, tmp_path, upload + b"\0" * 10)

    def test_folders_and_missing_files(self, tmp_path, group):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(InputError, match="cannot read"):
                receive(group.task, group.secrets[0], [path])

    def test_fewer_clients_than_the_task_asks(self, tmp_path, group):
        sent = group.send(tmp_path, 0, ONE)
        with pytest.raises(InputError, match="of 1 clients; the task asks for 2"):
            receive(group.task, group.secrets[0], sent[:1])

    def test_counts_beyond_the_public_cap_are_not_sent(self, group):
        with pytest.raises(InputError, match="has 1001; must be at most 1000"):
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
        [{"total": (1, 2, 3, 4)}, {"clients": 3}, {"clients_hash": "0" * 64}, {"role": 1}],
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
        signature = group.secrets[role].signing_key.sign(wrong.signed()).hex()
        return wrong.model_copy(update={"signature": signature})

    def test_different_lists_of_clients(self, group, tmp_path):
        """The same clients, one of which has shared twice: the halves do not belong together."""
        sent = [group.send(tmp_path, i, ONE) for i in range(2)]
        again = group.send(tmp_path, 1, ONE, name="again")
        uploads = ([sent[0][0], sent[1][0]], [sent[0][1], again[1]])
        sums = [
            answer(group.task, secret, receive(group.task, secret, paths), tmp_path / "answers")
            for secret, paths in zip(group.secrets, uploads, strict=True)
        ]
        with pytest.raises(InputError, match="saw different uploads"):
            open_sums(group.task, sums)

    @pytest.mark.parametrize("clients", [1, 4])
    def test_other_numbers_of_clients_than_the_task_allows(self, group, sums, clients):
        wrong = [self.signed(group, s, i, clients=clients) for i, s in enumerate(sums)]
        with pytest.raises(InputError, match=f"of {clients} clients; the task asks for 2 to 3"):
            open_sums(group.task, wrong)

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
            read_partial_sum(tmp_path / "sum.json")


class TestAnsweredOnce:
    def test_a_second_answer_is_refused_and_the_first_can_be_copied(self, tmp_path, group):
        first = group.answers(tmp_path, [ONE] * 2)[0]
        with pytest.raises(InputError, match="holds the answer to this task") as caught:
            group.answers(tmp_path, [ONE] * 2)
        record = record_of(group.task, group.secrets[0], tmp_path / "answers")
        assert str(caught.value).startswith(f"{record}: ")
        assert read_partial_sum(record) == first
        assert record.stat().st_mode & 0o077 == 0

    def test_another_task_is_answered(self, tmp_path):
        for _ in range(2):
            parties().answers(tmp_path, [ONE] * 2)

    @pytest.mark.parametrize("moment", ["_noised", "_complete", "_published"])
    def test_kill_9_between_noise_and_answer(self, tmp_path, group, moment):
        """A real process, killed as it draws noise, writes its record, or has written it."""
        write_task(group.task, tmp_path / "task.json")
        (tmp_path / "a.key").write_text(group.secrets[0].model_dump_json())
        for i in range(2):
            group.send(tmp_path, i, ONE)
        code = f"""
import os, pathlib, signal, sys
from synthfair.secure import aggregator
from synthfair.secure import read_aggregator_secret, read_task
folder = pathlib.Path({str(tmp_path)!r})
task, secret = read_task(folder / "task.json"), read_aggregator_secret(folder / "a.key")
received = aggregator.receive(task, secret, sorted(folder.glob("*.to_0")))
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if {moment!r} != "_published":
    setattr(aggregator, {moment!r}, die)
aggregator.answer(task, secret, received, folder / "answers")
die()
"""
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        said = "holds the answer" if moment == "_published" else "begun and not finished"
        received = receive(group.task, group.secrets[0], sorted(tmp_path.glob("*.to_0")))
        with pytest.raises(InputError, match=said):
            answer(group.task, group.secrets[0], received, tmp_path / "answers")
        with pytest.raises(InputError, match=said):
            require_unanswered(group.task, group.secrets[0], tmp_path / "answers")

    def test_the_record_is_there_before_any_noise(self, tmp_path, group, monkeypatch):
        seen = []

        def noise(self, source):
            seen.append(record_of(group.task, group.secrets[0], tmp_path / "answers").exists())
            return np.zeros(4, np.int64)

        monkeypatch.setattr(GroupCounts, "noise", noise)
        group.answers(tmp_path, [ONE] * 2)
        assert seen == [True, True]

    def test_without_a_place_for_the_record_there_is_no_answer(self, tmp_path, group):
        (tmp_path / "answers").write_text("a file")
        with pytest.raises(InputError, match="cannot write"):
            group.answers(tmp_path, [ONE] * 2)


class TestTask:
    def test_is_read_as_written_and_its_id_is_of_all_of_it(self, tmp_path, group):
        write_task(group.task, tmp_path / "task.json")
        assert read_task(tmp_path / "task.json") == group.task
        vector = ClippedVectors(length=3, clip=1.0, step=0.1, rho=1.0)
        changes = [
            {"nonce": "1" * 64},
            {"what": vector.model_dump()},
            {"what": COUNTS.model_dump() | {"schema_hash": "3" * 64}},
            {"aggregators": group.task.aggregators[::-1]},
            {"full_share": 1},
            {"clients": group.task.clients[:2]},
            {"least_clients": 1},
        ]
        others = [Task.model_validate(group.task.model_dump() | change) for change in changes]
        assert len({task.id for task in [group.task, *others]}) == len(changes) + 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"full_share": 2}, "full_share"),
            ({"least_clients": 4}, "least_clients"),
            ({"clients": ["0" * 64] * 2}, "comes twice"),
            ({"clients": ["0" * 63]}, "clients.0"),
            ({"aggregators": []}, "aggregators"),
            ({"what": {"kind": "mean"}}, "what"),
            ({"what": PLAIN | {"kind": "counts", "bins": 2}}, "one bin"),
            ({"what": PLAIN | {"kind": "counts", "epsilon": 0}}, "epsilon"),
            ({"what": PLAIN | {"kind": "counts", "epsilon": "1"}}, "epsilon"),
            ({"what": PLAIN | {"kind": "counts", "rows_per_user": 2}}, "rows_per_user"),
            ({"what": PLAIN | {"kind": "counts", "rows_per_client": 2**40}}, "exact numbers"),
            ({"what": {"kind": "vector", "length": 2, "clip": 1.0, "step": 1e-20, "rho": 1.0}},
             "too fine"),
            ({"more": 1}, "unknown key"),
        ],
    )  # fmt: skip
    def test_files_that_do_not_fit_together(self, tmp_path, group, change, message):
        document = group.task.model_dump(mode="json") | change
        (tmp_path / "task.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match=message):
            read_task(tmp_path / "task.json")

    def test_an_aggregator_twice(self, group):
        one = group.secrets[0].public
        with pytest.raises(InputError, match="keys of its own"):
            make_task(COUNTS, [one, one], group.task.clients, least_clients=1)


class TestKeys:
    def test_are_read_as_written(self, tmp_path):
        public_path, public = make_aggregator_keys(tmp_path / "a.key")
        assert read_aggregator_secret(tmp_path / "a.key").public == public
        assert read_aggregator_keys(public_path) == public
        assert (tmp_path / "a.key").stat().st_mode & 0o077 == 0
        with pytest.raises(InputError, match="exists"):
            make_aggregator_keys(tmp_path / "a.key")
        with pytest.raises(InputError, match="must end in"):
            make_aggregator_keys(tmp_path / "a.pem")

    def test_a_private_key_is_not_taken_for_a_public_one_nor_shown(self, tmp_path, group):
        text = group.secrets[0].model_dump_json()
        (tmp_path / "a.key").write_text(text)
        with pytest.raises(InputError, match="private keys, which stay"):
            read_aggregator_keys(tmp_path / "a.key")
        (tmp_path / "a.key").write_text(text.replace('"format"', '"what"'))
        with pytest.raises(InputError, match="not an aggregator's private keys") as caught:
            read_aggregator_secret(tmp_path / "a.key")
        assert group.secrets[0].signature not in str(caught.value)
        assert group.secrets[0].signature not in repr(group.secrets[0])

    def test_keys_that_do_not_belong_together(self, tmp_path, group):
        one, other = (secret.model_dump(mode="json") for secret in group.secrets)
        (tmp_path / "a.key").write_text(json.dumps(one | {"public": other["public"]}))
        with pytest.raises(InputError, match="not an aggregator's private keys"):
            read_aggregator_secret(tmp_path / "a.key")
