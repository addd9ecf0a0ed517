"""Both linear solvers against NumPy, and what they say of themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from inner_rows import some_rows

from synthfair.distill.losses import regularized_loss
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Function
from synthfair.model import LinearModel

SOLVERS = Cholesky(), ConjugateGradient()
HESSIAN = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])


def quadratic(hessian=HESSIAN):
    matrix = jnp.asarray(hessian)
    return Function(lambda theta: 0.5 * theta @ matrix @ theta, lambda _: matrix)


def test_factor_is_numpys_cholesky():
    solver, theta = Cholesky(), jnp.zeros(3)
    first = solver.init(quadratic(), theta)
    _, memory, _ = solver.solve(quadratic(), theta, jnp.ones(3), first)
    for factor in (first, memory):
        np.testing.assert_allclose(factor, np.linalg.cholesky(HESSIAN))


@pytest.mark.parametrize("solver", SOLVERS)
def test_solution_is_numpys(solver):
    c = jnp.array([1.0, -2.0, 3.0])
    for theta in (jnp.zeros(3), jnp.ones(3)):
        first = solver.init(quadratic(), theta)
        _, memory, _ = solver.solve(quadratic(), theta, c + 1, first)
        v, _, converged = solver.solve(quadratic(), theta, c, memory)
        np.testing.assert_allclose(v, np.linalg.solve(HESSIAN, c), rtol=1e-8)
        assert converged


def test_conjugate_gradients_never_form_the_hessian():
    def refuse(theta):
        raise AssertionError

    fun, solver, theta = quadratic()._replace(hessian=refuse), ConjugateGradient(), jnp.zeros(3)
    solver.solve(fun, theta, jnp.ones(3), solver.init(fun, theta))


def test_conjugate_gradients_solve_a_system_of_forty():
    rows, c, solver = some_rows(n=400, d=40), jnp.ones(40), ConjugateGradient()
    loss = lambda t: regularized_loss(LinearModel(), t, rows, 10.0)  # noqa: E731
    fun = Function(loss, jax.hessian(loss))
    v, _, _ = jax.jit(lambda t: solver.solve(fun, t, c, solver.init(fun, t)))(jnp.zeros(40))
    hessian = jax.jit(fun.hessian)(jnp.zeros(40))
    np.testing.assert_allclose(v, jnp.linalg.solve(hessian, c), rtol=1e-7)


def test_conjugate_gradients_start_from_the_last_solution():
    c = jnp.array([1.0, -2.0, 3.0])
    near = jnp.linalg.solve(jnp.array(HESSIAN), c) + 1e-6
    v, _, _ = ConjugateGradient(1e-3).solve(quadratic(), jnp.zeros(3), c, near)
    np.testing.assert_array_equal(v, near)  # good enough: not a step is made


def test_a_residual_that_is_not_reached_is_reported():
    hessian, c = jnp.diag(jnp.logspace(0, 12, 5)), jnp.ones(5) / 3
    fun, solver, theta = quadratic(hessian), ConjugateGradient(1e-25), jnp.zeros(5)
    _, _, converged = solver.solve(fun, theta, c, solver.init(fun, theta))
    assert not converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_singular_hessian_is_reported(solver):
    theta, singular = jnp.zeros(2), jnp.array([[1.0, 0.0], [0.0, 0.0]])

    @jax.jit
    def solve(data):
        fun = quadratic(data)
        return solver.solve(fun, theta, jnp.ones(2), solver.init(fun, theta))

    assert not solve(singular)[2]
