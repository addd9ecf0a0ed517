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


def test_dp_sgd_without_noise_is_clipped_gradient_descent_of_users_who_count_by_their_rows():
    """All rows in each batch, the weights of rows before the clip."""
    a, s, y = make(80)
    owner, weights = np.repeat([0, 1], [20, 60]), BY_PAIR[s, (y > 0).astype(int)]
    settings = {"learning_rate": 0.25, "batch": 60, "local_steps": 3, "clip": 1.0}
    settings |= {"row_weights": jnp.asarray(BY_PAIR)}
    method = DpSgd(model=LogisticRegression(3), **settings)
    done = run(method, make_users(a, s, y, owner), Cohorts(2, 2), rounds=2, seed=0)
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


def test_dp_sgd_noise_is_as_stated_and_says_nothing_of_who_is_in_the_batch():
    """Of 18,000 numbers within 5 standard errors."""
    rows, keys = rows_of()._replace(a=jnp.eye(60)), jax.random.split(jax.random.key(3), 300)
    method = DpSgd(model=LogisticRegression(60), clip=0.7, noise=1.3, batch=10)
    each = jax.jit(jax.vmap(DpSgd.noisy_gradient, (None, None, None, 0)))
    steps, start = (method, method.bound(noise=0.0)), jnp.zeros(60)
    noisy, exact = (flat(each(m, start, rows, keys)) for m in steps)
    found, error = np.std(noisy - exact), 5 / np.sqrt(2 * len(noisy))
    assert abs(np.corrcoef(noisy - exact, exact != 0)[0, 1]) < 2**0.5 * error
    assert found == pytest.approx(1.3 * 0.7 / 10, rel=error)


def test_dp_sgd_noise_of_each_step_is_its_own():
    """Of 300 steps it adds up to sqrt(300) times that of one; of the same noise, to 300 times."""
    rows, start, steps = rows_of(), NETWORK.init(jax.random.key(3)), 300
    method = DpSgd(model=NETWORK, learning_rate=1e-6, clip=1.0, noise=50.0, batch=60)
    end = jax.jit(method.bound(local_steps=steps).train)(start, rows, jax.random.key(1))
    one = 1e-6 * 50.0 * 1.0 / 60
    assert 0.5 < np.std(flat(end) - flat(start)) / (one * steps**0.5) < 2
