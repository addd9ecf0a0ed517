"""95 % intervals of proportions, of their differences, and of the largest gap between groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isnan, nan, sqrt
from statistics import NormalDist

from synthfair.fairness.metrics import CONFIDENCE, Metric

Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

UNDEFINED = Metric(nan, nan, nan)


def wilson(share: float, n: float) -> Metric:
    """A proportion with Wilson's score interval (1927), which holds for few rows, too.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Args:
        share: p, from 0 to 1; where decisions are drawn, the mean of their probabilities.
        n: number of rows; without any, all is not-a-number.

    Example:
        No error among 20 rows does not mean that there are none:

        >>> from synthfair.report.proportions import wilson
        >>> [round(bound, 3) for bound in wilson(0.0, 20)]
        [0.0, 0.0, 0.161]
    """
    if not n or isnan(share):
        return UNDEFINED
    middle = share + Z**2 / (2 * n)
    half = Z * sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    scale = 1 + Z**2 / n
    # Rounding must not put a bound on the wrong side of a share of 0 or 1.
    low, high = min(share, (middle - half) / scale), max(share, (middle + half) / scale)
    return Metric(share, max(0.0, low), min(1.0, high))


def difference(first: Metric, second: Metric) -> Metric:
    """``first - second``, with an interval made of their own ones.

    Newcombe (1998), method 10, where these are Wilson's; in general Zou and Donner (2008), eq. (7)
    and (8). It holds for independent estimates; of two models on the same test rows, which tend to
    err together, it is too wide rather than too narrow.

    Example:
        Newcombe's example, 56 of 70 against 48 of 80:

        >>> from synthfair.report.proportions import difference, wilson
        >>> [round(bound, 4) for bound in difference(wilson(56 / 70, 70), wilson(48 / 80, 80))]
        [0.2, 0.0524, 0.3339]
    """
    value = first.value - second.value
    below = hypot(first.value - first.low, second.high - second.value)
    above = hypot(first.high - first.value, second.value - second.low)
    return Metric(value, value - below, value + above)


def size(signed: Metric) -> Metric:
    """The absolute value; its interval reaches down to 0 where the signed one contains 0.

    Example:
        >>> from synthfair.fairness.metrics import Metric
        >>> from synthfair.report.proportions import size
        >>> size(Metric(-0.02, -0.05, 0.01))
        Metric(value=0.02, low=0.0, high=0.05)
    """
    value, low, high = signed
    if isnan(low) or isnan(high):
        return Metric(abs(value), nan, nan)
    low, high = min(low, value), max(high, value)
    bounds = sorted((abs(low), abs(high)))
    return Metric(abs(value), 0.0 if low <= 0 <= high else bounds[0], bounds[1])


def largest_gap(rates: Sequence[Metric]) -> Metric:
    """The largest difference between groups' rates, with the interval of those two groups'.

    With many groups the two are the most unlike by chance, too, and the interval does not know it.
    Not-a-number where a group's rate is.
    """
    if any(isnan(rate.value) for rate in rates):
        return UNDEFINED
    ordered = sorted(rates)
    return size(difference(ordered[-1], ordered[0]))


def mean(parts: Sequence[Metric]) -> Metric:
    """Of values, and of lower and of upper bounds: the interval of one run, not of their mean."""
    value, low, high = (sum(column) / len(parts) for column in zip(*parts, strict=True))
    return Metric(value, low, high)
