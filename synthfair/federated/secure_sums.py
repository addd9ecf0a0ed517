"""Cohort sums through shares: what a round's reports add up to, and nobody sees a report.

Each report is clipped in L2, rounded to a grid and cut into shares; two aggregators add up their
shares, each with discrete Gaussian noise that is enough by itself; what opens is the noisy total.
Here all of them are simulated in one process, without encryption and signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from synthfair.privacy.guarantee import SumOfShares
from synthfair.privacy.mechanism import grid_for, sensitivity
from synthfair.privacy.noise import system_entropy
from synthfair.secure.aggregator import noisy_sum
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import ClippedVectors
from synthfair.settings import Relation

STEPS_IN_CLIP = 2**30
"""Steps of the grid in the norm to which a report is clipped, where there is no noise to go by."""


class SecureSums(NamedTuple):
    """Sums of reports by shares; :func:`make_secure_sums` chooses the grid.

    Guarantee: a total has that of :class:`~synthfair.secure.ClippedVectors`, against any single
    aggregator together with everyone who sees it. Unit: one user, with all its rows.

    Example:
        >>> import numpy as np
        >>> from synthfair.federated.secure_sums import make_secure_sums
        >>> sums = make_secure_sums(2, clip=1.0, relation="add_or_remove", multiplier=None)
        >>> sums.total([np.array([0.25, 0.5]), np.array([3.0, -4.0])], round_=0).round(6).tolist()
        [0.85, -0.3]
    """

    what: ClippedVectors  # its rho is None where there is no noise
    aggregators: int = 2  # or 3
    seed: int | None = None  # for tests: noise that anybody can repeat

    @property
    def clip(self) -> float:
        """Euclidean norm that no report exceeds before it is rounded."""
        return self.what.clip

    @property
    def noise(self) -> float:
        """Standard deviation of an entry of a total, the noise of all aggregators together."""
        return self.aggregators**0.5 * self.noise_of_one

    @property
    def noise_of_one(self) -> float:
        """The standard deviation of one aggregator's noise, on which the guarantee rests."""
        return self.what.step * self.what.variance**0.5

    @property
    def upload_bytes(self) -> int:
        """Size of what a user sends in a round: a message to each aggregator, not encrypted yet."""
        sharing = Sharing(bytes(32), self.what.length, self.aggregators)
        return self.aggregators * sharing.message_bytes

    @property
    def shares(self) -> SumOfShares:
        """The parameters of the sums for a guarantee."""
        what = self.what
        norm = what.step * what.largest_square**0.5
        return SumOfShares(
            aggregators=self.aggregators, length=what.length, step=what.step, norm=norm
        )

    def total(self, reports: Iterable[np.ndarray], *, round_: int) -> np.ndarray:
        """[k] the noisy sum of a round's reports [k], as real numbers.

        Users who were not drawn send zeros, of which one stands for all; so a cohort may be empty,
        and its total has noise like any other.

        Raises:
            InputError: a total that cannot be.
        """
        source = system_entropy
        if self.seed is not None:  # of the seed and the round alone, see ``engine.key_from``
            sequence = np.random.SeedSequence(self.seed, spawn_key=(5, round_))
            source = np.random.default_rng(sequence).bytes
        parts = chain([np.zeros(self.what.length, np.int64)], map(self.what.integers, reports))
        result = noisy_sum(parts, self.what, aggregators=self.aggregators, source=source)
        return result.total * self.what.step


def make_secure_sums(
    length: int, *, clip: float, relation: Relation, multiplier: float | None
) -> SecureSums:
    """Return sums by shares on a grid that is fine next to the noise, or to the clip without any.

    Args:
        length: of a report.
        clip: Euclidean norm to which it is shortened.
        relation: which populations are neighbours.
        multiplier: noise of each aggregator in units of the sensitivity, rounding included; None
            for no noise, where nothing is guaranteed of the total.

    Raises:
        InputError: reports are too long, or the clip is out of range.
    """
    if multiplier is None:
        rho, step = None, clip / STEPS_IN_CLIP
    else:
        rho, step = 1 / (2 * multiplier**2), grid_for(sensitivity(clip, relation) * multiplier)
    return SecureSums(
        ClippedVectors(length=length, clip=clip, step=step, rho=rho, relation=relation)
    )
