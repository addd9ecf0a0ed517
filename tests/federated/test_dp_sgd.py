"""DP-SGD on each user's rows, against its algorithm in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from two_group_rows import NETWORK, flat, make, rows_of

from synthfair.federated import Cohorts, DpSgd, LogisticRegression, make_users
from synthfair.federated.engine import run

BY_PAIR = np.array([[1.0, 3.0], [2.0, 1.0]])  # weights of rows by group and label
EVERYONE = Cohorts(2, 2)


def test_dp_sgd_without_noise_is_clipped_gradient_descent_of_users_who_count_by_their_rows():
    """All rows in each batch, the weights of rows before the clip."""
    a, s, y = make(80)
    owner, weights = np.repeat([0, 1], [20, 60]), BY_PAIR[s, (y > 0).astype(int)]
    settings = {"learning_rate": 0.25, "batch": 60, "local_steps": 3, "clip": 1.0}
    settings |= {"row_weights": jnp.asarray(BY_PAIR)}
    method = DpSgd(model=LogisticRegression(3), **settings)
    done = run(method, make_users(a, s, y, owner), EVERYONE, rounds=2, seed=0)
    theta = np.zeros(3)
    for _ in range(2):
        ends = []
        for user in (0, 1):
            mine, end = owner == user, theta
            for _ in range(3):
                slope = -weights * y * expit(-y * (a @ end))
                gradients = (slope[:, None] * a)[mine]
                norms = np.linalg.norm(gradients, axis=1, keepdims=True)
                assert norms.min() < 1 < norms.max()
                end = end - 0.25 * (gradients * np.minimum(1, 1 / norms)).sum(axis=0) / 60
            ends.append(end)
        theta = 0.25 * ends[0] + 0.75 * ends[1]
    np.testing.assert_allclose(done.state, theta, rtol=1e-9)


@pytest.mark.parametrize("model", [NETWORK, LogisticRegression(3)])
def test_dp_sgd_moves_by_the_clip_at_most_however_heavy_a_row_is(model):
    rows, key = rows_of(), jax.random.key(0)
    params = jax.tree.map(lambda leaf: leaf + 0.3, model.init(key))
    method = DpSgd(model=model, clip=0.5, batch=60, row_weights=1e6 * jnp.asarray(BY_PAIR))
    without = rows._replace(weight=rows.weight.at[0].set(0.0))
    gradient = jax.jit(method.noisy_gradient)
    one, other = (60 * flat(gradient(params, own, key)) for own in (rows, without))
    assert np.linalg.norm(one - other) == pytest.approx(0.5, rel=1e-6)
    # How much a client counts says nothing of its labels.
    assert float(jax.jit(method.report)(params, rows, key).weight) == 60


def test_dp_sgd_noise_is_as_stated():
    """Of 18,000 numbers within 5 standard errors; noise of 5 % more is found out."""
    rows, params = rows_of(), NETWORK.init(jax.random.key(3))
    keys = jax.random.split(jax.random.key(3), 300)
    method = DpSgd(model=NETWORK, clip=0.7, noise=1.3, batch=10)
    each = jax.jit(jax.vmap(DpSgd.noisy_gradient, (None, None, None, 0)))
    noisy, exact = (flat(each(m, params, rows, keys)) for m in (method, method.bound(noise=0.0)))
    found, error = np.std(noisy - exact), 5 / np.sqrt(2 * len(noisy))
    assert found == pytest.approx(1.3 * 0.7 / 10, rel=error)
    assert found != pytest.approx(1.05 * 1.3 * 0.7 / 10, rel=error)


def test_dp_sgd_noise_of_each_step_is_its_own():
    """Of 300 steps it adds up to sqrt(300) times that of one; of the same noise, to 300 times."""
    rows, start, steps = rows_of(), NETWORK.init(jax.random.key(3)), 300
    method = DpSgd(model=NETWORK, learning_rate=1e-6, clip=1.0, noise=50.0, batch=60)
    end = jax.jit(method.bound(local_steps=steps).train)(start, rows, jax.random.key(1))
    one = 1e-6 * 50.0 * 1.0 / 60
    assert 0.5 < np.std(flat(end) - flat(start)) / (one * steps**0.5) < 2
