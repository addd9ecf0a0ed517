"""The implicit derivative against finite differences, for inner problems of several shapes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from synthfair.distill.implicit import implicit_vjp
from synthfair.distill.linear import SOLVERS


@partial(jax.jit, static_argnums=0)
def newton(fun, params, data):
    """The minimiser, to the last digit."""
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


@pytest.mark.parametrize("solver", ["cholesky", "conjugate_gradient"])
@pytest.mark.parametrize("fun", [ridge, poisson])
def test_vjp_is_the_finite_difference_over_a_params_pytree(fun, solver):
    rng = np.random.default_rng(0)
    data = {"a": jnp.array(rng.normal(size=(6, 3))), "t": jnp.array(rng.uniform(size=6))}
    start = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    cotangent = {"w": jnp.array([1.0, -2.0, 0.5]), "b": jnp.array(0.7)}
    direction = {"a": jnp.array(rng.normal(size=(6, 3))), "t": jnp.array(rng.normal(size=6))}

    def shifted(h):
        moved = jax.tree.map(lambda d, e: d + h * e, data, direction)
        return newton(fun, start, moved)

    def inner_product(one, other):
        return sum(jax.tree.leaves(jax.tree.map(lambda p, q: jnp.sum(p * q), one, other)))

    params = newton(fun, start, data)
    c, _ = ravel_pytree(cotangent)

    @jax.jit
    def pulled_back(data):
        solution = SOLVERS[solver].solve(fun, params, data, c, SOLVERS[solver].forget(c))
        return implicit_vjp(fun, params, data, solution.v)

    found = pulled_back(data)
    h = 1e-5
    slope = jax.tree.map(lambda p, q: (p - q) / (2 * h), shifted(h), shifted(-h))
    expected = inner_product(cotangent, slope)
    assert inner_product(found, direction) == pytest.approx(float(expected), rel=1e-8)
