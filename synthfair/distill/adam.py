"""Adam on the synthetic features, as Wu et al. (2024) use it."""

from __future__ import annotations

from functools import partial
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
        mean: [d, N_s] of the gradients, decaying.
        square: [d, N_s] of their squares.
        before: theta(x) of the step before the last; not-a-number where there is none yet.
        before_that: of the step before that.
    """

    taken: jax.Array
    mean: jax.Array
    square: jax.Array
    before: Params
    before_that: Params


def init(_problem: Problem, start: Judged) -> Memory:
    """Zero moments, and no steps to look back on."""
    nothing = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), start.params)
    return Memory(*_no_moments(start.x), nothing, nothing)


def restart(memory: Memory, x: jax.Array) -> Memory:
    """Zero moments again."""
    return Memory(*_no_moments(x), memory.before, memory.before_that)


def _no_moments(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    nothing = np.zeros(x.shape, KEPT)  # NumPy's, so that nothing is compiled
    return jax.device_put((np.zeros((), np.int32), nothing, nothing))


def joined(x: jax.Array, memory: Memory, beside: jax.Array) -> tuple[jax.Array, Memory]:
    """Puts the lines beside x [n - d, N_s] below it, and zeros below its moments.

    Where the gradient there is zero, these lines stay, and x moves as it would alone. See
    :meth:`synthfair.distill.problem.Problem.joined`.
    """
    below = partial(jnp.concatenate, axis=-2)
    nothing = jnp.zeros(beside.shape, KEPT)
    mean, square = below([memory.mean, nothing]), below([memory.square, nothing])
    return below([x, beside]), memory._replace(mean=mean, square=square)


def parted(x: jax.Array, memory: Memory, d: int) -> tuple[jax.Array, Memory]:
    """The first d lines of x, and of its memory."""
    mean, square = memory.mean[..., :d, :], memory.square[..., :d, :]
    return x[..., :d, :], memory._replace(mean=mean, square=square)


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
    mean = DECAY * memory.mean + (1 - DECAY) * gradient
    square = SQUARE_DECAY * memory.square + (1 - SQUARE_DECAY) * gradient * gradient
    # Rounded before it meets the moments, which would take on its precision.
    share, square_share = (jnp.asarray(1 - b**taken, KEPT) for b in (DECAY, SQUARE_DECAY))
    direction = mean / share / (jnp.sqrt(square / square_share) + SMALL)
    near = jax.tree.map(_next, judged.params, memory.before, memory.before_that)
    x = judged.x - learning_rate * direction.astype(judged.x.dtype)
    return judged, x, near, Memory(taken, mean, square, judged.params, memory.before)


def _next(now: jax.Array, before: jax.Array, before_that: jax.Array) -> jax.Array:
    """The parabola through three points goes on here; where there are not three yet, the last.

    x moves smoothly, and theta(x) with it: so the inner solve starts an iteration or more nearer.
    """
    guess = 3 * now - 3 * before + before_that
    return jnp.where(jnp.isfinite(guess), guess, now)
