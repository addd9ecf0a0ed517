"""Adam on the synthetic features, as Wu et al. (2024) use it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from synthfair.distill.judge import Judged
from synthfair.distill.problem import Problem
from synthfair.model import Params


class Memory(NamedTuple):
    """What is kept between steps.

    Attributes:
        moments: Adam's own.
        before: theta(x) of the step before the last; not-a-number where there is none yet.
        before_that: of the step before that.
    """

    moments: optax.OptState
    before: Params
    before_that: Params


def init(_problem: Problem, start: Judged) -> Memory:
    """Zero moments, and no steps to look back on."""
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), start.params)
    return Memory(optax.adam(1.0).init(start.x), nothing, nothing)


def restart(memory: Memory, x: jax.Array) -> Memory:
    """Zero moments again."""
    return memory._replace(moments=optax.adam(1.0).init(x))


def move(
    _problem: Problem, judged: Judged, memory: Memory, learning_rate: jax.Array | float
) -> tuple[Judged, jax.Array, Params, Memory]:
    """One step along the hypergradient, from the x judged last.

    Returns:
        What counts as reached, the next x to judge, where to look for theta there, and the new
        memory.
    """
    updates, moments = optax.adam(learning_rate).update(judged.gradient, memory.moments)
    near = jax.tree.map(_next, judged.params, memory.before, memory.before_that)
    after = Memory(moments, judged.params, memory.before)
    return judged, judged.x + jnp.asarray(updates), near, after


def _next(now: jax.Array, before: jax.Array, before_that: jax.Array) -> jax.Array:
    """The parabola through three points goes on here; where there are not three yet, the last.

    x moves smoothly, and theta(x) with it: so the inner solve starts an iteration or more nearer.
    """
    guess = 3 * now - 3 * before + before_that
    return jnp.where(jnp.isfinite(guess), guess, now)
