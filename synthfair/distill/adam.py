"""Adam on the synthetic features, as Wu et al. (2024) use it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill.judge import Judged
from synthfair.distill.problem import Problem
from synthfair.model import Params

KEPT = np.float32
"""Precision of the moments, and of the gradient that enters them. They only say how far a step
goes, here to a hundred-thousandth of it, in half the memory; their root and quotient take a third
of the time. x itself, theta and P keep the precision that they have."""

DECAY, SQUARE_DECAY, SMALL = 0.9, 0.999, 1e-8
"""beta_1, beta_2 and epsilon of Kingma and Ba (2015), their algorithm 1."""

LARGEST = 1e18
"""Of an entry of the gradient, in size: its square must be a number in single precision."""


class Memory(NamedTuple):
    """What is kept between steps.

    Attributes:
        taken: number of steps so far.
        moments: [d, N_s] complex: the decaying mean of the gradients, and that of their squares as
            the imaginary part. In one array, as XLA would pass over the gradient and x for each.
        before: theta(x) of the step before the last; not-a-number where there is none yet.
        before_that: of the step before that.
    """

    taken: jax.Array
    moments: jax.Array
    before: Params
    before_that: Params


def init(_problem: Problem, start: Judged) -> Memory:
    """Zero moments, and no steps to look back on."""
    nothing = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), start.params)
    return Memory(*_no_moments(start.x), nothing, nothing)


def restart(memory: Memory, x: jax.Array) -> Memory:
    """Zero moments again."""
    return Memory(*_no_moments(x), memory.before, memory.before_that)


def _no_moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    # NumPy's zeros, so that nothing is compiled.
    nothing = np.zeros(x.shape, np.result_type(KEPT, np.complex64))
    return jax.device_put((np.zeros((), np.int32), nothing))


def widened(memory: Memory, shape: tuple[int, ...]) -> Memory:
    """With zeros below and beside its moments, for an x of this shape [n, N_s + k].

    Where the gradient there is zero, these entries of x stay, and the others move as they would
    alone. See :meth:`synthfair.distill.problem.Problem.widened`.
    """
    d, n_rows = memory.moments.shape[-2:]
    more = [*[(0, 0)] * (len(shape) - 2), (0, shape[-2] - d), (0, shape[-1] - n_rows)]
    return memory._replace(moments=jnp.pad(memory.moments, more))


def narrowed(memory: Memory, d: int, n_rows: int) -> Memory:
    """With the moments of the first d lines and N_s rows."""
    return memory._replace(moments=memory.moments[..., :d, :n_rows])


def move(
    _problem: Problem, judged: Judged, memory: Memory, learning_rate: jax.Array | float
) -> tuple[Judged, jax.Array, Params, Memory]:
    """One step along the hypergradient g, from the x judged last.

        m = beta_1 m + (1 - beta_1) g,      v = beta_2 v + (1 - beta_2) g^2,

        x = x - rate (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)

    Kingma and Ba (2015), algorithm 1, with the entries of g kept within :data:`LARGEST`.

    Returns:
        What counts as reached, the next x to judge, where to look for theta there, and the new
        memory.
    """
    taken = memory.taken + 1
    gradient = jnp.clip(judged.gradient, -LARGEST, LARGEST).astype(KEPT)
    mean = DECAY * memory.moments.real + (1 - DECAY) * gradient
    square = SQUARE_DECAY * memory.moments.imag + (1 - SQUARE_DECAY) * gradient * gradient
    # Behind the barrier x's move reads them; XLA would make them once more there.
    moments = jax.lax.optimization_barrier(jax.lax.complex(mean, square))
    # Rounded before it meets the moments, which would take on its precision.
    share, square_share = (jnp.asarray(1 - b**taken, KEPT) for b in (DECAY, SQUARE_DECAY))
    direction = moments.real / share / (jnp.sqrt(moments.imag / square_share) + SMALL)
    near = jax.tree.map(_next, judged.params, memory.before, memory.before_that)
    x = judged.x - learning_rate * direction.astype(judged.x.dtype)
    return judged, x, near, Memory(taken, moments, judged.params, memory.before)


def _next(now: jax.Array, before: jax.Array, before_that: jax.Array) -> jax.Array:
    """The parabola through three points goes on here; where there are not three yet, the last.

    x moves smoothly, and theta(x) with it: so the inner solve starts an iteration or more nearer.
    """
    guess = 3 * now - 3 * before + before_that
    return jnp.where(jnp.isfinite(guess), guess, now)
