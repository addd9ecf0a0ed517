"""Rates of what an attacker finds, and whether chance explains them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ALARM = 3.1
"""Standard errors beyond which a rate is not put down to chance; one-sided, 1 in 1,000 a check."""

CHANCE = 1e-3
"""The same as a probability, for counts that are small."""


class Comparison(NamedTuple):
    """A rate that should be no higher than another, of rows that were not distilled.

    Attributes:
        found: share of synthetic rows that are near; or an attack's success on distilled rows, for
            membership the area under its ROC curve.
        expected: the same of held-out rows; for membership one half, which is chance.
        error: standard error of their difference, if there were none.
    """

    found: float
    expected: float
    error: float

    @property
    def alarming(self) -> bool:
        """Whether the difference is more than chance."""
        return self.found - self.expected > ALARM * self.error


def excess(synthetic: np.ndarray, held_out: np.ndarray, radius: float) -> Comparison:
    """Shares within a radius; where no held-out row is, the error is 0 and one row is alarming."""
    share = float(np.mean(held_out <= radius))
    error = (share * (1 - share) * (1 / len(synthetic) + 1 / len(held_out))) ** 0.5
    return Comparison(float(np.mean(synthetic <= radius)), share, error)


def nearer(
    synthetic: np.ndarray, held_out: np.ndarray, quantile: float, least: float = 0.0
) -> Comparison:
    """Shares within a quantile of the held-out rows' distances, or ``least`` if that is more.

    If all distances are drawn alike, the number of n synthetic ones within the j-th of m held-out
    ones is beta-binomial, with parameters j and m + 1 - j: the quantile's own chance is counted.

    Example:
        >>> import numpy as np
        >>> from synthfair.privacy.chance import nearer
        >>> held_out = np.arange(1.0, 41.0)
        >>> [nearer(np.arange(n) / n, held_out, 0.05).alarming for n in (1, 100)]
        [False, True]
    """
    from scipy.stats import betabinom

    place = max(1, int(quantile * len(held_out)))
    radius = max(least, float(np.partition(held_out, place - 1)[place - 1]))
    n, m, within = len(synthetic), len(held_out), int(np.sum(held_out <= radius))
    most = (float(betabinom.isf(CHANCE, n, within, m + 1 - within)) + 0.5) / n
    share = within / m
    return Comparison(float(np.mean(synthetic <= radius)), share, (most - share) / ALARM)


def most_by_chance(n: int, chance: float) -> int:
    """The least count, of n independent rows, that more are beyond with :data:`CHANCE` at most.

    Example:
        >>> from synthfair.privacy.chance import most_by_chance
        >>> most_by_chance(1000, 0.0), most_by_chance(1000, 0.01)
        (0, 21)
    """
    from scipy.stats import binom

    return int(binom.isf(CHANCE, n, chance))


def area(members: np.ndarray, others: np.ndarray) -> Comparison:
    """Area under the ROC curve, by ranks; its error as without a difference, ties counted.

    Mann-Whitney: the ranks of n of n + m distinct rows that are drawn at random.
    """
    from scipy.stats import rankdata

    n, m = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    area = (ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    return Comparison(
        float(area), 0.5, float((ranks.var(ddof=1) * (1 / n + 1 / m)) ** 0.5 / (n + m))
    )
