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


def test_tilted_weights_of_targets_that_contradict_each_other_are_between():
    twice = tilt_weights(np.hstack([F, F]), np.append(TARGET, TARGET + 0.4), np.full(8, 1e-4))
    np.testing.assert_allclose(twice, tilt_weights(F, TARGET + 0.2, np.full(4, 5e-5)), atol=1e-6)
    assert tilt_weights(F, np.full(4, 99.0), np.full(4, 1e-3)).sum() == pytest.approx(1)


CELLS = [(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)]
CLIENTS = {"all": CELLS, "one label": CELLS[1::2], "one group": CELLS[2:], "one cell": CELLS[2:3]}


def client(cells, n=40):
    """So many rows in each of some (group, label); the first feature goes with both."""
    s, y = (np.repeat(column, n) for column in zip(*cells, strict=True))
    x = np.random.default_rng(0).random((len(y), 3))
    x[:, 0] += 0.3 * y + 0.2 * s
    return Encoded(x, s, y)


def played(rows, weight=None, *, problems=6, seed=3):
    weight, rng = np.ones(len(rows.y)) if weight is None else weight, np.random.default_rng(seed)
    return self_play(rows, weight, problems, n_groups=2, rng=rng)


@pytest.mark.parametrize("cells", CLIENTS.values(), ids=CLIENTS)
def test_random_problems_have_different_models_and_the_same_again(cells):
    rows = client(cells)
    thetas = played(rows)
    np.testing.assert_array_equal(thetas, played(rows))
    assert thetas.shape == (6, 5)
    assert np.ptp(thetas[:, :3], axis=0).min() > 0
    assert not np.isclose(thetas, played(rows, seed=4)).all(axis=1).any()


def test_random_problems_learn_the_labels_and_some_are_fair():
    rows = client(CELLS, n=300)
    scores = inputs(rows, 2) @ played(rows, problems=12).T
    for group in (rows.s == g for g in (0, 1)):
        assert min(np.corrcoef(z[group], rows.y[group])[0, 1] for z in scores.T) > 0.3
    selected = expit(4 * scores)
    gaps = np.abs(selected[rows.s == 1].mean(axis=0) - selected[rows.s == 0].mean(axis=0))
    assert np.median(gaps) < 0.07  # without penalties twice as much
    assert gaps.max() > 0.1


def test_random_problems_do_not_see_rows_without_weight():
    rows, light = client(CELLS), np.arange(160) % 2 == 1
    turned = rows._replace(x=np.where(light[:, None], 1 - rows.x, rows.x))
    weight = np.where(light, 1e-9, 4.0)
    np.testing.assert_allclose(played(rows, weight), played(turned, weight), atol=1e-3)
    assert np.abs(played(turned) - played(turned, weight)).max() > 0.1
