"""theta(x): trains a model to stationarity, and says how near it came.

The one place that knows jaxopt.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from synthfair.distill.implicit import InnerObjective
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params, Rows, regularized_hessian, regularized_loss

with warnings.catch_warnings():  # jaxopt announces on import that it is no longer maintained
    warnings.simplefilter("ignore", DeprecationWarning)
    import jaxopt


ATTEMPTS = 20
"""At training with a penalty: each begins where the line search of the one before failed."""

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
"""Constants c1, c2 of the strong Wolfe conditions, as jaxopt's line search has them."""


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
) -> InnerSolution:
    """Minimises f(theta, x) over theta by L-BFGS with a strong-Wolfe line search.

    With L the Cholesky factor of a Hessian near the solution, the search runs over phi in
    theta = start + L^-T phi, where the Hessian is close to the identity, so that L-BFGS needs
    about as many steps as Newton's method.

    Args:
        fun: f(theta, x), convex in theta.
        start: first theta; warm starts save most of the work.
        data: x, passed through to f.
        factor: L, lower triangular [p, p], or None to search over theta itself.
        tolerance: stop when the Euclidean norm of the gradient in phi is at most this. In phi it
            is the Newton decrement sqrt(g' H^-1 g), which bounds the error of theta in the metric
            that the loss itself sets. See :func:`default_tolerance`.
        max_iterations: at most so many L-BFGS iterations.
    """
    theta, unravel = ravel_pytree(start)

    scale = None if factor is None else inverse_transpose(factor)

    def place(phi: jax.Array) -> jax.Array:
        return theta + (phi if scale is None else scale @ phi)

    solver = jaxopt.LBFGS(
        lambda phi: fun(unravel(place(phi)), data),
        maxiter=max_iterations,  # type: ignore[arg-type]  # traced is fine, here
        tol=tolerance,  # type: ignore[arg-type]  # and here
        linesearch="zoom",
        unroll=False,  # of the line search; "auto" would run all its iterations, as no-ops
    )
    phi, state = _loop(solver, jnp.zeros_like(theta))
    gradient = state.grad if factor is None else factor @ state.grad  # in phi it is L^-1 that
    return InnerSolution(
        params=unravel(place(phi)),
        gradient_norm=jnp.linalg.norm(gradient),
        iterations=state.iter_num,
        converged=state.error <= tolerance,
        line_search_failed=state.failed_linesearch,
    )


def _loop(solver: jaxopt.LBFGS, phi: jax.Array) -> tuple[jax.Array, Any]:
    """``solver.run(phi)``, which would compile the first iteration apart from the others."""
    zoom = solver.run_ls
    unit_first = partial(_unit_step_first, jax.value_and_grad(solver.fun), zoom)
    solver.run_ls = unit_first  # type: ignore[assignment]  # jaxopt reads the fields of _Found only

    def unfinished(step: tuple[jax.Array, Any]) -> jax.Array:
        _, state = step
        missed = (state.error > solver.tol) & (state.iter_num < solver.maxiter)
        return missed & ~state.failed_linesearch

    def update(step: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        return tuple(solver.update(*step))

    state = solver.init_state(phi)
    state = state._replace(error=jnp.linalg.norm(state.grad))  # it may be good enough already
    return jax.lax.while_loop(unfinished, update, (phi, state))


class _Found(NamedTuple):
    """What jaxopt reads of a line search's state; its counts are of no use here."""

    params: jax.Array
    value: jax.Array
    grad: jax.Array
    failed: jax.Array
    aux: None = None
    iter_num: int = 0
    num_grad_eval: int = 0
    num_fun_eval: int = 0


def _unit_step_first(
    value_and_grad: Callable[..., tuple[jax.Array, jax.Array]],
    zoom: Callable[..., Any],
    init_stepsize: jax.Array,
    params: jax.Array,
    **known: Any,
) -> tuple[jax.Array, _Found]:
    """A line search that evaluates the function once where the unit step will do.

    That is almost always, near the solution. jaxopt's own evaluates it twice at least.
    """
    step = known["descent_direction"]
    value, grad = value_and_grad(params + step)
    slope, new_slope = known["grad"] @ step, grad @ step
    rounding = 10 * jnp.finfo(params.dtype).eps * jnp.abs(known["value"])
    # The strong Wolfe conditions, Nocedal and Wright (2006) eq. (3.7), but for rounding.
    lower = value <= known["value"] + SUFFICIENT_DECREASE * slope + rounding
    flatter = jnp.abs(new_slope) <= CURVATURE * jnp.abs(slope)

    unit = _Found(params + step, value, grad, jnp.zeros((), bool))

    def searched(_: tuple[jax.Array, jax.Array, _Found]) -> tuple[jax.Array, jax.Array, _Found]:
        length, state = zoom(init_stepsize, params, **known)
        found = _Found(state.params, state.value, state.grad, state.failed)
        return jnp.ones((), bool), length, found

    # A loop that is run once or not at all: over a batch of problems a condition would become
    # a selection, and the search be made for nothing.
    taken = (lower & flatter, jnp.ones_like(value), unit)
    _, length, found = jax.lax.while_loop(lambda state: ~state[0], searched, taken)
    return length, found


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
        return solve(
            fun, params, rows, factor=factor, tolerance=tolerance, max_iterations=max_iterations
        )

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
