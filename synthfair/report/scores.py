"""Other thresholds, and calibration by group, from counts of scored test rows."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import NamedTuple

import numpy as np

from synthfair.fairness.intervals import UNDEFINED, Shares, gap_interval, rate_interval
from synthfair.fairness.metrics import Metric
from synthfair.postprocess.histogram import BINS, ScoreCounts
from synthfair.report.overview import ACCURACY_GAP

THRESHOLDS = tuple(k / BINS for k in range(1, BINS))
"""0.05, 0.10, ..., 0.95; the decision is +1 where sigma(z) is at least that."""

CALIBRATION_BINS = 10
"""Fewer than are counted, so that each has more rows."""


def has_scores(scores: Mapping[str, ScoreCounts] | None) -> bool:
    """Whether there are scores at all: some methods give decisions alone, in two bins at most."""
    if scores is None:
        return False
    rows = np.sum([np.add(one.negative, one.positive) for one in scores.values()], axis=0)
    return bool(np.count_nonzero(rows) > 2)


def at_thresholds(
    scores: Mapping[str, ScoreCounts], gap: str, min_group_rows: int = 0
) -> tuple[list[Metric], list[Metric], dict[str, list[Metric]]]:
    """Evaluates each of :data:`THRESHOLDS` on the test rows, one for all groups.

    Args:
        scores: by group.
        gap: name of a metric, such as ``spd``.
        min_group_rows: a gap leaves out groups with fewer rows, of those that it compares.

    Returns:
        The accuracy of all rows, the size of the gap, and the selection rates of each group.
    """
    counts = np.array([(one.negative, one.positive) for one in scores.values()])
    rows = counts.sum(axis=2)  # [G, 2] by label -1, +1
    accuracies, gaps, selected = [], [], {group: [] for group in scores}
    for k in range(1, BINS):
        hits = counts[:, :, k:].sum(axis=2)
        right = hits[:, 1] + (rows - hits)[:, 0]
        positive, negative = Shares(hits[:, 1], rows[:, 1]), Shares(hits[:, 0], rows[:, 0])
        all_rows = Shares(hits.sum(axis=1), rows.sum(axis=1))
        strata = {
            "spd": [all_rows],
            "equal_opportunity_difference": [positive],
            "equalized_odds_difference": [positive, negative],
            ACCURACY_GAP: [Shares(right, rows.sum(axis=1))],
        }[gap]
        accuracies.append(rate_interval(right.sum(), rows.sum()))
        gaps.append(gap_interval(*(part.of_at_least(min_group_rows) for part in strata)))
        for rates, rate in zip(selected.values(), map(rate_interval, *all_rows), strict=True):
            rates.append(rate)
    return accuracies, gaps, selected


class Calibration(NamedTuple):
    """Rows of a group, or those with about the same predicted probability.

    Attributes:
        predicted: mean predicted probability.
        observed: share of them with y = +1.
        n: number of rows.
    """

    predicted: float
    observed: Metric
    n: int


def calibration(scores: ScoreCounts) -> tuple[list[Calibration], Calibration, float]:
    """Predicted probabilities of a group's rows against what came true.

    Returns:
        The bins with rows, by probability; all rows together; and the expected calibration error,
        the mean over rows of |predicted - observed| of their bin (Naeini et al., 2015), which is
        above 0 by chance, too, the more the fewer rows there are.

    Example:
        >>> from synthfair.postprocess.histogram import ScoreCounts
        >>> from synthfair.report.scores import calibration
        >>> nan, none = float("nan"), (0,) * 18
        >>> rows = ScoreCounts((6, *none, 2), (4, *none, 8), (0.04, *(nan,) * 18, 0.96))
        >>> bins, whole, error = calibration(rows)
        >>> [(one.predicted, one.observed.value, one.n) for one in bins]
        [(0.04, 0.4, 10), (0.96, 0.8, 10)]
        >>> round(error, 2)  # (0.36 + 0.16) / 2
        0.26
    """
    positive, rows = np.array(scores.positive), np.add(scores.negative, scores.positive)
    sums = np.where(rows > 0, rows * np.nan_to_num(scores.probability), 0.0)
    coarse = (part.reshape(CALIBRATION_BINS, -1).sum(axis=1) for part in (positive, rows, sums))
    bins = [
        Calibration(total / n, rate_interval(hits, n), n)
        for hits, n, total in zip(*(part.tolist() for part in coarse), strict=True)
        if n
    ]
    n = int(rows.sum())
    if not n:
        return [], Calibration(nan, UNDEFINED, 0), nan
    whole = Calibration(float(sums.sum()) / n, rate_interval(positive.sum(), n), n)
    error = sum(b.n * abs(b.predicted - b.observed.value) for b in bins) / n
    return bins, whole, error
