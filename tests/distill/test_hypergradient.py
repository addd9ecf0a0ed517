"""The hypergradient and the implicit derivative, against independent computations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax.flatten_util import ravel_pytree
from small_problem import (
    hypergradient,
    mean_gap,
    outer_value,
    point_at,
    some_problem,
    squared_hinge,
)

from synthfair.distill import problem as outer
from synthfair.distill.problem import implicit_vjp
from synthfair.distill.solvers import Cholesky, ConjugateGradient, Function
from synthfair.model import LinearModel


def check_against_central_differences(problem):
    x = problem.start
    direction = np.random.default_rng(1).normal(size=x.shape)
    h = 1e-4
    low2, low, high, high2 = (outer_value(problem, x + k * h * direction) for k in (-2, -1, 1, 2))
    slope = (low2 - 8 * low + 8 * high - high2) / (12 * h)
    found = jnp.sum(hypergradient(problem, x) * direction)
    assert float(found) == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize(
    ("n_groups", "penalty", "notion", "group_input"),
    [
        (2, "covariance", "statistical_parity", True),
        (3, "covariance", "equalized_odds", False),
        (2, "selection_rate", "equal_opportunity", False),
        (3, "selection_rate", "statistical_parity", True),
    ],
)
def test_it_is_the_central_difference(n_groups, penalty, notion, group_input):
    given = {"penalty": penalty, "notion": notion, "group_input": group_input}
    problem = some_problem(n_groups, **given)
    assert len(problem.constant) == 1 + (n_groups - 1) * group_input
    check_against_central_differences(problem)


class NoHessian(LinearModel):
    """Its Hessian is found by automatic differentiation."""

    hessian = None


@pytest.mark.parametrize("model", [LinearModel(squared_hinge), NoHessian()])
def test_custom_model_and_penalty(model):
    check_against_central_differences(some_problem(model=model, custom=mean_gap))


def test_a_wrong_sign_in_the_implicit_part_is_caught(monkeypatch):
    point_at.clear_cache()
    monkeypatch.setattr(outer, "implicit_vjp", lambda *args: -implicit_vjp(*args))
    with pytest.raises(AssertionError):
        check_against_central_differences(some_problem())
    point_at.clear_cache()


def test_it_is_that_of_a_rewrite_in_numpy_and_scipy():
    problem = some_problem(rho_o=3.0)
    expected = numpy_hypergradient(problem, np.asarray(problem.start))
    found = hypergradient(problem, problem.start)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-10)


def numpy_hypergradient(problem, x):
    """dP/dx of Wu et al. (2024) eq. (9) to (14), every derivative by hand."""
    real, rho_o = problem.objective.rows, problem.objective.rho_o
    there = np.asarray(real.weight) > 0
    a, s, y = (np.asarray(part)[there] for part in (real.a, real.s, real.y))
    sh, yh = np.asarray(problem.s), np.asarray(problem.y)
    x = x.T
    ah = np.column_stack([x, sh, np.ones(len(x))])
    n_s, n = ah.shape
    d = x.shape[1]
    ridge = problem.lambda_theta / n**2
    sigma = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731

    def inner(theta):
        return np.logaddexp(0, -yh * (ah @ theta)).mean() + ridge / 2 * theta @ theta

    def inner_gradient(theta):
        return -(ah.T @ (yh * sigma(-yh * (ah @ theta)))) / n_s + ridge * theta

    theta = scipy.optimize.minimize(
        inner, np.zeros(n), jac=inner_gradient, method="BFGS", options={"gtol": 1e-9}
    ).x
    for _ in range(3):
        p = sigma(ah @ theta)
        hessian = (ah.T * (p * (1 - p))) @ ah / n_s + ridge * np.eye(n)
        theta = theta - np.linalg.solve(hessian, inner_gradient(theta))
    p = sigma(ah @ theta)
    hessian = (ah.T * (p * (1 - p))) @ ah / n_s + ridge * np.eye(n)
    c_real = a.T @ (s - s.mean()) / len(s)
    c_synthetic = ah.T @ (sh - sh.mean()) / n_s
    by_theta = (
        -(a.T @ (y * sigma(-y * (a @ theta)))) / len(y)
        + rho_o * (c_real @ theta) * c_real
        + problem.rho_s * (c_synthetic @ theta) * c_synthetic
    )
    direct = (
        problem.rho_s * (c_synthetic @ theta) * np.outer((sh - sh.mean()) / n_s, theta[:d])
        + problem.lambda_x / (n_s * n) ** 2 * x
    )
    v = np.linalg.solve(hessian, by_theta)
    residual = -yh * sigma(-yh * (ah @ theta))
    mixed = (np.outer(p * (1 - p) * (ah @ v), theta[:d]) + np.outer(residual, v[:d])) / n_s
    return (direct - mixed).T


@partial(jax.jit, static_argnums=0)
def minimiser(fun, params, data):
    """By Newton's method, to the last digit."""
    flat, unravel = ravel_pytree(params)

    def step(flat, _):
        hessian, gradient = (
            d(lambda t: fun(unravel(t), data))(flat) for d in (jax.hessian, jax.grad)
        )
        return flat - jnp.linalg.solve(hessian, gradient), None

    return unravel(jax.lax.scan(step, flat, None, length=40)[0])


def ridge(params, data):
    """Regression with a weight and a bias leaf: closed form, quadratic."""
    fit = data["a"] @ params["w"] + params["b"] - data["t"]
    return jnp.mean(fit**2) + 0.1 * (jnp.sum(params["w"] ** 2) + params["b"] ** 2)


def poisson(params, data):
    """Poisson regression: convex, far from quadratic."""
    z = data["a"] @ params["w"] + params["b"]
    return jnp.mean(jnp.exp(z) - data["t"] * z) + 0.1 * (
        jnp.sum(params["w"] ** 2) + params["b"] ** 2
    )


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient()])
@pytest.mark.parametrize("fun", [ridge, poisson])
def test_vjp_is_the_finite_difference_over_a_params_pytree(fun, solver):
    rng = np.random.default_rng(0)
    data = {"a": jnp.array(rng.normal(size=(6, 3))), "t": jnp.array(rng.uniform(size=6))}
    start = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    cotangent = {"w": jnp.array([1.0, -2.0, 0.5]), "b": jnp.array(0.7)}
    direction = {"a": jnp.array(rng.normal(size=(6, 3))), "t": jnp.array(rng.normal(size=6))}

    def shifted(h):
        moved = jax.tree.map(lambda d, e: d + h * e, data, direction)
        return minimiser(fun, start, moved)

    def inner_product(one, other):
        return sum(jax.tree.leaves(jax.tree.map(lambda p, q: jnp.sum(p * q), one, other)))

    params = minimiser(fun, start, data)
    c, unravel = ravel_pytree(cotangent)

    @jax.jit
    def pulled_back(data):
        value = lambda theta: fun(unravel(theta), data)  # noqa: E731
        theta = ravel_pytree(params)[0]
        smooth = Function(value, jax.hessian(value))
        v, _, _ = solver.solve(smooth, theta, c, solver.init(smooth, theta))
        return implicit_vjp(fun, params, data, unravel(v))

    found = pulled_back(data)
    h = 1e-5
    slope = jax.tree.map(lambda p, q: (p - q) / (2 * h), shifted(h), shifted(-h))
    expected = inner_product(cotangent, slope)
    assert inner_product(found, direction) == pytest.approx(float(expected), rel=1e-8)
