"""Sums of rows' clipped gradients, and the random batches they are of."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_group_rows import NETWORK, Centred, flat, rows_of

from synthfair.federated import LogisticRegression, Perceptron
from synthfair.federated.clipping import clipped_gradients, cross_entropy, poisson_sum, random_rows


class Doubled(Perceptron):
    """Not private if its gradients were taken for those of a network with ReLU."""

    def scores(self, params, a):
        return 2 * super().scores(params, a)


MODELS = [NETWORK, LogisticRegression(3), Doubled(3, (5, 4))]
KEY, ROWS = jax.random.key(3), rows_of()


def params_of(model):
    return jax.tree.map(lambda leaf: leaf + 0.3, model.init(KEY))


@partial(jax.jit, static_argnums=0)
def clipped(model, params, rows, clip):
    return clipped_gradients(model, params, rows, cross_entropy, clip)


@pytest.mark.parametrize("model", MODELS)
def test_clipped_gradients_are_those_of_a_loop_over_rows(model):
    params = params_of(model)

    @jax.jit
    @jax.grad
    def slope(params, a, y):
        return jnp.logaddexp(0.0, -y * model.scores(params, a[None])[0])

    own = np.array([flat(slope(params, a, y)) for a, y in zip(ROWS.a, ROWS.y, strict=True)])
    norms = np.linalg.norm(own, axis=1)
    assert norms.min() < 0.5 < norms.max()  # so that clipping the mean would fail
    for clip in (0.05, 0.5, math.inf):
        expected = (own * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        found = flat(clipped(model, params, ROWS, clip))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [*MODELS, Centred(3)])
@pytest.mark.parametrize("value", [1e4, 1e300, math.inf, math.nan])
def test_clipped_gradients_move_by_the_clip_at_most_whatever_a_row_holds(model, value):
    params, rows = params_of(model), ROWS._replace(a=ROWS.a.at[0].set(value))
    without = ROWS._replace(a=ROWS.a.at[0].set(0.0), weight=ROWS.weight.at[0].set(0.0))
    for clip in (0.1, 1.5):
        one, other = (flat(clipped(model, params, own, clip)) for own in (rows, without))
        assert np.linalg.norm(one - other) <= clip * (1 + 1e-9)


# Batches


def test_poisson_batches_hold_each_row_with_the_same_chance():
    """Chances of 45 rows of 60 over 4,000 batches within 6 standard errors: false alarm 1e-7."""
    q, n = 9 / 45, 4000
    rows = ROWS._replace(weight=(jnp.arange(60) < 45) * 1.0, y=jnp.arange(60.0))

    def counts(some):
        return jnp.zeros(60).at[some.y.astype(int)].add(some.weight)

    keys = jax.random.split(KEY, n)
    held = np.asarray(jax.vmap(lambda key: poisson_sum(counts, rows, 9, key))(keys))
    assert set(np.unique(held)) == {0.0, 1.0}
    assert not held[:, 45:].any()
    error = math.sqrt(q * (1 - q) / n)
    assert np.abs(held[:, :45].mean(axis=0) - q).max() < 6 * error
    sizes, variance = held.sum(axis=1), 45 * q * (1 - q)
    assert abs(sizes.mean() - 9) < 6 * error * 45**0.5
    assert abs(sizes.var() - variance) < 6 * variance * math.sqrt(2 / n)  # not of fixed size


def test_poisson_batches_leave_out_no_row_beyond_the_room_of_a_pass(monkeypatch):
    sums = []
    for errors in (6, -5):  # a pass of all 60 rows, passes of 6
        monkeypatch.setattr("synthfair.federated.clipping.PASS_ERRORS", errors)
        sums.append(poisson_sum(lambda batch: batch.weight @ batch.a, ROWS, 30, KEY))
    np.testing.assert_allclose(*sums)


def test_random_rows_are_those_that_are_there():
    rows = ROWS._replace(weight=(jnp.arange(60) % 2) * 1.0, y=jnp.arange(60.0))
    drawn = random_rows(rows, 2000, KEY)
    assert set(np.asarray(drawn.y)) == set(range(1, 60, 2))
    assert (drawn.weight == 1).all()
