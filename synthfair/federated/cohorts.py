"""Which users take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.sampled import Sampling

OVERFLOW_CHANCE = 1e-12
"""Chance with which a cohort drawn user by user is larger than the room first made for it."""


class Drawn(NamedTuple):
    """Cohorts of some rounds, padded to one length.

    Attributes:
        users: [T, m'] indices.
        present: [T, m'] False for padding.
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

    Example:
        >>> import synthfair as sf
        >>> drawn = sf.federated.Cohorts(1000, 5, "fixed").draw(seed=0, first=0, rounds=3)
        >>> drawn.users.shape, bool(drawn.present.all())
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
        """All users take part in every round."""
        return cls(population, population)

    @property
    def rate(self) -> float:
        """Chance of a user to be in a cohort."""
        return self.size / self.population

    def draw(self, seed: int, first: int, rounds: int) -> Drawn:
        """The cohorts of the rounds first, first + 1, ...; each depends on seed and round alone."""
        cohorts = [self._cohort(seed, t) for t in range(first, first + rounds)]
        room = max(self._room(), *map(len, cohorts))
        users = np.zeros((rounds, room), np.int32)
        for row, cohort in zip(users, cohorts, strict=True):
            row[: len(cohort)] = cohort
        sizes = np.array([len(cohort) for cohort in cohorts])
        return Drawn(users, np.arange(room) < sizes[:, None])

    def _cohort(self, seed: int, t: int) -> np.ndarray:
        """Independent of what else a run draws from its seed, see ``engine``."""
        if self.sampling == "fixed" and self.size == self.population:
            return np.arange(self.population)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, t)))
        size = self.size if self.sampling == "fixed" else rng.binomial(self.population, self.rate)
        return rng.choice(self.population, size, replace=False, shuffle=False)

    def _room(self) -> int:
        """Places for a cohort, so that all rounds have one shape."""
        if self.sampling == "fixed":
            return self.size
        from scipy.stats import binom

        return int(binom.isf(OVERFLOW_CHANCE, self.population, self.rate)) + 1
