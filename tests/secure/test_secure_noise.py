"""What the opened sum and each aggregator see: shares, noise, and an audit of epsilon.

Statistical tests fail by chance once in 10^6, and reject planted bugs.
"""

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from builders import make_schema, make_table
from scipy import stats
from secure_task import COUNTS, PLAIN, parties

import synthfair as sf
from synthfair.errors import InputError
from synthfair.privacy.noise import discrete_laplace, seeded, system_entropy
from synthfair.secure import (
    ClippedVectors,
    GroupCounts,
    RowSums,
    count_table,
    make_uploads,
    noisy_sum,
    open_sums,
)
from synthfair.secure.aggregator import noisy_total, score_histogram
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import MAX_FALSE_ALARM

ALARM = 1e-6

TEN = tuple("abcdefghij")
WIDE = GroupCounts(
    **PLAIN | {"groups": TEN, "model": "1" * 64, "bins": 1000, "rows_per_client": 10**7}
)
"""20,000 counts with noise of scale 1: as many independent runs of a task of one count."""


def noise_p_value(noise, draw, scale=1):
    """Chi-squared of noise against a distribution, given as a function of samples drawn exactly."""
    reference = draw(200_000)
    edge = 4 * scale
    cells = np.arange(-edge, edge + 1)
    counts = [[np.sum(np.clip(x, -edge, edge) == c) for c in cells] for x in (noise, reference)]
    return stats.chi2_contingency(np.array(counts)).pvalue


def one_laplace(n):
    return discrete_laplace(Fraction(1), n)


def two_laplaces(n):
    return one_laplace(n) + one_laplace(n)


def half_of_two(n):
    return discrete_laplace(Fraction(1, 2), n) + discrete_laplace(Fraction(1, 2), n)


class TestShares:
    def test_messages_of_one_length_and_of_two_and_three_roles(self):
        for roles in (2, 3):
            sharing = Sharing(bytes(32), 6, roles)
            vector = np.array([0, 1, -1, 2**63 - 1, -(2**63), 7])
            messages = sharing.split(vector)
            assert {len(message) for message in messages} == {48}
            shares = [sharing.share(m, role) for role, m in enumerate(messages)]
            assert sum(shares).view(np.int64).tolist() == vector.tolist()

    def test_a_vector_shorter_than_a_seed(self):
        sharing = Sharing(bytes(32), 1, 2)
        messages = sharing.split(np.array([5]))
        assert [len(message) for message in messages] == [32, 32]
        assert sum(sharing.share(m, r) for r, m in enumerate(messages)).tolist() == [5]

    @pytest.mark.parametrize("role", [0, 1])
    def test_shares_are_uniform_whatever_the_vector(self, role):
        """All bits of a share of a constant vector, a byte in 256 cells, are equally frequent."""
        sharing = Sharing(bytes(32), 8000, 2)
        share = sharing.share(sharing.split(np.full(8000, 3))[role], role)
        for byte in share.view(np.uint8).reshape(-1, 8).T:
            assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > ALARM
        assert stats.chisquare(np.bincount(np.full(8000, 3), minlength=256)).pvalue < ALARM

    def test_a_share_says_nothing_of_the_vector(self):
        """The same seeds with another vector change nothing at the role of the seed, and all of
        the full share by the difference alone, which another seed would hide."""
        sharing = Sharing(bytes(32), 50, 2)
        one, other = (sharing.split(np.full(50, v), seeded(1)) for v in (1, 9))
        assert one[1] == other[1]
        fresh = sharing.split(np.full(50, 1))
        assert len(set(sharing.share(fresh[0], 0)) & set(sharing.share(one[0], 0))) == 0

    def test_another_task_or_role_expands_a_seed_otherwise(self):
        message = bytes(32) + bytes(16)
        shares = [
            Sharing(task, 6, 3).share(message, role).tolist()
            for task in (bytes(32), b"\1" * 32)
            for role in (1, 2)
        ]
        assert len({tuple(share) for share in shares}) == 4

    @pytest.mark.parametrize("message", [b"", bytes(47), bytes(49), bytes(32) + b"\1" * 16])
    def test_other_lengths_and_other_padding_are_refused(self, message):
        with pytest.raises(InputError, match="bytes inside"):
            Sharing(bytes(32), 6, 2).share(message, 1)

    @pytest.mark.parametrize("vector", [np.zeros(5, np.int64), np.zeros(6), np.zeros(6, np.uint64)])
    def test_other_vectors_are_refused(self, vector):
        with pytest.raises(ValueError, match="must be int64"):
            Sharing(bytes(32), 6, 2).split(vector)


class TestNoise:
    @pytest.mark.parametrize(
        ("aggregators", "right", "wrong"),
        [
            (2, two_laplaces, one_laplace),
            (2, two_laplaces, half_of_two),
            (2, two_laplaces, lambda n: 2 * one_laplace(n)),
            (3, lambda n: two_laplaces(n) + one_laplace(n), two_laplaces),
        ],
    )
    def test_the_opened_sum_has_the_noise_of_every_aggregator(self, aggregators, right, wrong):
        zero = np.zeros(WIDE.length, np.int64)
        found = noisy_sum([zero] * 2, WIDE, aggregators=aggregators)
        assert noise_p_value(found.total, right) > ALARM
        assert noise_p_value(found.total, wrong) < ALARM
        assert found.variance == pytest.approx(aggregators * 1.84135, rel=1e-4)

    def test_a_corrupt_aggregator_that_takes_off_its_noise_sees_the_others(self, tmp_path):
        """By files; the noise that is left is one aggregator's, of full scale."""
        group, secret = parties(WIDE), seeded(5)
        vectors = np.random.default_rng(0).integers(0, 100, (3, WIDE.length))
        sums = group.answers(tmp_path, vectors, [secret, system_entropy])
        left = open_sums(group.task, sums).total - vectors.sum(axis=0) - WIDE.noise(seeded(5))
        assert noise_p_value(left, one_laplace) > ALARM
        assert noise_p_value(left, two_laplaces) < ALARM

    def test_more_rows_a_user_need_more_noise(self):
        for m in (1, 4):
            assert GroupCounts(**PLAIN, unit="user", rows_per_user=m).scale == m
        assert GroupCounts(**PLAIN | {"epsilon": 0.1}).scale == 10  # the decimal, not its float

    def test_vectors_have_gaussian_noise_of_the_stated_variance(self):
        what = ClippedVectors(length=20_000, clip=1.0, step=0.01, rho=0.5)
        sensitivity = 100 + 20_000**0.5 / 2
        found = noisy_sum([np.zeros(20_000, np.int64)], what)
        spread = (2 * sensitivity**2) ** 0.5
        assert stats.kstest(found.total / spread, "norm").pvalue > ALARM
        assert stats.kstest(found.total / spread * 1.1, "norm").pvalue < ALARM
        assert found.variance == pytest.approx(spread**2, rel=1e-4)


def audited_epsilon(view, neighbours_view):
    """A lower bound of epsilon that holds but for a chance of 10^-6, by Clopper and Pearson.

    Of the event "at least 1", the likeliest of those whose chances differ most between a count
    without and with a further row.
    """
    n = len(view)
    hits = [int(np.sum(x >= 1)) for x in (view, neighbours_view)]
    high = stats.beta.ppf(1 - ALARM / 2, hits[0] + 1, n - hits[0])
    low = stats.beta.ppf(ALARM / 2, hits[1], n - hits[1] + 1) if hits[1] else 0.0
    return np.log(low / high) if low > 0 else -np.inf


def attack(folder, noise_of_the_honest):
    """Views of a corrupt aggregator, of a sum and of one with a row more in every count."""
    views = []
    for name, row in (("without", 0), ("with", 1)):
        place = folder / name
        place.mkdir()
        group, corrupt = parties(WIDE, clients=2), seeded(7)
        vectors = [np.zeros(WIDE.length, np.int64), np.full(WIDE.length, row)]
        opened = open_sums(
            group.task, group.answers(place, vectors, [corrupt, noise_of_the_honest()])
        ).total
        views.append(opened - WIDE.noise(seeded(7)))
    return views


class TestAudit:
    def test_membership_stays_below_the_claimed_epsilon(self, tmp_path):
        found = audited_epsilon(*attack(tmp_path, lambda: system_entropy))
        assert 0.85 < found < 1.0  # and the attack is nearly the best there is

    def test_noise_shared_by_both_is_caught(self, tmp_path):
        """The corrupt one then knows the noise of both: nothing is left to hide a row."""
        view, other = attack(tmp_path, lambda: seeded(7))
        known = WIDE.noise(seeded(7))
        assert audited_epsilon(view - known, other - known) > 5

    @pytest.mark.parametrize("factor", [0, 2])
    def test_noise_left_out_or_halved_is_caught(self, tmp_path, monkeypatch, factor):
        def weak(self, source):
            scale = Fraction(1, factor or 1)
            return (factor > 0) * discrete_laplace(scale, self.length, source)

        monkeypatch.setattr(GroupCounts, "noise", weak)
        assert audited_epsilon(*attack(tmp_path, lambda: system_entropy)) > 1.7


class TestTotals:
    def test_at_both_ends_of_what_a_total_may_be(self, monkeypatch):
        """Just inside, where a floating-point number is 256 away from the next; without noise."""
        monkeypatch.setattr(RowSums, "noise", lambda what, *_: np.zeros(what.length, np.int64))
        what = ROWS.model_copy(update={"clients": 4})
        most = what.entries[1]
        found = noisy_sum([np.array([-most, 7 - most, most - 7, most])] * 4, what)
        wanted = np.array([-(2**61), 28 - 2**61, 2**61 - 28, 2**61])
        assert found.total.tolist() == wanted.tolist()

    def test_negative_counts_open_as_such(self):
        found = noisy_sum([np.zeros(WIDE.length, np.int64)], WIDE)
        assert found.total.min() < 0

    @pytest.mark.parametrize("entry", [-60, 2060, 2**40])
    def test_totals_that_cannot_be_are_refused(self, entry):
        total = np.array([0, 5, 10, 0])
        noisy_total(COUNTS, total, aggregators=2, clients=("a", "b"))
        total[3] = entry
        with pytest.raises(InputError, match="2 clients and the noise can make"):
            noisy_total(COUNTS, total, aggregators=2, clients=("a", "b"))

    def test_too_many_rows_in_all_are_refused(self):
        with pytest.raises(InputError, match="rows in all"):
            noisy_total(COUNTS, np.array([600] * 4), aggregators=2, clients=("a", "b"))

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
    def test_the_noise_bound_holds_and_is_not_idle(self, epsilon):
        """Against the distribution of the sum of two, by convolution."""
        what = GroupCounts(**PLAIN | {"epsilon": epsilon})
        k = np.arange(-3000, 3001)
        one = np.exp(-epsilon * np.abs(k)) * np.tanh(epsilon / 2)
        tail = 2 * np.cumsum(np.convolve(one, one)[::-1])[::-1]  # P(|sum| >= k) from k = 1
        bound, middle = what.noise_bound(2), 6000
        assert tail[middle + bound + 1] <= MAX_FALSE_ALARM / what.length < tail[middle + bound // 2]

    def test_there_must_be_parts(self):
        with pytest.raises(InputError, match="none"):
            noisy_sum([], COUNTS)

    def test_with_noise_that_others_may_know_nothing_is_claimed(self):
        found = noisy_sum([np.zeros(4, np.int64)], COUNTS, source=seeded(0))
        assert (found.seeded, found.simulated) == (True, True)
        assert score_histogram(COUNTS, found).origin.guarantees == (None,)
        found = noisy_sum([np.zeros(4, np.int64)], COUNTS)
        (guarantee,) = score_histogram(COUNTS, found).origin.guarantees
        assert (guarantee.epsilon, guarantee.adversary) == (1.0, "all_but_one")


SHORT = ClippedVectors(length=4, clip=10.0, step=1.0, rho=1.0)  # norm at most 11 = 10 + sqrt(4) / 2
ROWS = RowSums(
    config=sf.SurrogateConfig(epsilon=1.0, delta=1e-6),
    table_schema=make_schema(),
    name="histograms",
    length=4,
    clients=2,
)
MOST = ROWS.entries[1]

LEAST = np.iinfo(np.int64).min
"""Which is its own absolute value."""


class TestParts:
    """What the guarantee rests on is required of every part, also of those made by other code."""

    @pytest.mark.parametrize(
        ("what", "vector"),
        [(COUNTS, [1000, 0, 0, 0]), (SHORT, [11, 0, 0, 0]), (ROWS, [-MOST, MOST, 0, 0])],
    )
    def test_up_to_the_bounds_they_pass(self, what, vector):
        noisy_sum([np.array(vector)], what)
        group = parties(what, clients=2)
        assert len(make_uploads(group.task, np.array(vector), group.keys[0])) == 2

    @pytest.mark.parametrize(
        ("what", "vector", "message"),
        [
            (COUNTS, [-1, 0, 0, 0], "from -1 to 0; must be from 0 to 1000"),
            (COUNTS, [LEAST, 0, 0, 0], "must be from 0"),
            (COUNTS, [0, 0, 0, 2**60], "must be from 0 to 1000"),
            (COUNTS, [500, 500, 1, 0], "counts 1001 rows; must be at most 1000"),
            (SHORT, [11, 1, 0, 0], "norm is above the square root of 121"),
            (SHORT, [-6, 6, -6, 6], "norm is above"),
            (SHORT, [LEAST, 0, 0, 0], "norm is above"),
            (ROWS, [0, 0, 0, -MOST - 1], f"from {-MOST - 1} to 0; must be from {-MOST} to {MOST}"),
            (ROWS, [0, 0, 0, MOST + 1], f"must be from {-MOST} to {MOST}"),
            (ROWS, [LEAST, 0, 0, 0], f"must be from {-MOST} to {MOST}"),
        ],
    )
    def test_beyond_they_are_refused(self, what, vector, message):
        group = parties(what, clients=2)
        with pytest.raises(InputError, match=message):
            noisy_sum([np.array(vector)], what)
        with pytest.raises(InputError, match=message):
            make_uploads(group.task, np.array(vector), group.keys[0])

    def test_norms_beyond_floating_point_are_exact(self):
        """Of about 2^78, floats miss what is below 2^25; here it is less than 2^21."""
        what = ClippedVectors(length=2, clip=2.0**39, step=1.0, rho=1.0)
        edge = math.isqrt(what.largest_square)
        rest = math.isqrt(what.largest_square - edge**2)
        what.require_part(np.array([edge, rest]))
        with pytest.raises(InputError, match="norm is above"):
            what.require_part(np.array([edge, rest + 1]))


class TestCounting:
    what = GroupCounts(**PLAIN | {"schema_hash": make_schema().hash, "groups": ("a", "b")})

    def test_a_row_more_is_one_more_in_one_count(self):
        table = make_table(50)
        all_, fewer = (count_table(self.what, t, make_schema()) for t in (table, table.iloc[1:]))
        assert sorted(all_ - fewer) == [0, 0, 0, 1]
        assert all_.sum() == 50
        mask = (table["town"] == "b") & (table["paid"] == "yes")
        assert all_[3] == mask.sum()

    def test_scores_are_binned_by_the_model(self):
        model = SimpleNamespace(sha256="1" * 64, scores=lambda x, s: np.where(s == 1, 5.0, -5.0))
        what = GroupCounts(**self.what.model_dump() | {"model": "1" * 64, "bins": 10})
        counts = count_table(what, make_table(50), make_schema(), model=model).reshape(2, 2, 10)
        assert counts[0, :, 0].sum() + counts[1, :, 9].sum() == 50

    def test_excess_rows_of_a_user_are_left_out(self):
        table = make_table(50).assign(id=["a"] * 30 + ["b"] * 2 + ["c"] * 18)
        what = GroupCounts(**self.what.model_dump() | {"unit": "user", "rows_per_user": 5})
        counts = count_table(what, table, make_schema(), user_column="id")
        assert counts.sum() == 5 + 2 + 5
        shares = [count_table(self.what, own.drop(columns="id"), make_schema())
                  for _, own in table.groupby("id")]  # fmt: skip
        assert (counts <= np.sum([np.minimum(share, 5) for share in shares], axis=0)).all()

    @pytest.mark.parametrize(
        ("change", "keywords", "message"),
        [
            ({"schema_hash": "2" * 64}, {}, "schema .*; the task's is 2222"),
            ({"groups": ("b", "a")}, {}, r"groups \('a', 'b'\); the task's is \('b', 'a'\)"),
            ({"groups": ("a", "b", "c")}, {}, "groups .*; the task's is"),
            ({"model": "1" * 64, "bins": 9}, {}, r"model \(none\); the task's is 1111"),
            ({"unit": "user"}, {}, "needs a user column"),
            ({}, {"user_column": "town"}, "takes no user column"),
            ({"rows_per_client": 49}, {}, "rows.csv: 50 rows that count; the task allows 49"),
        ],
    )
    def test_what_does_not_fit_the_task_is_refused(self, change, keywords, message):
        what = GroupCounts(**self.what.model_dump() | change)
        with pytest.raises(InputError, match=message):
            count_table(what, make_table(50), make_schema(), source="rows.csv", **keywords)


class TestVectors:
    what = ClippedVectors(length=100, clip=1.0, step=1e-3, rho=1.0)

    def test_rounding_stays_within_the_sensitivity(self):
        """At the clip, and at the worst rounding: every entry half a step up."""
        rng = np.random.default_rng(0)
        worst = np.full(100, 0.0995 + 5e-4)
        for vector in (rng.normal(size=100), worst, -1e100 * worst, np.eye(100)[0] * 7):
            integers = self.what.integers(vector)
            assert (integers.astype(object) ** 2).sum() <= self.what.largest_square
            norm = max(np.linalg.norm(vector), 1.0)
            assert integers * self.what.step == pytest.approx(vector / norm, abs=6e-4)

    def test_without_a_norm_it_is_0(self):
        assert not self.what.integers(np.full(100, np.nan)).any()
        assert not self.what.integers(np.full(100, np.inf)).any()

    def test_replacing_costs_four_times_the_variance(self):
        replaced = ClippedVectors(length=100, clip=1.0, step=1e-3, rho=1.0, relation="replace")
        assert replaced.variance == 4 * self.what.variance
        assert self.what.variance == Fraction(1005**2, 2)

    def test_a_sum_is_the_plain_one_within_rounding_and_noise(self):
        rng = np.random.default_rng(1)
        vectors = 0.05 * rng.normal(size=(20, 100))
        found = noisy_sum(map(self.what.integers, vectors), self.what)
        error = found.total * self.what.step - vectors.sum(axis=0)
        assert np.abs(error).max() < 5.5 * 1e-3 * found.variance**0.5 + 20 * 5e-4
