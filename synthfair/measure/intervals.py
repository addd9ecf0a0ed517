"""Intervals for the groups' means: the means that a score test does not reject.

For a group j and a mean m to test, let W = alpha v' - beta m for a report that names the group and
W = 0 for others, with alpha = 1 / (a gain) and beta = 1 / (a - q), or 0 if shares are known. Then

    alpha t_j - m p_j  =  p_j (m_j - m),    with the estimates m_j and p_j,

is the mean of W over all reports, up to a constant, and has mean 0 if m is the true mean, whatever
the true share is (Fieller 1954). Its variance is computed for the tested m instead of the estimate
(score test, Wilson 1927). This matters at the ends of the range: if nearly all values are 1, there
may be no report with a minus sign, and the variance of the reports is then far too small.

Few reports with the other sign have a skewed (Poisson) distribution. Each limit is therefore moved
outwards by the skewness term of Cornish and Fisher (1938), (z^2 - 1) / 6 times the third moment
over the variance. It is needed: in simulations with 2,000 to 200,000 clients and epsilon from 1 to
16, 99 % intervals without it missed the mean of a group in up to 9 % of the measurements (a mean of
1, epsilon = 10), and the gap in up to 2 %. With it they missed both in 1.2 % at most, which is 1 %
within chance, and intervals of gaps were 1 % wider on average and 12 % at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.measure.mechanisms import LocalMechanism
from synthfair.measure.tally import Moments, Tally


class ScoreTest(NamedTuple):
    """What the test of a mean needs of each group; arrays are [d].

    Attributes:
        mechanism: that made the reports.
        reported: pi, share of the reports that name the group.
        total: t, sum of their noisy values over K.
        square: sum of the squares over K.
        p: estimated or known share of the clients, above 0.
        beta: 1 / (a - q), or 0 if shares are known.
    """

    mechanism: LocalMechanism
    reported: np.ndarray
    total: np.ndarray
    square: np.ndarray
    p: np.ndarray
    beta: float

    @property
    def alpha(self) -> float:
        """1 / (a gain)."""
        return 1 / (self.mechanism.keep * self.mechanism.gain)

    def variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Variance of W as constant + slope m^2 for a mean m: two bounds [2, d], the larger counts.

        The first has the mean square of the reports; the second the smallest one possible with mean
        m, where every value is m. For M_R they are equal.
        """
        at_zero, at_one = self._square(np.zeros_like(self.p)), self._square(np.ones_like(self.p))
        beta, reported, p = self.beta, self.reported, self.p
        slope = beta**2 * reported - 2 * beta * p - (p - beta * reported) ** 2
        steps = np.array([np.zeros_like(p), at_one - at_zero])
        return self.alpha**2 * np.array([self.square, at_zero]), slope + self.alpha**2 * steps

    def _square(self, square: np.ndarray) -> np.ndarray:
        """Expected sum of v'^2 over K, for mean squares of v."""
        kept = self.mechanism.keep * self.p * self.mechanism.noisy_square(square)
        return kept + self.mechanism.change * (1 - self.p) * self.mechanism.changed_square

    def third(self, m: np.ndarray, square: np.ndarray) -> np.ndarray:
        """Third central moment of W for means m, if all values have that square."""
        alpha, c = self.alpha, self.beta * m
        first, second = self.p * m, alpha**2 * self._square(square)
        cube = alpha**3 * self.mechanism.keep * self.p * self.mechanism.noisy_cube(m, square)
        w1, w2 = first - c * self.reported, second - 2 * c * first + c**2 * self.reported
        w3 = cube - 3 * c * second + 3 * c**2 * first - c**3 * self.reported
        return w3 - 3 * w1 * w2 + 2 * w1**3


def limits_of_means(
    found: Tally, mechanism: LocalMechanism, moments: Moments, deviations: float, *, known: bool
) -> np.ndarray:
    """[2, d] limits of the means for a normal quantile z; infinite where a share may be 0."""
    sized = moments.p > deviations * np.sqrt(np.diag(moments.cov_p))
    limits = np.tile([[-np.inf], [np.inf]], len(sized))
    reported, total, square = (part / found.clients for part in found.of(sized)[1:])
    beta = 0.0 if known else 1 / (mechanism.keep - mechanism.change)
    test = ScoreTest(mechanism, reported, total, square, moments.p[sized], beta)
    limits[:, sized] = mean_limits(test, found.clients, deviations)
    return limits


def mean_limits(test: ScoreTest, clients: float, deviations: float) -> np.ndarray:
    """[2, d] smallest and largest mean that the test does not reject, for shares well above 0.

    They solve (alpha t - m p)^2 = z^2 (constant + slope m^2) / K. Outside [-1, 1], where no mean
    can be, the variance is taken to be that at the nearer end. The skewness term is added last.
    """
    z2, p = deviations**2 / clients, test.p
    mean = test.alpha * test.total / p
    side = np.array([-1.0, 1.0])[:, None, None]  # [side, bound of the variance, group]
    constant, slope = test.variance()
    a, b, c = p**2 - z2 * slope, mean * p**2, (mean * p) ** 2 - z2 * constant
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    outside = mean + side * np.sqrt(z2 * np.maximum(constant + slope, 0.0)) / p
    limit = np.where(np.abs(outside) >= 1, outside, (b + side * root) / a)
    end = limit.clip(-1.0, 1.0)
    skewness = _inward_skewness(test, end, side, constant + slope * end**2)
    limit += side * max(z2 - 1 / clients, 0.0) / 6 * skewness / p
    return np.array([limit[0].min(axis=0), limit[1].max(axis=0)])


def _inward_skewness(
    test: ScoreTest, m: np.ndarray, side: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Third moment over variance at limits m, where the long tail points inwards; else 0.

    An upper limit is missed when the reports are low by chance, so its long tail is the lower one.
    A short tail is left alone: it ends where no report has the other sign. The values are all m, or
    all -1 and 1, whichever has the longer tail.
    """
    thirds = [test.third(m, square) for square in (m**2, np.ones_like(m))]
    tail = np.maximum(np.maximum(*(-side * third for third in thirds)), 0.0)
    return np.divide(tail, variance, out=np.zeros_like(tail), where=variance > 0)
