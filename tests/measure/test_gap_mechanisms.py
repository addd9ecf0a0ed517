"""What a client sends: its epsilon found by enumerating or integrating all outputs, its moments."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.gap.devices import collect
from benchmarks.gap.paper import largest_mean_variance, mean_variance
from synthfair.errors import InputError
from synthfair.measure import mechanisms
from synthfair.measure.estimate import estimate_means, tally
from synthfair.measure.mechanisms import (
    MECHANISMS,
    LaplaceValue,
    RandomizedValue,
)
from synthfair.measure.plan import (
    best_split,
    gap_variance,
    largest_variance,
    mechanism_at,
)
from synthfair.privacy.noise import seeded, system_entropy

BUDGETS = (0.1, 1.0, 4.0)
PAIRS = pytest.mark.parametrize(("epsilon1", "epsilon2"), list(itertools.product(BUDGETS, BUDGETS)))
VALUES = (-1.0, -0.3, 0.0, 0.6, 1.0)


def keep_probability(d, epsilon):
    return math.exp(epsilon) / (math.exp(epsilon) + d - 1)


def randomized_outputs(d, epsilon1, epsilon2, g, v):
    """P of each output (group, bit), by walking through the algorithm as it is printed."""
    a, b = keep_probability(d, epsilon1), math.exp(epsilon2) / (1 + math.exp(epsilon2))
    found = {}
    for reported, bit in itertools.product(range(d), (0, 1)):
        chance, value = (a, v) if reported == g else ((1 - a) / (d - 1), 0.0)
        one = (1 + value) / 2
        noisy_one = one * b + (1 - one) * (1 - b)
        found[reported, 2 * bit - 1] = chance * (noisy_one if bit else 1 - noisy_one)
    return found


def enumerated_epsilon(d, epsilon1, epsilon2):
    tables = [
        randomized_outputs(d, epsilon1, epsilon2, g, v)
        for g, v in itertools.product(range(d), VALUES)
    ]
    return max(math.log(p[o] / q[o]) for p in tables for q in tables for o in p)


@PAIRS
@pytest.mark.parametrize("d", [2, 5])
def test_randomized_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    stated = RandomizedValue(d, epsilon1, epsilon2).epsilon
    assert stated == pytest.approx(enumerated_epsilon(d, epsilon1, epsilon2), rel=1e-12)


@pytest.mark.parametrize(("budget", "true"), [(0.5, 0.7191), (1.0, 1.3799), (2.0, 2.5662)])
def test_theorem_4_1_is_caught(budget, true):
    assert enumerated_epsilon(2, budget, budget) > budget + 0.2  # it claims max(e1, e2)
    assert RandomizedValue(2, budget, budget).epsilon == pytest.approx(true, abs=5e-5)


def laplace_densities(m, k, g, v, outputs):
    """[d, outputs] density of M_L, from SciPy's Laplace."""
    a = keep_probability(m.groups, m.epsilon1)
    kept = stats.laplace(v, 2 / m.epsilon2).logpdf(outputs) + math.log(a)
    moved = stats.laplace(0, k / m.epsilon2).logpdf(outputs) + math.log((1 - a) / (m.groups - 1))
    return np.array([kept if reported == g else moved for reported in range(m.groups)])


def integrated_epsilon(m, k, outputs):
    tables = [
        laplace_densities(m, k, g, v, outputs)
        for g, v in itertools.product(range(m.groups), np.linspace(-1, 1, 21))
    ]
    low, high = np.min(tables, axis=0), np.max(tables, axis=0)
    return float((high - low).max())


def discrete_laplace_outputs(m, g, v, outputs):
    """[d, outputs] logarithms of probabilities, but for a constant: v rounded at random."""
    low = math.floor(m.steps * v)
    up, a = m.steps * v - low, keep_probability(m.groups, m.epsilon1)
    kept = np.logaddexp(
        np.log(1 - up) - np.abs(outputs - low) / 2**30,
        (np.log(up) if up else -math.inf) - np.abs(outputs - low - 1) / 2**30,
    )
    moved = -np.abs(outputs) / 2**30 + math.log((1 - a) / (m.groups - 1))
    return np.array([kept + math.log(a) if j == g else moved for j in range(m.groups)])


@PAIRS
@pytest.mark.parametrize("d", [2, 4])
def test_laplace_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    """The ratio changes only between -m and m, and at multiples of the values' step."""
    m = LaplaceValue(d, epsilon1, epsilon2)
    values = np.append(np.linspace(-1, 1, 20), (0.5 + np.arange(5)) / m.steps)
    outputs = np.rint(np.linspace(-2, 2, 41) * m.steps)
    tables = [
        discrete_laplace_outputs(m, g, v, outputs) for g, v in itertools.product(range(d), values)
    ]
    found = (np.max(tables, axis=0) - np.min(tables, axis=0)).max()
    assert m.epsilon == pytest.approx(found, rel=1e-9)
    assert m.epsilon <= max(epsilon2, epsilon1 + epsilon2 / 2) < m.epsilon + 2**-28


def laplace_p_value(noise, scale):
    """Of a chi-squared test with 30 equally likely cells."""
    return stats.chisquare(
        np.bincount((30 * stats.laplace(scale=scale).cdf(noise)).astype(int))
    ).pvalue


def test_laplace_noise_lies_on_the_grid_and_has_its_distribution():
    """One false alarm in a million; a scale that is 7 % too small is caught."""
    m = LaplaceValue(2, 1.0, 1.3)
    noisy = m.add_noise(np.full(20_000, 0.3), system_entropy)
    np.testing.assert_array_equal(np.rint(noisy * m.steps) / m.steps, noisy)
    assert laplace_p_value(noisy - 0.3, 2 / 1.3) > 1e-6
    assert laplace_p_value(0.9 * (noisy - 0.3), 2 / 1.3) < 1e-6


def test_values_are_rounded_to_the_grid_at_random_and_without_bias(monkeypatch):
    """On a grid of five steps; rounding to the nearest one would be caught."""
    monkeypatch.setattr(mechanisms, "discrete_laplace", lambda scale, n, source: np.zeros(n, int))
    m = LaplaceValue(2, 1.0, 5.5 * 2**-29)
    assert m.steps == 5
    found = m.add_noise(np.full(10_000, 0.43), system_entropy)
    up = int((found == 0.6).sum())
    assert up + (found == 0.4).sum() == 10_000
    assert stats.binomtest(up, 10_000, 0.15).pvalue > 1e-6
    np.testing.assert_array_equal(
        m.add_noise(np.array([-1.0, -0.2, 0.0, 1.0]), system_entropy), [-1, -0.2, 0, 1]
    )
    with pytest.raises(InputError, match="from 2"):
        LaplaceValue(2, 1.0, 0.9 * 2**-29)


@pytest.mark.parametrize("k", [2 / 3, 1.0, 3.0])
def test_theorem_4_3_is_caught(k):
    """With k other than 2 the ratio grows with the range of outputs."""
    m = LaplaceValue(2, 0.5, 1.0)
    near, far = (integrated_epsilon(m, k, np.linspace(-w, w, 2001)) for w in (20, 400))
    claimed = max(1.0, math.log(2 / k) + 0.5 - 0.5, math.log(k / 2) + 1 / k + 0.5)
    assert far > near + 50 > claimed


@pytest.mark.parametrize("value", [-1.0, -0.4, 1.0])
@pytest.mark.parametrize("m", [RandomizedValue(2, 1.0, 1.5), LaplaceValue(2, 1.0, 8.0)], ids=repr)
def test_moments_of_noisy_values(m, value):
    """Of 400,000, at 4.5 standard errors."""
    drawn = m.add_noise(np.full(400_000, value), seeded(1))
    mean, square = np.array(value), np.array(value**2)
    stated = (m.gain * value, m.noisy_square(square), m.noisy_cube(mean, square))
    for power, moment in enumerate(stated, start=1):
        powers = drawn**power
        assert abs(powers.mean() - moment) <= 4.5 * powers.std() / math.sqrt(len(drawn)) + 1e-12


@pytest.mark.parametrize("d", [2, 3, 6])
def test_group_response_keeps_and_changes_as_stated(d):
    m = RandomizedValue(d, 1.0, 1.0)
    reported = m.respond(np.full(200_000, d - 1), seeded(0))
    expected = [200_000 * (m.keep if j == d - 1 else m.change) for j in range(d)]
    assert m.keep + (d - 1) * m.change == pytest.approx(1)
    assert math.log(m.keep / m.change) == pytest.approx(m.epsilon1)
    # One false alarm in a thousand, were the seed drawn anew.
    assert stats.chisquare(np.bincount(reported, minlength=d), expected).pvalue > 1e-3


@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.5), (6, 1.0)])
def test_shares_are_unbiased_with_their_variance_in_closed_form(d, epsilon):
    """At 4.5 errors, for each group: 1 false alarm in 10,000; an estimator without q fails."""
    m, repeats, clients, source = RandomizedValue(d, epsilon, 1.0), 1000, 300, seeded(1)
    p = np.arange(1, d + 1) / np.arange(1, d + 1).sum()
    groups = np.random.default_rng(2).choice(d, (repeats, clients), p=p)
    reported = m.respond(groups.ravel(), source).reshape(repeats, clients)
    pi = np.array([(reported == j).mean(axis=1) for j in range(d)]).T
    variance = m.share_variance(p, clients)

    def looks_right(found):
        off = np.abs(found.mean(axis=0) - p) / np.sqrt(variance / repeats)
        ratio = found.var(axis=0, ddof=1) / variance
        return (off < 4.5).all() and (np.abs(ratio - 1) < 4.5 * math.sqrt(2 / repeats)).all()

    assert looks_right(m.shares(pi))
    assert not looks_right(pi / (m.keep - m.change))


KINDS = [
    RandomizedValue(3, 0.8, 1.2),
    LaplaceValue(3, 0.8, 1.2),
    RandomizedValue(2, 2.0, 3.0),
    LaplaceValue(2, 2.0, 3.0),
]


REPEATS = 1500


def fixed_clients(d, seed=3, n=300):
    rng = np.random.default_rng(seed)
    return rng.integers(d, size=n), rng.uniform(-0.4, 1, n)


def estimated_means(m, group, value, repeats, seed=0):
    """[repeats, d] of the paper's estimator, definition 5.1, the same clients every time."""
    sizes = np.bincount(group)
    all_ = m.perturb(np.tile(group, repeats), np.tile(value, repeats), seeded(seed))
    once = (part.reshape(repeats, -1) for part in all_)
    many = [tally(*reports, m.groups).totals for reports in zip(*once, strict=True)]
    return np.array(many) / (m.keep * m.gain * sizes)


def looks_right(m, means, group, value):
    """Mean and variance of the estimates are as claimed, at 4.5 errors: 1 false alarm in 20,000.

    The closed form of the variance is exact for clients that do not change.
    """
    sizes, repeats = np.bincount(group), len(means)
    true = np.bincount(group, weights=value) / sizes
    squares = np.bincount(group, weights=value**2) / sizes
    claimed = mean_variance(m, sizes, len(group), squares)
    off = np.abs(means.mean(axis=0) - true) / np.sqrt(claimed / repeats)
    kurtosis = stats.kurtosis(means, axis=0, fisher=False)
    ratio = means.var(axis=0, ddof=1) / claimed - 1
    return bool(
        (off < 4.5).all() and (np.abs(ratio) / np.sqrt((kurtosis - 1) / repeats) < 4.5).all()
    )


@pytest.mark.parametrize("m", KINDS, ids=repr)
def test_estimator_is_unbiased_with_the_variance_in_closed_form(m):
    group, value = fixed_clients(m.groups)
    assert looks_right(m, estimated_means(m, group, value, REPEATS), group, value)


class ForgetsToForget(RandomizedValue):
    """A planted bug: the value stays where the group changes."""

    def perturb(self, group, value, source):
        return self.respond(group, source), self.add_noise(value, source)


class TooQuiet(LaplaceValue):
    """A planted bug: noise of nine tenths of its scale."""

    def perturb(self, group, value, source):
        louder = LaplaceValue(self.groups, self.epsilon1, self.epsilon2 / 0.9)
        return louder.perturb(group, value, source)


@pytest.mark.parametrize("planted", [ForgetsToForget(3, 0.8, 1.2), TooQuiet(3, 0.8, 1.2)])
def test_a_planted_bug_is_rejected(planted):
    group, value = fixed_clients(planted.groups)
    assert not looks_right(planted, estimated_means(planted, group, value, REPEATS), group, value)


def test_equations_19_and_20_for_two_groups():
    """As printed, in the paper's own symbols."""
    e1, e2, n, clients, nu = 0.7, 1.3, 4000, 10_000, 0.4
    a, b = keep_probability(2, e1), keep_probability(2, e2)
    printed_r = (
        (1 - a * (2 * b - 1) ** 2 * nu + (clients - n) / n * (1 - a) / a) / a / (2 * b - 1) ** 2 / n
    )
    s2 = 2 * (2 / e2) ** 2
    noise = s2 + (clients - n) / n * s2 * math.exp(-e1)
    printed_l = (nu * math.exp(-e1) + (1 + math.exp(-e1)) * noise) / n
    for make, printed in ((RandomizedValue, printed_r), (LaplaceValue, printed_l)):
        found = mean_variance(make(2, e1, e2), np.array([n]), clients, np.array([nu]))
        assert found == pytest.approx([printed])


@pytest.mark.parametrize("kind", ["randomized", "laplace"])
@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.3), (2, 4.0), (8, 1.0)])
def test_best_split_uses_the_budget_and_beats_a_grid(kind, epsilon, d):
    def loss(m):
        return largest_mean_variance(m, np.full(2, 1 / d), 1.0).sum()

    best = best_split(kind, d, epsilon, loss)
    assert epsilon - 2**-28 < best.epsilon <= epsilon  # steps of the grid of M_L are whole
    grid = np.linspace(0.02, 1, 25) * epsilon
    pairs = (MECHANISMS[kind](d, e1, e2) for e1 in grid for e2 in grid)
    assert loss(best) <= min(loss(m) for m in pairs if m.epsilon <= epsilon) * (1 + 1e-6)


def bit_beats_laplace(d, epsilon, shares):
    """By the error that splits and plans minimise."""

    def loss(m):
        return largest_variance(m, np.array(shares) / d * 2, 1.0)

    errors = {kind: loss(best_split(kind, d, epsilon, loss)) for kind in MECHANISMS}
    return min(errors, key=lambda kind: errors[kind]) == "randomized"


@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.1), (3, 3.0), (20, 29.0)])
def test_no_laplace_noise_beats_one_bit_whatever_the_values(d, epsilon):
    assert bit_beats_laplace(d, epsilon, (0.01, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.01, 0.3), (0.01, 0.01)])
def test_no_laplace_noise_beats_one_bit_on_a_grid(shares):
    grid = itertools.product((2, 3, 20), (0.1, 1.0, 3.0, 10.0, 29.0))
    assert all(bit_beats_laplace(d, epsilon, shares) for d, epsilon in grid)


def test_laplace_noise_beats_one_bit_for_values_near_the_middle():
    halves, nothing = np.array([0.5, 0.5]), np.zeros(2)

    def loss(m):
        return gap_variance(m, 1, halves, nothing, nothing + 0.01)

    bit, noise = (loss(best_split(kind, 2, 6.0, loss)) for kind in ("randomized", "laplace"))
    assert noise < 0.5 * bit


@given(
    st.sampled_from(["randomized", "laplace"]),
    st.integers(2, 50),
    st.floats(1e-3, 100),
    st.floats(0.01, 1),
)
def test_every_division_keeps_to_its_budget(kind, d, epsilon, part):
    assert mechanism_at(kind, d, epsilon, part).epsilon <= epsilon * (1 + 1e-12)


@settings(max_examples=40)
@given(
    st.integers(2, 9),
    st.floats(0.01, 20),
    st.floats(0.01, 20),
    st.lists(st.tuples(st.integers(0, 8), st.floats(-1, 1)), min_size=1, max_size=30),
)
def test_reports_stay_in_the_stated_domain(d, epsilon1, epsilon2, clients):
    group = np.array([g % d for g, _ in clients])
    value = np.array([v for _, v in clients])
    for m in (RandomizedValue(d, epsilon1, epsilon2), LaplaceValue(d, epsilon1, epsilon2)):
        reported, noisy = m.perturb(group, value, system_entropy)
        assert ((reported >= 0) & (reported < d)).all()
        assert m.possible(noisy).all()
        assert (np.abs(noisy) <= m.limit).all()
        assert not m.possible(np.array([np.nan, np.inf, 2 * m.limit])).any()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1, 1.0, 1.0), "groups = 1"),
        ((2, 0.0, 1.0), "epsilon1 = 0"),
        ((2, 1.0, math.inf), "epsilon2 = inf"),
        ((2, math.nan, 1.0), "epsilon1 = nan"),
    ],
)
def test_impossible_parameters_are_refused(arguments, said):
    for make in (RandomizedValue, LaplaceValue):
        with pytest.raises(InputError, match=said):
            make(*arguments)


def test_a_seed_repeats_and_the_system_does_not():
    m, (group, value) = RandomizedValue(2, 1.0, 1.0), fixed_clients(2)
    twice = [collect(m, group, value, seeded(5)) for _ in range(2)]
    assert all(np.array_equal(x, y) for x, y in zip(*twice, strict=True))
    drawn = [m.perturb(group, value, system_entropy)[1] for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()


def test_without_noise_the_gap_is_the_true_one():
    """The limit of a large epsilon."""
    group, value = fixed_clients(2, n=5000)
    m = LaplaceValue(2, 400.0, 400.0)
    found = np.diff(estimate_means(collect(m, group, value, seeded(0)), m).values)[0]
    assert found == pytest.approx(value[group == 1].mean() - value[group == 0].mean(), abs=1e-3)
