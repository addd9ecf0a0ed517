"""The one type of gaps.json, of clients' reports or of sites' counts, to which they add noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from synthfair.fairness.intervals import difference
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import RATE_LABELS, Rate
from synthfair.postprocess.histogram import count_scores
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.noise import (
    RandomBytes,
    discrete_laplace,
    laplace_variance,
    system_entropy,
    uniform,
)
from synthfair.settings import Checked, Count, JsonFile, Line, Undefined

GAPS_NAME = "gaps.json"
"""The name of the file in a run's folder."""

_Defined = Annotated[float, *Undefined]


class MeasuredGroup(Checked):
    """The estimated share of a group's clients, and their mean value; not-a-number if unknown."""

    name: Line
    share: float
    error: float
    mean: _Defined
    low: _Defined
    high: _Defined


class MeasuredGap(Checked):
    """A gap between two groups, second minus first, with its interval; of a rate where it is one.

    The value is not-a-number where the sizes of the groups are not known well enough.
    """

    rate: Rate | None = None
    first: Line
    second: Line
    value: _Defined
    low: float
    high: float


class GapsFile(JsonFile):
    """A gaps.json, of clients' reports by ``gap aggregate`` or of sites' counts by the job ``gap``.

    Attributes:
        epsilon: of one report, or of one site's counts.
        confidence: of each interval by itself.
        gaps: of every two groups.
        collection: fingerprint of the public file of the reports.
        reports: number of reports accepted.
        rejected: number of reports rejected, by reason.
        groups: estimated from the reports.
        warnings: where the reports contradict their public file.
        model: sha256 of the model whose decisions sites have counted.
        guarantee: of each site's counts.
        sites: that have counted.
    """

    max_file_bytes: ClassVar[int] = 100_000_000

    format: Literal["synthfair-gaps/1"] = "synthfair-gaps/1"
    epsilon: Annotated[float, Field(gt=0, le=1e4)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    gaps: list[MeasuredGap] = Field(min_length=1, max_length=200_000)
    collection: Line | None = None
    reports: Count = 0
    rejected: dict[Line, Count] = Field(default={})
    groups: list[MeasuredGroup] = Field(default=[])
    warnings: list[Line] = Field(default=[])
    model: Line | None = None
    guarantee: Guarantee | None = None
    sites: list[Line] = Field(default=[])


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
    for rate, label in RATE_LABELS.items():
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
