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
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally


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
        intervals: for the means, one a group.
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


def estimate(
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
    linear = _linear(tally, mechanism, shares)
    means, covariance = _means(linear)
    deviations = normal_quantile(confidence)
    limits = tuple(
        _fieller(linear, j, deviations, mechanism.bias) for j in range(mechanism.groups)
    )
    gaps = tuple(
        _gap(pair, means, covariance, limits, mechanism, linear.p, tally.reports, confidence)
        for pair in itertools.combinations(range(mechanism.groups), 2)
    )
    errors = np.sqrt(np.diag(linear.cov_p))
    return Estimate(
        tally.reports, linear.p, errors, means, covariance, limits, gaps, confidence
    )


class _Linear(NamedTuple):
    """Unbiased estimates of p_j m_j and of p_j, with their covariances [d, d]."""

    pm: np.ndarray
    p: np.ndarray
    cov_pm: np.ndarray
    cov_p: np.ndarray
    cov_both: np.ndarray


def _linear(tally: Tally, mechanism: Mechanism, shares: Sequence[float] | None) -> _Linear:
    reports = tally.reports
    pi, t, u = (part / reports for part in tally)
    pm = t / (mechanism.keep * mechanism.gain)
    cov_pm = (np.diag(u) - np.outer(t, t)) / reports / (mechanism.keep * mechanism.gain) ** 2
    if shares is not None:
        none = np.zeros_like(cov_pm)
        return _Linear(pm, known_shares(shares, mechanism.groups), cov_pm, none, none)
    slope = mechanism.keep - mechanism.move
    cov_p = (np.diag(pi) - np.outer(pi, pi)) / reports / slope**2
    cov_both = (np.diag(t) - np.outer(t, pi)) / reports
    cov_both /= mechanism.keep * mechanism.gain * slope
    return _Linear(pm, (pi - mechanism.move) / slope, cov_pm, cov_p, cov_both)


def known_shares(shares: Sequence[float], groups: int) -> np.ndarray:
    """Shares as an array.

    Raises:
        InputError: not one a group, one not above 0, or a sum other than 1.
    """
    found = np.asarray(shares, float)
    if found.shape != (groups,) or not (found > 0).all() or abs(found.sum() - 1) > 1e-6:
        raise InputError(f"shares = {list(shares)}: must be {groups} positive numbers of sum 1")
    return found


def _means(linear: _Linear) -> tuple[np.ndarray, np.ndarray]:
    """m = pm / p, and its covariance to first order: (d pm - m d p) / p."""
    p = np.where(linear.p > 0, linear.p, np.nan)
    means = linear.pm / p
    crossed = linear.cov_both * means  # column j times m_j
    spread = linear.cov_pm - crossed - crossed.T + linear.cov_p * np.outer(means, means)
    return means, spread / np.outer(p, p)


def _fieller(linear: _Linear, j: int, deviations: float, bias: float) -> Interval:
    """All m in [-1, 1] with |pm - m p| <= z sd(pm - m p); all of it where p may be zero."""
    pm, p, z2 = linear.pm[j], linear.p[j], deviations**2
    a = p**2 - z2 * linear.cov_p[j, j]
    b = pm * p - z2 * linear.cov_both[j, j]
    c = pm**2 - z2 * linear.cov_pm[j, j]
    if p <= 0 or a <= 0:
        return Interval(-math.inf, math.inf)
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Interval((b - root) / a - bias, (b + root) / a + bias)


def _gap(
    pair: tuple[int, int],
    means: np.ndarray,
    covariance: np.ndarray,
    limits: Sequence[Interval],
    mechanism: Mechanism,
    shares: np.ndarray,
    reports: int,
    confidence: float,
) -> Gap:
    i, j = pair
    value = float(means[j] - means[i])
    variance = float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])
    error = math.sqrt(max(variance, 0.0)) if not math.isnan(variance) else math.inf
    interval = _recovered(means[[i, j]], covariance, pair, (limits[i], limits[j]))
    half = math.inf
    if min(shares[i], shares[j]) > 0:
        half = math.sqrt(worst_known(mechanism, shares, reports, pair) / (1 - confidence))
    magnitude = math.sqrt(max(0.0, value**2 - error**2)) if error < math.inf else math.nan
    return Gap(pair, value, error, interval, magnitude, half)


def _recovered(
    means: np.ndarray, covariance: np.ndarray, pair: tuple[int, int], limits: Sequence[Interval]
) -> Interval:
    """Zou and Donner (2008), equation (11): the limits' distances in place of z times errors."""
    if not all(map(math.isfinite, (*limits[0], *limits[1], *means))):
        return Interval(-2.0, 2.0)
    i, j = pair
    r = covariance[i, j] / math.sqrt(covariance[i, i] * covariance[j, j])
    first, second = limits

    def far(one: float, other: float) -> float:
        return math.sqrt(max(one**2 + other**2 - 2 * r * one * other, 0.0))

    value = means[1] - means[0]
    low = value - far(means[1] - second.low, first.high - means[0])
    high = value + far(second.high - means[1], means[0] - first.low)
    return Interval(max(low, -2.0), min(high, 2.0))


def normal_quantile(confidence: float) -> float:
    """z with P(|Z| <= z) = confidence."""
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)


def mean_variance(
    mechanism: Mechanism, size: float, clients: float, square: float
) -> float:
    """Variance of a group's estimated mean over the mechanism's noise alone, its size n known.

        (n (a E[v'^2 | kept] - a^2 gain^2 nu^2) + (K - n) q E[v'^2 | moved]) / (a gain n)^2,

    Juarez and Korolova (2022), equations (19) and (20), here for any number of groups.

    Args:
        mechanism: of the reports.
        size: n, above 0.
        clients: K.
        square: nu^2, the mean of v^2 in the group, 0 to 1.
    """
    a, gain = mechanism.keep, mechanism.gain
    own = a * mechanism.kept_square(square) - a**2 * gain**2 * square
    other = (clients - size) / size * mechanism.move * mechanism.moved_square
    return (own + other) / (a * gain) ** 2 / size


def worst_known(
    mechanism: Mechanism, shares: np.ndarray, clients: float, pair: tuple[int, int]
) -> float:
    """Largest over nu^2 of the mean squared error of a gap, sizes known; theorem 5.4."""
    return sum(
        max(mean_variance(mechanism, shares[g] * clients, clients, nu) for nu in (0.0, 1.0))
        for g in pair
    )


def expected_tally(
    mechanism: Mechanism,
    clients: float,
    shares: np.ndarray,
    means: np.ndarray,
    squares: np.ndarray,
) -> Tally:
    """What K clients' reports add up to on average.

    Args:
        mechanism: of the reports.
        clients: K.
        shares: [d] of the groups.
        means: [d] of v.
        squares: [d] of v^2.
    """
    a, q = mechanism.keep, mechanism.move
    kept = np.array([mechanism.kept_square(float(square)) for square in squares])
    return Tally(
        clients * (q + (a - q) * shares),
        clients * a * mechanism.gain * shares * means,
        clients * (a * shares * kept + q * (1 - shares) * mechanism.moved_square),
    )


def gap_variance(
    mechanism: Mechanism, expected: Tally, pair: tuple[int, int]
) -> float:
    """Variance of an estimated gap, sizes estimated, to first order, for an expected tally."""
    _, covariance = _means(_linear(expected, mechanism, None))
    i, j = pair
    return float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])


def worst_estimated(
    mechanism: Mechanism, shares: np.ndarray, clients: float, pair: tuple[int, int]
) -> float:
    """Largest variance of an estimated gap, sizes estimated, over means and mean squares of v.

    It is quadratic in the means and linear in the mean squares: corners and the centre are tried.
    """
    i, j = pair
    largest = 0.0
    for first, second in itertools.product((-1.0, 0.0, 1.0), repeat=2):
        for nu in (0.0, 1.0):
            means, squares = np.zeros(len(shares)), np.zeros(len(shares))
            means[i], means[j] = first, second
            squares[i], squares[j] = max(abs(first), nu), max(abs(second), nu)
            expected = expected_tally(mechanism, clients, shares, means, squares)
            largest = max(largest, gap_variance(mechanism, expected, pair))
    return largest
