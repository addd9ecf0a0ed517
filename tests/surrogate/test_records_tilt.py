"""Weights that meet targets, and the models whose rates are targets: against SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

from synthfair.data.encode import Encoded
from synthfair.surrogate.records import self_play, tilt_weights
from synthfair.surrogate.sums import inputs

F = np.random.default_rng(0).normal(size=(60, 4)) + np.arange(4)
TARGET, VARIANCE = np.array([0.3, 0.7, 2.1, 3.4]), np.array([1e-3, 1e-2, 0.05, 2.0])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_tilted_weights_are_the_minimum_that_scipy_finds(scale):
    """In any unit of the functions."""

    def objective(z):
        p = softmax(z)
        return (p * np.log(p * 60)).sum() + ((p @ F - TARGET) ** 2 / (2 * VARIANCE)).sum()

    expected = minimize(objective, np.zeros(60), method="BFGS", options={"gtol": 1e-9})
    p = tilt_weights(scale * F, scale * TARGET, scale**2 * VARIANCE)
    assert objective(np.log(p)) <= expected.fun + 1e-9
    np.testing.assert_allclose(p, softmax(expected.x), atol=1e-5)


def test_tilted_weights_meet_targets_as_their_variance_asks():
    exact = softmax(F @ [0.5, -0.3, 0.2, 0.4])
    np.testing.assert_allclose(tilt_weights(F, exact @ F, np.full(4, 1e-9)), exact, rtol=1e-3)
    np.testing.assert_allclose(tilt_weights(F, TARGET, np.full(4, 1e9)), 1 / 60, rtol=1e-6)


def test_tilted_weights_of_impossible_targets_are_finite():
    twice = tilt_weights(np.hstack([F, F]), np.append(TARGET, TARGET + 0.4), np.full(8, 1e-4))
    between = tilt_weights(F, TARGET + 0.2, np.full(4, 5e-5))
    np.testing.assert_allclose(twice, between, atol=1e-6)
    far = tilt_weights(F, np.full(4, 99.0), np.full(4, 1e-3))
    assert np.isfinite(far).all()
    assert far.sum() == pytest.approx(1)


ALL = [(0, -1), (0, 1), (1, -1), (1, 1)]
CLIENTS = {
    "all cells": (2, ALL),
    "one label": (2, ALL[1::2]),
    "one group": (2, ALL[2:]),
    "one cell": (3, [(2, -1)]),
}


def client(cells, n=40):
    """So many rows in each of some (group, label); the first feature goes with both."""
    rng = np.random.default_rng(0)
    s, y = np.repeat([g for g, _ in cells], n), np.repeat([float(y) for _, y in cells], n)
    x = rng.random((len(y), 3))
    x[:, 0] += 0.3 * y + 0.2 * s
    return Encoded(x, s, y)


def played(rows, weight=None, *, problems=6, n_groups=2, seed=3):
    weight, rng = np.ones(len(rows.y)) if weight is None else weight, np.random.default_rng(seed)
    return self_play(rows, weight, problems, n_groups=n_groups, rng=rng)


@pytest.mark.parametrize(("n_groups", "cells"), CLIENTS.values(), ids=CLIENTS)
def test_random_problems_have_different_models_and_the_same_again(n_groups, cells):
    rows = client(cells)
    thetas = played(rows, n_groups=n_groups)
    np.testing.assert_array_equal(thetas, played(rows, n_groups=n_groups))
    assert thetas.shape == (6, 3 + n_groups)
    assert np.isfinite(thetas).all()
    assert np.ptp(thetas[:, :3], axis=0).min() > 0
    other = played(rows, n_groups=n_groups, seed=4)
    assert not np.isclose(thetas, other).all(axis=1).any()


def test_random_problems_learn_the_labels_and_some_are_fair():
    rows = client(ALL, n=300)
    scores = inputs(rows, 2) @ played(rows, problems=12).T
    for group in (rows.s == g for g in (0, 1)):
        assert min(np.corrcoef(z[group], rows.y[group])[0, 1] for z in scores.T) > 0.3
    selected = expit(4 * scores)
    gaps = np.abs(selected[rows.s == 1].mean(axis=0) - selected[rows.s == 0].mean(axis=0))
    assert np.median(gaps) < 0.07  # without penalties twice as much
    assert gaps.max() > 0.1


def test_random_problems_do_not_see_rows_without_weight():
    rows, light = client(ALL), np.arange(160) % 2 == 1
    turned = rows._replace(x=np.where(light[:, None], 1 - rows.x, rows.x))
    weight = np.where(light, 1e-9, 4.0)
    thetas = played(turned, weight)
    np.testing.assert_allclose(played(rows, weight), thetas, atol=1e-3)
    assert np.abs(played(turned) - thetas).max() > 0.1
