"""The best division of a budget between group and value, under the true constraint."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.mechanisms import (
    LARGEST_EPSILON,
    Kind,
    LaplaceValue,
    Mechanism,
    RandomizedValue,
)
from synthfair.measure.variance import largest_variance

BEST: Kind = "randomized"
"""M_R: by the error that is minimised here it is the better one for every epsilon and any groups,
as the largest error is that of values of -1 or 1, of which a bit tells all. M_L has the smaller
one where values are known to lie near the middle of their range; and, from epsilon = 3 or so on,
where only the clients that there are count, which are no sample.
"""

Loss = Callable[[Mechanism], float]
"""What is minimised: an error of the estimated gap."""

_GOLDEN = (math.sqrt(5) - 1) / 2


def on_boundary(kind: Kind, groups: int, epsilon: float, part: float) -> Mechanism:
    """The mechanism whose value takes a part of epsilon, and whose group takes all that is left.

    More of either lowers the error, so the best division uses epsilon up: for M_R epsilon1 =
    epsilon - ln(2 b), for M_L epsilon1 = epsilon - epsilon2 / 2, in place of the paper's
    epsilon1 = epsilon for M_R.

    Args:
        kind: of the mechanism.
        groups: d, at least 2.
        epsilon: above 0.
        part: epsilon2 / epsilon, above 0 and at most 1.
    """
    epsilon2 = part * epsilon
    if kind == "laplace":
        return LaplaceValue(groups, epsilon - epsilon2 / 2, epsilon2)
    log_2b = math.log(2.0) - math.log1p(math.exp(-epsilon2))
    return RandomizedValue(groups, epsilon - log_2b, epsilon2)


def best_split(kind: Kind, groups: int, epsilon: float, loss: Loss | None = None) -> Mechanism:
    """The mechanism of least error whose exact epsilon is at most the one asked for.

    Args:
        kind: of the mechanism.
        groups: d, at least 2.
        epsilon: above 0.
        loss: the error that is minimised; if not given, the largest variance of a gap between
            equal groups, their sizes estimated and clients drawn at random.

    Raises:
        InputError: epsilon is out of its range.
    """
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(
            f"epsilon = {epsilon:g}: must be above 0, and at most {LARGEST_EPSILON:g}: at 0 the"
            " reports say nothing, and beyond they protect nothing"
        )
    lower = (1 - 1e-12) * epsilon  # rounding must not lift it beyond what was asked for
    error = loss or equal_groups(groups)
    return on_boundary(
        kind, groups, lower, _minimum(lambda part: error(on_boundary(kind, groups, lower, part)))
    )


def equal_groups(groups: int) -> Loss:
    """The largest variance of a gap, times the number of clients, all groups being equal."""
    shares = np.full(2, 1 / groups)
    return lambda mechanism: largest_variance(mechanism, shares, 1.0)


def _minimum(error: Callable[[float], float]) -> float:
    """Where in (0, 1] the error is least: the best of a grid, and golden section around it."""
    grid = np.linspace(0.04, 1.0, 25)
    best = int(np.argmin([error(float(part)) for part in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    for _ in range(20):
        step = _GOLDEN * (high - low)
        if error(high - step) <= error(low + step):
            high = low + step
        else:
            low = high - step
    return min((low, high, float(grid[best])), key=error)
