"""The derivative of theta(x) = argmin_theta f(theta, x)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from synthfair.model import Params

InnerObjective = Callable[[Params, Any], jax.Array]
"""f(theta, x) -> scalar, twice differentiable and strictly convex in theta."""


def hessian_factor(fun: InnerObjective, params: Params, data: Any) -> jax.Array:
    """Lower Cholesky factor [p, p] of the Hessian of f in theta, theta raveled to p numbers.

    Not-a-number where the Hessian is not positive definite.
    """
    theta, unravel = ravel_pytree(params)
    hessian = jax.hessian(lambda t: fun(unravel(t), data))(theta)
    return jax.lax.linalg.cholesky(hessian)


def implicit_vjp(
    fun: InnerObjective, params: Params, data: Any, cotangent: Params, factor: jax.Array
) -> Any:
    """Cotangent of theta pulled back to x through the inner optimum.

    At the optimum df/dtheta = 0 for every x, hence H dtheta/dx + d2f/(dtheta dx) = 0 and

        (dtheta/dx)' c = - (d2f/(dtheta dx))' H^-1 c.

    Wu et al. (2024) eq. (14), which prints the equation without the minus sign.

    Args:
        fun: f(theta, x).
        params: the inner optimum theta(x); the result is as exact as this is stationary.
        data: x, any pytree.
        cotangent: c, a pytree like params.
        factor: from :func:`hessian_factor` at (params, data).

    Returns:
        A pytree like data.
    """
    flat, unravel = ravel_pytree(cotangent)
    v = unravel(cho_solve((factor, True), flat))
    _, pull = jax.vjp(lambda d: jax.grad(fun)(params, d), data)
    (by_data,) = pull(v)
    return jax.tree.map(lambda leaf: -leaf, by_data)
