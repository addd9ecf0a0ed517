"""The plan of a measurement: its best split of epsilon, its clients, its precision.

The variance of an estimated gap has a closed form for given values of the clients. Plans take the
largest one over all values that clients could have, for the two smallest groups that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure import estimate
from synthfair.measure.estimate import Tally
from synthfair.measure.mechanisms import MAX_BUDGET, MECHANISMS, Kind, LocalMechanism

MIN_PLANNED_EPSILON = 1e-3
MAX_REPORTS = 10**15


def expected_tally(
    mechanism: LocalMechanism,
    clients: int,
    shares: np.ndarray,
    means: np.ndarray,
    squares: np.ndarray | float = 1.0,
) -> Tally:
    """Return the mean of the tally of so many clients' reports.

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


def gap_variance(mechanism: LocalMechanism, clients: int, *groups: np.ndarray) -> float:
    """Return the variance of the estimated gap of two groups to first order.

    Clients are drawn at random, and sizes are estimated. Arguments: see :func:`expected_tally`.
    """
    sums = expected_tally(mechanism, clients, *groups)
    return estimate.estimate_means(sums, mechanism).gap_variance(0, 1)


def hardest_means(mechanism: LocalMechanism, shares: np.ndarray) -> list[np.ndarray]:
    """Return means [2] among which the variance of two groups' gap is largest over all values.

    It grows with the mean squares, so values are -1 or 1. It is quadratic in the two means, so it
    is largest where both are 0, both are at an end of the range, or one is at an end and the other
    at the vertex of a parabola. Changing both signs changes nothing.
    """

    def vertex(place: int) -> np.ndarray:
        """Return means with that one at its vertex in [-1, 1], or at 0 on a convex parabola."""
        means = np.ones(2)

        def variance(mean: float) -> float:
            means[place] = mean
            return gap_variance(mechanism, 1, shares, means)

        low, middle, high = map(variance, (-1.0, 0.0, 1.0))
        bend = low + high - 2 * middle
        means[place] = min(max((low - high) / (2 * bend), -1.0), 1.0) if bend < 0 else 0.0
        return means

    return [np.zeros(2), np.ones(2), np.array([1.0, -1.0]), vertex(1), vertex(0)]


def largest_variance(mechanism: LocalMechanism, shares: np.ndarray, clients: int) -> float:
    """Return the largest variance, over all values, of the gap of groups with shares [2]."""
    values = hardest_means(mechanism, shares)
    return max(gap_variance(mechanism, clients, shares, means) for means in values)


def mechanism_at(kind: Kind, groups: int, epsilon: float, share: float) -> LocalMechanism:
    """Return the mechanism with epsilon2 = share * epsilon and the largest epsilon1 allowed.

    A larger epsilon1 or epsilon2 lowers the error, so the best split uses all of epsilon: epsilon1
    is epsilon - ln(2 b) for M_R, where the paper has epsilon, and epsilon - epsilon2 / 2 for M_L.
    """
    epsilon2 = share * epsilon
    log_2b = math.log(2.0) - math.log1p(math.exp(-epsilon2))
    rest = epsilon2 / 2 if kind == "laplace" else log_2b
    return MECHANISMS[kind](groups, epsilon - rest, epsilon2)


def best_split(
    kind: Kind, groups: int, epsilon: float, loss: Callable[[LocalMechanism], float] | None = None
) -> LocalMechanism:
    """Return the mechanism with the smallest error of those within epsilon, which is exact.

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

    if not 0 < epsilon <= MAX_BUDGET:
        raise InputError(f"epsilon = {epsilon:g}: must be above 0, and at most {MAX_BUDGET:g}")
    lower = (1 - 1e-12) * epsilon  # rounding must not raise the exact epsilon above it
    equal = np.full(2, 1 / groups)

    def error(share: float) -> float:
        mechanism = mechanism_at(kind, groups, lower, float(share))
        return loss(mechanism) if loss else largest_variance(mechanism, equal, 1)

    # The best point of a grid, and the best one next to it, which may be no better: at 1, for one.
    grid, step = np.linspace(0.04, 1.0, 25, retstep=True)
    best = float(min(grid, key=error))
    near = max(best - step, grid[0]), min(best + step, 1.0)
    lowest = minimize_scalar(error, bounds=near, method="bounded", options={"xatol": 1e-6})
    return mechanism_at(kind, groups, lower, min(best, float(lowest.x), key=error))


class GapPlan(NamedTuple):
    """The plan of a measurement.

    Attributes:
        mechanism: with the best split of epsilon.
        clients: K.
        precision: half-width of the interval of the hardest pair's gap, the largest over all values
            of clients, at the expected reports; the whole range of the value if the reports do not
            exclude that a group is empty.
    """

    mechanism: LocalMechanism
    clients: int
    precision: float


def plan_gap(
    shares: Sequence[float],
    *,
    clients: int | None = None,
    epsilon: float | None = None,
    precision: float | None = None,
    compared: Sequence[int] | None = None,
    confidence: float = 0.95,
    kind: Kind = "randomized",
    unit: float = 1.0,
) -> GapPlan:
    """Return the plan with two of clients, epsilon and precision; the third is found.

    It is the precision that the two others give, the fewest clients, or the smallest epsilon, to
    one part in a thousand.

    Of the mechanisms M_R, the default, has the smaller largest variance over all values, for every
    epsilon and number of groups: that variance occurs at values of -1 or 1, which one bit describes
    completely. M_L is better for values that are known to lie near the middle of their range; and,
    from about epsilon = 3, for the gap between the clients themselves in place of a population's.

    Args:
        shares: [d] of the groups, roughly; positive and of sum 1.
        clients: K, from 2 to 10^15.
        epsilon: of each client's report, above 0 and at most 500.
        precision: wanted, above 0 and below the range of the value.
        compared: indices of the groups whose gaps are wanted, at least two; by default all.
        confidence: of the intervals, above 0 and below 1.
        kind: of mechanism, "randomized" or "laplace".
        unit: of precision: half of the range of the value, 1 for v in [-1, 1].

    Raises:
        InputError: an argument is out of range, or nothing within the ranges gives the precision.

    Example:
        >>> import synthfair as sf
        >>> sf.measure.plan_gap((0.5, 0.5), epsilon=1.0, precision=0.1).clients
        23675
        >>> plan = sf.measure.plan_gap((0.5, 0.5), clients=23_675, precision=0.1)
        >>> round(plan.mechanism.epsilon, 2)
        1.0
        >>> plan = sf.measure.plan_gap((0.7, 0.3), clients=100_000, epsilon=1.0, unit=0.5)
        >>> round(plan.precision, 3)  # of values from 0 to 1
        0.031
    """
    if [clients, epsilon, precision].count(None) != 1:
        names = "clients", "epsilon", "precision"
        raise InputError("give two of clients, epsilon and precision; the third is found", *names)
    estimate.require_confidence(confidence)
    sizes = estimate.require_shares(shares, len(shares))
    pair = np.sort(sizes if compared is None else sizes[[*compared]])[:2]  # the hardest to compare
    if len(pair) < 2:
        raise InputError("groups to compare: at least 2 are needed")
    if clients is not None and not 2 <= clients <= MAX_REPORTS:
        raise InputError(f"clients = {clients}: must be from 2 to {MAX_REPORTS}")

    loss = partial(largest_variance, shares=pair, clients=1)
    mechanism_of = cache(lambda epsilon: best_split(kind, len(shares), epsilon, loss))

    def plan(clients: Any, epsilon: Any) -> GapPlan:
        mechanism = mechanism_of(epsilon)
        width = unit * _half_width(mechanism, clients, pair, confidence)
        return GapPlan(mechanism, clients, width)

    if precision is None:
        return plan(clients, epsilon)
    if not 0 < precision < 2 * unit:
        raise InputError(
            f"precision = {precision:g}: must be above 0 and below the whole range, {2 * unit:g}"
        )

    def of_fewest(epsilon: Any) -> GapPlan:
        return _smallest(lambda n: plan(math.ceil(n), epsilon), precision, 2, MAX_REPORTS, 1e-7)

    if clients is None:
        return of_fewest(epsilon)
    if (least := plan(clients, MAX_BUDGET).precision) > precision:
        one_bit = ", and M_R sends one bit of each value" * (kind == "randomized")
        raise InputError(
            f"precision = {precision:g}: no finite epsilon gives it with {clients} clients: they"
            f" are a sample{one_bit}; even without privacy the half-width is {least:.3g}. At least"
            f" {of_fewest(MAX_BUDGET).clients} clients are needed"
        )
    return _smallest(partial(plan, clients), precision, MIN_PLANNED_EPSILON, MAX_BUDGET, 4e-4)


def _half_width(
    mechanism: LocalMechanism, clients: int, pair: np.ndarray, confidence: float
) -> float:
    """Return half the width of the gap's interval, the largest over all values; at most 2."""
    z, widest = NormalDist().inv_cdf((1 + confidence) / 2), 0.0
    for values in hardest_means(mechanism, pair):
        sums = expected_tally(mechanism, clients, pair, values)
        means = estimate.estimate_means(sums, mechanism)
        limits = estimate.limits_of_means(sums, mechanism, means, z)
        low, high = estimate.gap_interval(0, 1, means, limits)
        gap = float(means.values[1] - means.values[0])
        widest = max(widest, high - gap, gap - low)
    return min(widest, 2.0)


def _smallest(
    plan: Callable[[float], GapPlan], precision: float, low: float, high: float, width: float
) -> GapPlan:
    """Return the plan of the smallest number, of ``low`` to ``high``, that gives a precision.

    It is found to a part of ``width``, and is at most that above the smallest.
    """
    from scipy.optimize import brentq

    if plan(low).precision <= precision:
        return plan(low)
    if plan(high).precision > precision:
        raise InputError(f"precision = {precision:g}: not reached with {high} clients")

    def excess(log: float) -> float:
        return plan(math.exp(log)).precision - precision

    root: Any = brentq(excess, math.log(low), math.log(high), xtol=width)
    return plan(math.exp(min(root + width, math.log(high))))
