"""Sums of rows' clipped gradients, and the random batches they are of."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_group_rows import NETWORK, Centred, rows_of

from synthfair.federated.clipping import (
    clipped_gradients,
    cross_entropy,
    noise_of,
    poisson_sum,
    random_rows,
)
from synthfair.federated.networks import LogisticRegression, Perceptron

MODELS = [NETWORK, LogisticRegression(3)]
KEY = jax.random.key(3)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def row_gradients(model, params, rows):
    """One row after the other, by automatic differentiation."""

    @jax.jit
    def slope(a, y):
        return jax.grad(lambda p: jnp.logaddexp(0.0, -y * model.scores(p, a[None])[0]))(params)

    return np.array([flat(slope(a, y)) for a, y in zip(rows.a, rows.y, strict=True)])


@partial(jax.jit, static_argnums=0)
def clipped(model, params, rows, clip):
    return clipped_gradients(model, params, rows, cross_entropy, clip)


# Clipping


@pytest.mark.parametrize("model", MODELS)
def test_the_clipped_sum_is_that_of_a_naive_loop(model):
    rows, params = rows_of(), jax.tree.map(lambda leaf: leaf + 0.3, model.init(KEY))
    own = row_gradients(model, params, rows)
    norms = np.linalg.norm(own, axis=1)
    assert norms.min() < 0.5 < norms.max()  # so that clipping the mean would fail
    for clip in (0.05, 0.5, math.inf):
        expected = (own * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        found = flat(clipped(model, params, rows, clip))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_network_of_another_kind_takes_the_way_that_holds_for_any_model():
    """It would not be private if its gradients were taken for those of a network with ReLU."""

    class Doubled(Perceptron):
        def scores(self, params, a):
            return 2 * super().scores(params, a)

    rows, params, doubled = rows_of(), NETWORK.init(KEY), Doubled(3, NETWORK.hidden)
    own = row_gradients(doubled, params, rows)
    expected = (own * np.minimum(1, 0.5 / np.linalg.norm(own, axis=1))[:, None]).sum(axis=0)
    found = flat(clipped(doubled, params, rows, 0.5))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [*MODELS, Centred(3)])
def test_one_row_changes_a_clipped_sum_by_the_clip_at_most(model):
    rows = rows_of()
    rows = rows._replace(a=rows.a.at[0].multiply(1e4))
    params = jax.tree.map(lambda leaf: leaf + 0.3, model.init(KEY))
    without = rows._replace(a=rows.a.at[0].set(0.0), weight=rows.weight.at[0].set(0.0))
    for clip in (0.1, 1.5):
        with_, rest = (clipped(model, params, r, clip) for r in (rows, without))
        assert np.linalg.norm(flat(with_) - flat(rest)) <= clip * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_a_row_without_a_finite_gradient_counts_nothing(model):
    rows, params = rows_of(), model.init(KEY)
    whole = clipped(model, params, rows._replace(weight=rows.weight.at[0].set(0.0)), 0.5)
    for bad in (math.nan, math.inf, 1e300):
        spoilt = clipped(model, params, rows._replace(a=rows.a.at[0].set(bad)), 0.5)
        assert np.linalg.norm(flat(spoilt) - flat(whole)) <= 0.5 * (1 + 1e-9)


def test_no_noise_is_none_even_where_nothing_bounds_the_sum():
    assert noise_of(0.0, math.inf) == 0
    assert noise_of(2.0, 1.5) == 3


# Batches


def test_poisson_batches_hold_each_row_with_the_same_chance():
    """Chances of 45 rows of 60 over 4,000 batches: five standard deviations, false alarm 3e-5."""
    rows, q, n = rows_of(), 9 / 45, 4000
    rows = rows._replace(weight=(jnp.arange(60) < 45) * 1.0, y=jnp.arange(60.0))

    def batch(key):
        return poisson_sum(
            lambda some: jnp.zeros(60).at[some.y.astype(int)].add(some.weight), rows, 9, key
        )

    held = np.asarray(jax.jit(jax.vmap(batch))(jax.random.split(KEY, n)))
    assert set(np.unique(held)) == {0.0, 1.0}
    assert not held[:, 45:].any()
    error = math.sqrt(q * (1 - q) / n)
    assert np.abs(held[:, :45].mean(axis=0) - q).max() < 5 * error
    sizes = held.sum(axis=1)
    assert abs(sizes.mean() - 9) < 5 * error * 45**0.5
    assert sizes.var() == pytest.approx(45 * q * (1 - q), rel=0.12)  # not of fixed size


def test_rows_beyond_the_room_of_a_pass_are_not_left_out(monkeypatch):
    rows, sums = rows_of(), []
    for errors in (6, -5):  # a pass of all 60 rows, passes of 6
        monkeypatch.setattr("synthfair.federated.clipping.PASS_ERRORS", errors)
        sums.append(poisson_sum(lambda batch: batch.weight @ batch.a, rows, 30, KEY))
    np.testing.assert_allclose(*sums)


def test_random_rows_are_those_that_are_there():
    rows = rows_of()._replace(weight=(jnp.arange(60) % 2) * 1.0, y=jnp.arange(60.0))
    drawn = random_rows(rows, 2000, KEY)
    assert set(np.asarray(drawn.y)) == set(range(1, 60, 2))
    assert (drawn.weight == 1).all()
