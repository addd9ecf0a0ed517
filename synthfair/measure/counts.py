"""Gaps between groups' rates from the counts of sites, each of which adds noise to its own."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from synthfair.fairness.intervals import difference
from synthfair.fairness.metrics import Scored
from synthfair.measure.gaps_file import MeasuredGap
from synthfair.measure.reports import RATES
from synthfair.postprocess.histogram import count_scores
from synthfair.privacy.noise import (
    RandomBytes,
    discrete_laplace,
    laplace_variance,
    system_entropy,
    uniform,
)


def noisy_counts(rows: Scored, epsilon: float, source: RandomBytes = system_entropy) -> np.ndarray:
    """Return [G, 2, 2] int64 counts of rows by group, label and decision, each with noise.

    A row is in one count. So one row more or less changes all of them together by 1 in L1, and each
    gets discrete Laplace noise of scale 1 / epsilon. A decision that coins make is drawn once.

    Guarantee: epsilon-differential privacy of all counts together. Unit: one row. Relation: add or
    remove. A source that can be repeated gives no guarantee.

    Args:
        rows: with labels, groups and the model's decisions.
        epsilon: from 1e-6 to 100, as the decimal that is written.
        source: of all randomness; the operating system by default.
    """
    selected = uniform(len(rows.y), source) <= rows.selected
    counts = count_scores(selected.astype(int), rows.s, rows.y, rows.n_groups, 2)
    noise = discrete_laplace(1 / Fraction(repr(epsilon)), counts.size, source)
    return counts + noise.reshape(counts.shape)


def gaps_of_counts(
    counts: np.ndarray, groups: tuple[str, ...], *, epsilon: float, sites: int, confidence: float
) -> list[MeasuredGap]:
    """Return the gaps of both rates between every two groups, with their intervals.

    With h hits and n rows that count, a rate r is not rejected by the score test (Wilson 1927) if

        (h - r n)^2  <=  z^2 (n r (1 - r) + v ((1 - r)^2 + r^2)),

    where v is the variance of the noise of all sites in one count. Laplace noise has longer tails
    than normal noise: z is that of Cornish and Fisher (1938) for an excess kurtosis of 3 / sites.
    Intervals of two rates are combined by :func:`synthfair.fairness.intervals.difference`. They are
    for the population of which the rows are a random sample. Where the noise leaves open whether
    both groups have rows that count, the value is not-a-number and the interval the whole range.

    Args:
        counts: [G, 2, 2] sum of the counts of all sites, see :func:`noisy_counts`.
        groups: their names, by index.
        epsilon: of each site's counts.
        sites: number of sites.
        confidence: of each interval by itself, above 0 and below 1.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    z *= 1 + max(z**2 - 3, 0) / (8 * sites)
    noise = z**2 * sites * laplace_variance(1 / Fraction(repr(epsilon)))
    gaps = []
    for rate, label in RATES.items():
        misses, hits = counts[:, int(label > 0)].T.astype(float)
        size = hits + misses
        # Only where it is surely above 0 is the size a size.
        size = np.where((size > 0) & (size**2 > 2 * noise), size, np.nan)
        hits = hits.clip(0, size)
        a, b = size**2 + z**2 * size - 2 * noise, hits * size + z**2 * size / 2 - noise
        root = np.sqrt((b**2 - a * (hits**2 - noise)).clip(0))
        rates = np.array([hits / size, ((b - root) / a).clip(0), ((b + root) / a).clip(max=1)])
        for i, j in itertools.combinations(range(len(groups)), 2):
            value, low, high = map(float, difference(rates[:, j], rates[:, i]))
            if math.isnan(value):
                low, high = -1.0, 1.0
            names = {"first": groups[i], "second": groups[j]}
            gaps.append(MeasuredGap(rate=rate, **names, value=value, low=low, high=high))
    return gaps
