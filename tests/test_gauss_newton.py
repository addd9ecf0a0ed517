"""Damped Gauss-Newton steps, against finite differences and against Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from small_problem import optimum, outer_value, run, some_problem

from synthfair.config import DistillConfig
from synthfair.distill import gauss_newton
from synthfair.distill.gauss_newton import GaussNewton
from synthfair.distill.hypergradient import Solvers, evaluate


@pytest.fixture(scope="module")
def problem():
    return some_problem(penalty="selection_rate")


def point_at(problem, x):
    n = len(problem.inputs(x))
    return jax.jit(evaluate)(problem, x, jnp.zeros(n), jnp.eye(n), Solvers(tolerance=1e-10))


def matrix(problem, at):
    """J [p, N_s d]."""
    _, back = gauss_newton.sensitivity(problem, at)
    return jax.vmap(back)(jnp.eye(len(at.curvature))).reshape(len(at.curvature), -1)


def test_sensitivity_is_the_central_difference(problem):
    x = problem.start
    forward, back = gauss_newton.sensitivity(problem, point_at(problem, x))
    change = np.random.default_rng(0).normal(size=x.shape)
    h = 1e-5
    slope = (optimum(problem, x + h * change) - optimum(problem, x - h * change)) / (2 * h)
    np.testing.assert_allclose(forward(jnp.asarray(change)), slope, rtol=1e-6)
    np.testing.assert_allclose(jnp.sum(back(slope) * change), slope @ slope, rtol=1e-6)


@pytest.mark.parametrize("block", [8, 1000])
def test_the_gram_matrix_is_that_of_the_sensitivity(problem, block, monkeypatch):
    """In blocks that divide the rows, and that hold them all."""
    monkeypatch.setattr(gauss_newton, "BLOCK", block)
    at = point_at(problem, problem.start)
    j = matrix(problem, at)
    np.testing.assert_allclose(gauss_newton.sensitivity_gram(problem, at), j @ j.T, rtol=1e-9)


def test_blocks_that_do_not_divide_the_rows(problem, monkeypatch):
    monkeypatch.setattr(gauss_newton, "BLOCK", 7)
    at = point_at(problem, problem.start)
    j = matrix(problem, at)
    np.testing.assert_allclose(gauss_newton.sensitivity_gram(problem, at), j @ j.T, rtol=1e-9)


def test_woodbury_is_the_large_system(problem):
    at = point_at(problem, problem.start + 0.1)
    k = gauss_newton.curvature_root(problem, at) @ matrix(problem, at)
    m = gauss_newton.PULL / at.x.size
    c = m + 1e-3 * jnp.trace(k @ k.T) / len(k)
    slope = (at.gradient + m * (at.x - problem.start)).ravel()
    expected = -jnp.linalg.solve(k.T @ k + c * jnp.eye(at.x.size), slope)
    found = gauss_newton.direction(problem, at, 1e-3)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-12)


def test_it_reaches_the_optimum_of_f_where_adam_crawls():
    steep = some_problem(penalty="selection_rate", rho_o=1000.0, rho_s=0.0, lambda_x=1e-4)
    value = jax.jit(jax.value_and_grad(steep.objective))
    best = scipy.optimize.minimize(
        lambda t: tuple(map(np.asarray, value(t))), np.zeros(len(steep.inputs(steep.start))),
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
    state = optimizer.init(good)
    bad = good._replace(x=good.x + 1, record=good.record._replace(objective=jnp.asarray(jnp.nan)))
    x, after = optimizer.step(problem, bad, state)
    assert after.damping == pytest.approx(4 * state.damping)
    np.testing.assert_array_equal(after.best.x, good.x)
    step = gauss_newton.direction(problem, good, after.damping)
    np.testing.assert_allclose((x - good.x) * step[0, 0], (x - good.x)[0, 0] * step, rtol=1e-6)


def test_a_theta_that_did_not_converge_is_not_preferred(problem):
    optimizer, good = GaussNewton(), point_at(problem, problem.start)
    lucky = good.record._replace(objective=jnp.asarray(0.0), inner_converged=jnp.asarray(False))
    lucky = good._replace(x=good.x + 1, record=lucky)
    _, state = optimizer.step(problem, lucky, optimizer.init(good))
    np.testing.assert_array_equal(state.best.x, good.x)
    _, state = optimizer.step(problem, good, optimizer.init(lucky))
    np.testing.assert_array_equal(state.best.x, good.x)


def test_of_all_rows_that_do_it_chooses_ones_near_the_start():
    """At the end the rows differ from the start only where that moves theta: along J's rows."""
    steep = some_problem(penalty="selection_rate", rho_o=100.0, lambda_x=0.0, rho_s=0.0)
    state, _ = run(steep, DistillConfig(steps=400, optimizer="gauss_newton"))
    moved = (state.best.x - steep.start).ravel()
    j = matrix(steep, point_at(steep, state.best.x))
    inside = j.T @ jnp.linalg.lstsq(j.T, moved)[0]
    assert jnp.linalg.norm(moved - inside) < 0.05 * jnp.linalg.norm(moved)
