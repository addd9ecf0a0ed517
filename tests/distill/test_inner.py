"""The two inner solvers, against scikit-learn, SciPy and each other."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from inner_rows import some_rows
from sklearn.linear_model import LogisticRegression

from synthfair.distill.losses import regularized_loss
from synthfair.distill.solvers import (
    Cholesky,
    ConjugateGradient,
    Function,
    Lbfgs,
    Newton,
    train,
)
from synthfair.model import LinearModel

MEMORY = 10  # steps from which L-BFGS knows the curvature


def test_solution_is_scikit_learns():
    rows, lambda_theta = some_rows(), 0.5
    n, d = rows.a.shape
    # scikit-learn minimises C sum loss + ||theta||^2 / 2; ours is that over C n.
    reference = LogisticRegression(C=d**2 / (lambda_theta * n), fit_intercept=False, tol=1e-12)
    reference.fit(np.asarray(rows.a), np.asarray(rows.y))
    solution = train(rows, lambda_theta, model=LinearModel())
    assert solution.converged
    np.testing.assert_allclose(solution.params, reference.coef_[0], rtol=1e-5)


def smooth(value, *data):
    """A function of theta and data, at some data, with the Hessian that JAX finds."""
    fun = lambda theta: value(theta, *data)  # noqa: E731
    return Function(fun, jax.hessian(fun))


def some_loss(theta, rows):
    return regularized_loss(LinearModel(), theta, rows, 0.1)


@pytest.mark.parametrize("changed", [True, False])
def test_change_of_variables_finds_the_same_in_fewer_iterations(changed):
    rows = some_rows()
    rows = rows._replace(a=rows.a * jnp.array([1.0, 10.0, 100.0, 1.0, 1.0]))
    reference = train(rows, 0.1, model=LinearModel()).params

    @jax.jit
    def solved(rows):
        loss = smooth(some_loss, rows)
        factor = jnp.linalg.cholesky(loss.hessian(reference * 1.01)) if changed else None
        return Lbfgs(1e-7, 500).minimise(loss, jnp.zeros(5), factor)

    solution = solved(rows)
    np.testing.assert_allclose(solution.params, reference, rtol=1e-4)
    assert solution.converged
    assert (solution.iterations < 15) == changed


def test_a_warm_start_costs_one_evaluation_an_iteration():
    rows, calls = some_rows(), []
    start = train(rows, 0.1, model=LinearModel()).params

    def counted(params, rows):
        jax.debug.callback(lambda: calls.append(None))
        return some_loss(params, rows)

    moved = rows._replace(a=rows.a + 0.01 * jnp.sign(rows.a[::-1]))
    factor = jnp.linalg.cholesky(jax.hessian(some_loss)(start, rows))
    solve = jax.jit(lambda rows: Lbfgs(1e-8).minimise(smooth(counted, rows), start, factor))
    solution = solve(moved)
    jax.effects_barrier()
    assert solution.converged
    assert 2 <= solution.iterations <= 5
    assert len(calls) == 1 + solution.iterations


def test_where_the_unit_step_is_bad_the_line_search_takes_over():
    def steep(theta):
        return jnp.sum(jnp.log(jnp.cosh(20 * (theta - 3)))) + 1e-3 * theta @ theta

    solution = Lbfgs(1e-8, 200).minimise(smooth(steep), jnp.zeros(2))
    assert solution.converged
    np.testing.assert_allclose(solution.params, 3, atol=1e-2)


def test_too_few_iterations_are_reported():
    rows = some_rows()
    solution = Lbfgs(1e-8, 2).minimise(smooth(some_loss, rows), jnp.zeros(5))
    assert not solution.converged
    gradient = jax.grad(some_loss)(solution.params, rows)
    assert solution.gradient_norm == pytest.approx(float(jnp.linalg.norm(gradient)))
    assert solution.gradient_norm > 1e-3


def test_single_precision_says_that_it_cannot_reach_double_tolerance():
    with jax.enable_x64(False):
        rows = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), some_rows())
        assert train(rows, 1e-2, model=LinearModel()).converged
        loss, start = smooth(some_loss, rows), jnp.zeros(5)
        assert not Lbfgs(1e-12, 1000).minimise(loss, start).converged


def some_quadratic(p, seed=0, orders=1.0):
    """An ill-conditioned one, and a point; the scales of its variables span orders of magnitude."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p))
    spread = np.logspace(0, orders, p)
    hessian = (root @ root.T + np.eye(p)) * spread * spread[:, None]
    return jnp.asarray(hessian), jnp.asarray(rng.normal(size=p))


def solved_quadratic(start, hessian):
    value = lambda theta: 0.5 * theta @ hessian @ theta  # noqa: E731
    return Lbfgs(1e-6, 500).minimise(smooth(value), start)


def test_lbfgs_needs_about_as_many_iterations_as_scipys():
    hessian, start = some_quadratic(p=20)
    found = jax.jit(solved_quadratic)(start, hessian)
    peer = scipy.optimize.minimize(
        lambda phi: (0.5 * phi @ hessian @ phi, hessian @ phi),
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxcor": MEMORY, "gtol": 1e-7, "ftol": 0.0},
    )
    assert found.converged
    assert MEMORY < found.iterations < 1.5 * peer.nit
    np.testing.assert_allclose(found.params, 0, atol=1e-6)


def test_in_a_batch_each_is_solved_as_alone():
    """Some need many more steps than others, and more than are remembered."""
    problems = [some_quadratic(p=30, orders=orders) for orders in (0.0, 0.5, 1.0)]
    hessians, starts = zip(*problems, strict=True)
    batch = jax.jit(jax.vmap(solved_quadratic))(jnp.stack(starts), jnp.stack(hessians))
    assert MEMORY < batch.iterations[0] < 0.8 * batch.iterations[1] < 0.6 * batch.iterations[2]
    alone = jax.jit(solved_quadratic)
    for i, (hessian, start) in enumerate(zip(hessians, starts, strict=True)):
        found = alone(start, hessian)
        assert float(batch.iterations[i]) == pytest.approx(float(found.iterations), rel=0.2)
        np.testing.assert_allclose(batch.params[i], found.params, atol=1e-6)


@pytest.mark.parametrize("linear", [Cholesky(), ConjugateGradient(1e-3)])
def test_newton_finds_what_lbfgs_finds(linear):
    rows = some_rows()
    solver, loss = Newton(1e-9, linear=linear), smooth(some_loss, rows)
    reference = train(rows, 0.1, model=LinearModel()).params
    compiled = jax.jit(lambda start: solver.minimise(loss, start))
    for start in (0.0, 30.0):
        solution = compiled(jnp.full(5, start))
        assert solution.converged
        assert solution.iterations < 15
        np.testing.assert_allclose(solution.params, reference, rtol=1e-7)


def test_newton_halves_steps_that_would_overshoot():
    def steep(theta):
        return jnp.sum(jnp.log(jnp.cosh(5 * (theta - 3)))) + 1e-3 * theta @ theta

    found = Newton(1e-8, 200).minimise(smooth(steep), jnp.zeros(2))
    assert found.converged
    np.testing.assert_allclose(found.params, 3, atol=1e-2)
    slope, curvature = (d(steep)(jnp.zeros(2)) for d in (jax.grad, jax.hessian))
    full = -jnp.linalg.solve(curvature, slope)
    assert steep(full) > 100 * steep(jnp.zeros(2))


@pytest.mark.parametrize("most", [1, 2])
def test_newton_reports_too_few_iterations(most):
    solution = Newton(1e-12, most).minimise(smooth(some_loss, some_rows()), jnp.zeros(5))
    assert not solution.converged
    assert solution.iterations == most


@pytest.mark.parametrize("linear", [Cholesky(), ConjugateGradient(1e-3)])
def test_newton_claims_no_success_where_the_function_is_not_convex(linear):
    hilly = smooth(lambda theta: jnp.sum(jnp.cos(theta)))
    assert not Newton(1e-8, 50, linear).minimise(hilly, jnp.array([0.3, 0.2])).converged


def test_jaxopt_is_imported_only_where_it_is_used(monkeypatch):
    """The module is executed anew where there is no jaxopt."""
    monkeypatch.setitem(sys.modules, "jaxopt", None)
    spec = importlib.util.find_spec("synthfair.distill.solvers")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
