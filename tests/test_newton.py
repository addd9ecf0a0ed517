"""Newton's method against L-BFGS, in one inner problem and in whole runs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_inner import some_loss, some_rows
from test_outer import some_problem

from synthfair.config import DistillConfig
from synthfair.distill import inner, linear, newton, outer
from synthfair.distill.linear import SOLVERS
from synthfair.model import LinearModel


@pytest.mark.parametrize("solver", SOLVERS.values())
@pytest.mark.parametrize("start", [0.0, 30.0])
def test_it_finds_what_lbfgs_finds(start, solver):
    rows = some_rows()
    solve = partial(newton.solve, some_loss, linear=solver, tolerance=1e-9, max_iterations=100)
    solution = jax.jit(lambda rows: solve(jnp.full(5, start), rows))(rows)
    assert solution.converged
    assert solution.iterations < 15
    np.testing.assert_allclose(
        solution.params, inner.train(rows, 0.1, model=LinearModel()).params, rtol=1e-7
    )


def test_steps_that_would_overshoot_are_halved():
    def steep(theta, _):
        return jnp.sum(jnp.log(jnp.cosh(5 * (theta - 3)))) + 1e-3 * theta @ theta

    found = newton.solve(
        steep, jnp.zeros(2), None, linear=SOLVERS["cholesky"], tolerance=1e-8, max_iterations=200
    )
    assert found.converged
    np.testing.assert_allclose(found.params, 3, atol=1e-2)
    full = jnp.zeros(2) - jnp.linalg.solve(
        jax.hessian(steep)(jnp.zeros(2), None), jax.grad(steep)(jnp.zeros(2), None)
    )
    assert steep(full, None) > 100 * steep(jnp.zeros(2), None)


@pytest.mark.parametrize("most", [1, 2])
def test_too_few_iterations_are_told(most):
    solution = newton.solve(
        some_loss, jnp.zeros(5), some_rows(),
        linear=SOLVERS["cholesky"], tolerance=1e-12, max_iterations=most,
    )  # fmt: skip
    assert not solution.converged
    assert solution.iterations == most


def history(**settings):
    problem, x = some_problem()
    config = DistillConfig(steps=200, **settings)
    chunks = list(outer.run(problem, outer.init(problem, x, config), config))
    records = [np.concatenate(field) for field in zip(*(r for _, r in chunks), strict=True)]
    return chunks[-1][0].x, records


@pytest.mark.parametrize("linear_solver", ["cholesky", "conjugate_gradient"])
@pytest.mark.parametrize("inner_solver", ["lbfgs", "newton", "jaxopt"])
def test_all_solvers_give_the_same_run(inner_solver, linear_solver):
    x, records = history(inner_solver=inner_solver, linear_solver=linear_solver)
    default, expected = history()
    np.testing.assert_allclose(records[0], expected[0], rtol=1e-6)  # objective
    np.testing.assert_allclose(x, default, atol=1e-4)
    assert records[4].all()  # converged


@pytest.mark.parametrize("name", SOLVERS)
def test_where_the_function_is_not_convex_it_does_not_claim_success(name):
    def hilly(theta, _):
        return jnp.sum(jnp.cos(theta))

    solution = newton.solve(
        hilly, jnp.array([0.3, 0.2]), None,
        linear=SOLVERS[name], tolerance=1e-8, max_iterations=50,
    )  # fmt: skip
    assert not (solution.converged and solution.gradient_norm > 1e-6)
    assert not solution.converged


@pytest.mark.parametrize(
    "settings",
    [{"inner_solver": "newton"}, {"linear_solver": "conjugate_gradient", "inner_solver": "newton"}],
)
def test_single_precision_converges_to_its_own_tolerance(settings):
    with jax.enable_x64(False):
        problem, x = some_problem()
        config = DistillConfig(steps=60, **settings)
        records = [
            record for _, record in outer.run(problem, outer.init(problem, x, config), config)
        ]
    assert np.concatenate([record.inner_converged for record in records]).mean() > 0.95
    assert records[-1].objective.dtype == np.float32


def test_many_inputs_choose_newton_and_conjugate_gradients(monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 5)
    method = outer.method_of(DistillConfig(), n_params=5)
    assert method.solvers == ("newton", "conjugate_gradient")
    steep = outer.method_of(DistillConfig(optimizer="gauss_newton"), n_params=5)
    assert steep.solvers == ("newton", "cholesky")
    _, records = history()
    assert records[4].all()
    monkeypatch.undo()
    np.testing.assert_allclose(records[0], history()[1][0], rtol=1e-6)
