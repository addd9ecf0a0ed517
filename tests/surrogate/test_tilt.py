"""Weights that meet targets, and the models whose rates are targets: against SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

from synthfair.data.encode import Encoded
from synthfair.surrogate.records import self_play, tilt_weights, variance_of
from synthfair.surrogate.sums import inputs, smooth_rates

F = np.random.default_rng(0).normal(size=(60, 4)) + np.arange(4)
TARGET = np.array([0.3, 0.7, 2.1, 3.4])
VARIANCE = np.array([1e-3, 1e-2, 0.05, 2.0])


def divergence(p):
    return float((p * np.log(np.maximum(p, 1e-300) * len(p))).sum())


def misses(p, f=F, target=TARGET):
    return p @ f - target


def test_weights_are_the_minimum_that_scipy_finds():
    def objective(z):
        p = softmax(z)
        return divergence(p) + (misses(p) ** 2 / (2 * VARIANCE)).sum()

    wanted = minimize(objective, np.zeros(60), method="BFGS", options={"gtol": 1e-9})
    p = tilt_weights(F, TARGET, VARIANCE)
    assert objective(np.log(p)) <= wanted.fun + 1e-9
    np.testing.assert_allclose(p, softmax(wanted.x), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_weights_solve_the_conditions_of_a_minimum(scale):
    """log p = const + lambda'f with lambda = -miss / variance; in any unit of f."""
    f, target, variance = scale * F, scale * TARGET, scale**2 * VARIANCE
    p = tilt_weights(f, target, variance)
    assert p.sum() == pytest.approx(1)
    rest = np.log(p) + f @ (misses(p, f, target) / variance)
    assert np.ptp(rest) < 1e-4


def test_targets_that_weights_can_meet_are_met_within_their_variance():
    """The objective is at most what exact weights have, their divergence alone."""
    exact = softmax(F @ [0.5, -0.3, 0.2, 0.4])
    for variance in (1e-6, 1e-2, 1.0):
        p = tilt_weights(F, exact @ F, np.full(4, variance))
        cost = divergence(p) + (misses(p, target=exact @ F) ** 2).sum() / (2 * variance)
        assert cost <= divergence(exact) + 1e-9
    np.testing.assert_allclose(tilt_weights(F, exact @ F, np.full(4, 1e-9)), exact, rtol=1e-3)


def test_targets_of_no_weight_leave_records_even():
    np.testing.assert_allclose(tilt_weights(F, TARGET, np.full(4, 1e9)), 1 / 60, rtol=1e-6)
    np.testing.assert_allclose(tilt_weights(F, F.mean(axis=0), np.full(4, 1e-6)), 1 / 60, rtol=1e-6)


def test_targets_that_contradict_each_other_or_cannot_be_give_finite_weights():
    twice = np.hstack([F, F])
    p = tilt_weights(twice, np.append(TARGET, TARGET + 0.4), np.full(8, 1e-4))
    np.testing.assert_allclose(p, tilt_weights(F, TARGET + 0.2, np.full(4, 5e-5)), atol=1e-6)
    far = tilt_weights(F, np.full(4, 99.0), np.full(4, 1e-3))
    assert np.isfinite(far).all()
    assert far.sum() == pytest.approx(1)


def test_errors_are_those_of_noise_and_of_sampling():
    assert variance_of(0.0, 400.0, noisy=True) > 1 / 1600
    assert variance_of(0.0, 1e9, noisy=True) > 0
    assert (
        variance_of(2.0, 400.0, noisy=True) - variance_of(0.0, 400.0, noisy=True) >= (2 / 400) ** 2
    )
    assert variance_of(2.0, 400.0, noisy=True) > variance_of(2.0, 500.0, noisy=True)


CLIENTS = {
    "all cells": (2, [(0, -1), (0, 1), (1, -1), (1, 1)]),
    "one label": (2, [(0, 1), (1, 1)]),
    "one group": (2, [(1, -1), (1, 1)]),
    "one cell": (3, [(2, -1)]),
}


def client(cells, n=40):
    """So many rows in each of some (group, label); the first feature goes with both."""
    rng = np.random.default_rng(0)
    s, y = np.repeat([g for g, _ in cells], n), np.repeat([float(y) for _, y in cells], n)
    x = rng.random((len(y), 3))
    x[:, 0] += 0.3 * y + 0.2 * s
    return Encoded(x, s, y)


@pytest.mark.parametrize(("n_groups", "cells"), CLIENTS.values(), ids=CLIENTS)
def test_random_problems_give_different_models_and_the_same_again(n_groups, cells):
    rows = client(cells)
    thetas, again = (
        self_play(rows, np.ones(len(rows.y)), 6, n_groups=n_groups, rng=np.random.default_rng(3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(thetas, again)
    assert thetas.shape == (6, 3 + n_groups)
    assert np.isfinite(thetas).all()
    assert np.ptp(thetas[:, :3], axis=0).min() > 0
    other = self_play(
        rows, np.ones(len(rows.y)), 6, n_groups=n_groups, rng=np.random.default_rng(4)
    )
    assert not np.isclose(thetas, other).all(axis=1).any()


def test_models_learn_the_labels_and_some_are_fair():
    rows = client(CLIENTS["all cells"][1], n=300)
    thetas = self_play(rows, np.ones(len(rows.y)), 12, n_groups=2, rng=np.random.default_rng(3))
    scores = inputs(rows, 2) @ thetas.T
    learned = [
        np.corrcoef(z[rows.s == g], rows.y[rows.s == g])[0, 1] for z in scores.T for g in (0, 1)
    ]
    assert min(learned) > 0.3
    selected = expit(4 * scores)
    gaps = np.abs(selected[rows.s == 1].mean(axis=0) - selected[rows.s == 0].mean(axis=0))
    assert np.median(gaps) < 0.07  # without penalties twice as much
    assert gaps.max() > 0.1


def test_rows_without_weight_have_no_part_in_a_problem():
    rows = client(CLIENTS["all cells"][1])
    light = np.arange(len(rows.y)) % 2 == 1
    turned = rows._replace(x=np.where(light[:, None], 1 - rows.x, rows.x))
    weight = np.where(light, 1e-9, 4.0)
    first, second = (
        self_play(one, weight, 6, n_groups=2, rng=np.random.default_rng(3))
        for one in (rows, turned)
    )
    np.testing.assert_allclose(first, second, atol=1e-3)
    even = self_play(turned, np.ones(len(light)), 6, n_groups=2, rng=np.random.default_rng(3))
    assert np.abs(even - second).max() > 0.1


@pytest.mark.parametrize("n_groups", [2, 3])
def test_smooth_rates_are_those_of_a_loop(n_groups):
    rows = client([(g, y) for g in range(n_groups) for y in (-1, 1)], n=5)
    thetas = np.random.default_rng(1).normal(size=(4, 3 + n_groups))
    found = smooth_rates(rows, thetas, n_groups)
    assert found.shape == (len(rows.y), 8)
    for x, s, rates in zip(rows.x, rows.s, found, strict=True):
        score = thetas @ [*x, *(float(s == g) for g in range(1, n_groups)), 1.0]
        wanted = [1 / (1 + np.exp(-q * z)) - 0.5 for q in (1, 4) for z in score]
        np.testing.assert_allclose(rates, wanted, atol=1e-12)
