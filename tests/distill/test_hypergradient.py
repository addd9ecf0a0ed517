"""The hypergradient and the implicit derivative, against independent computations."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_problem import hypergradient, mean_gap, outer_value, some_problem, squared_hinge

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
    covariance, theta = problem.objective.covariance, jnp.arange(len(problem.first_theta)) - 1.5
    assert float(covariance(-theta)) == pytest.approx(
        -float(covariance(theta))
    )  # of the same group


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
    weights = {"rho_o": 3.0, "rho_s": 0.7, "lambda_x": 100.0, "lambda_theta": 0.4}
    problem = some_problem(**weights)
    require_central_difference(problem, numpy_value)
    found = problem.objective.rho_o, problem.rho_s, problem.lambda_x, problem.lambda_theta
    assert found == tuple(weights.values())
