"""The paper's own accounting, for the reproduction of its tables alone: its guarantees are false.

M_R is taken to be max(epsilon1, epsilon2)-private (theorem 4.1; truly it is up to ln 2 more), and
M_L with k other than 2 to have a finite epsilon (theorem 4.3; it has none).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import RandomBytes, uniform


@dataclass(frozen=True)
class PublishedLaplace(LaplaceValue):
    """M_L with any k. Guarantee: none; no epsilon is finite."""

    k: float = 2.0

    def __post_init__(self) -> None:
        """Refuses nothing."""

    @property
    def epsilon(self) -> float:
        """Infinite, unless k = 2."""
        return super().epsilon if self.k == 2 else math.inf

    @property
    def changed_square(self) -> float:
        """2 (k / epsilon2)^2."""
        return 2 * (self.k / self.epsilon2) ** 2

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """As M_L. Guarantee: none, see above; unit and relation are without meaning."""
        reported = self.respond(group, source)
        one, other = -np.log(uniform(2 * len(group), source)).reshape(2, -1)
        noise = (one - other) / self.epsilon2  # continuous, as published
        return reported, np.where(reported == group, value + 2 * noise, self.k * noise)


def published_randomized(epsilon: float) -> RandomizedValue:
    """The paper's "M_R opt.": epsilon1 = epsilon2 = epsilon."""
    return RandomizedValue(2, epsilon, epsilon)


def published_laplace(epsilon: float) -> PublishedLaplace:
    """The paper's "M_L opt.", appendix B: epsilon2 = epsilon, and k = max(2/3, epsilon)."""
    if epsilon >= 2 / 3:
        return PublishedLaplace(2, math.log(2 / epsilon) + epsilon - 1, epsilon, k=epsilon)
    return PublishedLaplace(2, math.log(3.0) - epsilon / 2, epsilon, k=2 / 3)


PUBLISHED = {"M_R": published_randomized, "M_L": published_laplace}
