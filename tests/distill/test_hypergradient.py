"""The hypergradient and the implicit derivative, against independent computations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from small_problem import hypergradient, mean_gap, outer_value, some_problem, squared_hinge

from synthfair.distill.problem import implicit_vjp
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Function
from synthfair.model import LinearModel


def require_central_difference(problem, value):
    x = problem.start
    direction = np.random.default_rng(1).normal(size=x.shape)
    h = 1e-4
    low2, low, high, high2 = (value(problem, x + k * h * direction) for k in (-2, -1, 1, 2))
    slope = (low2 - 8 * low + 8 * high - high2) / (12 * h)
    found = jnp.sum(hypergradient(problem, x) * direction)
    assert float(found) == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize(("n_groups", "penalty", "notion", "group_input"), [
    (2, "covariance", "statistical_parity", True), (3, "covariance", "equalized_odds", False),
    (2, "selection_rate", "equal_opportunity", False),
    (3, "selection_rate", "statistical_parity", True),
])  # fmt: skip
def test_hypergradient_is_the_central_difference(n_groups, penalty, notion, group_input):
    given = {"penalty": penalty, "notion": notion, "group_input": group_input}
    problem = some_problem(n_groups, **given)
    assert len(problem.constant) == 1 + (n_groups - 1) * group_input
    require_central_difference(problem, outer_value)


class NoHessian(LinearModel):
    """Its Hessian is found by automatic differentiation."""

    hessian = None


@pytest.mark.parametrize("model", [LinearModel(squared_hinge), NoHessian()])
def test_hypergradient_of_a_custom_model_and_penalty_is_the_central_difference(model):
    require_central_difference(some_problem(model=model, custom=mean_gap), outer_value)


def numpy_value(problem, x):
    """P(x) of Wu et al. (2024) eq. (9) to (12) with the covariance penalty, in NumPy."""
    real = problem.objective.rows
    mask = np.asarray(real.weight) > 0
    a, s, y = (np.asarray(part)[mask] for part in (real.a, real.s, real.y))
    x, sh, yh = (np.asarray(part) for part in (x.T, problem.s, problem.y))
    ah = np.column_stack([x, sh, np.ones(len(x))])
    n_s, n = ah.shape
    ridge, theta = problem.lambda_theta / n**2, np.zeros(n)
    for _ in range(30):  # Newton's method
        falling = 1 / (1 + np.exp(yh * (ah @ theta)))
        gradient = -(ah.T @ (yh * falling)) / n_s + ridge * theta
        hessian = (ah.T * (falling * (1 - falling))) @ ah / n_s + ridge * np.eye(n)
        theta = theta - np.linalg.solve(hessian, gradient)
    covariance = np.mean((s - s.mean()) * (a @ theta))
    synthetic = np.mean((sh - sh.mean()) * (ah @ theta))
    unfair = problem.objective.rho_o * covariance**2 + problem.rho_s * synthetic**2
    loss = np.mean(np.logaddexp(0, -y * (a @ theta)))
    return loss + unfair / 2 + problem.lambda_x / (2 * (n_s * n) ** 2) * np.sum(x**2)


def test_hypergradient_is_the_slope_of_the_papers_formula():
    require_central_difference(some_problem(rho_o=3.0, lambda_x=100.0), numpy_value)


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient()])
def test_implicit_vjp_is_the_closed_form_of_ridge_regression(solver):
    """Of params and data of several leaves; f is |a w + b - t|^2 / n + 0.1 (|w|^2 + b^2)."""
    rng = np.random.default_rng(0)
    a, t, c = rng.normal(size=(6, 3)), rng.uniform(size=6), rng.normal(size=4)
    inputs = np.column_stack([np.ones(6), a])
    hessian = 2 * inputs.T @ inputs / 6 + 0.2 * np.eye(4)
    theta = np.linalg.solve(hessian, 2 * inputs.T @ t / 6)
    v = np.linalg.solve(hessian, c)
    by_a = -2 / 6 * (np.outer(inputs @ theta - t, v) + np.outer(inputs @ v, theta))

    def fun(params, data):
        error = data["a"] @ params["w"] + params["b"] - data["t"]
        size = jnp.sum(params["w"] ** 2) + params["b"] ** 2
        return jnp.mean(error**2) + 0.1 * size

    params = {"b": jnp.asarray(theta[0]), "w": jnp.asarray(theta[1:])}
    data = {"a": jnp.asarray(a), "t": jnp.asarray(t)}
    flat, unravel = ravel_pytree(params)

    def value(vector):
        return fun(unravel(vector), data)

    smooth = Function(value, jax.hessian(value))
    solved, _, _ = solver.solve(smooth, flat, jnp.asarray(c), solver.init(smooth, flat))
    found = implicit_vjp(fun, params, data, unravel(solved))
    np.testing.assert_allclose(found["t"], 2 / 6 * inputs @ v, rtol=1e-7)
    np.testing.assert_allclose(found["a"], by_a[:, 1:], rtol=1e-6)
