"""Metrics with 95 % intervals that contain their values.

A rate p, such as the share of a group's rows with the decision +1, has the limits l and u of
Clopper and Pearson (1934). Those of the difference of two groups' rates follow (Zou and Donner
2008, who generalise method 10 of Newcombe 1998):

    low  = p_b - p_a - sqrt((p_b - l_b)^2 + (u_a - p_a)^2)
    high = p_b - p_a + sqrt((u_b - p_b)^2 + (p_a - l_a)^2)

The largest size of K differences d_k, of all pairs of groups, and for equalized odds of both
labels, is above 0 by chance alone, and in resampled rows by chance twice: percentiles over
resamples may leave out the estimate itself. Its interval is therefore made of theirs:

    low  = max_k  least |d| between low_k and high_k,    limits of tail 0.025 / 2K
    high = max_k  largest |d| between low_k and high_k,  limits of tail 0.025

Guarantee: an interval contains its value. If no limit of a difference is missed more often than
its tail says, an interval of the largest misses at most once in 20: ``high`` is too low only if the
limit of the one pair is missed that is truly the furthest apart, and ``low`` is too high only if
one of 2K limits is. The limits of differences are approximate; in simulations with groups of 20 to
2,000 rows, rates from 0 to 1, and gaps from 0 on, every interval covered at least 95 %, and more
where rates are near 0 or 1. Rows count as drawn independently, the groups' sizes as given.

The covariance of group and score is no rate: its limits are percentiles over resampled rows, of
each group's signed covariance, put together in the same way, and moved outwards to the value if
need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.fairness.metrics import CONFIDENCE, Metric, Scored

FEW_ROWS = 30
"""A rate of fewer rows is hardly known: its interval is up to 0.37 wide."""

TAIL = (1 - CONFIDENCE) / 2
"""Probability with which a limit may be missed."""

UNDEFINED = Metric(np.nan, np.nan, np.nan)


class GroupSize(NamedTuple):
    """Numbers of a group's test rows.

    Attributes:
        n: all.
        positive: those with y = +1.
        negative: those with y = -1.
    """

    n: int
    positive: int
    negative: int


def group_sizes(rows: Scored) -> list[GroupSize]:
    """Of each group, 0 to n_groups - 1."""
    n, positive = (np.bincount(s, minlength=rows.n_groups) for s in (rows.s, rows.s[rows.y > 0]))
    return [GroupSize(*map(int, sizes)) for sizes in zip(n, positive, n - positive, strict=True)]


class Shares(NamedTuple):
    """Of some sets of rows, such as groups.

    Attributes:
        hits: [G] numbers of rows that count as 1; sums of probabilities where coins decide.
        size: [G] numbers of rows.
    """

    hits: np.ndarray
    size: np.ndarray

    @property
    def rate(self) -> np.ndarray:
        """[G] share of the rows; not-a-number without rows."""
        with np.errstate(invalid="ignore"):
            return self.hits / self.size

    def limits(self, tail: float) -> tuple[np.ndarray, np.ndarray]:
        """[G] limits l and u of Clopper and Pearson (1934), each missed with at most this chance.

        Probabilities vary less than 0 and 1 with the same mean: their limits are wider than need
        be.
        """
        from scipy.special import betaincinv  # SciPy takes a while

        hits, misses = self.hits.clip(0), (self.size - self.hits).clip(0)
        with np.errstate(invalid="ignore"):
            low = np.where(hits > 0, betaincinv(hits, misses + 1, tail), 0.0)
            high = np.where(misses > 0, betaincinv(hits + 1, misses, 1 - tail), 1.0)
        return np.minimum(low, self.rate), np.maximum(high, self.rate)

    def differences(self, tail: float) -> Differences:
        """Of all pairs of groups a < b, rate of b minus rate of a, with limits of this tail."""
        a, b = np.triu_indices(len(self.size), 1)
        rate, (low, high) = self.rate, self.limits(tail)
        below, above = rate - low, high - rate
        found = rate[b] - rate[a]
        return Differences(
            found, found - np.hypot(below[b], above[a]), found + np.hypot(above[b], below[a])
        )


class Differences(NamedTuple):
    """Some signed differences with limits, [K] each."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def metrics_with_intervals(
    rows: Scored, *, resamples: int, seed: int, min_group_rows: int = 0
) -> dict[str, Metric]:
    """What is reported of a model, by the names of metrics.json, with the intervals of this module.

    Args:
        rows: test rows with scores.
        resamples: behind the interval of the covariance.
        seed: of these.
        min_group_rows: a group with fewer rows among those that a gap compares does not count for
            it; a gap is undefined where fewer than two groups are left. With 0 all groups count,
            and a gap is undefined where one has no such row.

    Example:
        Two groups of ten, and no difference between them:

        >>> import numpy as np
        >>> from synthfair.fairness.intervals import metrics_with_intervals
        >>> from synthfair.fairness.metrics import Scored
        >>> y, s = np.tile([1.0, -1.0], 10), np.repeat([0, 1], 10)
        >>> found = metrics_with_intervals(Scored(y, y, s), resamples=10, seed=0)
        >>> spd = found["spd"]
        >>> print(f"{spd.value:.2f} [{spd.low:.2f}, {spd.high:.2f}]")
        0.00 [-0.44, 0.44]
    """
    signed = rows.n_groups == 2

    def gap(*among: np.ndarray) -> Metric:
        shares = [_shares(rows, part, min_group_rows) for part in among]
        if any(len(part.size) < 2 or not part.size.all() for part in shares):
            return UNDEFINED
        if signed and len(shares) == 1:
            return Metric(*(float(part[0]) for part in shares[0].differences(TAIL)))
        n_limits = 2 * sum(len(part.size) * (len(part.size) - 1) // 2 for part in shares)
        return largest(
            [part.differences(TAIL) for part in shares],
            [part.differences(TAIL / n_limits) for part in shares],
        )

    return {
        "accuracy": _accuracy(rows),
        "spd": gap(np.full(len(rows.y), True)),
        "equal_opportunity_difference": gap(rows.y > 0),
        "equalized_odds_difference": gap(rows.y > 0, rows.y < 0),
        "covariance": _covariance(rows, resamples, seed, min_group_rows),
    }


def largest(near: Sequence[Differences], far: Sequence[Differences]) -> Metric:
    """The largest size of some differences.

    Args:
        near: with limits of the tail that ``high`` may miss.
        far: the same differences with limits that all hold at once.
    """
    sizes = [np.abs(part.value).max() for part in near]
    least = [np.maximum(part.low, -part.high).max() for part in far]
    most = [np.maximum(np.abs(part.low), np.abs(part.high)).max() for part in near]
    return Metric(float(max(sizes)), float(max(0.0, *least)), float(max(most)))


def _shares(rows: Scored, among: np.ndarray, least: int) -> Shares:
    """Decisions +1 by group, among some rows; of the groups that have at least so many there."""
    s = rows.s[among]
    size = np.bincount(s, minlength=rows.n_groups)
    hits = np.bincount(s, weights=rows.selected[among], minlength=rows.n_groups)
    counts = size >= least
    return Shares(hits[counts], size[counts])


def _accuracy(rows: Scored) -> Metric:
    right = np.where(rows.y > 0, rows.selected, 1 - rows.selected)
    shares = Shares(np.array([right.sum()]), np.array([len(right)]))
    if not len(right):
        return UNDEFINED
    return Metric(*(float(part[0]) for part in (shares.rate, *shares.limits(TAIL))))


def _covariance(rows: Scored, resamples: int, seed: int, least: int) -> Metric:
    size = np.bincount(rows.s, minlength=rows.n_groups)
    counted = np.flatnonzero(size >= least)
    if len(counted) < 2:
        return UNDEFINED
    of = counted[1:] if rows.n_groups == 2 else counted
    rng, n = np.random.default_rng(seed), len(rows.y)
    drawn = [_covariances(rows.take(rng.integers(n, size=n)))[of] for _ in range(resamples)]
    value = _covariances(rows)[of]

    def limits(tail: float) -> Differences:
        low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
        return Differences(value, np.minimum(low, value), np.maximum(high, value))

    if rows.n_groups == 2:
        return Metric(*(float(part[0]) for part in limits(TAIL)))
    return largest([limits(TAIL)], [limits(TAIL / (2 * len(of)))])


def _covariances(rows: Scored) -> np.ndarray:
    """[G] of membership in each group and score, Wu et al. (2024) eq. (2), (3)."""
    size = np.bincount(rows.s, minlength=rows.n_groups)
    sums = np.bincount(rows.s, weights=rows.score, minlength=rows.n_groups)
    return sums / len(rows.y) - size / len(rows.y) * (sums.sum() / len(rows.y))
