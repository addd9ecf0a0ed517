"""What epsilon costs: what is run, DP-SGD's penalty, the page."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import privacy
from benchmarks.privacy import FairDpSgd
from benchmarks.unlike.training import MAIN
from synthfair.federated import LogisticRegression
from synthfair.federated.single_rows import UserRows
from synthfair.model import logistic
from synthfair.privacy.accounting import epsilon_of


def test_without_noise_dp_sgd_ends_at_the_optimum_of_loss_and_penalty():
    rng = np.random.default_rng(0)
    a, s = jnp.asarray(rng.random((80, 3))), jnp.asarray(rng.integers(2, size=80))
    y = jnp.asarray(np.where(rng.random(80) < 0.3 + 0.4 * s, 1.0, -1.0))
    moment = jnp.asarray(rng.normal(size=3))
    rows = UserRows(a, s[:, None], y, jnp.ones(80))
    method = FairDpSgd(
        model=LogisticRegression(3), batch=80, local_steps=3000, moment=moment,
        learning_rate=2.0,
    )  # fmt: skip
    theta = method.train(jnp.zeros(3), rows, jax.random.key(0))
    slope = jax.grad(lambda p: logistic(y * (a @ p)).mean() + MAIN.rho / 2 * (moment @ p) ** 2)(
        theta
    )
    assert np.abs(slope).max() < 1e-6
    assert np.abs(theta).max() > 0.1


@pytest.mark.parametrize("epsilon", privacy.EPSILONS)
def test_the_moment_and_the_steps_of_dp_sgd_spend_epsilon_together(epsilon):
    moment, gradient = privacy.noise_of_parts(epsilon)
    mu = math.hypot(1 / moment, *[1 / gradient] * privacy.SGD_STEPS)
    assert epsilon_of(mu, privacy.DELTA) == pytest.approx(epsilon, rel=1e-6)
