"""Exact refinement: its objective, where it ends, and what leaves a client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import run
from synthfair.federated.refine import DAMPING, Refine
from synthfair.federated.users import UserRows, make_users
from synthfair.model import LinearModel, Rows, mean_loss
from synthfair.surrogate.fair_training import train_fair

NOTIONS = "statistical_parity", "equal_opportunity", "equalized_odds"
KINDS = CovariancePenalty, SelectionRatePenalty
RHO, LAMBDA = 10.0, 0.1


def some_rows(n_groups, n=240, seed=0):
    """Three clients, none of which is like another."""
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    x = rng.random((n, 3)) + 0.2 * s[:, None]
    y = np.where(x[:, 0] + 0.3 * s + 0.4 * rng.normal(size=n) > 0.8, 1.0, -1.0)
    a = np.column_stack([x, *(s == g for g in range(1, n_groups)), np.ones(n)])
    user = np.where(rng.random(n) < 0.6, s % 3, 2 * (y > 0))
    return Rows(a, s, y), user


def refine(rows, penalty, start=None, **settings):
    zeros = np.zeros(rows.a.shape[1])
    start = jnp.asarray(zeros if start is None else start)
    return Refine(start, penalty, **{"rho": RHO, "lambda_theta": LAMBDA, **settings})


def total_at(algorithm, rows, user, candidates):
    """The sum of the clients' reports."""
    users = make_users(*map(np.asarray, rows[:3]), user)
    state = algorithm.init(None)._replace(candidates=candidates)
    reports = [algorithm.report(state, users.rows_of(i), None) for i in range(len(users))]
    return jax.tree.map(lambda *parts: sum(parts), *reports)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_sums_give_the_pooled_objective_with_its_derivatives(kind, notion, n_groups):
    rows, user = some_rows(n_groups)
    penalty, p = kind(n_groups, notion), rows.a.shape[1]
    algorithm = refine(rows, penalty)

    def objective(theta):
        z = rows.a @ theta
        ridge = LAMBDA / (2 * p**2) * theta @ theta
        return mean_loss(LinearModel(), z, rows) + RHO * penalty(z, rows) + ridge

    thetas = jnp.asarray(np.random.default_rng(1).normal(size=(len(DAMPING), p)))
    sums = total_at(algorithm, rows, user, thetas)
    for i, theta in enumerate(thetas):
        found = algorithm.derivatives(theta, sums.rows, *(part[i] for part in sums[1:]))
        expected = (f(objective)(theta) for f in (lambda f: f, jax.grad, jax.hessian))
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [1.0, 100.0])
def test_exchanges_end_at_the_central_optimum(kind, rho):
    rows, user = some_rows(3)
    penalty = kind(3, "equalized_odds")
    central = train_fair(rows, LAMBDA, rho, model=LinearModel(), penalty=penalty)
    start = np.asarray(central.params) + 0.1 * np.random.default_rng(2).normal(size=6)
    users = make_users(*rows[:3], user)
    algorithm = refine(rows, penalty, start, rho=rho)
    end = run(algorithm, users, Cohorts.everyone(len(users)), rounds=18, seed=0)
    np.testing.assert_allclose(end.state.theta, central.params, atol=1e-6)
    assert end.history.gradient_norm[-1] < 1e-9
    # No exchange is worse than the one before, and the first is at the start.
    assert (np.diff(end.history.objective) <= 0).all()
    assert end.history.step[0] == 0


def test_near_the_optimum_an_exchange_squares_the_error():
    rows, user = some_rows(2)
    users, penalty = make_users(*rows[:3], user), SelectionRatePenalty()
    central = train_fair(rows, LAMBDA, RHO, model=LinearModel(), penalty=penalty)
    algorithm = refine(rows, penalty, np.asarray(central.params) + 1e-3)
    history = run(algorithm, users, Cohorts.everyone(len(users)), rounds=3, seed=0).history
    first, second, third = history.gradient_norm
    assert second < 0.02 * first
    assert third < 0.02**2 * first


def test_a_step_that_is_too_long_is_tried_again_shorter():
    rows, user = some_rows(2)
    algorithm = refine(rows, SelectionRatePenalty())
    state = algorithm.init(None)._replace(objective=jnp.array(0.0))  # below all that there is
    offered = jnp.arange(5 * len(DAMPING), dtype=float).reshape(len(DAMPING), 5)
    state = state._replace(candidates=offered)
    after, record = algorithm.update(state, total_at(algorithm, rows, user, offered), 3.0)
    np.testing.assert_array_equal(after.theta, state.theta)
    np.testing.assert_allclose(after.candidates, 0.1 * offered)
    assert (record.step, record.objective) == (0.0, 0.0)


def test_rows_of_weight_0_do_not_enter():
    rows, _ = some_rows(2)
    algorithm = refine(rows, SelectionRatePenalty(2, "equalized_odds"), np.ones(5))
    s, weight = rows.s[:, None], np.ones(len(rows.y))
    weight[100:] = 0.0
    everyone = UserRows(*map(jnp.asarray, (rows.a, s, rows.y, weight)))
    few = UserRows(*(part[:100] for part in everyone))
    state = algorithm.init(None)
    for own, other in zip(
        *(algorithm.report(state, r, None) for r in (everyone, few)), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_a_group_that_nobody_has_leaves_the_start():
    rows, user = some_rows(2)
    users = make_users(*rows[:3], user)
    algorithm = refine(rows, SelectionRatePenalty(3), np.ones(5))
    end = run(algorithm, users, Cohorts.everyone(len(users)), rounds=2, seed=0)
    np.testing.assert_array_equal(end.state.theta, np.ones(5))
    assert np.isinf(end.history.objective).all()
