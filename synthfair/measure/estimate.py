"""Means of the groups and gaps between them, with intervals, from a tally of reports.

If the size of a small group is estimated badly, its estimated mean is far from normal. Its interval
is therefore that of a score test (:mod:`synthfair.measure.intervals`), and the interval of a gap
combines those of its two means (Zou and Donner 2008). If the sizes are certain and the means are
away from the ends of their range, both are the usual normal intervals. All take sums of reports to
be nearly normal, which needs about 100 reports of each group.

The intervals are for the population of which the clients are a random sample. For the gap between
the clients themselves they are wider than necessary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.intervals import limits_of_means
from synthfair.measure.mechanisms import LocalMechanism
from synthfair.measure.tally import Tally, estimate_moments, means_of, require_shares

FEW = 100
"""With fewer reports of a group, their sum may be far from normal."""

_NORMAL = NormalDist()


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float


class Gap(NamedTuple):
    """The difference of two groups' means, second minus first, in units of v.

    Attributes:
        groups: their indices.
        value: estimate, signed.
        error: its standard error.
        interval: with the requested confidence; [-2, 2] if the reports leave open how large one of
            the groups is.
        magnitude: estimate of the absolute gap, :func:`debiased_magnitude`.
        chebyshev: half-width of the paper's interval: Chebyshev's inequality with the largest
            variance that any values can have, and with estimated sizes taken for known ones.
    """

    groups: tuple[int, int]
    value: float
    error: float
    interval: Interval
    magnitude: float
    chebyshev: float

    def in_units_of(self, unit: float) -> Gap:
        """The same gap where a difference of 1 in v is ``unit``."""
        return Gap(
            self.groups,
            self.value * unit,
            self.error * unit,
            Interval(self.interval.low * unit, self.interval.high * unit),
            self.magnitude * unit,
            self.chebyshev * unit,
        )


class Estimate(NamedTuple):
    """What the reports show about the groups.

    Attributes:
        reports: K.
        shares: [d] of the clients, estimated or as given; an estimate may be below 0.
        share_errors: [d] their standard errors.
        means: [d] of v; not-a-number if the estimated share is not positive.
        intervals: [d] of the means; [-1, 1] if the reports do not exclude a share of 0.
        gaps: of every two groups.
        confidence: of each interval by itself.
    """

    reports: int
    shares: np.ndarray
    share_errors: np.ndarray
    means: np.ndarray
    intervals: tuple[Interval, ...]
    gaps: tuple[Gap, ...]
    confidence: float


def estimate_gaps(
    tally: Tally,
    mechanism: LocalMechanism,
    *,
    confidence: float = 0.95,
    shares: Sequence[float] | None = None,
) -> Estimate:
    """Means of the groups, and the gap of every two; equations in :mod:`synthfair.measure.tally`.

    Args:
        tally: of at least two reports of all d groups.
        mechanism: that made the reports.
        confidence: of each interval by itself, above 0 and below 1.
        shares: [d] of the groups, positive and of sum 1, if known; else they are estimated.

    Returns:
        Estimates in units of v, from -1 to 1.

    Raises:
        InputError: too few reports, or an invalid confidence or share.

    Example:
        Reports of 1,000 clients in each of two groups, of which 600 and 400 are positive:

        >>> import numpy as np
        >>> import synthfair as sf
        >>> size, total = np.array([1000.0, 1000.0]), np.array([200.0, -200.0])
        >>> tally = sf.measure.Tally(2000, counts=size, totals=total, squares=size)
        >>> (gap,) = sf.measure.estimate_gaps(tally, sf.measure.RandomizedValue(2, 2.0, 2.0)).gaps
        >>> round(gap.value, 2)  # -0.4 without the noise, which pulls means towards 0
        -0.6
        >>> gap.interval.low < gap.value < gap.interval.high < 0
        True
    """
    require_confidence(confidence)
    if tally.reports < 2:
        raise InputError(f"reports: {tally.reports} were accepted; at least 2 are needed")
    known = None if shares is None else require_shares(shares, mechanism.groups)
    moments = estimate_moments(tally, mechanism, known)
    values, covariance = means_of(moments)
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    limits = limits_of_means(tally, mechanism, moments, z, known=known is not None)
    chebyshev = _chebyshev(mechanism, moments.p, tally.clients, confidence)
    return Estimate(
        tally.reports,
        moments.p,
        np.sqrt(np.diag(moments.cov_p)),
        values,
        tuple(Interval(*ends) for ends in limits.T.clip(-1.0, 1.0).tolist()),
        tuple(
            _gap(pair, values, covariance, limits, chebyshev)
            for pair in itertools.combinations(range(len(values)), 2)
        ),
        confidence,
    )


def require_confidence(confidence: float) -> None:
    """Raises InputError unless it is above 0 and below 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence:g}: must be above 0 and below 1")


def _gap(
    pair: tuple[int, int],
    means: np.ndarray,
    covariance: np.ndarray,
    limits: np.ndarray,
    chebyshev: np.ndarray,
) -> Gap:
    """The gap of two groups; with limits [2, d] and squared Chebyshev bounds [d] of the means."""
    i, j = pair
    value = float(means[j] - means[i])
    variance = float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])
    error = math.inf if math.isnan(variance) else math.sqrt(max(variance, 0.0))
    scale = math.sqrt(max(float(covariance[i, i] * covariance[j, j]), 0.0))
    correlation = float(covariance[i, j]) / scale if scale > 0 else 0.0
    ends = (float(means[i]), *limits[:, i].tolist()), (float(means[j]), *limits[:, j].tolist())
    interval = _combined(*ends, correlation)
    bound = math.sqrt(chebyshev[i] + chebyshev[j])
    return Gap(pair, value, error, interval, debiased_magnitude(value, error), bound)


def _combined(first: tuple[float, ...], second: tuple[float, ...], correlation: float) -> Interval:
    """Interval of the difference of two means, each (value, low, high), within [-2, 2].

    Zou and Donner (2008), equation (11): as the normal interval of a difference, with the distances
    from the estimates to their limits in place of z times the standard errors.
    """
    if not all(map(math.isfinite, (*first, *second))):
        return Interval(-2.0, 2.0)

    def distance(x: float, y: float) -> float:
        return math.sqrt(max(x**2 + y**2 - 2 * correlation * x * y, 0.0))

    (x, x_low, x_high), (y, y_low, y_high) = first, second
    low = y - x - distance(y - y_low, x_high - x)
    high = y - x + distance(y_high - y, x - x_low)
    return Interval(min(max(low, -2.0), 2.0), min(max(high, -2.0), 2.0))


def mean_variance(
    mechanism: LocalMechanism, size: np.ndarray, clients: float, square: np.ndarray
) -> np.ndarray:
    """Variance [d] of the estimated means over the mechanism's noise alone, sizes n known.

        (n (a E[v'^2 | kept] - a^2 gain^2 nu^2) + (K - n) q E[v'^2 | changed]) / (a gain n)^2,

    with ``square`` nu^2, the mean of v^2 in each group, and K clients in all. Juarez and Korolova
    (2022), equations (19) and (20), here for any number of groups.
    """
    a, gain = mechanism.keep, mechanism.gain
    own = a * mechanism.noisy_square(square) - a**2 * gain**2 * square
    other = (clients - size) / size * mechanism.change * mechanism.changed_square
    return (own + other) / (a * gain) ** 2 / size


def largest_mean_variance(
    mechanism: LocalMechanism, size: np.ndarray, clients: float
) -> np.ndarray:
    """The largest such variance [d] over nu^2, in which it is linear."""
    ends = (np.zeros_like(size), np.ones_like(size))
    return np.maximum(*(mean_variance(mechanism, size, clients, square) for square in ends))


def _chebyshev(
    mechanism: LocalMechanism, shares: np.ndarray, clients: float, confidence: float
) -> np.ndarray:
    """[d] squared half-widths, the largest variance over 1 - confidence; theorem 5.4."""
    sizes = np.where(shares > 0, shares, np.nan) * clients
    worst = largest_mean_variance(mechanism, sizes, clients) / (1 - confidence)
    return np.where(shares > 0, worst, np.inf)


def debiased_magnitude(value: float, error: float) -> float:
    """An estimate of the absolute gap |theta| from a noisy signed estimate of theta.

    If there is no gap, the noisy |value| is sqrt(2 / pi) = 0.80 standard errors on average. This
    solves E |theta + error Z| = |value| for theta >= 0, with Z standard normal and

        E |theta + Z| = theta (2 Phi(theta) - 1) + 2 phi(theta)

    (Leone, Nelson and Nottingham 1961); the result is 0 if |value| is below that mean at theta = 0.
    No estimator of |theta| is unbiased. The bias of this one is 0.50 standard errors at theta = 0
    and at most 0.12 from theta = 0.5 standard errors on.

    Args:
        value: signed estimate, taken to be normal.
        error: its standard error, not negative; infinite if unknown.

    Example:
        >>> from synthfair.measure.estimate import debiased_magnitude
        >>> debiased_magnitude(-0.1, error=0.2), round(debiased_magnitude(-0.5, error=0.2), 3)
        (0.0, 0.499)
    """
    if not math.isfinite(value) or math.isinf(error):
        return math.nan
    if abs(value) >= 9 * error:  # beyond, the mean of |value| is theta to the last digit
        return abs(value)
    wanted = theta = abs(value) / error
    if wanted <= _folded_mean(0.0):
        return 0.0
    for _ in range(12):  # Newton's method from above the root of a convex function
        theta -= (_folded_mean(theta) - wanted) / (2 * _NORMAL.cdf(theta) - 1)
    return theta * error


def _folded_mean(theta: float) -> float:
    return theta * (2 * _NORMAL.cdf(theta) - 1) + 2 * _NORMAL.pdf(theta)
