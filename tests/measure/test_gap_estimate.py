"""Intervals that cover as stated, balanced and with a group of one in a hundred; and plans."""

import itertools
import math

import numpy as np
import pytest
from local_clients import draw_clients, estimated
from scipy import stats

from benchmarks.gap.devices import collect
from benchmarks.gap.paper import largest_mean_variance
from synthfair.errors import InputError
from synthfair.measure import plan as planning
from synthfair.measure.estimate import (
    Tally,
    estimate_means,
    gap_interval,
    limits_of_means,
    require_shares,
)
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.plan import (
    best_split,
    gap_variance,
    hardest_means,
    largest_variance,
    plan_gap,
)
from synthfair.privacy.noise import seeded

ALARM = 5e-4
"""False-alarm rate of each test of coverage, if the seed were drawn anew."""


def drawn_tallies(m, clients, shares, means, repeats, *, seed=0):
    """Tallies of M_R, drawn at once: each report is one of 2 d kinds, so they are multinomial."""
    a, q = m.keep, m.change
    kinds = [
        s * a * (1 + bit * m.gain * mean) / 2 + (1 - s) * q / 2
        for s, mean in zip(shares, means, strict=True)
        for bit in (-1, 1)
    ]
    counts = np.random.default_rng(seed).multinomial(clients, kinds, size=repeats)
    for low, high in zip(counts[:, ::2].astype(float), counts[:, 1::2].astype(float), strict=True):
        yield Tally(clients, low + high, high - low, low + high)


def missed(tallies, m, true, confidence):
    """In how many the interval of the first gap does not contain the true one."""
    gaps = [estimated(one, m, confidence=confidence).gaps[0] for one in tallies]
    return sum(not gap.low <= true <= gap.high for gap in gaps)


def chance(missed, n, confidence, alternative="two-sided"):
    return stats.binomtest(int(missed), n, 1 - confidence, alternative=alternative).pvalue


def covered_chance(clients, shares, means, confidence, n):
    m = RandomizedValue(len(shares), 1.0, 1.0)
    tallies = drawn_tallies(m, clients, shares, means, n)
    return chance(missed(tallies, m, means[1] - means[0], confidence), n, confidence)


CASES = [
    (20_000, (0.5, 0.5), (0.8, 0.3)),
    (1_000_000, (0.99, 0.01), (-0.9, 0.8)),
    (20_000, (0.5, 0.5), (-0.9, 0.8)),
    (1_000_000, (0.99, 0.01), (0.8, 0.3)),
    (1_000_000, (0.99, 0.01), (0.0, 0.0)),
    (200_000, (0.6, 0.3, 0.1), (0.5, 0.1, -0.7)),
]


@pytest.mark.parametrize(("clients", "shares", "means"), CASES[:2])
def test_intervals_cover_as_stated(clients, shares, means):
    """Neither too few nor too many; one-sided limits would miss 80 of 800 in place of 40."""
    assert covered_chance(clients, shares, means, 0.95, 800) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize(("clients", "shares", "means"), CASES)
def test_intervals_cover_as_stated_in_all_cases(clients, shares, means, confidence):
    assert covered_chance(clients, shares, means, confidence, 2000) > ALARM


def end_chance(means, epsilon, confidence, n):
    """With a group of 200 of 20,000, hardly a report of which has the other sign. More may be
    covered than stated, as whole reports are counted; not fewer."""
    m, true = best_split("randomized", 2, epsilon), means[1] - means[0]
    tallies = drawn_tallies(m, 20_000, (0.99, 0.01), means, n)
    return chance(missed(tallies, m, true, confidence), n, confidence, "greater")


def test_intervals_cover_at_the_end_of_the_range():
    assert end_chance((0.8, 1.0), 8.0, 0.95, 400) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("epsilon", [4.0, 8.0, 10.0, 16.0])
@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.96), (0.8, 0.99), (-1.0, 1.0)])
def test_intervals_cover_at_the_end_of_the_range_in_all_cases(means, epsilon, confidence):
    assert end_chance(means, epsilon, confidence, 2000) > ALARM


def mean_chance(m, tallies, mean, confidence, n):
    """Of the second group, by the intervals of the means."""
    groups = [estimated(one, m, confidence=confidence).groups[1] for one in tallies]
    wrong = sum(not group.low <= mean <= group.high for group in groups)
    return chance(wrong, n, confidence, "greater")


@pytest.mark.parametrize("mean", [1.0, -1.0])
def test_one_report_of_the_other_sign_does_not_exclude_a_mean_at_the_end(mean):
    """Its number is Poisson's, of mean 0.1. Without the skewness term, one such report moves the
    limit into the range, and 9 % are missed where 1 % may be."""
    m = best_split("randomized", 2, 10.0)
    tallies = drawn_tallies(m, 2000, (0.5, 0.5), (0.8, mean), 400)
    assert mean_chance(m, tallies, mean, 0.99, 400) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [6.0, 8.0, 10.0, 16.0])
@pytest.mark.parametrize("mean", [1.0, 0.99, -0.96])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_intervals_for_means_cover_in_all_cases(epsilon, mean, confidence):
    m, n = best_split("randomized", 2, epsilon), 2000
    for clients, share in ((2000, 0.5), (2000, 0.05), (20_000, 0.01)):
        tallies = drawn_tallies(m, clients, (1 - share, share), (0.8, mean), n)
        assert mean_chance(m, tallies, mean, confidence, n) > ALARM


def laplace_missed(m, shares, means, confidence, n):
    rng, source = np.random.default_rng(1), seeded(1)
    clients = (draw_clients(shares, means, 20_000, rng) for _ in range(n))
    tallies = (collect(m, *some, source) for some in clients)
    return missed(tallies, m, means[1] - means[0], confidence)


def test_intervals_of_laplace_cover_as_stated():
    wrong = laplace_missed(LaplaceValue(2, 2.0, 3.0), (0.9, 0.1), (0.8, 0.3), 0.95, 200)
    assert chance(wrong, 200, 0.95) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.96), (0.8, 0.3)])
@pytest.mark.parametrize("epsilon", [2.5, 6.0, 16.0])
def test_intervals_of_laplace_cover_in_all_cases(means, epsilon, confidence):
    m, n = best_split("laplace", 2, epsilon), 1000
    wrong = laplace_missed(m, (0.99, 0.01), means, confidence, n)
    assert chance(wrong, n, confidence, "greater") > ALARM


def test_the_reports_own_variance_would_be_caught():
    """The planted error: normal intervals with the variance that the reports happen to have."""
    m, n, wrong = best_split("randomized", 2, 10.0), 400, 0
    for one in drawn_tallies(m, 20_000, (0.99, 0.01), (0.8, 1.0), n):
        means = estimate_means(one, m)
        wrong += abs(np.diff(means.values)[0] - 0.2) > 1.96 * means.gap_variance(0, 1) ** 0.5
    assert chance(wrong, n, 0.95, "greater") < ALARM


def interval_with(one, m, shares):
    """The interval of the gap, of 95 %, with shares of the groups that are said to be known."""
    means = estimate_means(one, m, shares)
    return gap_interval(0, 1, means, limits_of_means(one, m, means, 1.96))


@pytest.mark.parametrize("taken_for_known", [False, True])
def test_the_sizes_uncertainty_is_needed(taken_for_known):
    """The planted error: estimated sizes taken for known ones. It covers too rarely."""
    m, n, wrong = RandomizedValue(2, 1.0, 1.0), 400, 0
    for one in drawn_tallies(m, 1_000_000, (0.99, 0.01), (-0.9, 0.9), n):
        shares = estimate_means(one, m).shares.tolist() if taken_for_known else None
        low, high = interval_with(one, m, shares)
        wrong += not low <= 1.8 <= high
    assert (chance(wrong, n, 0.95, "greater") < ALARM) == taken_for_known


def test_known_shares_away_from_the_ends_give_the_normal_interval():
    m, shares = RandomizedValue(2, 1.0, 1.0), (0.6, 0.4)
    (one,) = drawn_tallies(m, 10**7, shares, (0.3, -0.2), 1)
    means = estimate_means(one, m, shares)
    gap, error = np.diff(means.values)[0], means.gap_variance(0, 1) ** 0.5
    normal = gap - 1.96 * error, gap + 1.96 * error
    assert interval_with(one, m, shares) == pytest.approx(normal, abs=0.01 * error)
    assert abs(gap + 0.5) < 4.5 * error


def test_a_group_too_small_to_size_is_left_open_and_still_covered():
    m, n = RandomizedValue(2, 1.0, 1.0), 400
    tallies = list(drawn_tallies(m, 20_000, (0.99, 0.01), (0.8, 0.3), n))
    assert missed(tallies, m, -0.5, 0.95) <= stats.binom(n, 0.05).ppf(1 - ALARM)
    gaps = [estimated(one, m).gaps[0] for one in tallies]
    assert any((gap.low, gap.high) == (-2.0, 2.0) for gap in gaps)


def test_predicted_deviation_is_that_of_simulations():
    """At 4.5 standard errors of a variance, for three gaps: one false alarm in 50,000."""
    m, shares, means, n = RandomizedValue(3, 1.0, 1.0), (0.5, 0.3, 0.2), (0.5, -0.5, 0.9), 1000
    tallies = drawn_tallies(m, 300_000, shares, means, n)
    gaps = np.array([[gap.value for gap in estimated(one, m).gaps] for one in tallies])
    for values, pair in zip(gaps.T, itertools.combinations(range(3), 2), strict=True):
        two = (np.array(part)[list(pair)] for part in (shares, means))
        expected = gap_variance(m, 300_000, *two)
        assert values.var() == pytest.approx(expected, rel=4.5 * math.sqrt(2 / n))


def test_the_hardest_means_are_the_hardest():
    rng = np.random.default_rng(0)
    for _ in range(60):
        shares = rng.dirichlet([2.0, 2.0, 2.0])
        m = RandomizedValue(3, *rng.uniform(0.2, 3, 2))
        means = rng.uniform(-1, 1, 3)
        squares = rng.uniform(means**2, 1)
        some = gap_variance(m, 1, shares[:2], means[:2], squares[:2])
        assert some <= largest_variance(m, shares[:2], 1) * (1 + 1e-9)


def test_the_hardest_means_are_found_on_edges():
    """One mean at the end of its range, and the other in between: no corner would do."""
    m, shares = RandomizedValue(3, 1.1838, 4.4922), np.array([0.2436, 0.7505])
    found = {tuple(v): gap_variance(m, 1, shares, v) for v in hardest_means(m, shares)}
    hardest = max(found, key=lambda means: found[means])
    assert 0 < min(map(abs, hardest)) < 1


def test_every_two_groups_are_compared_and_add_up():
    m = RandomizedValue(4, 2.0, 2.0)
    (one,) = drawn_tallies(m, 10**6, (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4), 1)
    gaps = {gap.first + gap.second: gap.value for gap in estimated(one, m).gaps}
    assert list(gaps) == list(map("".join, itertools.combinations("abcd", 2)))
    assert gaps["ab"] + gaps["bd"] == pytest.approx(gaps["ad"])


def test_intervals_are_narrower_than_those_of_chebyshev():
    """Theorem 5.4 of the paper, with the largest variance that any values can have."""
    m = RandomizedValue(2, 1.0, 1.0)
    variance = largest_mean_variance(m, np.full(2, 5e5), 1e6).sum()
    for one in drawn_tallies(m, 10**6, (0.5, 0.5), (0.1, 0.2), 20):
        gap = estimated(one, m).gaps[0]
        assert gap.high - gap.low < math.sqrt(variance / 0.05)


def test_impossible_requests_are_refused():
    m = RandomizedValue(2, 1.0, 1.0)
    (one,) = drawn_tallies(m, 1000, (0.5, 0.5), (0.1, 0.2), 1)
    with pytest.raises(InputError, match="confidence = 1"):
        estimated(one, m, confidence=1.0)
    for shares in ([0.5, 0.6], [1.0]):
        with pytest.raises(InputError, match="must be 2 positive numbers of sum 1"):
            require_shares(shares, 2)


class TestPlan:
    def test_planned_clients_give_the_precision(self):
        plan = plan_gap((0.7, 0.3), epsilon=1.0, precision=0.1)
        assert plan.mechanism.epsilon <= 1.0
        widths = []
        for means in ((0.0, 0.0), (1.0, -1.0), (0.9, 0.8)):
            (one,) = drawn_tallies(plan.mechanism, plan.clients, (0.7, 0.3), means, 1)
            gap = estimated(one, plan.mechanism).gaps[0]
            widths.append(max(gap.high - gap.value, gap.value - gap.low))
        assert max(widths) == pytest.approx(0.1, rel=0.05)

    def test_those_without_a_value_are_not_compared(self):
        """The hardest gap is that of the two that are, however few the others."""
        shares, wanted = (0.45, 0.45, 0.1), {"epsilon": 1.0, "precision": 0.1}
        some = plan_gap(shares, compared=(0, 1), **wanted)
        every = plan_gap(shares, **wanted)
        assert some.clients < every.clients / 5
        assert some.mechanism.groups == 3
        with pytest.raises(InputError, match="at least 2 are needed"):
            plan_gap(shares, compared=(0,), **wanted)

    def test_two_give_the_third_and_back(self):
        design = {"shares": (0.5, 0.5), "confidence": 0.99}
        plan = plan_gap(**design, epsilon=2.0, precision=0.05)
        again = plan_gap(**design, clients=plan.clients, precision=0.05)
        assert again.mechanism.epsilon == pytest.approx(2.0, rel=2e-3)
        least = plan_gap(**design, clients=plan.clients, epsilon=2.0)
        assert least.precision == pytest.approx(0.05, rel=1e-3)

    def test_no_epsilon_makes_up_for_few_clients(self):
        with pytest.raises(InputError, match="no finite epsilon gives it with 100000 clients"):
            plan_gap((0.5, 0.5), clients=100_000, precision=0.001)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
    def test_an_epsilon_that_is_none_is_refused(self, epsilon):
        with pytest.raises(InputError, match="epsilon"):
            plan_gap((0.5, 0.5), clients=100, epsilon=epsilon)

    @pytest.mark.parametrize(
        ("kind", "said"),
        [("randomized", "M_R sends one bit"), ("laplace", "a sample; even without")],
    )
    def test_the_reason_is_that_of_the_mechanism(self, kind, said):
        with pytest.raises(InputError, match=said):
            plan_gap((0.5, 0.5), kind=kind, clients=100, precision=0.001)

    def test_hundreds_of_groups_are_planned_by_two(self, monkeypatch):
        """All their pairs would take hours."""
        sizes, expected_tally = set(), planning.expected_tally

        def sized(mechanism, clients, shares, *more):
            sizes.add(len(shares))
            return expected_tally(mechanism, clients, shares, *more)

        monkeypatch.setattr(planning, "expected_tally", sized)
        plan = plan_gap([1 / 500] * 500, clients=10**9, epsilon=2.0)
        assert plan.precision < 2
        assert sizes == {2}

    def test_a_plan_of_several_groups_is_that_of_their_smallest(self):
        plan = plan_gap((0.1, 0.6, 0.3), clients=10**6, epsilon=2.0)
        expected = plan_gap((0.3, 0.1, 0.6), clients=10**6, epsilon=2.0)
        assert plan == expected
        widths = []
        for means in ((0, 0.3, 0), (1, 0.3, -1), (1, 0.3, 1), (1, 0.3, 0), (0, 0.3, 1)):
            (one,) = drawn_tallies(plan.mechanism, 10**6, (0.1, 0.6, 0.3), means, 1)
            gap = estimated(one, plan.mechanism).gaps[1]
            widths.append(max(gap.high - gap.value, gap.value - gap.low))
        assert max(widths) == pytest.approx(plan.precision, rel=0.05)
