"""Damped Gauss-Newton steps, against finite differences and against Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from test_outer import judged, optimum, some_problem

from synthfair.config import DistillConfig
from synthfair.distill import gauss_newton, outer
from synthfair.distill.judge import judge


def some_judged(problem, x):
    start = jnp.zeros(problem.rows(x).a.shape[1])
    factor = jnp.eye(len(start))
    return judge(problem, x, start, factor, tolerance=1e-10, max_iterations=200)


def run(problem, x, steps, optimizer):
    config = DistillConfig(steps=steps, optimizer=optimizer)
    state = outer.init(problem, x, config)
    chunks = list(outer.run(problem, state, config))
    return chunks[-1][0], np.concatenate([records.objective for _, records in chunks])


def matrix(problem, at):
    """J [p, N_s d]."""
    _, back = gauss_newton.sensitivity(problem, at)
    return jax.vmap(back)(jnp.eye(len(at.curvature))).reshape(len(at.curvature), -1)


def test_sensitivity_is_the_central_difference():
    problem, x = some_problem()
    forward, back = gauss_newton.sensitivity(problem, some_judged(problem, x))
    change = np.random.default_rng(0).normal(size=x.shape)
    h = 1e-5
    slope = (optimum(problem, x + h * change) - optimum(problem, x - h * change)) / (2 * h)
    np.testing.assert_allclose(forward(jnp.asarray(change)), slope, rtol=1e-6)
    np.testing.assert_allclose(jnp.sum(back(slope) * change), slope @ slope, rtol=1e-6)


@pytest.mark.parametrize("block", [3, 8, 1000])
def test_the_gram_matrix_is_that_of_the_sensitivity(block, monkeypatch):
    """In blocks that divide the rows, that do not, and that hold them all."""
    monkeypatch.setattr(gauss_newton, "BLOCK", block)
    problem, x = some_problem()
    at = some_judged(problem, x)
    j = matrix(problem, at)
    np.testing.assert_allclose(gauss_newton.sensitivity_gram(problem, at), j @ j.T, rtol=1e-9)


def test_woodbury_is_the_large_system():
    problem, x = some_problem(penalty="selection_rate")
    at = some_judged(problem, x)
    k = gauss_newton.curvature_root(problem, at) @ matrix(problem, at)
    start, m = x - 0.1, gauss_newton.PULL / x.size
    c = m + 1e-3 * jnp.trace(k @ k.T) / len(k)
    slope = (at.gradient + m * (x - start)).ravel()
    expected = -jnp.linalg.solve(k.T @ k + c * jnp.eye(x.size), slope)
    found = gauss_newton.direction(problem, at, start, 1e-3)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_it_reaches_the_optimum_of_f_where_adam_crawls(penalty):
    problem, x = some_problem(penalty=penalty, rho_o=1000.0, rho_s=0.0, lambda_x=1e-4)
    value = jax.jit(jax.value_and_grad(problem.objective))
    best = scipy.optimize.minimize(
        lambda t: tuple(map(np.asarray, value(t))), np.zeros(problem.objective.rows.a.shape[1]),
        jac=True, method="BFGS", options={"gtol": 1e-9},
    ).fun  # fmt: skip
    _, newton = run(problem, x, 100, "gauss_newton")
    _, adam = run(problem, x, 100, "adam")
    assert newton[-1] <= best * 1.001
    assert adam[-1] > best * 1.01


def test_it_hardly_ever_rises_and_ends_at_what_it_reports():
    problem, x = some_problem(penalty="selection_rate", rho_o=300.0)
    state, objective = run(problem, x, 70, "gauss_newton")
    assert len(objective) == 71
    assert (np.diff(objective) <= gauss_newton.PULL / 2).all()  # what staying near may cost
    assert objective[-1] == pytest.approx(float(judged(problem, state.x)))


def test_a_step_that_fails_is_taken_back_and_damped():
    problem, x = some_problem()
    good = some_judged(problem, x)
    memory = gauss_newton.Memory(x, good, jnp.asarray(1e-3))
    bad = good._replace(x=x + 1, record=good.record._replace(objective=jnp.asarray(jnp.nan)))
    reached, _, _, after = gauss_newton.move(problem, bad, memory, 0.0)
    np.testing.assert_array_equal(reached.x, x)
    assert after.damping == pytest.approx(4e-3)


def test_of_all_rows_that_do_it_chooses_ones_near_the_start():
    """At the end the rows differ from the start only where that moves theta: along J's rows."""
    problem, x = some_problem(penalty="selection_rate", rho_o=100.0, lambda_x=0.0, rho_s=0.0)
    state, _ = run(problem, x, 400, "gauss_newton")
    moved = (state.x - x).ravel()
    j = matrix(problem, some_judged(problem, state.x))
    inside = j.T @ jnp.linalg.lstsq(j.T, moved)[0]
    assert jnp.linalg.norm(moved - inside) < 0.05 * jnp.linalg.norm(moved)


def test_a_theta_that_did_not_converge_is_not_preferred():
    problem, x = some_problem()
    good = some_judged(problem, x)
    memory = gauss_newton.Memory(x, good, jnp.asarray(1e-3))
    lucky = good.record._replace(objective=jnp.asarray(0.0), inner_converged=jnp.asarray(False))
    reached, *_ = gauss_newton.move(problem, good._replace(x=x + 1, record=lucky), memory, 0.0)
    np.testing.assert_array_equal(reached.x, x)
    first = gauss_newton.restart(memory, x)
    reached, _, _, after = gauss_newton.move(
        problem, good._replace(x=x + 1, record=lucky), first, 0.0
    )
    np.testing.assert_array_equal(reached.x, x + 1)
    reached, *_ = gauss_newton.move(problem, good, after, 0.0)
    np.testing.assert_array_equal(reached.x, x)
