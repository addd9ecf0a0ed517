"""Rows with given sums: marginals, moments and smooth sums, found again with NumPy and SciPy."""

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.special import expit

from synthfair.surrogate.fit import Targets, copula_rows, fitted_rows, with_moments

D = 4


def spread(seed, scale=0.3):
    """Rows without structure."""
    return scale * np.random.default_rng(seed).normal(size=(60, D))


def moments(x):
    return x.mean(axis=0), np.cov(x.T, bias=True)


def without(x, column):
    """The same rows, constant in a feature."""
    return np.where(np.arange(D) == column, 0.3, x)


def with_small(x, column, deviation):
    return x * np.where(np.arange(D) == column, deviation, 1.0)


def sums_of_two(x):
    """A feature that is the sum of two others: a singular covariance without a zero."""
    return np.column_stack([x[:, :3], x[:, 0] + x[:, 1]])


CASES = {
    "other rows": (spread(0), spread(1)),
    "rows without variance in a direction": (without(spread(0), 2), spread(1)),
    "rows that are all alike": (np.zeros((60, D)), spread(1)),
    "a singular target": (spread(0), sums_of_two(spread(1))),
    "a target without variance in a feature": (spread(0), without(spread(1), 0)),
    "both singular, in other directions": (without(spread(0), 2), sums_of_two(spread(1))),
    "a target without variance": (spread(0), np.full((60, D), 0.2)),
    "a category of one row in a million": (without(spread(0), 2), with_small(spread(1), 2, 1e-3)),
    "and in 40 million": (without(spread(0), 2), with_small(spread(1), 2, 5e-4)),
}


@pytest.mark.parametrize(("x", "wanted"), CASES.values(), ids=CASES)
def test_moments_are_exact(x, wanted):
    mean, covariance = moments(wanted)
    found = moments(with_moments(x, mean, covariance, seed=0))
    np.testing.assert_allclose(found[0], mean, atol=1e-12)
    np.testing.assert_allclose(found[1], covariance, atol=1e-9)


def test_rows_with_the_right_moments_stay():
    for x in (spread(0), without(spread(0), 1)):
        np.testing.assert_allclose(with_moments(x, *moments(x), seed=0), x, atol=1e-9)


def test_rows_move_as_little_as_normal_distributions_must():
    x, (mean, wanted) = spread(0), moments(spread(1))
    moved = with_moments(x, mean, wanted, seed=0) - x
    middle, covariance = moments(x)
    root = sqrtm(covariance)
    least = np.trace(covariance + wanted - 2 * sqrtm(root @ wanted @ root))  # Gelbrich (1990)
    cost = np.mean(np.sum(moved**2, axis=1))
    assert cost == pytest.approx(np.sum((mean - middle) ** 2) + np.real(least), rel=1e-9)


def test_copula_rows_have_the_marginals():
    values = np.array([[0.0, 0.5, 1.0], [-1.0, 0.0, 2.0]])
    counts = np.array([[50.0, 30.0, 20.0], [1.0, 0.0, 3.0]])
    x = copula_rows(1000, values, counts, np.eye(2), seed=0)
    for j in range(2):
        shares = [np.mean(x[:, j] == value) for value in values[j]]
        np.testing.assert_allclose(shares, counts[j] / counts[j].sum(), atol=1e-3)
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.13  # four standard errors


def test_copula_rows_have_the_correlations_of_normal_scores():
    values, counts = np.tile(np.linspace(0, 1, 50), (2, 1)), np.ones((2, 50))
    x = copula_rows(1000, values, counts, np.array([[1.0, 0.8], [0.8, 1.0]]), seed=0)
    ranks = 6 / np.pi * np.arcsin(0.8 / 2)  # of a normal distribution with correlation 0.8
    assert np.corrcoef(x.T)[0, 1] == pytest.approx(ranks, abs=0.05)


def skewed(seed, n):
    """Rows that are no normal distribution."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) ** 3
    return np.column_stack([first, rng.random(n) < first, rng.beta(0.3, 0.3, n)]) - 0.5


def smooth(x, slope, offset):
    """Means of sigma(v'x + b) (1, x)."""
    selected = expit(x @ slope.T + offset)
    return selected.mean(axis=0), selected.T @ x / len(x)


def test_fitted_rows_have_the_smooth_sums_and_the_moments():
    rng, real = np.random.default_rng(0), skewed(0, 500)
    slope, offset, weight = 4 * rng.normal(size=(8, 3)), rng.normal(size=8), np.full(8, 1 / 8)
    targets = Targets(*moments(real), slope, offset, weight, *smooth(real, slope, offset))

    def mismatch(x):
        rate, moment = smooth(x, slope, offset)
        squares = (rate - targets.rate) ** 2 + np.sum((moment - targets.moment) ** 2, axis=1)
        return weight @ squares

    start = with_moments(rng.normal(size=(40, 3)), targets.mean, targets.covariance, seed=0)
    found = fitted_rows(start, targets, iterations=60, seed=0)
    assert mismatch(found) < mismatch(start) / 100
    np.testing.assert_allclose(moments(found)[0], targets.mean, atol=1e-12)
    np.testing.assert_allclose(moments(found)[1], targets.covariance, atol=1e-9)


def test_anchors_count_by_their_weight():
    real, offset = skewed(0, 500), np.zeros(2)
    slope = np.array([[8.0, 0, 0], [8.0, 0, 0]])
    rate, moment = smooth(real, slope, offset)
    rate = rate + np.array([0.1, -0.1])  # they contradict each other
    start = skewed(1, 40)

    def rate_with(weight):
        targets = Targets(*moments(real), slope, offset, np.array(weight), rate, moment)
        return smooth(fitted_rows(start, targets, iterations=40, seed=0), slope, offset)[0][0]

    low, middle, high = rate_with([0.0, 1.0]), rate_with([0.5, 0.5]), rate_with([1.0, 0.0])
    assert low + 0.02 < middle < high - 0.02
