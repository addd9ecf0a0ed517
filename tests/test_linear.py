"""Both linear solvers against NumPy, and what they say of themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_inner import some_rows

from synthfair.config import DistillConfig
from synthfair.distill.linear import LARGE, SOLVERS, choose
from synthfair.model import LinearModel, regularized_loss

HESSIAN = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])


def quadratic(params, data):
    return 0.5 * params @ data @ params


def test_factor_is_numpys_cholesky():
    c = jnp.ones(3)
    solver = SOLVERS["cholesky"]
    memory = solver.solve(quadratic, jnp.zeros(3), jnp.array(HESSIAN), c, solver.init(c)).memory
    np.testing.assert_allclose(solver.factor(memory), np.linalg.cholesky(HESSIAN))


@pytest.mark.parametrize("solver", SOLVERS.values())
def test_solution_is_numpys(solver):
    c = jnp.array([1.0, -2.0, 3.0])
    for start in (jnp.zeros(3), jnp.ones(3)):
        memory = solver.solve(quadratic, start, jnp.array(HESSIAN), c + 1, solver.init(c)).memory
        solution = solver.solve(quadratic, start, jnp.array(HESSIAN), c, memory)
        np.testing.assert_allclose(solution.v, np.linalg.solve(HESSIAN, c), rtol=1e-8)
        assert solution.converged


@pytest.mark.parametrize(("name", "formed"), [("cholesky", True), ("conjugate_gradient", False)])
def test_who_forms_the_hessian(name, formed):
    calls = []

    def hessian(params, data):
        calls.append(1)
        return data

    solver, c = SOLVERS[name], jnp.ones(3)
    solver.solve(quadratic, jnp.zeros(3), jnp.array(HESSIAN), c, solver.init(c), hessian=hessian)
    assert bool(calls) == formed


def test_conjugate_gradients_solve_a_system_of_forty():
    rows, c, solver = some_rows(n=400, d=40), jnp.ones(40), SOLVERS["conjugate_gradient"]
    loss = lambda t, rows: regularized_loss(LinearModel(), t, rows, 10.0)  # noqa: E731
    solution = jax.jit(lambda t: solver.solve(loss, t, rows, c, solver.init(c)))(jnp.zeros(40))
    hessian = jax.jit(jax.hessian(lambda t: loss(t, rows)))(jnp.zeros(40))
    np.testing.assert_allclose(solution.v, jnp.linalg.solve(hessian, c), rtol=1e-7)


def test_conjugate_gradients_start_from_the_last_solution():
    c, solver = jnp.array([1.0, -2.0, 3.0]), SOLVERS["conjugate_gradient"]
    near = jnp.linalg.solve(jnp.array(HESSIAN), c) + 1e-6
    solution = solver.solve(quadratic, jnp.zeros(3), jnp.array(HESSIAN), c, near, tolerance=1e-3)
    np.testing.assert_array_equal(solution.v, near)  # good enough: not a step is made


def test_a_residual_that_is_not_reached_is_reported():
    hessian, c = jnp.diag(jnp.logspace(0, 12, 5)), jnp.ones(5) / 3
    solver = SOLVERS["conjugate_gradient"]
    solution = solver.solve(quadratic, jnp.zeros(5), hessian, c, solver.init(c), tolerance=1e-25)
    assert not solution.converged


@pytest.mark.parametrize("name", SOLVERS)
def test_a_singular_hessian_is_reported(name):
    solver, c = SOLVERS[name], jnp.array([1.0, 1.0])
    singular = jnp.array([[1.0, 0.0], [0.0, 0.0]])
    solution = jax.jit(lambda data: solver.solve(quadratic, jnp.zeros(2), data, c, solver.init(c)))(
        singular
    )
    assert not solution.converged


def test_the_choice_is_by_size():
    by_size = [choose("auto", optimizer="adam", n_params=n) for n in (LARGE - 1, LARGE)]
    assert by_size == ["cholesky", "conjugate_gradient"]
    assert choose("auto", optimizer="gauss_newton", n_params=10_000) == "cholesky"
    assert choose("conjugate_gradient", optimizer="adam", n_params=2) == "conjugate_gradient"


def test_gauss_newton_without_hessian_is_refused():
    with pytest.raises(ValueError, match="gauss_newton needs linear_solver = cholesky"):
        DistillConfig(optimizer="gauss_newton", linear_solver="conjugate_gradient")
