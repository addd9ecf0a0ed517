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


class Draw(NamedTuple):
    """Cohorts of some rounds, padded to one length."""

    users: np.ndarray | jax.Array  # [T, m'] indices
    present: np.ndarray | jax.Array  # [T, m'] False for padding, which stands at the end


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
        >>> draw = sf.federated.Cohorts(1000, 5, "fixed").draw(seed=0, first=0, rounds=3)
        >>> draw.users.shape, bool(draw.present.all())
        ((3, 5), True)
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

    def draw(self, seed: int, first: int, rounds: int) -> Draw:
        """The cohorts of the rounds first, first + 1, ...; each depends on seed and round alone."""
        cohorts = [self._cohort(seed, t) for t in range(first, first + rounds)]
        room = self.size
        if self.sampling == "poisson":  # so large that all rounds have one shape
            from scipy.stats import binom

            rate = self.size / self.population
            room = int(binom.isf(OVERFLOW_CHANCE, self.population, rate)) + 1
        sizes = np.array([len(cohort) for cohort in cohorts])
        users = np.zeros((rounds, max(room, *sizes)), np.int32)
        for row, cohort in zip(users, cohorts, strict=True):
            row[: len(cohort)] = cohort
        return Draw(users, np.arange(users.shape[1]) < sizes[:, None])

    def _cohort(self, seed: int, t: int) -> np.ndarray:
        """Draws from the third of a seed's independent keys, see ``engine.key_from``."""
        if self.sampling == "fixed" and self.size == self.population:
            return np.arange(self.population)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, t)))
        size = self.size
        if self.sampling == "poisson":
            size = rng.binomial(self.population, self.size / self.population)
        return rng.choice(self.population, size, replace=False, shuffle=False)
