"""Intervals for the groups' means, by turning a test around: which means do the reports allow?

A report adds to group j, where it names it, W = alpha v' - beta m with alpha = 1 / (a gain) and
beta = 1 / (a - q), or 0 where shares are known. Whatever the share p_j is,

    alpha t_j - m p_j  =  p_j (m_j - m),    with m_j the estimate and p_j the estimated share,

has mean 0 if m is the mean (Fieller 1954), and is the mean of W over all reports, less a constant.
Its variance is worked out for the mean m that is tested, not for the estimate (a score test, Wilson
1927). That is what counts at the end of the range: where hardly a report can have a minus sign, and
none has, the reports' own variance is far too small, the one that m would cause is not. Few such
reports are Poisson's, and lean to one side, for which a limit is moved outwards by the term of
Cornish and Fisher (1938): (z^2 - 1) / 6 times the third moment over the variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally


class Tested(NamedTuple):
    """What the test needs of each group, arrays being [d].

    Attributes:
        mechanism: of the reports.
        told: pi, share of the reports that name the group.
        total: t, sum of their values over K.
        square: sum of their squares over K.
        p: estimated or known share of the clients, above 0.
        beta: 1 / (a - q), or 0 where shares are known.
    """

    mechanism: Mechanism
    told: np.ndarray
    total: np.ndarray
    square: np.ndarray
    p: np.ndarray
    beta: float

    @property
    def alpha(self) -> float:
        """1 / (a gain)."""
        return 1 / (self.mechanism.keep * self.mechanism.gain)

    @property
    def mean(self) -> np.ndarray:
        """The estimates."""
        return self.alpha * self.total / self.p

    def second(self) -> np.ndarray:
        """Mean square of v' over K; not below what the estimated mean needs, as E v^2 >= m^2."""
        kept = self.mechanism.kept_square(self.mean.clip(-1.0, 1.0) ** 2)
        moved = self.mechanism.move * (1 - self.p) * self.mechanism.moved_square
        return np.maximum(self.square, self.mechanism.keep * self.p * kept + moved)

    def variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Of W, as constant + slope m^2, where the mean is m."""
        told, p, beta = self.told, self.p, self.beta
        return self.alpha**2 * self.second(), beta**2 * told - 2 * beta * p - (p - beta * told) ** 2

    def third(self, m: np.ndarray) -> np.ndarray:
        """Third central moment of W where the means are m."""
        alpha, c = self.alpha, self.beta * m
        first, second = self.p * m, alpha**2 * self.second()
        cube = alpha**3 * self.mechanism.keep * self.p * self.mechanism.kept_cube(m)
        w1, w2 = first - c * self.told, second - 2 * c * first + c**2 * self.told
        w3 = cube - 3 * c * second + 3 * c**2 * first - c**3 * self.told
        return w3 - 3 * w1 * w2 + 2 * w1**3


def tested(tally: Tally, mechanism: Mechanism, p: np.ndarray, *, known: bool) -> Tested:
    """The groups of a tally, with their shares p [d], estimated or known."""
    beta = 0.0 if known else 1 / (mechanism.keep - mechanism.move)
    told, total, square = (part / tally.clients for part in tally[1:])
    return Tested(mechanism, told, total, square, p, beta)


def mean_limits(groups: Tested, clients: float, deviations: float) -> np.ndarray:
    """[2, d] lowest and highest mean that the reports allow, for shares well above 0.

    (alpha t - m p)^2 = z^2 (constant + slope m^2) / K has them as solutions. Beyond [-1, 1], where
    no mean is, the variance is taken to be that at its end.
    """
    z2 = deviations**2 / clients
    constant, slope = groups.variance()
    a, b = groups.p**2 - z2 * slope, groups.mean * groups.p**2
    root = np.sqrt(np.maximum(b**2 - a * ((groups.mean * groups.p) ** 2 - z2 * constant), 0.0))
    beyond = np.sqrt(z2 * np.maximum(constant + slope, 0.0)) / groups.p
    weight, limits = max(z2 - 1 / clients, 0.0), []
    for side in (-1, 1):
        inside, outside = (b + side * root) / a, groups.mean + side * beyond
        limit = np.where(np.abs(outside) >= 1, outside, inside)
        limits.append(limit + side * _lean(groups, limit.clip(-1, 1), side, weight))
    return np.array(limits)


def _lean(groups: Tested, m: np.ndarray, side: int, weight: float) -> np.ndarray:
    """By how much a limit at m is moved outwards; never inwards, where few reports bound it."""
    constant, slope = groups.variance()
    variance = constant + slope * m**2
    # A high limit is crossed by reports that fall low, so that their long tail is below.
    tail = np.maximum(-side * groups.third(m), 0.0)
    lean = np.divide(tail, variance, out=np.zeros_like(tail), where=variance > 0)
    return weight / 6 * lean / groups.p
