"""Intervals that cover as stated, balanced and with a group of one in a hundred; and the rest."""

import itertools
import math
import time
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from synthfair.errors import InputError
from synthfair.measure.estimate import Interval, estimate_gaps
from synthfair.measure.magnitude import unfolded
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.plan import plan_clients, plan_epsilon, plan_precision, setting
from synthfair.measure.simulate import population, simulate_gaps
from synthfair.measure.split import best_split
from synthfair.measure.tally import CHUNK, Tally
from synthfair.measure.variance import (
    Population,
    gap_variance,
    hardest_populations,
    largest_variance,
)


def drawn_tallies(m, clients, shares, means, repeats, *, seed=0):
    """Tallies of M_R, drawn at once: each report is one of 2 d kinds, so they are multinomial."""
    a, q = m.keep, m.move
    kinds = [
        s * a * (1 + bit * m.gain * mean) / 2 + (1 - s) * q / 2
        for s, mean in zip(shares, means, strict=True)
        for bit in (-1, 1)
    ]
    counts = np.random.default_rng(seed).multinomial(clients, kinds, size=repeats)
    for low, high in zip(counts[:, ::2].astype(float), counts[:, 1::2].astype(float), strict=True):
        yield Tally(float(clients), low + high, high - low, low + high)


def missed(tallies, m, true, confidence):
    gaps = [estimate_gaps(told, m, confidence=confidence).gaps[0] for told in tallies]
    return sum(not gap.interval.low <= true <= gap.interval.high for gap in gaps)


CASES = [
    (20_000, (0.5, 0.5), (0.8, 0.3)),
    (20_000, (0.5, 0.5), (-0.9, 0.8)),
    (1_000_000, (0.99, 0.01), (0.8, 0.3)),
    (1_000_000, (0.99, 0.01), (-0.9, 0.8)),
    (1_000_000, (0.99, 0.01), (0.0, 0.0)),
    (200_000, (0.6, 0.3, 0.1), (0.5, 0.1, -0.7)),
]


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize(("clients", "shares", "means"), CASES)
def test_intervals_cover_as_stated(clients, shares, means, confidence):
    """Neither too few nor too many: 1,000 of each, one false alarm in 2,000 were the seed new."""
    m, n = RandomizedValue(len(shares), 1.0, 1.0), 1000
    found = missed(drawn_tallies(m, clients, shares, means, n), m, means[1] - means[0], confidence)
    assert stats.binomtest(found, n, 1 - confidence).pvalue > 5e-4


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("epsilon", [4.0, 8.0, 10.0])
@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.96), (-1.0, 1.0)])
def test_intervals_cover_at_the_end_of_the_range(means, epsilon, confidence):
    """A group of 200 of 20,000, hardly a report of which has the other sign. More may be covered
    than stated, as whole reports are counted; not fewer: one false alarm in 2,000."""
    m, n = best_split("randomized", 2, epsilon), 1000
    found = missed(
        drawn_tallies(m, 20_000, (0.99, 0.01), means, n), m, means[1] - means[0], confidence
    )
    assert stats.binomtest(found, n, 1 - confidence, alternative="greater").pvalue > 5e-4


@pytest.mark.parametrize("epsilon", [6.0, 16.0])
@pytest.mark.parametrize("means", [(0.8, 1.0), (0.8, 0.96)])
def test_intervals_of_laplace_cover_at_the_end_of_the_range(means, epsilon):
    m, people, n = best_split("laplace", 2, epsilon), population((0.99, 0.01), means), 400
    (found,) = simulate_gaps(m, people, clients=20_000, repeats=n, seed=1)
    missed = n - round(n * found.covered)
    assert stats.binomtest(missed, n, 0.05, alternative="greater").pvalue > 5e-4


def test_the_reports_own_variance_would_be_caught():
    """The planted error: normal intervals with the variance that the reports happen to have."""
    m, n, wrong = best_split("randomized", 2, 10.0), 1000, 0
    for told in drawn_tallies(m, 20_000, (0.99, 0.01), (0.8, 1.0), n):
        gap = estimate_gaps(told, m).gaps[0]
        wrong += abs(gap.value - 0.2) > 1.96 * gap.error
    assert stats.binomtest(wrong, n, 0.05, alternative="greater").pvalue < 5e-4


def test_intervals_for_means_cover_as_stated():
    m, n, means = best_split("randomized", 3, 5.0), 1000, (1.0, 0.5, -0.98)
    wrong = np.zeros(3)
    for told in drawn_tallies(m, 50_000, (0.9, 0.09, 0.01), means, n):
        ends = np.array(estimate_gaps(told, m).intervals).T
        wrong += (ends[0] > means) | (ends[1] < means)
    for found in wrong:
        assert stats.binomtest(int(found), n, 0.05, alternative="greater").pvalue > 5e-4


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.99, 0.01)])
def test_intervals_of_laplace_cover_as_stated(shares, confidence):
    m, people, n = LaplaceValue(2, 2.0, 3.0), population(shares, (0.8, 0.3)), 400
    (found,) = simulate_gaps(m, people, clients=20_000, repeats=n, seed=1, confidence=confidence)
    assert stats.binomtest(round(n * found.covered), n, confidence).pvalue > 5e-4
    assert found.chebyshev > 0.99 or confidence < 0.99


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_intervals_with_known_shares_cover_as_stated(confidence):
    m, shares, n = RandomizedValue(2, 1.0, 1.0), (0.9, 0.1), 2000
    tallies = drawn_tallies(m, 100_000, shares, (0.8, 0.3), n)
    gaps = [estimate_gaps(t, m, confidence=confidence, shares=shares).gaps[0] for t in tallies]
    wrong = sum(not gap.interval.low <= -0.5 <= gap.interval.high for gap in gaps)
    assert stats.binomtest(wrong, n, 1 - confidence).pvalue > 5e-4


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_a_group_too_small_to_size_is_left_open_and_still_covered(confidence):
    m, n = RandomizedValue(2, 1.0, 1.0), 1000
    tallies = list(drawn_tallies(m, 20_000, (0.99, 0.01), (0.8, 0.3), n))
    assert missed(tallies, m, -0.5, confidence) <= stats.binom(n, 1 - confidence).ppf(0.999)
    gaps = [estimate_gaps(told, m, confidence=confidence).gaps[0] for told in tallies]
    assert any(gap.interval == Interval(-2.0, 2.0) for gap in gaps)


def test_forgetting_the_sizes_uncertainty_would_be_caught():
    """The planted error: estimated sizes taken for known ones. It covers too rarely."""
    m, means, n = RandomizedValue(2, 1.0, 1.0), (-0.9, 0.9), 2000
    wrong = 0
    for told in drawn_tallies(m, 1_000_000, (0.99, 0.01), means, n):
        shares = estimate_gaps(told, m).shares
        gap = estimate_gaps(told, m, shares=shares.tolist()).gaps[0]
        wrong += not gap.interval.low <= 1.8 <= gap.interval.high
    assert stats.binomtest(wrong, n, 0.05, alternative="greater").pvalue < 5e-4


def test_repetitions_without_an_estimate_are_left_out_and_told_of():
    """A group of 1 % of 20,000 at epsilon 1: its size is mostly not above 0."""
    people = population((0.99, 0.01), (0.5, 0.5))
    m = best_split("randomized", 2, 1.0)
    (found,) = simulate_gaps(m, people, clients=20_000, repeats=60, seed=0)
    assert 0.5 < found.open < 1
    assert np.isfinite([found.mean, found.deviation, found.width]).all()


def test_predicted_deviation_is_that_of_simulations():
    m, shares, means, n = RandomizedValue(3, 1.0, 1.0), (0.5, 0.3, 0.2), (0.5, -0.5, 0.9), 4000
    tallies = drawn_tallies(m, 300_000, shares, means, n)
    gaps = np.array([[gap.value for gap in estimate_gaps(told, m).gaps] for told in tallies])
    for values, pair in zip(gaps.T, itertools.combinations(range(3), 2), strict=True):
        two = Population(*(np.array(part)[list(pair)] for part in (shares, means, np.ones(3))))
        expected = gap_variance(m, 300_000, two)
        assert values.var() == pytest.approx(expected, rel=4.5 * math.sqrt(2 / n))


def test_memory_of_a_simulation_does_not_grow_with_its_clients():
    m, people = RandomizedValue(2, 1.0, 1.0), population((0.5, 0.5), (0.9, 0.5))

    def peak(clients):
        tracemalloc.start()
        simulate_gaps(m, people, clients=clients, repeats=2, seed=0)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(8 * CHUNK + 1) < 1.3 * peak(2 * CHUNK)


def test_the_hardest_population_is_the_hardest():
    rng = np.random.default_rng(0)
    for _ in range(200):
        shares = rng.dirichlet([2.0, 2.0, 2.0])
        m = RandomizedValue(3, *rng.uniform(0.2, 3, 2))
        means = rng.uniform(-1, 1, 3)
        squares = rng.uniform(means**2, 1)
        some = gap_variance(m, 1.0, Population(shares[:2], means[:2], squares[:2]))
        assert some <= largest_variance(m, shares[:2], 1.0) * (1 + 1e-9)


def test_the_hardest_means_are_found_on_edges():
    """One mean at the end of its range, and the other in between: no corner would do."""
    m, shares = RandomizedValue(3, 1.1838, 4.4922), np.array([0.2436, 0.7505])
    found = {tuple(p.means): gap_variance(m, 1.0, p) for p in hardest_populations(m, shares)}
    hardest = max(found, key=lambda means: found[means])
    assert 0 < min(map(abs, hardest)) < 1


def test_magnitude_of_simulated_gaps():
    m = RandomizedValue(2, 1.0, 1.0)
    tallies = drawn_tallies(m, 20_000, (0.5, 0.5), (0.3, 0.3), 2000)
    gaps = [estimate_gaps(told, m).gaps[0] for told in tallies]
    signed, sizes, magnitudes = (
        np.mean([f(gap) for gap in gaps])
        for f in (lambda g: g.value, lambda g: abs(g.value), lambda g: g.magnitude)
    )
    error = gaps[0].error
    assert abs(signed) < 4.5 * error / math.sqrt(2000)
    assert sizes == pytest.approx(error * math.sqrt(2 / math.pi), rel=0.1)
    assert magnitudes == pytest.approx(0.5 * error, rel=0.15)


def mean_bias(estimator, theta):
    """In errors, of a true gap of theta errors, by integration."""
    z = np.linspace(-8, 8, 3201)
    found = np.array([estimator(theta + x, 1.0) for x in z])
    return float(np.trapezoid(found * stats.norm.pdf(z), z)) - theta


def without_noise_in_the_square(value, error):
    """The planted error, whose bias from 1 to 3 errors is 0.2 to 0.33."""
    return math.sqrt(max(0.0, value**2 - error**2))


def test_magnitude_has_the_stated_bias():
    assert mean_bias(unfolded, 0.0) == pytest.approx(0.50, abs=0.005)
    grid = np.arange(0.5, 4.1, 0.25)
    assert max(abs(mean_bias(unfolded, theta)) for theta in grid) < 0.12
    assert max(abs(mean_bias(without_noise_in_the_square, theta)) for theta in grid) > 0.3


@pytest.mark.parametrize("theta", [0.0, 0.3, 1.0, 2.5, 5.0, 8.9, 9.5, 40.0])
def test_magnitude_turns_the_mean_size_around(theta):
    mean = stats.foldnorm(theta).mean()
    assert unfolded(-3 * mean, 3.0) == pytest.approx(3 * theta, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "error", "found"),
    [(0.2, 0.0, 0.2), (0.0, 0.0, 0.0), (1.0, math.inf, math.nan), (math.nan, 1.0, math.nan)],
)
def test_magnitude_at_its_ends(value, error, found):
    assert unfolded(value, error) == pytest.approx(found, nan_ok=True)


def test_every_two_groups_are_compared_and_add_up():
    m = RandomizedValue(4, 2.0, 2.0)
    (told,) = drawn_tallies(m, 10**6, (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4), 1)
    gaps = {gap.groups: gap.value for gap in estimate_gaps(told, m).gaps}
    assert list(gaps) == list(itertools.combinations(range(4), 2))
    assert gaps[0, 1] + gaps[1, 3] == pytest.approx(gaps[0, 3])


def test_normal_intervals_are_narrower_than_chebyshev():
    m = RandomizedValue(2, 1.0, 1.0)
    (told,) = drawn_tallies(m, 10**6, (0.5, 0.5), (0.1, 0.2), 1)
    gap = estimate_gaps(told, m, confidence=0.99).gaps[0]
    assert (gap.interval.high - gap.interval.low) / 2 < gap.chebyshev / 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"confidence": 1.0}, "confidence = 1"),
        ({"shares": [0.5, 0.6]}, "must be 2 positive numbers of sum 1"),
        ({"shares": [1.0]}, "must be 2 positive numbers"),
    ],
)
def test_impossible_requests_are_refused(options, said):
    m = RandomizedValue(2, 1.0, 1.0)
    (told,) = drawn_tallies(m, 1000, (0.5, 0.5), (0.1, 0.2), 1)
    with pytest.raises(InputError, match=said):
        estimate_gaps(told, m, **options)


class TestPlan:
    def test_planned_clients_give_the_precision(self):
        plan = plan_clients(setting((0.7, 0.3)), epsilon=1.0, precision=0.1)
        assert plan.mechanism.epsilon <= 1.0
        widths = []
        for means in ((0.0, 0.0), (1.0, -1.0), (0.9, 0.8)):
            (told,) = drawn_tallies(plan.mechanism, plan.clients, (0.7, 0.3), means, 1)
            gap = estimate_gaps(told, plan.mechanism).gaps[0]
            widths.append(max(gap.interval.high - gap.value, gap.value - gap.interval.low))
        assert max(widths) == pytest.approx(0.1, rel=0.05)

    def test_those_without_a_value_are_not_compared(self):
        """The hardest gap is that of the two that are, however few the others."""
        shares, wanted = (0.45, 0.45, 0.1), {"epsilon": 1.0, "precision": 0.1}
        some = plan_clients(setting(shares, compared=(0, 1)), **wanted)
        every = plan_clients(setting(shares), **wanted)
        assert some.clients < every.clients / 5
        assert some.mechanism.groups == 3
        for compared in ((0,), (0, 7), (1, 1)):
            with pytest.raises(InputError, match="must be at least 2 of the 3, each once"):
                setting(shares, compared=compared)

    def test_two_give_the_third_and_back(self):
        known = setting((0.5, 0.5), confidence=0.99)
        plan = plan_clients(known, epsilon=2.0, precision=0.05)
        again = plan_epsilon(known, clients=plan.clients, precision=0.05)
        assert again.mechanism.epsilon == pytest.approx(2.0, rel=2e-3)
        least = plan_precision(known, clients=plan.clients, epsilon=2.0)
        assert least.precision == pytest.approx(0.05, rel=1e-3)

    def test_no_epsilon_makes_up_for_few_clients(self):
        with pytest.raises(InputError, match="no finite epsilon gives it with 100000 clients"):
            plan_epsilon(setting((0.5, 0.5)), clients=100_000, precision=0.001)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
    def test_an_epsilon_that_is_none_is_refused(self, epsilon):
        with pytest.raises(InputError, match="epsilon"):
            plan_precision(setting((0.5, 0.5)), clients=100, epsilon=epsilon)

    @pytest.mark.parametrize(
        ("kind", "said"), [("randomized", "M_R sends one bit"), ("laplace", "a sample; without")]
    )
    def test_the_reason_is_that_of_the_mechanism(self, kind, said):
        with pytest.raises(InputError, match=said):
            plan_epsilon(setting((0.5, 0.5), kind=kind), clients=100, precision=0.001)

    def test_hundreds_of_groups_are_planned_at_once(self):
        """As many pairs as there are never enter."""
        start = time.process_time()
        plan = plan_precision(setting([1 / 500] * 500), clients=10**9, epsilon=2.0)
        assert plan.precision < 2
        assert time.process_time() - start < 2

    def test_a_plan_of_several_groups_is_that_of_their_smallest(self):
        plan = plan_precision(setting((0.1, 0.6, 0.3)), clients=10**6, epsilon=2.0)
        expected = plan_precision(setting((0.3, 0.1, 0.6)), clients=10**6, epsilon=2.0)
        assert plan == expected
        widths = []
        for means in ((0, 0.3, 0), (1, 0.3, -1), (1, 0.3, 1), (1, 0.3, 0), (0, 0.3, 1)):
            (told,) = drawn_tallies(plan.mechanism, 10**6, (0.1, 0.6, 0.3), means, 1)
            gap = estimate_gaps(told, plan.mechanism).gaps[1]
            widths.append(max(gap.interval.high - gap.value, gap.value - gap.interval.low))
        assert max(widths) == pytest.approx(plan.precision, rel=0.05)
