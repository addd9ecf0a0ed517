"""The population of a federation: users, with as many or few rows as they have, and cohorts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.federated.user_rows import UserRows
from synthfair.privacy.accounting import Sampling

OVERFLOW_CHANCE = 1e-12
"""Chance with which a cohort drawn user by user is larger than the room first made for it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Users:
    """K users with N rows in all, one user's after the other's; see :func:`make_users`.

    Only the cohort of a round is padded to one length, so that one user with many rows does not
    multiply the memory of all.

    Attributes:
        a: [N, ...] model inputs.
        s: [N, A] group index in each of A attributes.
        y: [N] label.
        first: [K] position of a user's first row.
        size: [K] number of a user's rows.
        largest: the largest of these numbers.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    first: jax.Array
    size: jax.Array
    largest: int = field(metadata={"static": True})

    def __len__(self) -> int:
        """Return the number of users K."""
        return len(self.size)

    @property
    def smallest(self) -> int:
        """Number of rows of the user who has fewest."""
        return int(np.min(self.size))

    @property
    def nbytes(self) -> int:
        """Size of all rows, as plain numbers."""
        return int(self.a.nbytes + self.s.nbytes + self.y.nbytes)

    def steps(self, *, batch: int, epochs: float) -> int:
        """Return the number of batches of some passes over the smallest user's rows, at least 1."""
        return max(1, round(epochs * self.smallest / batch))

    def take(self, cohort: jax.Array, present: jax.Array) -> UserRows:
        """Return the rows [m, R, ...] of some users.

        Args:
            cohort: [m] their indices.
            present: [m] whether each counts; where not, its rows have weight 0.
        """
        place = jnp.arange(self.largest)
        row = jnp.minimum(self.first[cohort][:, None] + place, len(self.y) - 1)
        weight = (place < self.size[cohort][:, None]) & present[:, None]
        return UserRows(self.a[row], self.s[row], self.y[row], weight.astype(self.a.dtype))

    @jax.jit
    def rows_of(self, user: jax.Array | int) -> UserRows:
        """Return the rows [R, ...] of one user."""
        one = self.take(jnp.asarray(user)[None], jnp.ones(1, bool))
        return UserRows(*(part[0] for part in one))


def make_users(a: np.ndarray, s: np.ndarray, y: np.ndarray, user: np.ndarray) -> Users:
    """Make users of rows, which are sorted by user.

    Args:
        a: [N, ...] model inputs.
        s: [N] or [N, A] group index, of one attribute or several.
        y: [N] label: -1.0 or +1.0, or the index of a class.
        user: [N] whose each row is; any values that can be sorted.

    Raises:
        InputError: no row, or parts of unlike lengths.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.eye(3), np.array([0, 1, 0]), np.array([1.0, -1.0, 1.0])
        >>> users = sf.federated.make_users(a, s, y, user=np.array(["ann", "bob", "ann"]))
        >>> len(users), users.size.tolist(), users.y.tolist()
        (2, [2, 1], [1.0, 1.0, -1.0])
    """
    if len({len(a), len(s), len(y), len(user)}) != 1 or len(y) == 0:
        raise InputError(
            f"users: {len(a)} inputs, {len(s)} groups, {len(y)} labels and {len(user)} users; must"
            " be equally many, at least one"
        )
    order = np.argsort(user, kind="stable")
    size = np.unique(user, return_counts=True)[1]
    s = s[:, None] if s.ndim == 1 else s
    return Users(
        jnp.asarray(a[order]),
        jnp.asarray(s[order], jnp.int32),
        jnp.asarray(y[order]),
        jnp.asarray(np.cumsum(size) - size, jnp.int32),
        jnp.asarray(size, jnp.int32),
        int(size.max()),
    )


class UserData(NamedTuple):
    """Users, and what their rows mean.

    Attributes:
        schema: of the rows.
        users: with their rows, as a model of the configuration sees them.
        groups: number of groups of each attribute, the sensitive one first.
        row_weights: [G, 2] by which losses are multiplied, by group and label -1 or +1; or None.
        held_out: the users with rows that are not trained on, but counted; or None.
    """

    schema: Schema
    users: Users
    groups: tuple[int, ...]
    row_weights: jax.Array | None = None
    held_out: Users | None = None

    @property
    def count_users(self) -> Users:
        """The users whose rows are counted after training: those held out, if any, or else all."""
        return self.users if self.held_out is None else self.held_out


class Block(NamedTuple):
    """Some users of a cohort, padded to a length that all blocks have."""

    users: np.ndarray | jax.Array  # [b] indices
    present: np.ndarray | jax.Array  # [b] False for padding, which stands at the end


@dataclass(frozen=True)
class Cohorts:
    """A rule by which cohorts are drawn from a population.

    Args:
        population: number of users K.
        size: number of users m of a cohort, or, with Poisson sampling, expected.
        sampling: how.

    Raises:
        InputError: no user, or more in a cohort than there are.

    Example:
        >>> import synthfair as sf
        >>> len(sf.federated.Cohorts(1000, 5, "fixed").draw(seed=0, t=3))
        5
    """

    population: int
    size: int
    sampling: Sampling = "fixed"

    def __post_init__(self) -> None:
        """Refuses sizes out of range."""
        if not 1 <= self.size <= self.population:
            raise InputError(
                f"cohort = {self.size}: must be 1 to {self.population}, the number of users"
            )

    @classmethod
    def everyone(cls, population: int) -> Cohorts:
        """Draws all users in every round."""
        return cls(population, population)

    @property
    def room(self) -> int:
        """The number of users for whom a cohort needs room, but once in 1e12 rounds."""
        if self.sampling == "fixed":
            return self.size
        from scipy.stats import binom

        rate = self.size / self.population
        return int(binom.isf(OVERFLOW_CHANCE, self.population, rate)) + 1

    def draw(self, seed: int, t: int) -> np.ndarray:
        """Return the users of round t; they depend on the seed and the round alone.

        They are drawn from the third of a seed's independent keys, see ``engine.key_from``.
        """
        if self.sampling == "fixed" and self.size == self.population:
            return np.arange(self.population)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, t)))
        size = self.size
        if self.sampling == "poisson":
            size = rng.binomial(self.population, self.size / self.population)
        return rng.choice(self.population, size, replace=False, shuffle=False)

    def blocks(self, seed: int, t: int, at_once: int) -> list[Block]:
        """Return the users of round t in blocks of one length; none where nobody was drawn."""
        cohort = self.draw(seed, t)
        users = np.zeros((-(-len(cohort) // at_once), at_once), np.int32)
        users.flat[: len(cohort)] = cohort
        present = np.arange(users.size).reshape(users.shape) < len(cohort)
        return list(map(Block, users, present))
