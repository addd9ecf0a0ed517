"""Methods in rounds that sum, and their users."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.federated.users import make_users


class Seen(NamedTuple):
    total: jax.Array


def number_fields(cls):
    """Make the class a pytree of its scale.

    ``register_dataclass`` would not do: JAX 0.10.1 takes two dataclasses with equal static fields
    for the same, and where their hashes happen to be near it runs the one in place of the other.
    """
    jax.tree_util.register_pytree_node(
        cls, lambda sums: ((sums.scale,), None), lambda _, numbers: cls(*numbers)
    )
    return cls


@number_fields
@dataclass(frozen=True)
class Sum:
    """Sums the users' rows up; the state is the sum over all rounds."""

    scale: float = 1.0
    additive: ClassVar[bool] = True

    def init(self, key):
        return jnp.zeros(2)

    def report(self, state, rows, key):
        return self.scale * rows.weight @ rows.a

    def update(self, state, total, cohort):
        return state + total, Seen(total)

    def params(self, state):
        return state


@number_fields
class SumOneByOne(Sum):
    additive: ClassVar[bool] = False


def population(n=40, users=9, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, 2))
    owner = np.concatenate([np.arange(users), rng.integers(0, users, n - users)])
    return a, owner, make_users(a, np.zeros(n, int), np.ones(n), owner)


@number_fields
class Drawing(SumOneByOne):
    """Each user sends two random numbers."""

    def report(self, state, rows, key):
        return jax.random.normal(key, (2,))
