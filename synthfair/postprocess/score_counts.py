"""Test rows counted by group, label and predicted probability: thresholds and calibration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.fairness.metrics import Scored
from synthfair.postprocess.histogram import count_scores, score_bins

BINS = 20
"""Equal bins of the predicted probability, so that each threshold is a multiple of 0.05."""


class ScoreCounts(NamedTuple):
    """The rows of one group in equal bins of the predicted probability sigma(z).

    Attributes:
        negative: rows with y = -1 in each bin.
        positive: rows with y = +1 in each bin.
        probability: mean sigma(z) of each bin's rows, to three digits, so that no row's score is
            read off; not-a-number where there are none.
    """

    negative: tuple[int, ...]
    positive: tuple[int, ...]
    probability: tuple[float, ...]


def group_score_counts(rows: Scored, n_bins: int = BINS) -> list[ScoreCounts]:
    """The counts of each group, 0 to n_groups - 1.

    Example:
        >>> import numpy as np
        >>> from synthfair.fairness.metrics import Scored
        >>> from synthfair.postprocess.score_counts import group_score_counts
        >>> rows = Scored(y=np.array([1.0, -1.0]), score=np.array([2.0, 2.0]), s=np.array([0, 0]))
        >>> first, second = group_score_counts(rows, 2)
        >>> first.negative, first.positive, round(first.probability[1], 2)
        ((0, 1), (0, 1), 0.88)
    """
    bins = score_bins(rows.score, n_bins)
    counts = count_scores(bins, rows.s, rows.y, rows.n_groups, n_bins)
    probability = 1 / (1 + np.exp(-np.clip(rows.score, -700, 700)))
    entry, size = rows.s * n_bins + bins, counts.sum(axis=1)
    sums = np.bincount(entry, weights=probability, minlength=size.size).reshape(size.shape)
    means = np.divide(sums, size, out=np.full(size.shape, np.nan), where=size > 0).round(3)
    return [
        ScoreCounts(tuple(negative.tolist()), tuple(positive.tolist()), tuple(mean.tolist()))
        for (negative, positive), mean in zip(counts, means, strict=True)
    ]


class LabelCounts(NamedTuple):
    """Rows of one group by label: ``negative`` with y = -1, ``positive`` with y = +1."""

    negative: int
    positive: int
