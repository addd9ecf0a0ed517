"""What a client sends: probabilities of all outputs, for every pair of inputs; and moments."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from synthfair.errors import InputError
from synthfair.measure import mechanisms
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded, system_entropy

BUDGETS = pytest.mark.parametrize(
    ("epsilon1", "epsilon2"), list(itertools.product((0.1, 1.0, 4.0), repeat=2))
)
VALUES = (-1.0, -0.3, 0.0, 0.6, 1.0)
KINDS = pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])


def keep_probability(d, epsilon):
    return math.exp(epsilon) / (math.exp(epsilon) + d - 1)


def randomized_outputs(d, epsilon1, epsilon2, g, v):
    """[d, 2] P of each group and bit, by walking through the algorithm as it is printed."""
    a, b = keep_probability(d, epsilon1), math.exp(epsilon2) / (1 + math.exp(epsilon2))
    found = np.zeros((d, 2))
    for reported in range(d):
        chance, value = (a, v) if reported == g else ((1 - a) / (d - 1), 0.0)
        one = (1 + value) / 2 * b + (1 - value) / 2 * (1 - b)
        found[reported] = chance * (1 - one), chance * one
    return found


def enumerated_epsilon(d, epsilon1, epsilon2):
    """Of every output, for every pair of inputs."""
    tables = [
        randomized_outputs(d, epsilon1, epsilon2, g, v)
        for g, v in itertools.product(range(d), VALUES)
    ]
    return max(np.log(p / q).max() for p in tables for q in tables)


@BUDGETS
@pytest.mark.parametrize("d", [2, 5])
def test_randomized_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    stated = RandomizedValue(d, epsilon1, epsilon2).epsilon
    assert stated == pytest.approx(enumerated_epsilon(d, epsilon1, epsilon2), rel=1e-12)


@pytest.mark.parametrize(("budget", "true"), [(0.5, 0.7191), (1.0, 1.3799), (2.0, 2.5662)])
def test_theorem_4_1_is_caught(budget, true):
    assert enumerated_epsilon(2, budget, budget) > budget + 0.2  # it claims max(e1, e2)
    assert RandomizedValue(2, budget, budget).epsilon == pytest.approx(true, abs=5e-5)


def laplace_outputs(m, g, v, outputs):
    """[d, outputs] logarithms of probabilities, but for a constant: v rounded at random."""
    low = math.floor(m.steps * v)
    up, a = m.steps * v - low, keep_probability(m.groups, m.epsilon1)
    kept = np.logaddexp(
        np.log(1 - up) - np.abs(outputs - low) / 2**30,
        (np.log(up) if up else -math.inf) - np.abs(outputs - low - 1) / 2**30,
    )
    moved = -np.abs(outputs) / 2**30 + math.log((1 - a) / (m.groups - 1))
    return np.array([kept + math.log(a) if j == g else moved for j in range(m.groups)])


@BUDGETS
@pytest.mark.parametrize("d", [2, 4])
def test_laplace_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    """The ratio changes only between -m and m, and at multiples of the values' step."""
    m = LaplaceValue(d, epsilon1, epsilon2)
    values = np.append(np.linspace(-1, 1, 20), (0.5 + np.arange(5)) / m.steps)
    outputs = np.rint(np.linspace(-2, 2, 41) * m.steps)
    tables = [laplace_outputs(m, g, v, outputs) for g in range(d) for v in values]
    found = (np.max(tables, axis=0) - np.min(tables, axis=0)).max()
    assert m.epsilon == pytest.approx(found, rel=1e-9)
    assert m.epsilon <= max(epsilon2, epsilon1 + epsilon2 / 2) < m.epsilon + 2**-28


@pytest.mark.parametrize("k", [2 / 3, 1.0, 3.0])
def test_theorem_4_3_is_caught(k):
    """With k other than 2 the ratio grows with the range of outputs, and no epsilon is finite."""
    outputs = np.array([-400.0, -20.0, 20.0, 400.0])
    kept, changed = (stats.laplace(0, scale).logpdf(outputs) for scale in (2.0, k))
    ratio = np.abs(kept - changed)
    claimed = max(1.0, math.log(2 / k), math.log(k / 2) + 1 / k + 0.5)
    assert ratio[0] > ratio[1] + 50 > claimed


class ForgetsToForget:
    """A planted bug: the value stays where the group changes."""

    def perturb(self, group, value, source):
        return self.respond(group, source), self.add_noise(value, source)


class ForgetfulBit(ForgetsToForget, RandomizedValue): ...


class ForgetfulNoise(ForgetsToForget, LaplaceValue): ...


def drawn_p_value(m, d=3, g=1, v=0.6, n=60_000):
    """The least of tests of the groups, and of the values that are reported with each group."""
    reported, noisy = m.perturb(np.full(n, g), np.full(n, v), seeded(0))
    expected = randomized_outputs(d, m.epsilon1, m.epsilon2, g, v)
    found = [stats.chisquare(np.bincount(reported, minlength=d), n * expected.sum(axis=1)).pvalue]
    for group in range(d):
        mine, noise = noisy[reported == group], stats.laplace(v * (group == g), 2 / m.epsilon2)
        ones = expected[group, 1] / expected[group].sum()
        if m.kind == "randomized":
            found.append(stats.binomtest(int((mine == 1).sum()), len(mine), ones).pvalue)
        else:
            found.append(stats.kstest(mine, noise.cdf).pvalue)
    return min(found)


@pytest.mark.parametrize(
    ("make", "drawn_so"),
    [(RandomizedValue, True), (LaplaceValue, True), (ForgetfulBit, False), (ForgetfulNoise, False)],
)
def test_reports_are_drawn_with_their_probabilities(make, drawn_so):
    """False alarm 8e-6 in all, were the seed drawn anew."""
    assert (drawn_p_value(make(3, 0.8, 2.0)) > 1e-6) == drawn_so


def test_laplace_values_are_rounded_to_the_grid_at_random_and_without_bias(monkeypatch):
    """On a grid of five steps; rounding to the nearest one would be caught."""
    noisy = LaplaceValue(2, 1.0, 1.3).add_noise(np.full(100, 0.3), system_entropy)
    steps = noisy * LaplaceValue(2, 1.0, 1.3).steps
    np.testing.assert_allclose(steps, np.rint(steps), rtol=1e-15)
    monkeypatch.setattr(mechanisms, "discrete_laplace", lambda scale, n, source: np.zeros(n, int))
    m = LaplaceValue(2, 1.0, 5.5 * 2**-29)
    assert m.steps == 5
    found = m.add_noise(np.full(10_000, 0.43), system_entropy)
    up = int((found == 0.6).sum())
    assert up + (found == 0.4).sum() == 10_000
    assert stats.binomtest(up, 10_000, 0.15).pvalue > 1e-6
    on_grid = np.array([-1.0, -0.2, 0.0, 1.0])
    np.testing.assert_array_equal(m.add_noise(on_grid, system_entropy), on_grid)


@pytest.mark.parametrize("v", [-1.0, -0.4, 1.0])
def test_moments_of_values_are_those_of_scipy(v):
    bit, noise, square = RandomizedValue(2, 1.0, 1.5), LaplaceValue(2, 1.0, 1.5), np.array(v**2)
    low, high = randomized_outputs(2, 1.0, 1.5, 0, v)[0] / keep_probability(2, 1.0)
    assert bit.gain * v == pytest.approx(high - low)
    assert bit.noisy_square(square) == 1
    assert bit.noisy_cube(np.array(v), square) == pytest.approx(high - low)
    report = stats.laplace(v, 2 / 1.5)
    assert noise.gain * v == pytest.approx(report.moment(1))
    assert noise.noisy_square(square) == pytest.approx(report.moment(2))
    assert noise.noisy_cube(np.array(v), square) == pytest.approx(report.moment(3))
    spread = report.moment(4) - report.moment(2) ** 2
    assert spread <= noise.square_variance
    assert abs(v) < 1 or spread == pytest.approx(noise.square_variance - 0.25)
    assert (bit.changed_square, bit.square_variance) == (1, 0)
    assert noise.changed_square == pytest.approx(2 * (2 / 1.5) ** 2)


@given(st.integers(2, 9), st.floats(0.01, 5), st.lists(st.floats(0.01, 1), min_size=9, max_size=9))
def test_shares_are_unbiased_with_the_variance_of_a_multinomial(d, epsilon, parts):
    m, p, a = RandomizedValue(d, epsilon, 1.0), np.array(parts[:d]), keep_probability(d, epsilon)
    p /= p.sum()
    reported = a * p + (1 - a) / (d - 1) * (1 - p)
    np.testing.assert_allclose(m.shares(reported), p, atol=1e-12)
    slope = 1 / (a - (1 - a) / (d - 1))
    expected = slope**2 * stats.multinomial(300, reported).cov().diagonal() / 300**2
    np.testing.assert_allclose(m.share_variance(p, 300), expected, rtol=1e-9)


@settings(max_examples=40)
@given(
    st.integers(2, 9),
    st.floats(0.01, 20),
    st.floats(0.01, 20),
    st.lists(st.tuples(st.integers(0, 8), st.floats(-1, 1)), min_size=1, max_size=30),
)
def test_reports_stay_in_the_stated_domain(d, epsilon1, epsilon2, clients):
    group, value = (np.array(part) for part in zip(*clients, strict=True))
    for make in (RandomizedValue, LaplaceValue):
        m = make(d, epsilon1, epsilon2)
        reported, noisy = m.perturb(group % d, value, system_entropy)
        assert ((reported >= 0) & (reported < d)).all()
        assert m.possible(noisy).all()
        assert (np.abs(noisy) <= m.limit).all()
        assert not m.possible(np.array([np.nan, np.inf, 1.0001 * m.limit])).any()


def test_reports_of_a_seed_repeat_and_those_of_the_system_do_not():
    m, group, value = RandomizedValue(2, 1.0, 1.0), np.zeros(300, int), np.zeros(300)
    for source, repeats in ((seeded, True), (lambda _: system_entropy, False)):
        first, second = (m.perturb(group, value, source(5))[1] for _ in range(2))
        assert (first == second).all() == repeats


@KINDS
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1, 1.0, 1.0), "groups"), ((2, 0.0, 1.0), "epsilon1"), ((2, math.nan, 1.0), "epsilon1"),
        ((2, 1.0, math.inf), "epsilon2"), ((2, 1.0, 0.9 * 2**-29), "epsilon2"),
    ],
)  # fmt: skip
def test_mechanism_of_impossible_parameters_is_refused(kind, arguments, said):
    with pytest.raises(InputError, match=said):
        kind(*arguments)
