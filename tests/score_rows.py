"""Scored rows of several groups in which groups differ, and their histograms."""

import numpy as np

from synthfair.fairness.intervals import metrics_with_intervals
from synthfair.postprocess import ScoreHistogram, count_scores, score_bins


def scored_rows(n=4000, n_groups=2, seed=0):
    """Scores [N], groups [N] and labels [N]; rates and quality of the scores differ by group."""
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    y = np.where(rng.random(n) < 0.3 + 0.4 * s / n_groups, 1.0, -1.0)
    z = 0.8 * s - 0.5 + (1.5 - 0.5 * s / n_groups) * y * rng.random(n) + rng.normal(size=n)
    return z, s, y


def histogram_of(z, s, y, n_bins=11, **fields):
    """Of scores."""
    n_groups = int(s.max()) + 1
    counts = count_scores(score_bins(z, n_bins), s, y, n_groups, n_bins)
    groups = tuple("abcdefgh"[:n_groups])
    given = {"schema_hash": "0" * 64, "model": "1" * 64, "groups": groups} | fields
    return ScoreHistogram(counts=counts.tolist(), **given)


def metrics(rows):
    """What is reported of rows, by name, without intervals."""
    found = metrics_with_intervals(rows, resamples=1, seed=0)
    return {name: metric.value for name, metric in found.items()}
