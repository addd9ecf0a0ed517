"""Group means and gaps from a tally, with the uncertainty of the group sizes carried along.

With pi_j = count_j / K and t_j = total_j / K, a group's share and mean are

    p_j = (pi_j - q) / (a - q),        m_j = t_j / (a gain p_j),

the second being the estimator of Juarez and Korolova (2022), definition 5.1, with the estimated
size in place of the known one. (pi, t) is a mean of K independent reports, so that its covariance
is known from the tally itself, and that of the means follows to first order (delta method).

A small group's estimated size may be off by much, and then m_j is far from normal. Its interval is
therefore that of a test (:mod:`synthfair.measure.score`), and a gap's is put together from those of
its two means by the method of variance estimates recovery (Zou and Donner 2008). Where the sizes
are certain and means are not at the end of their range, both are the usual normal intervals.

Both take sums to be nearly normal, for which it takes some hundred reports of each group.

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
from synthfair.measure.linear import Linear, known_shares, linear_estimates, means_of
from synthfair.measure.magnitude import unfolded
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.score import mean_limits, tested
from synthfair.measure.tally import Tally
from synthfair.measure.variance import largest_mean_variance

FEW = 100
"""Reports of a group below which sums of them are not called normal."""


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
        magnitude: size of the gap whose noisy sizes are on average as large as this one's, which is
            less; see :func:`synthfair.measure.magnitude.unfolded`.
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
        tally: of at least two reports; of all the mechanism's groups, or of some.
        mechanism: that made them.
        confidence: of each interval by itself, above 0 and below 1.
        shares: [d] of the groups, where they are known; estimated if not given.

    Raises:
        InputError: too few reports, or a confidence or shares that cannot be.
    """
    require_confidence(confidence)
    if tally.reports < 2:
        raise InputError(f"reports: {tally.reports} were accepted; at least 2 are needed")
    known = None if shares is None else known_shares(shares, mechanism.groups)
    linear = linear_estimates(tally, mechanism, known)
    values, covariance = means_of(linear)
    deviations, sized = normal_quantile(confidence), known is not None
    limits = limits_of_means(tally, mechanism, linear, deviations, sized)
    means = _Means(values, covariance, limits, _chebyshev(mechanism, linear.p, tally, confidence))
    gaps = tuple(_gap(pair, means) for pair in itertools.combinations(range(len(values)), 2))
    errors = np.sqrt(np.diag(linear.cov_p))
    within = tuple(Interval(*ends) for ends in limits.T.clip(-1.0, 1.0).tolist())
    return Estimate(tally.reports, linear.p, errors, values, covariance, within, gaps, confidence)


class _Means(NamedTuple):
    """Means [d], their covariance [d, d], limits [2, d], and squares of Chebyshev's bounds [d]."""

    values: np.ndarray
    covariance: np.ndarray
    limits: np.ndarray
    chebyshev: np.ndarray


def limits_of_means(
    tally: Tally, mechanism: Mechanism, linear: Linear, deviations: float, known: bool
) -> np.ndarray:
    """[2, d] of the means, so many errors away; infinite where the share may be zero."""
    sized = linear.p > deviations * np.sqrt(np.diag(linear.cov_p))
    places = np.flatnonzero(sized)
    limits = np.tile([[-np.inf], [np.inf]], len(sized))
    groups = tested(tally.of(places), mechanism, linear.p[sized], known=known)
    limits[:, sized] = mean_limits(groups, tally.clients, deviations)
    return limits


def _gap(pair: tuple[int, int], means: _Means) -> Gap:
    i, j = pair
    value = float(means.values[j] - means.values[i])
    c = means.covariance
    variance = float(c[i, i] + c[j, j] - 2 * c[i, j])
    error = math.inf if math.isnan(variance) else math.sqrt(max(variance, 0.0))
    bound = math.sqrt(means.chebyshev[i] + means.chebyshev[j])
    return Gap(pair, value, error, _recovered(pair, means), unfolded(value, error), bound)


def _recovered(pair: tuple[int, int], means: _Means) -> Interval:
    """Zou and Donner (2008), equation (11): the limits' distances in place of z times errors."""
    i, j = pair
    (one_low, two_low), (one_high, two_high) = means.limits[:, pair].tolist()
    if not all(map(math.isfinite, (one_low, two_low, one_high, two_high))):
        return Interval(-2.0, 2.0)
    c = means.covariance
    scale = math.sqrt(max(float(c[i, i] * c[j, j]), 0.0))
    r = float(c[i, j]) / scale if scale > 0 else 0.0

    def far(x: float, y: float) -> float:
        return math.sqrt(max(x**2 + y**2 - 2 * r * x * y, 0.0))

    first, second = float(means.values[i]), float(means.values[j])
    low = second - first - far(second - two_low, one_high - first)
    high = second - first + far(two_high - second, first - one_low)
    return Interval(min(max(low, -2.0), 2.0), min(max(high, -2.0), 2.0))


def _chebyshev(
    mechanism: Mechanism, shares: np.ndarray, tally: Tally, confidence: float
) -> np.ndarray:
    """[d] largest MSE of each mean over P(wrong), theorem 5.4, at these shares."""
    sizes = np.where(shares > 0, shares, np.nan) * tally.clients
    worst = largest_mean_variance(mechanism, sizes, tally.clients) / (1 - confidence)
    return np.where(shares > 0, worst, np.inf)


def require_confidence(confidence: float) -> None:
    """Raises InputError for one that cannot be."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence:g}: must be above 0 and below 1")


def normal_quantile(confidence: float) -> float:
    """The z with P(|Z| <= z) = confidence."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
