"""Adam on the synthetic features, as Wu et al. (2024) use it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from synthfair.distill.judge import Judged
from synthfair.distill.problem import Problem


def init(_problem: Problem, start: Judged) -> optax.OptState:
    """Zero moments."""
    return optax.adam(1.0).init(start.x)


def restart(_memory: optax.OptState, x: jax.Array) -> optax.OptState:
    """Zero moments again."""
    return optax.adam(1.0).init(x)


def move(
    _problem: Problem,
    judged: Judged,
    memory: optax.OptState,
    learning_rate: jax.Array | float,
) -> tuple[Judged, jax.Array, optax.OptState]:
    """One step along the hypergradient, from the x judged last.

    Returns:
        What counts as reached, the next x to judge, and the new memory.
    """
    updates, memory = optax.adam(learning_rate).update(judged.gradient, memory)
    return judged, judged.x + jnp.asarray(updates), memory
