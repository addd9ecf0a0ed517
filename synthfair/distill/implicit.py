"""The derivative of theta(x) = argmin_theta f(theta, x)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from synthfair.model import Params

InnerObjective = Callable[[Params, Any], jax.Array]
"""f(theta, x) -> scalar, twice differentiable and strictly convex in theta."""


Mixed = Callable[[Params, Any, jax.Array], Any]
"""(d2f/(dtheta dx))' v at (theta, x), a pytree like x; v [p]."""


def implicit_vjp(
    fun: InnerObjective, params: Params, data: Any, v: jax.Array, *, mixed: Mixed | None = None
) -> Any:
    """Cotangent c of theta pulled back to x through the inner optimum, given v = H^-1 c.

    At the optimum df/dtheta = 0 for every x, hence H dtheta/dx + d2f/(dtheta dx) = 0 and

        (dtheta/dx)' c = - (d2f/(dtheta dx))' H^-1 c.

    Wu et al. (2024) eq. (14), which prints the equation without the minus sign.

    Args:
        fun: f(theta, x).
        params: the inner optimum theta(x); the result is as exact as this is stationary.
        data: x, any pytree.
        v: [p] H^-1 c, H the Hessian at (params, data); see :mod:`synthfair.distill.linear`.
        mixed: the product, where there is a better way than automatic differentiation.

    Returns:
        A pytree like data.
    """
    by_data = (mixed or mixed_of(fun))(params, data, v)
    return jax.tree.map(lambda leaf: -leaf, by_data)


def mixed_of(fun: InnerObjective) -> Mixed:
    """By automatic differentiation."""

    def mixed(params: Params, data: Any, v: jax.Array) -> Any:
        _, unravel = ravel_pytree(params)
        _, pull = jax.vjp(lambda d: jax.grad(fun)(params, d), data)
        return pull(unravel(v))[0]

    return mixed
