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


@pytest.mark.parametrize(("budget", "true"), [(0.5, 0.7191), (1.0, 1.3799), (2.0, 2.5662)])
def test_theorem_4_1_is_caught(budget, true):
    assert enumerated_epsilon(2, budget, budget) > budget + 0.2  # it claims max(e1, e2)
    assert RandomizedValue(2, budget, budget).epsilon == pytest.approx(true, abs=5e-5)


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


@pytest.mark.parametrize("k", [2 / 3, 1.0, 3.0])
def test_theorem_4_3_is_caught(k):
    """With k other than 2 the ratio grows with the range of outputs, and no epsilon is finite."""
    outputs = np.array([20.0, 400.0])
    kept, changed = (stats.laplace(0, scale).logpdf(outputs) for scale in (2.0, k))
    near, far = np.abs(kept - changed)
    assert far > near + 50


@KINDS
@pytest.mark.parametrize("remembers_to_forget", [True, False])
def test_reports_are_drawn_with_their_probabilities(kind, remembers_to_forget):
    """Groups, and values by group; false alarm 8e-6 in all. The planted bug keeps a value whose
    group changes."""
    m, d, g, v, source = kind(3, 0.8, 2.0), 3, 1, 0.6, seeded(0)
    group, value = np.full(60_000, g), np.full(60_000, v)
    bug = m.respond(group, source), m.add_noise(value, source)
    reported, noisy = m.perturb(group, value, source) if remembers_to_forget else bug
    table = randomized_outputs(d, 0.8, 2.0, g, v)
    sizes = np.bincount(reported, minlength=d)
    found = [stats.chisquare(sizes, 60_000 * table.sum(axis=1)).pvalue]
    for j, (low, high) in enumerate(table):
        mine, noise = noisy[reported == j], stats.laplace(v * (j == g), 2 / 2.0)
        ones = stats.binomtest(int((mine == 1).sum()), len(mine), high / (low + high))
        found.append((ones if kind is RandomizedValue else stats.kstest(mine, noise.cdf)).pvalue)
    assert (min(found) > 1e-6) == remembers_to_forget


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


@pytest.mark.parametrize("v", [-1.0, -0.4, 1.0])
def test_laplace_moments_are_those_of_scipy(v):
    m, report, square = LaplaceValue(2, 1.0, 1.5), stats.laplace(v, 2 / 1.5), np.array(v**2)
    found = m.gain * v, m.noisy_square(square), m.noisy_cube(np.array(v), square)
    assert found == pytest.approx([report.moment(power) for power in (1, 2, 3)])
    spread = report.moment(4) - report.moment(2) ** 2 + 0.25
    assert spread <= m.square_variance * (1 + 1e-9)
    assert abs(v) < 1 or spread == pytest.approx(m.square_variance)


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
