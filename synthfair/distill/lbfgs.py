"""L-BFGS with a Wolfe line search: Nocedal and Wright, Numerical Optimization (2006)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

MEMORY = 10
"""Steps from which the curvature is known."""

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
"""Constants c1, c2 of the Wolfe conditions."""

MOST_TRIALS = 40
"""Of a line search; then it has failed."""

Function = Callable[[jax.Array], jax.Array]
"""Of phi [p], a scalar."""


class Minimum(NamedTuple):
    """Where a minimisation ended.

    Attributes:
        phi: [p].
        gradient: [p] there.
        iterations: so many.
        failed: whether the last line search did.
    """

    phi: jax.Array
    gradient: jax.Array
    iterations: jax.Array
    failed: jax.Array


class Minimise(Protocol):
    """An unconstrained minimiser, such as :func:`lbfgs`."""

    def __call__(
        self,
        fun: Function,
        phi: jax.Array,
        *,
        tolerance: jax.Array | float,
        max_iterations: jax.Array | int,
        convex: bool,
    ) -> Minimum:
        """Minimises fun from phi until the gradient's norm is at most the tolerance."""
        ...


def lbfgs(
    fun: Function,
    phi: jax.Array,
    *,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
    convex: bool,
) -> Minimum:
    """L-BFGS, Nocedal and Wright (2006) algorithm 7.5.

    The first step is at most 1 long, and it ends where a line search fails. The arguments are
    those of :class:`Minimise`.
    """

    def unfinished(carry: tuple[Minimum, Memory]) -> jax.Array:
        at, _ = carry
        missed = jnp.linalg.norm(at.gradient) > tolerance  # not-a-number ends it, too
        return missed & (at.iterations < max_iterations) & ~at.failed

    def update(carry: tuple[Minimum, Memory]) -> tuple[Minimum, Memory]:
        at, memory = carry
        step = -precondition(memory, at.gradient, known=jnp.minimum(at.iterations, MEMORY))
        found = _line_search(fun, at.phi, at.gradient, step, convex=convex)
        memory = remember(memory, found.phi - at.phi, found.gradient - at.gradient)
        return Minimum(found.phi, found.gradient, at.iterations + 1, found.failed), memory

    no, none, gradient = jnp.zeros((), bool), jnp.zeros((), int), jax.grad(fun)(phi)
    first = Minimum(phi, gradient, none, no)
    return jax.lax.while_loop(unfinished, update, (first, no_memory(gradient)))[0]


class Memory(NamedTuple):
    """What the last steps tell about the Hessian, the newest first.

    Attributes:
        steps: [MEMORY, p] s.
        changes: [MEMORY, p] y, of the gradient over each step.
        weights: [MEMORY] 1 / y's; 0 where there is no step yet, or none that tells anything.
        scale: gamma, of the identity that they correct.
    """

    steps: jax.Array
    changes: jax.Array
    weights: jax.Array
    scale: jax.Array


def no_memory(gradient: jax.Array) -> Memory:
    """Before the first step: gamma = min(1, 1 / |g|), as far from the solution g tells no length.

    Nocedal and Wright (2006), section 6.1, leave it open.
    """
    nothing = jnp.zeros((MEMORY, len(gradient)), gradient.dtype)
    scale = jnp.minimum(1.0, 1.0 / jnp.linalg.norm(gradient))
    return Memory(nothing, nothing, nothing[:, 0], scale)


def remember(memory: Memory, step: jax.Array, change: jax.Array) -> Memory:
    """With one step s [p] more, over which the gradient changed by y [p]; the oldest is forgotten.

    gamma = y's / y'y, Nocedal and Wright (2006) eq. (7.20); 1 where that is no number. A step with
    y's = 0 has no weight.
    """
    product, square = jnp.sum(step * change), jnp.sum(change * change)
    tells = (product != 0) & (square > 0)
    newest = step, change, jnp.where(tells, 1 / product, 0.0)
    steps, changes, weights = (
        jnp.concatenate([new[None], old[:-1]]) for new, old in zip(newest, memory[:3], strict=True)
    )
    return Memory(steps, changes, weights, jnp.where(tells, product / square, 1.0))


def precondition(memory: Memory, gradient: jax.Array, *, known: jax.Array | int) -> jax.Array:
    """The inverse Hessian, as far as so many steps tell, times a gradient [p].

    Nocedal and Wright (2006) algorithm 7.4, with w_i = 1 / y_i's_i and q = gradient: from the
    newest step i to the oldest

        alpha_i = w_i s_i'q,    q = q - alpha_i y_i,

    then r = gamma q, and from the oldest to the newest

        r = r + (alpha_i - w_i y_i'r) s_i.

    Args:
        memory: from :func:`remember`.
        gradient: [p].
        known: steps that are remembered, 0 to MEMORY. The others have no weight: more only takes
            longer.
    """
    steps, changes, weights, scale = memory

    def backward(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, alphas = carry
        alpha = weights[i] * jnp.sum(steps[i] * q)
        return q - alpha * changes[i], alphas.at[i].set(alpha)

    def forward(i: jax.Array, r: jax.Array) -> jax.Array:
        oldest = known - 1 - i
        beta = weights[oldest] * jnp.sum(changes[oldest] * r)
        return r + (alphas[oldest] - beta) * steps[oldest]

    q, alphas = jax.lax.fori_loop(0, known, backward, (gradient, jnp.zeros_like(weights)))
    return jax.lax.fori_loop(0, known, forward, scale * q)


class _Found(NamedTuple):
    """Where a line search ended."""

    phi: jax.Array
    gradient: jax.Array
    failed: jax.Array


class _Trial(NamedTuple):
    """A step length between ``low``, from where f still falls steeply, and ``high``, too far."""

    length: jax.Array
    low: jax.Array
    high: jax.Array
    gradient: jax.Array
    good: jax.Array
    trials: jax.Array


Evaluate = Callable[[jax.Array], tuple[jax.Array, jax.Array]]
"""Step length -> whether f falls enough over it, and the gradient there."""


def _line_search(
    fun: Function, phi: jax.Array, gradient: jax.Array, step: jax.Array, *, convex: bool
) -> _Found:
    """A step length that satisfies the Wolfe conditions, Nocedal and Wright (2006) eq. (3.6).

    The unit step where it will do, as almost always near the solution; otherwise by doubling and
    bisection (Lewis and Overton 2013, algorithm 4.6).
    """
    evaluate = (_fall_by_slope if convex else _fall_by_value)(fun, phi, gradient, step)
    steepest = CURVATURE * (gradient @ step)

    def attempt(before: _Trial) -> _Trial:
        falls, new = evaluate(before.length)
        steep = new @ step < steepest
        low = jnp.where(falls & steep, before.length, before.low)
        high = jnp.where(falls, before.high, before.length)
        following = jnp.where(jnp.isinf(high), 2 * low, (low + high) / 2)
        good = falls & ~steep
        length = jnp.where(good, before.length, following)
        return _Trial(length, low, high, new, good, before.trials + 1)

    def unfinished(trial: _Trial) -> jax.Array:
        return ~trial.good & (trial.trials < MOST_TRIALS)

    zero, no = jnp.zeros_like(steepest), jnp.zeros((), bool)
    first = _Trial(zero + 1, zero, zero + jnp.inf, gradient, no, jnp.zeros((), int))
    last = jax.lax.while_loop(unfinished, attempt, first)
    moved = jnp.where(last.good, phi + last.length * step, phi)
    return _Found(moved, jnp.where(last.good, last.gradient, gradient), ~last.good)


def _fall_by_value(fun: Function, phi: jax.Array, gradient: jax.Array, step: jax.Array) -> Evaluate:
    """The first Wolfe condition, but for rounding."""
    value, slope = fun(phi), gradient @ step
    rounding = 10 * jnp.finfo(phi.dtype).eps * jnp.abs(value)

    def evaluate(length: jax.Array) -> tuple[jax.Array, jax.Array]:
        new_value, new = jax.value_and_grad(fun)(phi + length * step)
        return new_value <= value + SUFFICIENT_DECREASE * length * slope + rounding, new

    return evaluate


def _fall_by_slope(fun: Function, phi: jax.Array, gradient: jax.Array, step: jax.Array) -> Evaluate:
    """The same of a convex function, whose values, with a logarithm a row, are not asked for.

    It falls enough where its slope is still negative enough; or else the gradient must halve.
    """
    slope, half = gradient @ step, jnp.linalg.norm(gradient) / 2

    def evaluate(length: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jax.grad(fun)(phi + length * step)
        downhill = new @ step <= SUFFICIENT_DECREASE * slope
        return downhill | (jnp.linalg.norm(new) <= half), new

    return evaluate
