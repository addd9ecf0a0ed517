"""theta(x): trains a model to stationarity, and says how near it came."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from synthfair.distill.implicit import InnerObjective
from synthfair.distill.lbfgs import Minimise, lbfgs
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params, Rows, regularized_hessian, regularized_loss

ATTEMPTS = 20
"""At training with a penalty: each begins where the line search of the one before failed."""


class InnerSolution(NamedTuple):
    """An approximate minimiser and how well it was computed.

    Attributes:
        params: the minimiser.
        gradient_norm: Euclidean norm of the gradient there.
        iterations: L-BFGS iterations or Newton steps spent.
        converged: whether the stopping criterion was met.
        line_search_failed: whether the last line search found no step; usual where the precision
            of the arithmetic is exhausted.
    """

    params: Params
    gradient_norm: jax.Array
    iterations: jax.Array
    converged: jax.Array
    line_search_failed: jax.Array


def default_tolerance() -> float:
    """1e-8 in float64, which keeps hypergradients exact to about 1e-6; 1e-5 in float32.

    Single precision cannot reach less, and a solution that missed its tolerance says so.
    """
    return 1e-8 if jax.dtypes.canonicalize_dtype(float) == jnp.float64 else 1e-5


def inverse_transpose(factor: jax.Array) -> jax.Array:
    """L^-T of a lower triangular L [p, p]."""
    return solve_triangular(factor.T, jnp.eye(len(factor), dtype=factor.dtype), lower=False)


def solve(
    fun: InnerObjective,
    start: Params,
    data: Any,
    *,
    factor: jax.Array | None = None,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
    convex: bool = True,
    minimise: Minimise | None = None,
) -> InnerSolution:
    """Minimises f(theta, x) over theta by L-BFGS with a Wolfe line search.

    With L the Cholesky factor of a Hessian near the solution, the search runs over phi in
    theta = start + L^-T phi, where the Hessian is close to the identity, so that L-BFGS needs
    about as many steps as Newton's method.

    Args:
        fun: f(theta, x).
        start: first theta; warm starts save most of the work.
        data: x, passed through to f.
        factor: L, lower triangular [p, p], or None to search over theta itself.
        tolerance: stop when the Euclidean norm of the gradient in phi is at most this. In phi it
            is the Newton decrement sqrt(g' H^-1 g), which bounds the error of theta in the metric
            that the loss itself sets. See :func:`default_tolerance`.
        max_iterations: at most so many L-BFGS iterations.
        convex: whether f is, in theta; then most steps need no value of f, the gradient will do.
        minimise: :func:`lbfgs` if not given.
    """
    theta, unravel = ravel_pytree(start)

    scale = None if factor is None else inverse_transpose(factor)

    def place(phi: jax.Array) -> jax.Array:
        return theta + (phi if scale is None else scale @ phi)

    last = (minimise or lbfgs)(
        lambda phi: fun(unravel(place(phi)), data),
        jnp.zeros_like(theta),
        tolerance=tolerance,
        max_iterations=max_iterations,
        convex=convex,
    )
    gradient = last.gradient if factor is None else factor @ last.gradient  # in phi it is L^-1 that
    return InnerSolution(
        params=unravel(place(last.phi)),
        gradient_norm=jnp.linalg.norm(gradient),
        iterations=last.iterations,
        converged=jnp.linalg.norm(last.gradient) <= tolerance,
        line_search_failed=last.failed,
    )


@partial(jax.jit, static_argnames=("model", "penalty"))
def train(
    rows: Rows,
    lambda_theta: jax.Array | float,
    *,
    model: Model,
    penalty: Penalty | None = None,
    rho: jax.Array | float = 0.0,
    tolerance: jax.Array | float | None = None,
    max_iterations: jax.Array | int = 1000,
) -> InnerSolution:
    """Trains a model straight on rows: argmin of regularised loss + rho penalty, from a cold start.

    Without penalty this is what a server does, Wu et al. (2024) eq. (15).

    Args:
        rows: real or synthetic.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        model: what is trained.
        penalty: none if not given.
        rho: its weight, at least 0.
        tolerance: see :func:`solve`; that of :func:`default_tolerance` if not given.
        max_iterations: at most so many L-BFGS iterations; with a penalty, of each attempt.
    """

    def loss(params: Params, rows: Rows) -> jax.Array:
        return regularized_loss(model, params, rows, lambda_theta)

    def fun(params: Params, rows: Rows) -> jax.Array:
        unfairness = 0.0 if penalty is None else rho * penalty(model, params, rows)
        return loss(params, rows) + unfairness

    tolerance = default_tolerance() if tolerance is None else tolerance
    start = model.init(rows.a.shape[1])

    def attempt(params: Params) -> InnerSolution:
        # Of the loss alone: with a penalty that is not convex the whole need not have a factor.
        hessian = regularized_hessian(model, params, rows, lambda_theta)
        factor = jax.lax.linalg.cholesky(hessian)
        limits = {"tolerance": tolerance, "max_iterations": max_iterations}
        return solve(fun, params, rows, factor=factor, convex=penalty is None, **limits)

    if penalty is None:
        return attempt(start)
    return _repeated(attempt, start)


def _repeated(attempt: Callable[[Params], InnerSolution], start: Params) -> InnerSolution:
    """Tries again from where a line search gave up, which a steep penalty makes it do early."""
    fresh = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(attempt, start))

    def unfinished(carry: tuple[jax.Array, InnerSolution]) -> jax.Array:
        tries, solution = carry
        return (tries < ATTEMPTS) & ~solution.converged

    def again(carry: tuple[jax.Array, InnerSolution]) -> tuple[jax.Array, InnerSolution]:
        tries, before = carry
        solution = attempt(before.params)
        iterations = before.iterations + solution.iterations
        return tries + 1, solution._replace(iterations=iterations)

    first = (jnp.zeros((), int), fresh._replace(params=start))
    return jax.lax.while_loop(unfinished, again, first)[1]
