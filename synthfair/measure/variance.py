"""How exact an estimated gap will be: closed forms for one mechanism and one population."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.measure.linear import linear_estimates, means_of
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import Tally


def mean_variance(mechanism: Mechanism, size: float, clients: float, square: float) -> float:
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


def largest_known_sizes(
    mechanism: Mechanism, shares: np.ndarray, clients: float, pair: tuple[int, int]
) -> float:
    """Largest over nu^2 of the mean squared error of a gap, sizes known; theorem 5.4."""
    return sum(
        max(mean_variance(mechanism, shares[g] * clients, clients, nu) for nu in (0.0, 1.0))
        for g in pair
    )


class Population(NamedTuple):
    """Groups of clients.

    Attributes:
        shares: [d] of the groups, positive and of sum 1.
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
    kept = np.array([mechanism.kept_square(float(square)) for square in squares])
    return Tally(
        clients * (q + (a - q) * shares),
        clients * a * mechanism.gain * shares * means,
        clients * (a * shares * kept + q * (1 - shares) * mechanism.moved_square),
    )


def gap_variance(
    mechanism: Mechanism, clients: float, population: Population, pair: tuple[int, int]
) -> float:
    """Of an estimated gap, sizes estimated and clients drawn at random, to first order."""
    expected = expected_tally(mechanism, clients, population)
    _, covariance = means_of(linear_estimates(expected, mechanism, None))
    i, j = pair
    return float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])


_CORNERS = (
    (0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1),
    (1, 0, 1, 0), (1, 0, 1, 1), (1, 1, 1, 1), (1, -1, 1, 1),
)  # fmt: skip
"""Means and mean squares of two groups; turning both means around changes no variance."""


def hardest_populations(shares: np.ndarray, pair: tuple[int, int]) -> list[Population]:
    """Those among which a gap's variance is largest: nothing is known of the values.

    The variance is quadratic in the means and linear in the mean squares, so it is largest at
    corners of what is possible, or where the means are zero.
    """
    found = []
    for corner in _CORNERS:
        means, squares = np.zeros(len(shares)), np.zeros(len(shares))
        means[list(pair)], squares[list(pair)] = corner[:2], corner[2:]
        found.append(Population(shares, means, squares))
    return found


def largest_variance(
    mechanism: Mechanism, shares: np.ndarray, clients: float, pair: tuple[int, int]
) -> float:
    """Of a gap whose sizes are estimated, whatever the values are."""
    return max(
        gap_variance(mechanism, clients, population, pair)
        for population in hardest_populations(shares, pair)
    )
