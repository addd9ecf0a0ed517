"""Cohorts: the users who take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.accounting import Sampling

OVERFLOW_CHANCE = 1e-12
"""Chance with which a cohort drawn user by user is larger than the room first made for it."""


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
        """The users of round t; they depend on the seed and the round alone.

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
        """The users of round t in blocks of one length; none where nobody was drawn."""
        cohort = self.draw(seed, t)
        users = np.zeros((-(-len(cohort) // at_once), at_once), np.int32)
        users.flat[: len(cohort)] = cohort
        present = np.arange(users.size).reshape(users.shape) < len(cohort)
        return list(map(Block, users, present))
