"""How many clients, what epsilon or what precision: two of them give the third."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.estimate import estimate_gaps, require_confidence
from synthfair.measure.linear import known_shares
from synthfair.measure.mechanisms import LARGEST_EPSILON, Kind, Mechanism
from synthfair.measure.split import BEST, best_split
from synthfair.measure.variance import (
    expected_tally,
    hardest_populations,
    largest_mean_variance,
    largest_variance,
)

SMALLEST_EPSILON = 1e-3
MOST_CLIENTS = 10**15


class Plan(NamedTuple):
    """A measurement before it is made.

    Attributes:
        mechanism: at its best split.
        clients: K.
        precision: half the width of the widest interval of the hardest gap, whatever the values
            are, at the expected reports; the whole range of the value where a group's size stays
            open.
        chebyshev: the same by the paper's inequality, sizes taken for known.
        confidence: of both.
    """

    mechanism: Mechanism
    clients: int
    precision: float
    chebyshev: float
    confidence: float


class Setting(NamedTuple):
    """What is known beforehand.

    Attributes:
        shares: [d] of the groups, roughly.
        compared: indices of those whose gaps count, at least two.
        confidence: of the intervals.
        kind: of mechanism.
        unit: of the value, in which precision is said: half of its range, 1 for v in [-1, 1].
    """

    shares: np.ndarray
    compared: tuple[int, ...]
    confidence: float = 0.95
    kind: Kind = BEST
    unit: float = 1.0

    def mechanism(self, epsilon: float) -> Mechanism:
        """Of the best split for these groups: least variance of the hardest gap."""
        pair = self.hardest_pair
        return best_split(
            self.kind, len(self.shares), epsilon, lambda some: largest_variance(some, pair, 1.0)
        )

    @property
    def hardest_pair(self) -> np.ndarray:
        """Shares of the two smallest groups that are compared."""
        return np.sort(self.shares[list(self.compared)])[:2]


def setting(
    shares: Sequence[float],
    *,
    compared: Sequence[int] | None = None,
    confidence: float = 0.95,
    kind: Kind = BEST,
    unit: float = 1.0,
) -> Setting:
    """Checked.

    Args:
        shares: of the groups, roughly.
        compared: indices of those whose gaps count; all if not given.
        confidence: of the intervals.
        kind: of mechanism.
        unit: half of the value's range.

    Raises:
        InputError: shares that are not positive and of sum 1, fewer than two groups to compare, or
            a confidence outside (0, 1).
    """
    require_confidence(confidence)
    every = tuple(range(len(shares)))
    pairs = every if compared is None else tuple(compared)
    if len(pairs) < 2 or len({*pairs} & {*every}) < len(pairs):
        raise InputError(
            f"groups to compare = {list(pairs)}: must be at least 2 of the {len(shares)}, each once"
        )
    return Setting(known_shares(shares, len(shares)), pairs, confidence, kind, unit)


def plan_precision(known: Setting, *, clients: int, epsilon: float) -> Plan:
    """What so many clients with that epsilon give; the precision may be the whole range.

    Raises:
        InputError: an epsilon or a number of clients that cannot be.
    """
    if not 2 <= clients <= MOST_CLIENTS:
        raise InputError(f"clients = {clients}: must be from 2 to {MOST_CLIENTS}")
    return _plan(known, known.mechanism(epsilon), clients)


def plan_clients(known: Setting, *, epsilon: float, precision: float) -> Plan:
    """The fewest clients for a precision.

    Raises:
        InputError: an epsilon or a precision that cannot be.
    """
    _require_precision(known, precision)
    mechanism = known.mechanism(epsilon)

    def enough(log_clients: float) -> bool:
        return _half_width(known, mechanism, math.ceil(math.exp(log_clients))) <= precision

    if not enough(math.log(MOST_CLIENTS)):
        raise InputError(f"precision = {precision:g}: {MOST_CLIENTS} clients would not do")
    found = _smallest(enough, math.log(2), math.log(MOST_CLIENTS), 1e-6)
    return _plan(known, mechanism, math.ceil(math.exp(found)))


def plan_epsilon(known: Setting, *, clients: int, precision: float) -> Plan:
    """The smallest epsilon for a precision, to a thousandth.

    Raises:
        InputError: no epsilon gives it, and why; or numbers that cannot be.
    """
    _require_precision(known, precision)
    least = plan_precision(known, clients=clients, epsilon=LARGEST_EPSILON)
    if least.precision > precision:
        one_bit = ", and M_R sends one bit of each" if known.kind == "randomized" else ""
        raise InputError(
            f"precision = {precision:g}: no finite epsilon gives it with {clients} clients: they"
            f" are a sample{one_bit}; without any privacy the interval is"
            f" {least.precision:.3g} to either side. It takes"
            f" {_clients_without_privacy(known, precision)} clients or more"
        )

    def enough(log_epsilon: float) -> bool:
        mechanism = known.mechanism(math.exp(log_epsilon))
        return _half_width(known, mechanism, clients) <= precision

    low, high = math.log(SMALLEST_EPSILON), math.log(LARGEST_EPSILON)
    return _plan(known, known.mechanism(math.exp(_smallest(enough, low, high, 1e-3))), clients)


def _clients_without_privacy(known: Setting, precision: float) -> int:
    return plan_clients(known, epsilon=LARGEST_EPSILON, precision=precision).clients


def _plan(known: Setting, mechanism: Mechanism, clients: int) -> Plan:
    square = largest_mean_variance(mechanism, known.hardest_pair * clients, clients).sum()
    chebyshev = known.unit * math.sqrt(square / (1 - known.confidence))
    half = _half_width(known, mechanism, clients)
    return Plan(mechanism, clients, half, chebyshev, known.confidence)


def _half_width(known: Setting, mechanism: Mechanism, clients: int) -> float:
    """Of the widest interval that the expected reports give."""
    widest = 0.0
    for population in hardest_populations(mechanism, known.hardest_pair):
        expected = expected_tally(mechanism, clients, population)
        (gap,) = estimate_gaps(expected, mechanism, confidence=known.confidence).gaps
        widest = max(widest, gap.interval.high - gap.value, gap.value - gap.interval.low)
    return known.unit * min(widest, 2.0)


def _smallest(enough: Callable[[float], bool], low: float, high: float, width: float) -> float:
    """The least number that is enough, by bisection; ``high`` is."""
    if enough(low):
        return low
    while high - low > width:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _require_precision(known: Setting, precision: float) -> None:
    if not 0 < precision < 2 * known.unit:
        raise InputError(f"precision = {precision:g}: must be above 0, and below the whole range")
