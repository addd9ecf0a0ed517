"""What a client sends: probabilities of all outputs, for every pair of inputs; and moments."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from synthfair.errors import InputError
from synthfair.measure import mechanisms
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded, system_entropy

PAIRS = list(itertools.product((0.1, 1.0, 4.0), repeat=2))
BUDGETS = pytest.mark.parametrize(("epsilon1", "epsilon2"), PAIRS)
KINDS = pytest.mark.parametrize("kind", [RandomizedValue, LaplaceValue])


def keep_probability(d, epsilon):
    return math.exp(epsilon) / (math.exp(epsilon) + d - 1)


def randomized_outputs(d, epsilon1, epsilon2, g, v):
    """[d, 2] P of each group and bit, by walking through the algorithm as it is printed."""
    a, b = keep_probability(d, epsilon1), keep_probability(2, epsilon2)
    found = np.zeros((d, 2))
    for reported in range(d):
        chance, value = (a, v) if reported == g else ((1 - a) / (d - 1), 0.0)
        one = (1 + value) / 2 * b + (1 - value) / 2 * (1 - b)
        found[reported] = chance * (1 - one), chance * one
    return found


def enumerated_epsilon(d, *budgets):
    """Of every output, for every pair of inputs."""
    inputs = itertools.product(range(d), (-1.0, -0.3, 0.0, 0.6, 1.0))
    tables = np.log([randomized_outputs(d, *budgets, g, v) for g, v in inputs])
    return np.ptp(tables, axis=0).max()


@BUDGETS
@pytest.mark.parametrize("d", [2, 5])
def test_randomized_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    stated = RandomizedValue(d, epsilon1, epsilon2).epsilon
    assert stated == pytest.approx(enumerated_epsilon(d, epsilon1, epsilon2), rel=1e-12)


def laplace_outputs(m, g, v, outputs):
    """[d, outputs] logarithms of probabilities, but for a constant: v rounded at random."""
    low = math.floor(m.steps * v)
    up, a = m.steps * v - low, keep_probability(m.groups, m.epsilon1)
    below = np.exp(-np.abs(outputs - low) / 2**30)
    above = np.exp(-np.abs(outputs - low - 1) / 2**30)
    kept = np.log((1 - up) * below + up * above) + math.log(a)
    moved = -np.abs(outputs) / 2**30 + math.log((1 - a) / (m.groups - 1))
    return np.array([kept if j == g else moved for j in range(m.groups)])


@BUDGETS
@pytest.mark.parametrize("d", [2, 4])
def test_laplace_epsilon_is_that_of_all_outputs(d, epsilon1, epsilon2):
    """The ratio changes only between -m and m, and at multiples of the values' step."""
    m = LaplaceValue(d, epsilon1, epsilon2)
    values = np.append(np.linspace(-1, 1, 20), (0.5 + np.arange(5)) / m.steps)
    outputs = np.rint(np.linspace(-2, 2, 41) * m.steps)
    tables = [laplace_outputs(m, g, v, outputs) for g in range(d) for v in values]
    assert m.epsilon == pytest.approx(np.ptp(tables, axis=0).max(), rel=1e-9)
    assert m.epsilon <= max(epsilon2, epsilon1 + epsilon2 / 2) < m.epsilon + 2**-28


@KINDS
def test_reports_are_drawn_with_their_probabilities(kind):
    """Groups, and values by group; false alarm 8e-6 in all."""
    m, d, g, v = kind(3, 0.8, 2.0), 3, 1, 0.6
    reported, noisy = m.perturb(np.full(60_000, g), np.full(60_000, v), seeded(0))
    table = randomized_outputs(d, 0.8, 2.0, g, v)
    sizes = np.bincount(reported, minlength=d)
    found = [stats.chisquare(sizes, 60_000 * table.sum(axis=1)).pvalue]
    for j, (low, high) in enumerate(table):
        mine, noise = noisy[reported == j], stats.laplace(v * (j == g), 2 / 2.0)
        ones = stats.binomtest(int((mine == 1).sum()), len(mine), high / (low + high))
        found.append((ones if kind is RandomizedValue else stats.kstest(mine, noise.cdf)).pvalue)
    assert min(found) > 1e-6


def test_laplace_values_are_rounded_to_the_grid_at_random_and_without_bias(monkeypatch):
    """On a grid of five steps; rounding to the nearest one would be caught."""
    monkeypatch.setattr(mechanisms, "discrete_laplace", lambda scale, n, source: np.zeros(n, int))
    m = LaplaceValue(2, 1.0, 5.5 * 2**-29)
    assert m.steps == 5
    found = m.add_noise(np.full(10_000, 0.43), system_entropy)
    up = int((found == 0.6).sum())
    assert up + (found == 0.4).sum() == 10_000
    assert stats.binomtest(up, 10_000, 0.15).pvalue > 1e-6
    on_grid = np.array([-1.0, -0.2, 0.0, 1.0])
    np.testing.assert_array_equal(m.add_noise(on_grid, system_entropy), on_grid)


@KINDS
@given(clients=st.lists(st.tuples(st.integers(0, 2), st.floats(-1, 1)), min_size=1, max_size=30))
def test_reports_stay_in_the_stated_domain(kind, clients):
    group, value = (np.array(part) for part in zip(*clients, strict=True))
    m = kind(3, 0.5, 2.0)
    reported, noisy = m.perturb(group, value, system_entropy)
    assert set(reported) <= {0, 1, 2}
    assert m.possible(np.append(noisy, m.limit)).all()
    grid = getattr(m, "steps", 1)
    np.testing.assert_array_equal(np.rint(noisy * grid) / grid, noisy)
    beyond = np.array([np.nan, np.inf, np.nextafter(m.limit, np.inf), -1e300])
    assert not m.possible(beyond).any()


@KINDS
@pytest.mark.parametrize(("arguments", "said"), [
    ((1, 1.0, 1.0), "groups"), ((2, 0.0, 1.0), "epsilon1"), ((2, math.nan, 1.0), "epsilon1"),
    ((2, 1.0, math.inf), "epsilon2"), ((2, 1.0, 0.9 * 2**-29), "epsilon2"),
])  # fmt: skip
def test_mechanism_of_impossible_parameters_is_refused(kind, arguments, said):
    with pytest.raises(InputError, match=said):
        kind(*arguments)
