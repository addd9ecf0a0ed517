"""Group means and gaps from a tally, with the uncertainty of the group sizes carried along.

With pi_j = count_j / K and t_j = total_j / K, a group's share and mean are

    p_j = (pi_j - q) / (a - q),        m_j = t_j / (a gain p_j),

the second being the estimator of Juarez and Korolova (2022), definition 5.1, with the estimated
size in place of the known one. (pi, t) is a mean of K independent reports, so that its covariance
is known from the tally itself, and that of the means follows to first order (delta method).

A small group's estimated size may be off by much, and then m_j is far from normal. Its interval is
therefore Fieller's (1954), the values m at which t_j / (a gain) - m p_j is not significantly
different from zero, and a gap's is put together from those of its two means by the method of
variance estimates recovery (Zou and Donner 2008). Where the sizes are certain, both are the usual
normal intervals.

Both rest on sums being normal, for which it takes some hundred reports of each group.

The intervals speak of the population from which the clients are a random sample. For the clients
themselves they hold at least as often, because their own spread is then counted in vain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.linear import Linear, linear_estimates, means_of
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally
from synthfair.measure.variance import largest_known_sizes


class Interval(NamedTuple):
    """Both ends."""

    low: float
    high: float


class Gap(NamedTuple):
    """The difference of two groups' means, second minus first, in units of v.

    Attributes:
        groups: their indices.
        value: signed estimate.
        error: its standard error.
        interval: with the confidence asked for; the whole range where the reports leave open how
            large a group is.
        magnitude: of the gap, with the noise's part taken out of the square:
            sqrt(max(0, value^2 - error^2)). The size of ``value`` itself is too large on average.
        chebyshev: half the width of the paper's interval: Chebyshev's inequality with the largest
            variance that any values can have, and estimated sizes taken for known ones.
    """

    groups: tuple[int, int]
    value: float
    error: float
    interval: Interval
    magnitude: float
    chebyshev: float


class Estimate(NamedTuple):
    """What reports say of the groups.

    Attributes:
        reports: K.
        shares: [d] of the clients, estimated or as given; an estimate may be below 0.
        share_errors: [d] their standard errors.
        means: [d] of v; not-a-number where the share is not above 0.
        covariance: [d, d] of the means.
        intervals: for the means, one a group; [-1, 1] where its size may be zero.
        gaps: of every two groups.
        confidence: of each interval by itself.
    """

    reports: int
    shares: np.ndarray
    share_errors: np.ndarray
    means: np.ndarray
    covariance: np.ndarray
    intervals: tuple[Interval, ...]
    gaps: tuple[Gap, ...]
    confidence: float


def estimate_gaps(
    tally: Tally,
    mechanism: Mechanism,
    *,
    confidence: float = 0.95,
    shares: Sequence[float] | None = None,
) -> Estimate:
    """Means, and the gap of every two groups: "the rest" would mix groups of uncertain size.

    Args:
        tally: of at least two reports.
        mechanism: that made them.
        confidence: of each interval by itself, above 0 and below 1.
        shares: [d] of the groups, where they are known; estimated if not given.

    Raises:
        InputError: too few reports, or a confidence or shares that cannot be.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence:g}: must be above 0 and below 1")
    if tally.reports < 2:
        raise InputError(f"reports: {tally.reports} were accepted; at least 2 are needed")
    linear = linear_estimates(tally, mechanism, shares)
    values, covariance = means_of(linear)
    deviations = normal_quantile(confidence)
    limits = [_fieller(linear, j, deviations) for j in range(mechanism.groups)]
    means = _Means(values, covariance, limits, mechanism.bias)
    gaps = tuple(
        _gap(pair, means)._replace(
            chebyshev=_chebyshev(mechanism, linear.p, tally.reports, pair, 1 - confidence)
        )
        for pair in itertools.combinations(range(mechanism.groups), 2)
    )
    errors = np.sqrt(np.diag(linear.cov_p))
    within = tuple(
        Interval(max(low - mechanism.bias, -1.0), min(high + mechanism.bias, 1.0))
        for low, high in limits
    )
    return Estimate(tally.reports, linear.p, errors, values, covariance, within, gaps, confidence)


class _Means(NamedTuple):
    """Means [d], their covariance [d, d], limits that know of the sizes' uncertainty, and bias."""

    values: np.ndarray
    covariance: np.ndarray
    limits: Sequence[Interval]
    bias: float


def _fieller(linear: Linear, j: int, deviations: float) -> Interval:
    """All m with |pm - m p| <= z sd(pm - m p); all of it where p may be zero."""
    pm, p, z2 = float(linear.pm[j]), float(linear.p[j]), deviations**2
    a = p**2 - z2 * float(linear.cov_p[j, j])
    b = pm * p - z2 * float(linear.cov_both[j, j])
    c = pm**2 - z2 * float(linear.cov_pm[j, j])
    if p <= 0 or a <= 0:
        return Interval(-math.inf, math.inf)
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Interval((b - root) / a, (b + root) / a)


def _gap(pair: tuple[int, int], means: _Means) -> Gap:
    i, j = pair
    value = float(means.values[j] - means.values[i])
    c = means.covariance
    variance = float(c[i, i] + c[j, j] - 2 * c[i, j])
    error = math.inf if math.isnan(variance) else math.sqrt(max(variance, 0.0))
    magnitude = math.sqrt(max(0.0, value**2 - error**2)) if error < math.inf else math.nan
    return Gap(pair, value, error, _recovered(pair, means), magnitude, math.inf)


def _recovered(pair: tuple[int, int], means: _Means) -> Interval:
    """Zou and Donner (2008), equation (11): the limits' distances in place of z times errors."""
    i, j = pair
    one, two, c = means.limits[i], means.limits[j], means.covariance
    if not all(map(math.isfinite, (*one, *two))):
        return Interval(-2.0, 2.0)
    scale = math.sqrt(max(float(c[i, i] * c[j, j]), 0.0))
    r = float(c[i, j]) / scale if scale > 0 else 0.0

    def far(x: float, y: float) -> float:
        return math.sqrt(max(x**2 + y**2 - 2 * r * x * y, 0.0))

    first, second = float(means.values[i]), float(means.values[j])
    low = second - first - far(second - two.low, one.high - first)
    high = second - first + far(two.high - second, first - one.low)
    return Interval(max(low - 2 * means.bias, -2.0), min(high + 2 * means.bias, 2.0))


def _chebyshev(
    mechanism: Mechanism, shares: np.ndarray, reports: int, pair: tuple[int, int], wrong: float
) -> float:
    """sqrt(MSE / P(wrong)) with the largest MSE of theorem 5.4, at these shares."""
    if min(shares[list(pair)]) <= 0:
        return math.inf
    return math.sqrt(largest_known_sizes(mechanism, shares, reports, pair) / wrong)


def normal_quantile(confidence: float) -> float:
    """The z with P(|Z| <= z) = confidence."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
