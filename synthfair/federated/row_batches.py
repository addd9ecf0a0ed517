"""Batches of one user's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from synthfair.federated.users import UserRows

Sum = TypeVar("Sum")
"""A pytree of arrays that adds up over rows."""


def random_rows(rows: UserRows, size: int, key: jax.Array) -> UserRows:
    """As many rows as asked for, each drawn from all that are there, with replacement."""
    chance = rows.weight / jnp.maximum(jnp.sum(rows.weight), 1.0)
    which = jax.random.choice(key, len(rows.weight), (size,), p=chance)
    return UserRows(*(part[which] for part in rows))


def poisson_sum(
    function: Callable[[UserRows], Sum], rows: UserRows, expected: int, key: jax.Array
) -> Sum:
    """A sum over a batch into which each row comes by itself with the same chance.

    The chance is ``expected`` divided by the number of rows, which is taken as public. No row of a
    large batch is left out: what does not fit into one pass takes another, so that the sampling is
    exactly the one that is accounted for, see :class:`synthfair.privacy.sampled.SampledSums`.

    Args:
        function: of rows, of which those of weight 0 must not enter, to their sum.
        rows: of one user.
        expected: mean size of the batch, at least 1.
        key: must be secret where the sum is made private.
    """
    size = jnp.maximum(jnp.sum(rows.weight), 1.0)
    chosen = (jax.random.uniform(key, rows.weight.shape) < expected / size) & (rows.weight > 0)
    room = pass_room(expected, len(rows.weight))
    order = jnp.nonzero(chosen, size=-(-len(rows.weight) // room) * room, fill_value=0)[0]
    count = jnp.sum(chosen)

    def sum_of(start: jax.Array | int) -> Sum:
        which = jax.lax.dynamic_slice_in_dim(order, start, room)
        there = (start + jnp.arange(room) < count).astype(rows.weight.dtype)
        return function(UserRows(*(part[which] for part in rows))._replace(weight=there))

    def add(number: jax.Array, total: Sum) -> Sum:
        return jax.tree.map(jnp.add, total, sum_of(number * room))

    shapes = jax.eval_shape(sum_of, 0)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // room), add, zero)


def pass_room(expected: int, rows: int) -> int:
    """Rows of one pass: four standard deviations more than expected, as another is rarely needed.

    A batch is larger with a chance of less than 1 in 10,000 where 100 or more are expected.
    """
    return min(rows, expected + 4 * int(expected**0.5) + 1)
