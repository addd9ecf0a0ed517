"""What methods share whose users send by how much they moved, and count by their rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from synthfair.federated.algorithm import State
from synthfair.federated.fedavg import Movement
from synthfair.federated.users import UserRows, Users


class AverageRecord(NamedTuple):
    """Of one round.

    Attributes:
        moved: Euclidean norm of the change of the server's state.
    """

    moved: jax.Array


def movement(old: State, new: State, rows: UserRows) -> Movement:
    """A user's, weighted by the number of its rows. No row is repeated to make users equal."""
    weight = jnp.sum(rows.weight)
    return Movement(jax.tree.map(lambda n, o: weight * (n - o), new, old), weight)


def average(state: State, total: Movement) -> tuple[State, AverageRecord]:
    """The state plus the users' mean change: sum_k n_k w_k / sum_k n_k, if all took part."""
    count = jnp.maximum(total.weight, 1.0)
    mean = jax.tree.map(lambda change: change / count, total.change)
    return jax.tree.map(jnp.add, state, mean), AverageRecord(jnp.linalg.norm(ravel_pytree(mean)[0]))


def steps_of(users: Users, *, batch: int, epochs: float) -> int:
    """Number of batches that make so many passes over the smallest user's rows, at least 1."""
    return max(1, round(epochs * int(users.size.min()) / batch))
