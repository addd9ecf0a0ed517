"""How exact an estimated gap will be: closed forms for one mechanism and one population."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from synthfair.measure.linear import linear_estimates, means_of
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally


def mean_variance(
    mechanism: Mechanism, size: np.ndarray, clients: float, square: np.ndarray
) -> np.ndarray:
    """Variance of groups' estimated means over the mechanism's noise alone, sizes n known.

        (n (a E[v'^2 | kept] - a^2 gain^2 nu^2) + (K - n) q E[v'^2 | moved]) / (a gain n)^2,

    Juarez and Korolova (2022), equations (19) and (20), here for any number of groups.

    Args:
        mechanism: of the reports.
        size: n of each group, above 0.
        clients: K.
        square: nu^2, the mean of v^2 in each group, 0 to 1.
    """
    a, gain = mechanism.keep, mechanism.gain
    own = a * mechanism.kept_square(square) - a**2 * gain**2 * square
    other = (clients - size) / size * mechanism.move * mechanism.moved_square
    return (own + other) / (a * gain) ** 2 / size


def largest_mean_variance(mechanism: Mechanism, size: np.ndarray, clients: float) -> np.ndarray:
    """Largest over nu^2 of the same, which is linear in it."""
    ends = (np.zeros_like(size), np.ones_like(size))
    return np.maximum(*(mean_variance(mechanism, size, clients, nu) for nu in ends))


class Population(NamedTuple):
    """Groups of clients: all, or some.

    Attributes:
        shares: [d] of the groups, positive.
        means: [d] of v in each.
        squares: [d] of v^2 in each, from means^2 to 1.
    """

    shares: np.ndarray
    means: np.ndarray
    squares: np.ndarray


def expected_tally(mechanism: Mechanism, clients: float, population: Population) -> Tally:
    """What the reports of so many clients add up to, on average."""
    a, q = mechanism.keep, mechanism.move
    shares, means, squares = population
    kept = mechanism.kept_square(squares)
    return Tally(
        clients,
        clients * (q + (a - q) * shares),
        clients * a * mechanism.gain * shares * means,
        clients * (a * shares * kept + q * (1 - shares) * mechanism.moved_square),
    )


def gap_variance(mechanism: Mechanism, clients: float, pair: Population) -> float:
    """Of an estimated gap, sizes estimated and clients drawn at random, to first order.

    Args:
        mechanism: of the reports.
        clients: K, of all groups.
        pair: the two groups alone.
    """
    expected = expected_tally(mechanism, clients, pair)
    _, covariance = means_of(linear_estimates(expected, mechanism, None))
    return float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])


def hardest_populations(mechanism: Mechanism, shares: np.ndarray) -> list[Population]:
    """Those of two groups among which a gap's variance is largest: nothing is known of the values.

    The variance grows with the mean squares, so values are -1 or 1. It is quadratic in the means,
    so it is largest where they are zero, both at an end, or one at an end and the other where the
    variance rises no more. Turning both means around changes nothing.

    Args:
        mechanism: of the reports.
        shares: [2] of the two groups.
    """

    def people(*means: float) -> Population:
        return Population(shares, np.array(means), np.ones(2))

    def variance(*means: float) -> float:
        return gap_variance(mechanism, 1.0, people(*means))

    second = _summit(lambda mean: variance(1.0, mean))
    first = _summit(lambda mean: variance(mean, 1.0))
    return [people(0, 0), people(1, 1), people(1, -1), people(1, second), people(first, 1)]


def _summit(parabola: Callable[[float], float]) -> float:
    """Where in [-1, 1] a parabola that is open below is largest; 0 for one that is not."""
    low, middle, high = (parabola(x) for x in (-1.0, 0.0, 1.0))
    bend = low + high - 2 * middle
    return min(max((low - high) / (2 * bend), -1.0), 1.0) if bend < 0 else 0.0


def largest_variance(mechanism: Mechanism, shares: np.ndarray, clients: float) -> float:
    """Of the gap of two groups whose sizes are estimated, whatever the values are.

    Args:
        mechanism: of the reports.
        shares: [2] of the two groups.
        clients: K, of all groups.
    """
    populations = hardest_populations(mechanism, shares)
    return max(gap_variance(mechanism, clients, population) for population in populations)
