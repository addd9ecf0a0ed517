"""Damped Gauss-Newton steps, against finite differences and against Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from small_problem import optimum, outer_value, point_at, run, some_problem

from synthfair.config import DistillConfig
from synthfair.distill.solvers import PULL, GaussNewton


@pytest.fixture(scope="module")
def problem():
    return some_problem(penalty="selection_rate")


def sensitivity(problem, x):
    """J [p, N_s d], by the derivative of Newton's steps, a column at a time: it compiles quicker."""
    slope = jax.jit(lambda v: jax.jvp(lambda x: optimum(problem, x), (x,), (v,))[1])
    return np.stack([slope(v.reshape(x.shape)) for v in np.eye(x.size)], axis=1)


def test_the_direction_is_that_of_the_large_system(problem):
    """Woodbury's identity, on a Jacobian and a Hessian by other means."""
    at = point_at(problem, problem.start + 0.1)
    values, vectors = np.linalg.eigh(jax.hessian(problem.outer)(at.theta, at.x))
    k = np.sqrt(np.abs(values))[:, None] * vectors.T @ sensitivity(problem, at.x)
    m = PULL / at.x.size
    c = m + 1e-3 * np.trace(k @ k.T) / len(k)
    slope = (at.gradient + m * (at.x - problem.start)).ravel()
    expected = -np.linalg.solve(k.T @ k + c * np.eye(at.x.size), slope)
    found = GaussNewton().direction(problem, at, 1e-3)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-12)


def test_it_reaches_the_optimum_of_f_where_adam_crawls():
    steep = some_problem(penalty="selection_rate", rho_o=1000.0, rho_s=0.0, lambda_x=1e-4)
    value = jax.jit(jax.value_and_grad(steep.objective))
    best = scipy.optimize.minimize(
        lambda t: tuple(map(np.asarray, value(t))), np.zeros(len(steep.first_theta)),
        jac=True, method="BFGS", options={"gtol": 1e-9},
    ).fun  # fmt: skip
    newton, _ = run(steep, DistillConfig(steps=100, optimizer="gauss_newton"))
    adam, _ = run(steep, DistillConfig(steps=100))
    assert newton.best.record.objective <= best * 1.001
    assert adam.best.record.objective > best * 1.01


def test_it_ends_at_what_it_reports(problem):
    state, history = run(problem, DistillConfig(steps=70, optimizer="gauss_newton"))
    assert len(history.objective) == 71
    assert state.best.record.objective == history.objective.min()
    assert history.objective.min() == pytest.approx(float(outer_value(problem, state.best.x)))


def test_a_step_that_fails_is_taken_back_and_damped(problem):
    optimizer, good = GaussNewton(), point_at(problem, problem.start)
    _, damping = optimizer.init(good)
    bad = good._replace(x=good.x + 1, record=good.record._replace(objective=jnp.asarray(jnp.nan)))
    x, (best, after) = optimizer.step(problem, bad, (good, damping))
    assert after == pytest.approx(4 * damping)
    np.testing.assert_array_equal(best.x, good.x)
    step = optimizer.direction(problem, good, after)
    np.testing.assert_allclose((x - good.x) * step[0, 0], (x - good.x)[0, 0] * step, rtol=1e-6)


def test_a_theta_that_did_not_converge_is_not_preferred(problem):
    optimizer, good = GaussNewton(), point_at(problem, problem.start)
    lucky = good.record._replace(objective=jnp.asarray(0.0), inner_converged=jnp.asarray(False))
    lucky = good._replace(x=good.x + 1, record=lucky)
    for point, before in ((lucky, good), (good, lucky)):
        _, (best, _) = optimizer.step(problem, point, optimizer.init(before))
        np.testing.assert_array_equal(best.x, good.x)


def test_of_all_rows_that_do_it_chooses_ones_near_the_start():
    """At the end the rows differ from the start only where that moves theta: along J's rows."""
    steep = some_problem(penalty="selection_rate", rho_o=100.0, lambda_x=0.0, rho_s=0.0)
    state, _ = run(steep, DistillConfig(steps=400, optimizer="gauss_newton"))
    moved = (state.best.x - steep.start).ravel()
    j = sensitivity(steep, state.best.x)
    inside = j.T @ jnp.linalg.lstsq(j.T, moved)[0]
    assert jnp.linalg.norm(moved - inside) < 0.05 * jnp.linalg.norm(moved)
