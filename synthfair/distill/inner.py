"""theta(x): trains a model to stationarity, and says how near it came.

Three solvers of one contract (:class:`InnerSolver`): L-BFGS, Newton's method, and jaxopt's L-BFGS
as a reference. The hypergradient is only as exact as their solution.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from synthfair.distill.linear import LinearSolver, Matrix
from synthfair.model import Model, Params, Rows, regularized_hessian, regularized_loss

MEMORY = 10
"""Steps from which L-BFGS knows the curvature."""

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
"""Constants c1, c2 of the Wolfe conditions, Nocedal and Wright (2006) eq. (3.6)."""

MOST_TRIALS = 40
"""Step lengths that a line search tries; then it has failed."""

FORCING = 1e-3
"""Relative residual of the systems of Newton's method, where they are solved by iteration."""

Function = Callable[[Params, Any], jax.Array]
"""f(theta, data) -> scalar, twice differentiable and strictly convex in theta."""


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


class InnerSolver(Protocol):
    """Minimises f(theta, data) over theta, from a start."""

    def __call__(
        self,
        fun: Function,
        start: Params,
        data: Any,
        *,
        factor: jax.Array | None = None,
        linear: LinearSolver,
        hessian: Matrix | None = None,
        tolerance: jax.Array | float,
        max_iterations: jax.Array | int,
    ) -> InnerSolution:
        """The solution.

        Args:
            fun: f(theta, data).
            start: first theta; warm starts save most of the work.
            data: passed through to f.
            factor: Cholesky factor L [p, p] of a Hessian near the solution, or None.
            linear: solver of Newton's systems.
            hessian: H(theta, data) [p, p], where there is a better way than automatic
                differentiation.
            tolerance: stop where sqrt(g' M^-1 g) is at most this, g being the gradient and M the
                Hessian (Newton's decrement) or L L' near it, which bounds the error of theta in the
                metric that f itself sets; without a factor, M = I.
            max_iterations: at most so many.
        """
        ...


def default_tolerance() -> float:
    """1e-8 in float64, which keeps hypergradients exact to about 1e-6; 1e-5 in float32.

    Single precision cannot reach less, and a solution that missed its tolerance says so.
    """
    return 1e-8 if jax.dtypes.canonicalize_dtype(float) == jnp.float64 else 1e-5


class _LbfgsState(NamedTuple):
    """Where L-BFGS is: phi [p], the gradient there, iterations, and whether no step was found."""

    phi: jax.Array
    gradient: jax.Array
    iterations: jax.Array
    failed: jax.Array


def lbfgs(
    fun: Function,
    start: Params,
    data: Any,
    *,
    factor: jax.Array | None = None,
    linear: LinearSolver | None = None,  # noqa: ARG001 - Newton's
    hessian: Matrix | None = None,  # noqa: ARG001 - Newton's
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
    minimise: Callable[..., _LbfgsState] | None = None,
) -> InnerSolution:
    """L-BFGS, Nocedal and Wright (2006) algorithm 7.5, with optax's direction. See InnerSolver.

    With L the Cholesky factor of a Hessian near the solution, the search runs over phi in
    theta = start + L^-T phi, where the Hessian is close to the identity, so that L-BFGS needs
    about as many steps as Newton's method. f is convex, and no step needs a value of it.
    """
    theta, unravel = ravel_pytree(start)
    scale = None if factor is None else _inverse_transpose(factor)

    def place(phi: jax.Array) -> jax.Array:
        return theta + (phi if scale is None else scale @ phi)

    last = (minimise or _lbfgs)(
        lambda phi: fun(unravel(place(phi)), data),
        jnp.zeros_like(theta),
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    gradient = last.gradient if factor is None else factor @ last.gradient  # in phi it is L^-1 that
    return InnerSolution(
        params=unravel(place(last.phi)),
        gradient_norm=jnp.linalg.norm(gradient),
        iterations=last.iterations,
        converged=jnp.linalg.norm(last.gradient) <= tolerance,
        line_search_failed=last.failed,
    )


def _inverse_transpose(factor: jax.Array) -> jax.Array:
    """L^-T of a lower triangular L [p, p]."""
    return solve_triangular(factor.T, jnp.eye(len(factor), dtype=factor.dtype), lower=False)


def _lbfgs(
    fun: Callable[[jax.Array], jax.Array],
    phi: jax.Array,
    *,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
) -> _LbfgsState:
    direction = optax.scale_by_lbfgs(MEMORY)

    def unfinished(carry: tuple[_LbfgsState, Any]) -> jax.Array:
        at, _ = carry
        missed = jnp.linalg.norm(at.gradient) > tolerance  # not-a-number ends it, too
        return missed & (at.iterations < max_iterations) & ~at.failed

    def update(carry: tuple[_LbfgsState, Any]) -> tuple[_LbfgsState, Any]:
        at, memory = carry
        uphill, memory = direction.update(at.gradient, memory, at.phi)
        return _line_search(fun, at, -uphill), memory  # pyright: ignore

    first = _LbfgsState(phi, jax.grad(fun)(phi), jnp.zeros((), int), jnp.zeros((), bool))
    return jax.lax.while_loop(unfinished, update, (first, direction.init(phi)))[0]


class _Trial(NamedTuple):
    """A step length between ``low``, from where f still falls steeply, and ``high``, too far."""

    length: jax.Array
    low: jax.Array
    high: jax.Array
    gradient: jax.Array
    good: jax.Array
    trials: jax.Array


def _line_search(
    fun: Callable[[jax.Array], jax.Array], at: _LbfgsState, step: jax.Array
) -> _LbfgsState:
    """A step length that satisfies the Wolfe conditions, Nocedal and Wright (2006) eq. (3.6).

    The unit step where it will do, as almost always near the solution; otherwise by doubling and
    bisection (Lewis and Overton 2013, algorithm 4.6).

    As f is convex, its values, with a logarithm a row, are not needed: it has fallen enough where
    it still falls along the step; or else the gradient must halve.
    """
    slope, steepest = at.gradient @ step, CURVATURE * (at.gradient @ step)

    def attempt(before: _Trial) -> _Trial:
        new = jax.grad(fun)(at.phi + before.length * step)
        halves = jnp.linalg.norm(new) <= jnp.linalg.norm(at.gradient) / 2
        falls = (new @ step <= SUFFICIENT_DECREASE * slope) | halves
        steep = new @ step < steepest
        low = jnp.where(falls & steep, before.length, before.low)
        high = jnp.where(falls, before.high, before.length)
        good = falls & ~steep
        following = jnp.where(jnp.isinf(high), 2 * low, (low + high) / 2)
        length = jnp.where(good, before.length, following)
        return _Trial(length, low, high, new, good, before.trials + 1)

    def unfinished(trial: _Trial) -> jax.Array:
        return ~trial.good & (trial.trials < MOST_TRIALS)

    zero, no = jnp.zeros_like(slope), jnp.zeros((), bool)
    first = _Trial(zero + 1, zero, zero + jnp.inf, at.gradient, no, jnp.zeros((), int))
    last = jax.lax.while_loop(unfinished, attempt, first)
    return _LbfgsState(
        jnp.where(last.good, at.phi + last.length * step, at.phi),
        jnp.where(last.good, last.gradient, at.gradient),
        at.iterations + 1,
        ~last.good,
    )


def jaxopt_lbfgs(*args: Any, **settings: Any) -> InnerSolution:
    """Jaxopt's L-BFGS with a zoom line search: the reference that ours is compared with.

    The one place that knows jaxopt, which is no longer maintained; imported where it is asked for.
    """

    def minimise(
        fun: Callable[[jax.Array], jax.Array],
        phi: jax.Array,
        *,
        tolerance: jax.Array | float,
        max_iterations: jax.Array | int,
    ) -> _LbfgsState:
        with warnings.catch_warnings():  # it announces on import that it is no longer maintained
            warnings.simplefilter("ignore", DeprecationWarning)
            import jaxopt
        solver = jaxopt.LBFGS(
            fun,
            maxiter=max_iterations,  # type: ignore[arg-type]  # traced is fine, here
            tol=tolerance,  # type: ignore[arg-type]  # and here
            linesearch="zoom",
            unroll=False,  # of the line search; "auto" would run all its iterations, as no-ops
            implicit_diff=False,
        )
        reached, state = solver.run(phi)
        failed = state.failed_linesearch & (jnp.linalg.norm(state.grad) > tolerance)
        return _LbfgsState(reached, state.grad, state.iter_num, failed)

    return lbfgs(*args, minimise=minimise, **settings)


class _NewtonIterate(NamedTuple):
    """Where Newton's method is, and its decrement where it last stepped from."""

    theta: jax.Array
    decrement: jax.Array
    iterations: jax.Array
    failed: jax.Array


def newton(
    fun: Function,
    start: Params,
    data: Any,
    *,
    factor: jax.Array | None = None,  # noqa: ARG001 - its Hessians are its own
    linear: LinearSolver,
    hessian: Matrix | None = None,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
) -> InnerSolution:
    """Newton steps, halved until f falls enough. See InnerSolver.

    Boyd and Vandenberghe, Convex Optimization (2004), algorithm 9.5.
    """
    theta, unravel = ravel_pytree(start)

    def flat(theta: jax.Array, data: Any) -> jax.Array:
        return fun(unravel(theta), data)

    raveled = hessian and (lambda theta, data: hessian(unravel(theta), data))

    def unfinished(at: _NewtonIterate) -> jax.Array:
        # Not-a-number ends it, too.
        return (at.decrement > tolerance) & (at.iterations < max_iterations) & ~at.failed

    def step(at: _NewtonIterate) -> _NewtonIterate:
        value, slope = jax.value_and_grad(flat)(at.theta, data)
        solution = linear.solve(
            flat, at.theta, data, slope, linear.init(slope), hessian=raveled, tolerance=FORCING
        )
        change = solution.v
        squared = slope @ change
        rounding = 10 * jnp.finfo(value.dtype).eps * jnp.abs(value)

        def too_long(length: jax.Array) -> jax.Array:
            least = SUFFICIENT_DECREASE * length * squared
            falls = flat(at.theta - length * change, data) <= value - least + rounding
            return ~falls & (length >= 0.5**MOST_TRIALS)

        length = jax.lax.while_loop(too_long, lambda length: length / 2, jnp.ones_like(value))
        # Negative only where f is not convex, or the system was not solved: then not-a-number.
        decrement = jnp.sqrt(jnp.where(solution.converged, squared, jnp.nan))
        failed = length < 0.5**MOST_TRIALS
        return _NewtonIterate(at.theta - length * change, decrement, at.iterations + 1, failed)

    unknown = jnp.full((), jnp.inf, theta.dtype)
    first = _NewtonIterate(theta, unknown, jnp.zeros((), int), jnp.zeros((), bool))
    last = jax.lax.while_loop(unfinished, step, first)
    return InnerSolution(
        params=unravel(last.theta),
        gradient_norm=jnp.linalg.norm(jax.grad(flat)(last.theta, data)),
        iterations=last.iterations,
        converged=(last.decrement <= tolerance) & ~last.failed,
        line_search_failed=last.failed,
    )


SOLVERS: dict[str, InnerSolver] = {"lbfgs": lbfgs, "newton": newton, "jaxopt": jaxopt_lbfgs}
"""The inner solvers by name."""


@partial(jax.jit, static_argnames="model")
def train(
    rows: Rows,
    lambda_theta: jax.Array | float,
    *,
    model: Model,
    tolerance: jax.Array | float | None = None,
    max_iterations: jax.Array | int = 1000,
) -> InnerSolution:
    """Trains a model straight on rows, as a server does, Wu et al. (2024) eq. (15).

    Args:
        rows: real or synthetic.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        model: what is trained.
        tolerance: see :class:`InnerSolver`; that of :func:`default_tolerance` if not given.
        max_iterations: at most so many L-BFGS iterations.
    """
    start = model.init(rows.a.shape[1])
    hessian = regularized_hessian(model, start, rows, lambda_theta)
    return lbfgs(
        lambda params, rows: regularized_loss(model, params, rows, lambda_theta),
        start,
        rows,
        factor=jax.lax.linalg.cholesky(hessian),
        tolerance=default_tolerance() if tolerance is None else tolerance,
        max_iterations=max_iterations,
    )
