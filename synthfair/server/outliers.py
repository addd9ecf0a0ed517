"""Which releases stand out from the others of a pool, by a stated rule.

By the scores: far above the median. By accuracy, SPD and each group's selection rate: by the
generalized extreme studentized deviate test (Rosner 1983), which finds several that stand out and
does not let them hide behind each other. The client whose groups are the wrong way round, whose
units are wrong, or whose scores are constant changes decisions more than it changes scores.

Whatever the others do, of those that turn the sign of SPD, or double or halve it, the one that
changes it furthest is named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthfair.server.changes import Changes, Decisions, OnOwn

SPREADS, TIMES = 5.0, 5.0
"""An outlier by its scores lies more than so many robust standard deviations above the median, and
is more than so many medians."""

FALSE_ALARM = 0.01
"""Chance, for each metric, that any of the releases of a pool is named by it, where the metric's
values are normal; less, as small differences do not count. With two groups there are 11 metrics."""

MUCH, ERRORS = 0.03, 2.0
"""A change of a metric counts if it is farther than this from the median of all releases, and than
so many standard errors of the metric itself."""

DOUBLE = 2.0
"""Of two SPDs, with a release and without it, as many times the smaller is the larger in size where
the release is named by it, or by the sign, however the others are; if the change counts."""

MUCH_OWN, MUCH_SCORE = 0.2, 0.5
"""The same for a metric on a release's own rows, and for mean and spread of its scores there in
units of the usual spread: these differ even among clients that are alike."""

FEWEST = 3
"""Releases among which one may be an outlier."""


def outlier_bound(change: np.ndarray) -> float:
    """The change of scores above which a release is an outlier.

    The larger of the median plus five robust standard deviations (1.4826 times the median absolute
    deviation from the median) and five medians. The first alone would flag honest releases where
    most are nearly alike. Half of the releases can hide behind each other: it finds a few.

    Args:
        change: [K] of each release.

    Returns:
        The bound; not-a-number, which nothing is above, for fewer than three releases.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> sf.server.outlier_bound(np.array([1.0, 1.1, 0.9, 7.0]))
        5.25
    """
    if len(change) < FEWEST:
        return np.nan
    median = np.median(change)
    spread = 1.4826 * np.median(np.abs(change - median))
    return float(max(median + SPREADS * spread, TIMES * median))


def extreme(values: np.ndarray, chance: float) -> np.ndarray:
    """[K] which of K values are too extreme to be of one normal distribution with the others.

    Of up to a quarter of the values, at least one, each the one with the largest R_i = |x - mean| /
    s of those left, the first i are extreme for the largest i with

        R_i > (k - 1) t / sqrt((k - 2 + t^2) k),   k = K - i + 1,

    t being the 1 - chance / (2 k) quantile of Student's distribution with k - 2 degrees of freedom
    (Rosner 1983).

    Args:
        values: [K]; not-a-number is never extreme.
        chance: that any is found among values that are all normal.

    Example:
        >>> import numpy as np
        >>> from synthfair.server.outliers import extreme
        >>> np.flatnonzero(extreme(np.array([0.1, -0.2, 9.0, 0.0, 0.2, -8.0, 0.1, 0.0]), 0.01))
        array([2, 5])
    """
    from scipy.stats import t as student

    left = np.flatnonzero(np.isfinite(values))
    found, removed = np.zeros(len(values), bool), []
    for _ in range(max(1, len(left) // 4)):
        k, some = len(left), values[left]
        if k < FEWEST or np.ptp(some) == 0:
            break
        far = np.abs(some - some.mean()) / some.std(ddof=1)
        t = student.isf(chance / (2 * k), k - 2)
        removed.append(left[far.argmax()])
        if far.max() > (k - 1) * t / np.sqrt((k - 2 + t**2) * k):
            found[removed] = True
        left = np.delete(left, far.argmax())
    return found


def stand_out(
    moved: np.ndarray,
    bound: float,
    changes: Changes,
    own: OnOwn,
    *,
    compared: np.ndarray,
    groups: Sequence[object],
) -> list[tuple[str, ...]]:
    """By what each release stands out: names of metrics, or ``"scores"``; none where it does not.

    Where some stand out by their scores, only those can by metrics: such a model's metrics are
    chance.

    Args:
        moved: [K] change of scores.
        bound: of these, see :func:`outlier_bound`.
        changes: of metrics, from leaving each release out.
        own: of the model without each release, on that release's rows.
        compared: [K] whether a release can be compared with the others.
        groups: names of the groups.
    """
    by_scores = moved > bound
    allowed = by_scores if by_scores.any() else compared
    tested = [*_named(changes.of, groups), *_named(own.decisions, groups, " on its own rows")]
    least = [np.maximum(MUCH, ERRORS * error[-1:]) for _, error in _named(changes.error, groups)]
    least += [np.array([much]) for much in [MUCH_OWN] * (len(least) + 1) + [MUCH_SCORE] * 2]
    others = {
        "SPD of the labels": own.labels,
        "mean score": own.mean,
        "spread of scores": own.spread,
    }
    tested += [(f"{name} on its own rows", values) for name, values in others.items()]
    named = {"scores": by_scores, **_spd_reversals(changes, least[1], allowed)}
    for (name, values), much in zip(tested, least, strict=True):
        known = np.where(compared & np.isfinite(values), values, np.nan)
        if np.isfinite(known).sum() >= FEWEST:
            large = np.abs(values - np.nanmedian(known)) > much
            named[name] = extreme(known, FALSE_ALARM) & large & allowed
    return [tuple(name for name, which in named.items() if which[k]) for k in range(len(moved))]


def _spd_reversals(
    changes: Changes, least: np.ndarray, allowed: np.ndarray
) -> dict[str, np.ndarray]:
    """Whether SPD has another sign without a release, or twice its size, or half.

    Of those, the one that changes it furthest alone: next to it the others would seem to do so,
    too, as they weigh against it. After a run without it, the next is named.
    """
    now, then = changes.spd, changes.spd - changes.of.spd
    turned, sizes = now * then < 0, np.sort(np.abs(np.broadcast_arrays(now, then)), axis=0)
    meets = allowed & (turned | (sizes[1] >= DOUBLE * sizes[0]))
    size = np.where(meets, np.abs(changes.of.spd), 0.0)
    furthest = (size > least) & (size == size.max()) & (np.isfinite(then).sum() >= FEWEST)
    return {"sign of SPD": furthest & turned, "size of SPD": furthest & ~turned}


def _named(
    found: Decisions, groups: Sequence[object], where: str = ""
) -> list[tuple[str, np.ndarray]]:
    rates = [
        (f"selection rate of {group}", rate)
        for group, rate in zip(groups, found.rates, strict=True)
    ]
    every = [("accuracy", found.accuracy), ("SPD", found.spd), *rates]
    return [(name + where, values) for name, values in every]
