"""Plans of measurements: the best split of epsilon, and the clients, epsilon or precision needed.

The variance of an estimated gap has a closed form for given values of the clients. Plans take the
largest one over all values that clients could have, for the two smallest groups that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.estimate import (
    estimate_gaps,
    estimate_means,
    require_confidence,
    require_shares,
)
from synthfair.measure.mechanisms import (
    LARGEST_EPSILON,
    Kind,
    LaplaceValue,
    LocalMechanism,
    RandomizedValue,
)
from synthfair.measure.tally import Tally

SMALLEST_EPSILON = 1e-3
MOST_CLIENTS = 10**15

BEST: Kind = "randomized"
"""M_R, whose largest variance over all values is the smaller one for every epsilon and number of
groups: that variance occurs at values of -1 or 1, which one bit describes completely. M_L is better
for values that are known to lie near the middle of their range; and, from about epsilon = 3, for
the gap between the clients themselves instead of that of a population.
"""


def expected_tally(
    mechanism: LocalMechanism,
    clients: float,
    shares: np.ndarray,
    means: np.ndarray,
    squares: np.ndarray | float = 1.0,
) -> Tally:
    """The mean of the tally of so many clients' reports.

    Args:
        mechanism: of all clients.
        clients: K, in all groups.
        shares: [d] of some or all groups.
        means: [d] of v in each of them.
        squares: [d] means of v^2, from means^2 to 1.
    """
    a, q = mechanism.keep, mechanism.change
    same = a * shares * mechanism.noisy_square(np.broadcast_to(squares, shares.shape))
    other = q * (1 - shares) * mechanism.changed_square
    totals = clients * a * mechanism.gain * shares * means
    return Tally(clients, clients * (q + (a - q) * shares), totals, clients * (same + other))


def gap_variance(mechanism: LocalMechanism, clients: float, *groups: np.ndarray) -> float:
    """Variance of the estimated gap of two groups to first order.

    Clients are drawn at random, and sizes are estimated. Arguments: see :func:`expected_tally`.
    """
    sums = expected_tally(mechanism, clients, *groups)
    return estimate_means(sums, mechanism).gap_variance(0, 1)


def hardest_means(mechanism: LocalMechanism, shares: np.ndarray) -> list[np.ndarray]:
    """Candidates [2] among which the variance of two groups' gap is largest over all values.

    It grows with the mean squares, so values are -1 or 1. It is quadratic in the two means, so it
    is largest where both are 0, both are at an end of the range, or one is at an end and the other
    at the vertex of a parabola. Changing both signs changes nothing.
    """

    def vertex(place: int) -> np.ndarray:
        """Moves that mean to its vertex in [-1, 1], or to 0 if the parabola is convex."""
        means = np.ones(2)

        def variance(mean: float) -> float:
            means[place] = mean
            return gap_variance(mechanism, 1.0, shares, means)

        low, middle, high = map(variance, (-1.0, 0.0, 1.0))
        bend = low + high - 2 * middle
        means[place] = min(max((low - high) / (2 * bend), -1.0), 1.0) if bend < 0 else 0.0
        return means

    return [np.zeros(2), np.ones(2), np.array([1.0, -1.0]), vertex(1), vertex(0)]


def largest_variance(mechanism: LocalMechanism, shares: np.ndarray, clients: float) -> float:
    """Variance of the gap of two groups with shares [2], the largest over all values of clients."""
    values = hardest_means(mechanism, shares)
    return max(gap_variance(mechanism, clients, shares, means) for means in values)


def mechanism_at(kind: Kind, groups: int, epsilon: float, part: float) -> LocalMechanism:
    """The mechanism with epsilon2 = part * epsilon and the largest epsilon1 that epsilon allows.

    A larger epsilon1 or epsilon2 lowers the error, so the best split uses all of epsilon: epsilon1
    is epsilon - ln(2 b) for M_R, where the paper has epsilon, and epsilon - epsilon2 / 2 for M_L.
    """
    epsilon2 = part * epsilon
    if kind == "laplace":
        return LaplaceValue(groups, epsilon - epsilon2 / 2, epsilon2)
    log_2b = math.log(2.0) - math.log1p(math.exp(-epsilon2))
    return RandomizedValue(groups, epsilon - log_2b, epsilon2)


def best_split(
    kind: Kind,
    groups: int,
    epsilon: float,
    loss: Callable[[LocalMechanism], float] | None = None,
) -> LocalMechanism:
    """The mechanism with the smallest error whose exact epsilon is at most the given one.

    Args:
        kind: "randomized" for M_R, "laplace" for M_L.
        groups: d, at least 2.
        epsilon: above 0 and at most 500.
        loss: error to minimise; by default the largest variance over all values of the gap of two
            groups of equal size, with sizes estimated and clients drawn at random.

    Raises:
        InputError: epsilon is out of range.

    Example:
        >>> import synthfair as sf
        >>> mechanism = sf.measure.best_split("randomized", groups=2, epsilon=1.0)
        >>> round(mechanism.epsilon1, 2), round(mechanism.epsilon2, 2), round(mechanism.epsilon, 6)
        (0.62, 1.0, 1.0)
    """
    from scipy.optimize import minimize_scalar

    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(f"epsilon = {epsilon:g}: must be above 0, and at most {LARGEST_EPSILON:g}")
    lower = (1 - 1e-12) * epsilon  # rounding must not raise the exact epsilon above it
    equal = np.full(2, 1 / groups)

    def error(part: float) -> float:
        mechanism = mechanism_at(kind, groups, lower, float(part))
        return loss(mechanism) if loss else largest_variance(mechanism, equal, 1.0)

    # The best point of a grid, and the best one next to it, which may be no better: at 1, for one.
    grid, step = np.linspace(0.04, 1.0, 25, retstep=True)
    best = float(min(grid, key=error))
    near = max(best - step, grid[0]), min(best + step, 1.0)
    lowest = minimize_scalar(error, bounds=near, method="bounded", options={"xatol": 1e-6})
    return mechanism_at(kind, groups, lower, min(best, float(lowest.x), key=error))


@dataclass(frozen=True)
class Design:
    """The known quantities of a measurement that is planned, and its precision.

    Attributes:
        shares: [d] of the groups, roughly; positive and of sum 1.
        compared: indices of the groups whose gaps are wanted, at least two; by default all.
        confidence: of the intervals, above 0 and below 1.
        kind: of mechanism, "randomized" or "laplace".
        unit: of precision: half of the range of the value, 1 for v in [-1, 1].

    Raises:
        InputError: an attribute is out of range.
    """

    shares: tuple[float, ...]
    compared: tuple[int, ...] | None = None
    confidence: float = 0.95
    kind: Kind = BEST
    unit: float = 1.0

    def __post_init__(self) -> None:
        """Raises InputError for an attribute out of range."""
        require_confidence(self.confidence)
        require_shares(self.shares, len(self.shares))
        pairs = self._places
        if len(pairs) < 2 or len({*pairs} & {*range(len(self.shares))}) < len(pairs):
            raise InputError(
                f"groups to compare = {list(pairs)}: must be at least 2 of the {len(self.shares)},"
                " each once"
            )

    @property
    def _places(self) -> tuple[int, ...]:
        return tuple(range(len(self.shares)) if self.compared is None else self.compared)

    @property
    def hardest_pair(self) -> np.ndarray:
        """Shares [2] of the two smallest groups that are compared."""
        return np.sort([self.shares[i] for i in self._places])[:2]

    def mechanism(self, epsilon: float) -> LocalMechanism:
        """The best split of epsilon for the gap of the hardest pair."""
        pair = self.hardest_pair
        return best_split(
            self.kind, len(self.shares), epsilon, lambda some: largest_variance(some, pair, 1.0)
        )


class GapPlan(NamedTuple):
    """The plan of a measurement.

    Attributes:
        mechanism: with the best split of epsilon.
        clients: K.
        precision: half-width of the interval of the hardest pair's gap, the largest over all values
            of clients, at the expected reports; the whole range of the value if the reports do not
            exclude that a group is empty.
        confidence: of its interval.
    """

    mechanism: LocalMechanism
    clients: int
    precision: float
    confidence: float


def plan_precision(design: Design, *, clients: int, epsilon: float) -> GapPlan:
    """The precision that so many clients with that epsilon give.

    Args:
        design: what is known.
        clients: K, from 2 to 10^15.
        epsilon: of each client's report, above 0 and at most 500.

    Raises:
        InputError: epsilon or the number of clients is out of range.

    Example:
        >>> import synthfair as sf
        >>> design = sf.measure.Design((0.7, 0.3), unit=0.5)  # values from 0 to 1
        >>> round(sf.measure.plan_precision(design, clients=100_000, epsilon=1.0).precision, 3)
        0.031
    """
    if not 2 <= clients <= MOST_CLIENTS:
        raise InputError(f"clients = {clients}: must be from 2 to {MOST_CLIENTS}")
    return _plan(design, design.mechanism(epsilon), clients)


def plan_clients(design: Design, *, epsilon: float, precision: float) -> GapPlan:
    """The fewest clients that give a precision.

    Args:
        design: what is known.
        epsilon: of each client's report, above 0 and at most 500.
        precision: wanted, above 0 and below the range of the value.

    Raises:
        InputError: epsilon or precision is out of range, or more than 10^15 clients are needed.

    Example:
        >>> import synthfair as sf
        >>> design = sf.measure.Design((0.5, 0.5))
        >>> sf.measure.plan_clients(design, epsilon=1.0, precision=0.1).clients
        23675
    """
    _require_precision(design, precision)
    mechanism = design.mechanism(epsilon)

    def plan(log_clients: float) -> GapPlan:
        return _plan(design, mechanism, math.ceil(math.exp(log_clients)))

    most = math.log(MOST_CLIENTS)
    if plan(most).precision > precision:
        raise InputError(f"precision = {precision:g}: not reached with {MOST_CLIENTS} clients")
    return _smallest(plan, precision, math.log(2), most, 1e-7)


def plan_epsilon(design: Design, *, clients: int, precision: float) -> GapPlan:
    """The smallest epsilon that gives a precision, to one part in a thousand.

    Args:
        design: what is known.
        clients: K, from 2 to 10^15.
        precision: wanted, above 0 and below the range of the value.

    Raises:
        InputError: a number is out of range, or even an unlimited epsilon does not give it.

    Example:
        >>> import synthfair as sf
        >>> design = sf.measure.Design((0.5, 0.5))
        >>> plan = sf.measure.plan_epsilon(design, clients=23_675, precision=0.1)
        >>> round(plan.mechanism.epsilon, 2)
        1.0
    """
    _require_precision(design, precision)
    without_privacy = plan_precision(design, clients=clients, epsilon=LARGEST_EPSILON).precision
    if without_privacy > precision:
        fewest = plan_clients(design, epsilon=LARGEST_EPSILON, precision=precision).clients
        one_bit = ", and M_R sends one bit of each value" if design.kind == "randomized" else ""
        raise InputError(
            f"precision = {precision:g}: no finite epsilon gives it with {clients} clients: they"
            f" are a sample{one_bit}; even without privacy the half-width is"
            f" {without_privacy:.3g}. At least {fewest} clients are needed"
        )

    def plan(log_epsilon: float) -> GapPlan:
        return _plan(design, design.mechanism(math.exp(log_epsilon)), clients)

    return _smallest(plan, precision, math.log(SMALLEST_EPSILON), math.log(LARGEST_EPSILON), 4e-4)


def _require_precision(design: Design, precision: float) -> None:
    if not 0 < precision < 2 * design.unit:
        raise InputError(
            f"precision = {precision:g}: must be above 0 and below the whole range,"
            f" {2 * design.unit:g}"
        )


def _plan(design: Design, mechanism: LocalMechanism, clients: int) -> GapPlan:
    pair, widest = design.hardest_pair, 0.0
    for means in hardest_means(mechanism, pair):
        sums = expected_tally(mechanism, clients, pair, means)
        (gap,) = estimate_gaps(sums, mechanism, confidence=design.confidence).gaps
        widest = max(widest, gap.interval.high - gap.value, gap.value - gap.interval.low)
    return GapPlan(mechanism, clients, design.unit * min(widest, 2.0), design.confidence)


def _smallest(
    plan: Callable[[float], GapPlan], precision: float, low: float, high: float, width: float
) -> GapPlan:
    """Return the plan of the smallest number that gives a precision; high, the largest, does."""
    from scipy.optimize import brentq

    if plan(low).precision <= precision:
        return plan(low)
    root: Any = brentq(lambda number: plan(number).precision - precision, low, high, xtol=width)
    return plan(min(root + width, high))
