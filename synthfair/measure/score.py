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

    def variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Of W, as constant + slope m^2 where the mean is m: [2, d], of which the larger counts.

        First with the mean square that the reports have, then with the least that values of mean m
        can cause, being all m. For M_R the two are the same.
        """
        at_zero, at_one = self._square(np.zeros_like(self.p)), self._square(np.ones_like(self.p))
        beta, told, p = self.beta, self.told, self.p
        slope = beta**2 * told - 2 * beta * p - (p - beta * told) ** 2
        steps = np.array([np.zeros_like(p), at_one - at_zero])
        return self.alpha**2 * np.array([self.square, at_zero]), slope + self.alpha**2 * steps

    def _square(self, square: np.ndarray) -> np.ndarray:
        """Mean square of v' over K, for mean squares of v."""
        kept = self.mechanism.keep * self.p * self.mechanism.kept_square(square)
        return kept + self.mechanism.move * (1 - self.p) * self.mechanism.moved_square

    def third(self, m: np.ndarray, square: np.ndarray) -> np.ndarray:
        """Third central moment of W where the means are m, and all values have that square."""
        alpha, c = self.alpha, self.beta * m
        first, second = self.p * m, alpha**2 * self._square(square)
        cube = alpha**3 * self.mechanism.keep * self.p * self.mechanism.kept_cube(m, square)
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
    z2, mean, p = deviations**2 / clients, groups.mean, groups.p
    side = np.array([-1.0, 1.0])[:, None, None]  # then forms of the variance, then groups
    constant, slope = groups.variance()
    a, b, c = p**2 - z2 * slope, mean * p**2, (mean * p) ** 2 - z2 * constant
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    outside = mean + side * np.sqrt(z2 * np.maximum(constant + slope, 0.0)) / p
    limit = np.where(np.abs(outside) >= 1, outside, (b + side * root) / a)
    end = limit.clip(-1.0, 1.0)
    lean = _lean(groups, end, side, constant + slope * end**2)
    limit += side * max(z2 - 1 / clients, 0.0) / 6 * lean / p
    return np.array([limit[0].min(axis=0), limit[1].max(axis=0)])


def _lean(groups: Tested, m: np.ndarray, side: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Third moment over variance at limits m, towards the inside.

    A high limit is crossed by reports that fall low, so that their long tail is below. Where it is
    above, nothing: the short tail ends, where no report has the other sign. Values are all m or -1
    and 1, whichever leans more.
    """
    thirds = [groups.third(m, square) for square in (m**2, np.ones_like(m))]
    tail = np.maximum(np.maximum(*(-side * third for third in thirds)), 0.0)
    return np.divide(tail, variance, out=np.zeros_like(tail), where=variance > 0)
