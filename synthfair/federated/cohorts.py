"""Which users take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.sampled import Sampling

ROUNDING = 1e-12
"""Chance with which a cohort drawn user by user is larger than the room first made for it."""


class Drawn(NamedTuple):
    """Cohorts of some rounds, filled up to one length.

    Attributes:
        users: [T, m'] indices.
        present: [T, m'] False where a place is only filled up.
    """

    users: np.ndarray | jax.Array
    present: np.ndarray | jax.Array


@dataclass(frozen=True)
class Cohorts:
    """How cohorts are drawn from a population.

    Args:
        population: number of users K.
        size: number of users m of a cohort, or, with Poisson sampling, expected.
        sampling: how.

    Raises:
        InputError: no user, or more in a cohort than there are.
    """

    population: int
    size: int
    sampling: Sampling = "fixed"

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if not 1 <= self.size <= self.population:
            raise InputError(
                f"cohort = {self.size}: must be 1 to {self.population}, the number of users"
            )

    @property
    def rate(self) -> float:
        """Chance of a user to be in a cohort."""
        return self.size / self.population

    def draw(self, seed: int, first: int, rounds: int) -> Drawn:
        """The cohorts of the rounds first, first + 1, ...; each depends on seed and round alone."""
        cohorts = [self._one(_generator(seed, t)) for t in range(first, first + rounds)]
        room = max(self._room(), *map(len, cohorts))
        users = np.zeros((rounds, room), np.int32)
        for row, cohort in zip(users, cohorts, strict=True):
            row[: len(cohort)] = cohort
        sizes = np.array([len(cohort) for cohort in cohorts])
        return Drawn(users, np.arange(room) < sizes[:, None])

    def _one(self, rng: np.random.Generator) -> np.ndarray:
        if self.sampling == "fixed" and self.size == self.population:
            return np.arange(self.population)
        size = self.size if self.sampling == "fixed" else rng.binomial(self.population, self.rate)
        return rng.choice(self.population, size, replace=False, shuffle=False)

    def _room(self) -> int:
        """Places for a cohort, so that all rounds have one shape."""
        if self.sampling == "fixed":
            return self.size
        from scipy.stats import binom

        return int(binom.isf(ROUNDING, self.population, self.rate)) + 1


def _generator(seed: int, t: int) -> np.random.Generator:
    """Of one round, independent of what else a run draws, see ``engine``."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, t)))
