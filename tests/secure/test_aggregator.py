"""An aggregator answers once; the answers open to the total, and nothing else does."""

import sys

import numpy as np
import pytest
from secure_task import COUNTS, PLAIN, parties

from synthfair import secure
from synthfair.errors import InputError
from synthfair.privacy.noise import seeded
from synthfair.release.keys import sign_bytes
from synthfair.secure.aggregator import PARTIAL_SUM_DOMAIN, noisy_total, record_of
from synthfair.secure.task import OWNER

ONE = np.array([1, 2, 3, 4])


@pytest.fixture(scope="module")
def group():
    return parties()


@pytest.fixture(scope="module")
def sums(group, tmp_path_factory):
    return group.answers(tmp_path_factory.mktemp("sums"), [ONE] * 2)


# What the answers open to


@pytest.mark.parametrize("aggregators", [2, 3])
def test_opened_sum_is_exact_but_for_the_noise(tmp_path, monkeypatch, aggregators):
    monkeypatch.setattr(secure.GroupCounts, "noise", lambda *_: np.zeros(4, np.int64))
    some = parties(aggregators=aggregators)
    opened = secure.open_sums(some.task, some.answers(tmp_path, [ONE, 2 * ONE, 7 * ONE])[::-1])
    assert opened.total.tolist() == [10, 20, 30, 40]
    assert set(opened.clients) == {key.public_key().public_bytes_raw().hex() for key in some.keys}


def test_opened_sum_is_a_histogram_with_its_guarantee(group, sums):
    opened, zero = secure.open_sums(group.task, sums), [np.zeros(4, np.int64)]
    totals = opened, secure.noisy_sum(zero, COUNTS)
    found, simulated = (secure.score_histogram(COUNTS, total) for total in totals)
    holds = COUNTS.guarantee(2)
    assert (holds.epsilon, holds.unit, holds.relation) == (1.0, "row", "add_or_remove")
    assert (holds.adversary, holds.aggregators, holds.delta) == ("all_but_one", 2, 0.0)
    assert found.origin.guarantees == (holds,)
    assert simulated.origin.guarantees == (holds.model_copy(update={"simulated": True}),)
    assert (found.origin.clients, simulated.origin.clients) == (2, 1)
    assert found.variance == pytest.approx(2 * 1.84135, rel=1e-4)
    what = secure.GroupCounts(**PLAIN | {"model": "1" * 64, "bins": 3})
    binned = secure.score_histogram(what, opened._replace(total=np.arange(12)))
    assert (binned.array().ravel().tolist(), binned.model) == ([*range(12)], "1" * 64)
    assert (binned.schema_hash, binned.groups) == (what.schema_hash, what.groups)
    repeatable = secure.noisy_sum(zero, COUNTS, source=seeded(0))
    assert secure.score_histogram(COUNTS, repeatable).origin.guarantees == (None,)
    with pytest.raises(InputError, match="none"):
        secure.noisy_sum([], COUNTS)


def test_total_of_the_largest_entries_does_not_wrap():
    """Where a floating-point number is 256 away from the next; without noise."""
    what = secure.ClippedVectors(length=1, clip=2.0**39, step=1.0, rho=None)
    most = what.entries[1]
    assert secure.noisy_sum([np.array([most])] * 4, what).total.tolist() == [4 * most]
    assert secure.noisy_sum([np.array([7 - most])] * 4, what).total.tolist() == [28 - 4 * most]


@pytest.mark.parametrize("place", range(3))
def test_total_beyond_what_rows_and_noise_can_make_is_refused(place):
    """One by one, and all together."""
    one, all_four = COUNTS.noise_bound(2), COUNTS.noise_bound(8)
    total = np.array([-one, 2000 + one, all_four])
    noisy_total(COUNTS, np.append(total, 0), aggregators=2, clients=("a", "b"))
    total[place] += (-1, 1, 1)[place]
    with pytest.raises(InputError, match="2 clients and the noise"):
        noisy_total(COUNTS, np.append(total, 0), aggregators=2, clients=("a", "b"))


def signed(group, partial, role, **change):
    """What the aggregator itself would sign."""
    wrong = partial.model_copy(update=change)
    key = group.secrets[role].signing_key
    signature = sign_bytes(PARTIAL_SUM_DOMAIN, wrong.signed_bytes(), key).hex()
    return wrong.model_copy(update={"signature": signature})


def test_sums_of_other_aggregators_or_another_task_are_not_opened(group, sums):
    for some in (sums[:1], [sums[0], sums[0]], []):
        with pytest.raises(InputError, match="one of each"):
            secure.open_sums(group.task, some)
    with pytest.raises(InputError, match="of another task"):
        secure.open_sums(parties().task, sums)


ALTERED = [({}, "altered"), ({"clients": ("1" * 64, "2" * 64)}, "altered"),
           ({"clients_hash": "0" * 64}, "altered"), ({"role": 1}, "altered"),
           ({"role": 2}, "4, of one of 2"), ({"total": (1,)}, "4, of one of 2")]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), ALTERED)
def test_sum_that_was_altered_is_not_opened(group, sums, change, said):
    first, *others = sums[0].total
    change = change or {"total": ((first + 2**63) % 2**64, *others)}
    some = [sums[0].model_copy(update=change), sums[1]]
    with pytest.raises(InputError, match=f"a.json: .*{said}"):
        secure.open_sums(group.task, some, sources=["a.json", "b.json"])


def test_sum_other_than_its_aggregator_had_committed_to_is_not_opened(group, sums):
    """The last to answer has known what it wanted the total to be."""
    published = [one.commitment for one in sums]
    secure.open_sums(group.task, sums[::-1], commitments=published)
    first, *others = sums[1].total
    chosen = [sums[0], signed(group, sums[1], 1, total=((first + 1) % 2**64, *others))]
    secure.open_sums(group.task, chosen)
    for some, hashes in ((chosen, published), (sums, published[:1]), (sums, published[::-1])):
        with pytest.raises(InputError, match="commitments"):
            secure.open_sums(group.task, some, commitments=hashes)
    same = sums[0].model_copy(update={"signature": "0" * 128})  # which nobody else can guess
    assert same.commitment != sums[0].commitment


def test_sums_of_different_uploads_are_not_opened(group, sums, tmp_path):
    """The same clients, one of which has shared twice: the halves do not belong together."""
    sent = [group.send(tmp_path, i, ONE)[0] for i in range(2)]
    again = [sent[0], group.send(tmp_path, 1, ONE, name="again")[0]]
    received = (secure.receive(group.task, group.secrets[0], s) for s in (sent, sent[::-1], again))
    hashes = {one.clients_hash for one in received}
    assert len(hashes) == 2  # in any order
    other = signed(group, sums[0], 0, clients_hash=hashes.pop())
    with pytest.raises(InputError, match="different uploads"):
        secure.open_sums(group.task, [other, sums[1]])


def test_sums_of_other_clients_than_the_task_allows_are_not_opened(group, sums):
    """Too few, one twice, and one that the task does not know."""
    first, *_ = known = group.task.clients
    for clients in (known[:1], (first, first, first), (*known[:2], "0" * 64)):
        wrong = [signed(group, s, i, clients=clients) for i, s in enumerate(sums)]
        with pytest.raises(InputError, match=f"of {len(clients)} clients; .* 2 to 3"):
            secure.open_sums(group.task, wrong)


# One answer


def test_task_is_answered_once_and_another_anew(tmp_path, group):
    first = group.answers(tmp_path, [ONE] * 2)[0]
    assert group.answers(tmp_path, [2 * ONE] * 2)[0] == first
    record = record_of(group.task, group.secrets[0], group.records(tmp_path))
    assert record.stat().st_mode & 0o077 == 0
    again = secure.SumTask.model_validate(group.task.model_dump() | {"nonce": "5" * 64})
    assert group._replace(task=again).answers(tmp_path, [ONE] * 2)[0].total != first.total


def test_answer_that_ended_at_its_noise_is_given_later(tmp_path, group, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(secure.GroupCounts, "noise", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            group.answers(tmp_path, [ONE] * 2)
    first, again = (group.answers(tmp_path, [ONE] * 2) for _ in range(2))
    assert first == again


def test_answer_is_only_in_the_folder_that_was_made_with_the_key(tmp_path, group):
    """Not in a lost one that was made anew by hand, nor in that of another key."""
    other = group.records(tmp_path, 1)
    received = secure.UploadSum(np.zeros(4, np.uint64), ("1" * 64,), "0" * 64)
    for folder in (tmp_path / "none", tmp_path, other):
        with pytest.raises(InputError, match=f"^{folder}: "):
            secure.answer(group.task, group.secrets[0], received, folder)
    assert [path.name for path in other.iterdir()] == [OWNER]
