"""Other thresholds, and calibration by group, from counts of scored test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from synthfair.fairness.intervals import UNDEFINED, Shares, gap_interval, rate_interval
from synthfair.fairness.metrics import Metric
from synthfair.postprocess.histogram import BINS, ScoreCounts
from synthfair.report.answer import COMPARED

CALIBRATION_BINS = 10
"""Fewer than are counted, so that each has more rows."""


class AtThreshold(NamedTuple):
    """What one threshold for all groups would do on the test rows.

    Attributes:
        threshold: the decision is +1 where sigma(z) is at least that.
        accuracy: of all rows.
        gap: its size, by the metric asked for.
        selected: rate of each group.
    """

    threshold: float
    accuracy: Metric
    gap: Metric
    selected: dict[str, Metric]


def has_scores(scores: Mapping[str, ScoreCounts] | None) -> bool:
    """Whether there are scores at all: some methods give decisions alone, in two bins at most."""
    if scores is None:
        return False
    used = np.sum([np.add(found.negative, found.positive) for found in scores.values()], axis=0)
    return bool(np.count_nonzero(used) > 2)


def at_thresholds(
    scores: Mapping[str, ScoreCounts], gap: str, min_group_rows: int = 0
) -> list[AtThreshold]:
    """Accuracy, gap and selection rates at 0.05, 0.10, ..., 0.95.

    Args:
        scores: by group.
        gap: name of a metric, such as ``spd``.
        min_group_rows: a gap leaves out groups with fewer rows, of those that it compares.
    """
    counts = np.array([(found.negative, found.positive) for found in scores.values()])
    return [_at(k, counts, list(scores), gap, min_group_rows) for k in range(1, BINS)]


def _at(k: int, counts: np.ndarray, groups: Sequence[str], gap: str, least: int) -> AtThreshold:
    rows, hits = counts.sum(axis=2), counts[:, :, k:].sum(axis=2)  # [G, 2] by label -1, +1
    right = hits[:, 1] + (rows - hits)[:, 0]
    positive, negative = Shares(hits[:, 1], rows[:, 1]), Shares(hits[:, 0], rows[:, 0])
    selected, correct = Shares(hits.sum(axis=1), rows.sum(axis=1)), Shares(right, rows.sum(axis=1))
    compared = {
        "selection rates": [selected],
        "true positive rates": [positive],
        "true or false positive rates": [positive, negative],
        "accuracies": [correct],
    }[COMPARED[gap]]
    return AtThreshold(
        k / BINS,
        rate_interval(right.sum(), rows.sum()),
        gap_interval(*(part.of_at_least(least) for part in compared)),
        dict(zip(groups, map(rate_interval, *selected), strict=True)),
    )


class Calibrated(NamedTuple):
    """Rows of a group with about the same predicted probability.

    Attributes:
        predicted: mean predicted probability.
        observed: share of them with y = +1.
        n: number of rows.
    """

    predicted: float
    observed: Metric
    n: int


class Calibration(NamedTuple):
    """Of one group.

    Attributes:
        bins: those with rows, by probability.
        predicted: mean predicted probability of all its rows.
        observed: share of them with y = +1.
        error: expected calibration error, the mean over rows of |predicted - observed| of their
            bin (Naeini et al., 2015); above 0 by chance, too, the more the fewer rows there are.
    """

    bins: list[Calibrated]
    predicted: float
    observed: Metric
    error: float


def calibration(found: ScoreCounts) -> Calibration:
    """Predicted probabilities against what came true.

    Example:
        >>> from synthfair.postprocess.histogram import ScoreCounts
        >>> from synthfair.report.scores import calibration
        >>> nan, none = float("nan"), (0,) * 18
        >>> rows = ScoreCounts((6, *none, 2), (4, *none, 8), (0.04, *(nan,) * 18, 0.96))
        >>> found = calibration(rows)
        >>> [(one.predicted, one.observed.value, one.n) for one in found.bins]
        [(0.04, 0.4, 10), (0.96, 0.8, 10)]
        >>> round(found.error, 2)  # (0.36 + 0.16) / 2
        0.26
    """
    positive, rows = np.array(found.positive), np.add(found.negative, found.positive)
    sums = np.where(rows > 0, rows * np.nan_to_num(found.probability), 0.0)
    merged = (part.reshape(CALIBRATION_BINS, -1).sum(axis=1) for part in (positive, rows, sums))
    bins = [
        Calibrated(total / n, rate_interval(hits, n), n)
        for hits, n, total in zip(*(part.tolist() for part in merged), strict=True)
        if n
    ]
    n = int(rows.sum())
    if not n:
        return Calibration([], nan, UNDEFINED, nan)
    error = sum(b.n * abs(b.predicted - b.observed.value) for b in bins) / n
    return Calibration(bins, float(sums.sum()) / n, rate_interval(positive.sum(), n), error)
