"""What studies compute that no page shows: metrics by hand, baselines, published noise, cuts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table

from benchmarks import adult_fpfl, privacy
from benchmarks import privfairfl as pf
from benchmarks.privacy import FairDpSgd
from benchmarks.unlike import clients
from benchmarks.unlike.training import MAIN
from synthfair.data.encode import Encoded
from synthfair.federated import LogisticRegression
from synthfair.federated.single_rows import UserRows
from synthfair.model import logistic
from synthfair.privacy.accounting import epsilon_of

S, Y = np.repeat([0, 1], 4), np.tile([1.0, 1.0, -1.0, -1.0], 2)
ROWS = Encoded(np.zeros((8, 1)), S, Y)


def test_adult_gaps_by_hand():
    found = adult_fpfl.measured(np.array([1.0, 1, 1, -1, 1, -1, -1, -1]), ROWS)
    assert found.accuracy == 6 / 8
    # Overall 1/4, of groups 0 and 1/2; the same; 1/2, 3/4 and 1/4; 3/4, 2/3 and 1.
    gaps = found.fnr_gap, found.eo_gap, found.demp_gap, found.pp_gap
    assert gaps == pytest.approx([0.25] * 4)
    assert np.isnan(adult_fpfl.gap(np.ones(2, bool), np.array([True, False]), np.array([0, 1])))


def test_privfairfl_metrics_by_hand():
    """Rates by hand: TPR 1/2 and 1, FPR 0 and 1/2, selected 1/4 and 3/4."""
    rows = pf.SplitTable(make_schema(), None, None, ROWS)
    certain = pf.measured(rows, np.array([1.0, 0, 0, 0, 1, 1, 1, 0]))
    assert certain == pytest.approx(pf.FairValues(0.75, 1.0, 0.5, 0.5, 0.5, 0.5))
    mixed = pf.measured(rows, np.array([0.5, 0.5, 0, 0, 1, 1, 0, 0]))
    assert mixed == pytest.approx(pf.FairValues(0.875, 1.0, 0.5, 0.25, 0.25, 0.5))


def test_randomised_responses_have_no_bias():
    """A mean of 200 runs more than 5 standard errors off: 1e-6 for each of 4 cells."""
    total, rng = np.array([4000, 1000, 300, 0]), np.random.default_rng(0)
    rows = np.repeat(np.arange(4), total)
    estimates = np.array([pf.responses(total, 1.0, rng) for _ in range(200)])
    error = estimates.std(axis=0) / 200**0.5
    assert (abs(estimates.mean(axis=0) - total) < 5 * error + 0.5).all()
    drawn = [pf.randomised_response(rows, 4, 1.0, rng) for _ in range(200)]
    biased = [np.bincount(each, minlength=4) for each in drawn]
    assert (abs(np.mean(biased, axis=0) - total) > 5 * error).any()


def test_published_noise_costs_what_its_privacy_loss_says():
    """Of Laplace noise the pure epsilon is n / scale; an (epsilon, delta) one is less."""
    assert 300 < pf.least_epsilon(1.0, 1e-6) < 1001
    assert pf.least_epsilon(0.1, 1e-6) < pf.least_epsilon(0.5, 1e-6)


def test_dp_sgd_without_noise_ends_at_the_optimum_of_loss_and_penalty():
    rng = np.random.default_rng(0)
    a, s = jnp.asarray(rng.random((80, 3))), jnp.asarray(rng.integers(2, size=80))
    y = jnp.asarray(np.where(rng.random(80) < 0.3 + 0.4 * s, 1.0, -1.0))
    moment = jnp.asarray(rng.normal(size=3))
    settings = {"batch": 80, "local_steps": 3000, "moment": moment, "learning_rate": 2.0}
    method = FairDpSgd(model=LogisticRegression(3), **settings)
    rows = UserRows(a, s[:, None], y, jnp.ones(80))
    theta = method.train(jnp.zeros(3), rows, jax.random.key(0))

    def objective(p):
        return logistic(y * (a @ p)).mean() + MAIN.rho / 2 * (moment @ p) ** 2

    assert np.abs(jax.grad(objective)(theta)).max() < 1e-6
    assert np.abs(theta).max() > 0.1


def test_dp_sgd_spends_epsilon_on_moment_and_steps_together():
    for epsilon in privacy.EPSILONS:
        moment, gradient = privacy.noise_of_parts(epsilon)
        mu = math.hypot(1 / moment, *[1 / gradient] * privacy.SGD_STEPS)
        assert epsilon_of(mu, privacy.DELTA) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("split", "n"), [("alike", 4), ("0.3", 4), ("0.05", 20)])
def test_unlike_clients_have_every_row_once_and_rows_for_testing(split, n):
    cut = clients.Cut("dutch", n, split, 0)
    parts = clients.cut_table(make_table(400), make_schema(), cut)
    index = [i for part in parts for side in part for i in side.index]
    assert len({*index}) == len(index) >= 400 - 2 * (n - len(parts))
    assert all(len(train) and len(test) for train, test in parts)
