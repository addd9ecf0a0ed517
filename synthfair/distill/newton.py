"""theta(x) by Newton's method, as a second opinion on :mod:`synthfair.distill.inner`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from synthfair.distill.implicit import InnerObjective
from synthfair.distill.inner import InnerSolution
from synthfair.distill.lbfgs import SUFFICIENT_DECREASE
from synthfair.distill.linear import Hessian, LinearSolver
from synthfair.model import Params

FORCING = 1e-3
"""Relative residual of the linear systems, where they are solved by iteration."""

MOST_HALVINGS = 40
"""Of a step; then the line search has failed."""


class _Iterate(NamedTuple):
    theta: jax.Array
    decrement: jax.Array
    iterations: jax.Array
    failed: jax.Array


def solve(
    fun: InnerObjective,
    start: Params,
    data: Any,
    *,
    linear: LinearSolver,
    hessian: Hessian | None = None,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
) -> InnerSolution:
    """Minimises f(theta, x) over theta by Newton steps, halved until f falls enough.

    Boyd and Vandenberghe, Convex Optimization (2004), algorithm 9.5.

    Args:
        fun: f(theta, x), strictly convex in theta.
        start: first theta.
        data: x, passed through to f.
        linear: solver of the Newton systems.
        hessian: H(theta, x), where there is a better way than automatic differentiation.
        tolerance: stop after the step at whose start the Newton decrement sqrt(g' H^-1 g) was at
            most this: the same measure as in :func:`synthfair.distill.inner.solve`.
        max_iterations: at most so many steps.
    """
    theta, unravel = ravel_pytree(start)

    def flat(theta: jax.Array, data: Any) -> jax.Array:
        return fun(unravel(theta), data)

    raveled = hessian and (lambda theta, data: hessian(unravel(theta), data))

    def unfinished(at: _Iterate) -> jax.Array:
        # Not-a-number ends it, too.
        return (at.decrement > tolerance) & (at.iterations < max_iterations) & ~at.failed

    def step(at: _Iterate) -> _Iterate:
        value, slope = jax.value_and_grad(flat)(at.theta, data)
        nothing = linear.forget(slope)
        solution = linear.solve(
            flat, at.theta, data, slope, nothing, hessian=raveled, tolerance=FORCING
        )
        change = solution.v
        squared = slope @ change
        length = _halved(lambda t: flat(at.theta - t * change, data), value, squared)
        # Negative only where f is not convex, or the system was not solved: then not-a-number.
        decrement = jnp.sqrt(jnp.where(solution.converged, squared, jnp.nan))
        moved = at.theta - length * change
        return _Iterate(moved, decrement, at.iterations + 1, length < 0.5**MOST_HALVINGS)

    unknown = jnp.full((), jnp.inf, theta.dtype)
    first = _Iterate(theta, unknown, jnp.zeros((), int), jnp.zeros((), bool))
    last = jax.lax.while_loop(unfinished, step, first)
    return InnerSolution(
        params=unravel(last.theta),
        gradient_norm=jnp.linalg.norm(jax.grad(flat)(last.theta, data)),
        iterations=last.iterations,
        converged=(last.decrement <= tolerance) & ~last.failed,
        line_search_failed=last.failed,
    )


def _halved(
    along: Callable[[jax.Array], jax.Array], value: jax.Array, squared: jax.Array
) -> jax.Array:
    """The first length 1, 1/2, 1/4, ... at which f falls enough; below 2^-40 where none does."""
    rounding = 10 * jnp.finfo(value.dtype).eps * jnp.abs(value)

    def too_long(length: jax.Array) -> jax.Array:
        enough = along(length) <= value - SUFFICIENT_DECREASE * length * squared + rounding
        return ~enough & (length >= 0.5**MOST_HALVINGS)

    return jax.lax.while_loop(too_long, lambda length: length / 2, jnp.ones_like(value))
