"""The solvers, inner and linear, against scikit-learn, SciPy, NumPy and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from synthfair.distill import solvers
from synthfair.distill.losses import regularized_loss
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Function, Lbfgs, Newton
from synthfair.model import LinearModel, Rows

MEMORY = 10  # steps from which L-BFGS knows the curvature


def some_rows(n=200, d=5):
    rng = np.random.default_rng(0)
    a, s = rng.normal(size=(n, d)), rng.integers(2, size=n)
    y = np.where(a @ rng.normal(size=d) + rng.logistic(size=n) > 0, 1.0, -1.0)
    return Rows(jnp.array(a), jnp.array(s), jnp.array(y))


def smooth(value, *data):
    """A function of theta and data, at some data, with the Hessian that JAX finds."""
    fun = lambda theta: value(theta, *data)  # noqa: E731
    return Function(fun, jax.hessian(fun))


def some_loss(theta, rows):
    return regularized_loss(LinearModel(), theta, rows, 0.1)


# Inner solvers


ITERATIVE = Newton(1e-9, linear=ConjugateGradient(1e-3))


@pytest.mark.parametrize("solver", [Lbfgs(1e-9), Newton(1e-9), ITERATIVE])
def test_inner_solvers_find_what_scikit_learn_finds(solver):
    rows = some_rows()
    n, d = rows.a.shape
    # scikit-learn minimises C sum loss + ||theta||^2 / 2; ours is that over C n.
    reference = LogisticRegression(C=d**2 / (0.1 * n), fit_intercept=False, tol=1e-12)
    reference.fit(np.asarray(rows.a), np.asarray(rows.y))
    solve = jax.jit(lambda start: solver.minimise(smooth(some_loss, rows), jnp.full(5, start)))
    for solution in (solve(0.0), solve(30.0), solvers.train(rows, 0.1, model=LinearModel())):
        assert solution.converged
        assert solution.iterations < 30
        np.testing.assert_allclose(solution.params, reference.coef_[0], rtol=1e-5)


@pytest.mark.parametrize("solver", [Lbfgs(1e-8, 200), Newton(1e-8, 200)])
def test_steps_that_would_overshoot_are_shortened(solver):
    def steep(theta):
        return jnp.sum(jnp.log(jnp.cosh(5 * (theta - 3)))) + 1e-3 * theta @ theta

    solution = solver.minimise(smooth(steep), jnp.zeros(2))
    assert solution.converged
    np.testing.assert_allclose(solution.params, 3, atol=1e-2)


@pytest.mark.parametrize("solver", [Lbfgs(1e-12, 2), Newton(1e-12, 1), Newton(1e-12, 2)])
def test_iterations_that_are_too_few_are_reported_with_the_gradient(solver):
    rows = some_rows()
    solution = solver.minimise(smooth(some_loss, rows), jnp.zeros(5))
    assert not solution.converged
    assert solution.iterations == (2 if solver.max_iterations == 2 else 1)
    gradient = jax.grad(some_loss)(solution.params, rows)
    assert solution.gradient_norm == pytest.approx(float(jnp.linalg.norm(gradient)))


# Linear solvers

SOLVERS = Cholesky(), ConjugateGradient()


def quadratic(matrix):
    return Function(lambda theta: 0.5 * theta @ matrix @ theta, lambda _: matrix)


@pytest.mark.parametrize("solver", SOLVERS)
def test_linear_solution_is_numpys_whatever_was_solved_before(solver):
    root, c = np.random.default_rng(0).normal(size=(2, 40, 40))
    hessian = root @ root.T / 40 + np.eye(40)
    fun, theta = quadratic(jnp.asarray(hessian)), jnp.ones(40)
    _, memory, _ = solver.solve(fun, theta, jnp.asarray(c[1]), solver.init(fun, theta))
    v, _, converged = solver.solve(fun, theta, jnp.asarray(c[0]), memory)
    np.testing.assert_allclose(v, np.linalg.solve(hessian, c[0]), rtol=1e-6)
    assert converged


SINGULAR = jnp.array([[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(("solver", "hessian"), [
    *((solver, SINGULAR) for solver in SOLVERS),
    (ConjugateGradient(1e-25), jnp.diag(jnp.logspace(0, 12, 5))),
])  # fmt: skip
def test_linear_system_that_is_not_solved_is_reported(solver, hessian):
    fun, theta = quadratic(hessian), jnp.zeros(len(hessian))
    c = jnp.ones(len(hessian)) / 3
    assert not jax.jit(lambda: solver.solve(fun, theta, c, solver.init(fun, theta))[2])()
