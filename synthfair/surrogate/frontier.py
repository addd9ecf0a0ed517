"""Models of the global problem: for a weight of the penalty, for many, and for a wanted gap.

A smooth selection rate is not convex: of the optima that several starts lead to the lowest is
taken. A wanted gap is met by what is free, not by rho: a search for rho jumps over it where an
optimum ends, and gives up accuracy where the gap is met already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthfair.surrogate.fair import (
    ROUGH,
    SEARCH_ROWS,
    START_ROWS,
    FrontierPoint,
    GlobalProblem,
    Price,
)

PATH = (0.0, *(0.1 * 4.0**k for k in range(11)))
"""Weights of a path of growing rho; each problem starts at the solution of the one before."""

WEIGHTS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

SPARE = 0.02
"""Share of a wanted gap that the search may leave."""

STEEP, MOST_TRIES = 100.0, 12
"""Least weight of what is beyond a wanted gap, and most models of a search."""


def solve(problem: GlobalProblem, rho: float) -> FrontierPoint:
    """Return the lowest of the optima that several starts lead to, for a weight of the penalty.

    Growing rho leads from the most accurate model to a fair one; solutions of the covariance, which
    has one optimum, lead to models that are fair in another way. Of many rows, a part decides
    between the starts.
    """
    few, price = problem.part(START_ROWS), Price(float(rho))
    starts = [few.newton(few.zero, Price(0.0), ROUGH).theta]
    if rho > 0 and not problem.penalty.convex:
        for weight in (weight for weight in PATH if 0 < weight < rho):
            starts[0] = few.newton(starts[0], Price(weight), ROUGH).theta
        starts += few.fair_by_covariance
    ends = [few.newton(start, price, ROUGH) for start in starts]
    return problem.finish(min(ends, key=lambda end: end.objective))


def frontier(problem: GlobalProblem, weights: Sequence[float] = WEIGHTS) -> list[FrontierPoint]:
    """Return the models for weights of the penalty."""
    return [solve(problem, rho) for rho in weights]


def meet(
    problem: GlobalProblem, max_gap: float | None, max_client_gap: float | None = None
) -> FrontierPoint:
    """Return an accurate model whose gap of decisions is just within a limit.

    What is beyond a share t of the limit costs a lot, and t is searched for, as the penalty sees
    smooth rates in place of decisions. Roots in t are not unique: of all models that meet the limit
    on the way, from several starts, the most accurate is returned; where none does, that of the
    least gap.
    """
    limits = np.array([np.inf if most is None else most for most in (max_gap, max_client_gap)])
    few, more = problem.part(START_ROWS), problem.part(SEARCH_ROWS)
    start = few.newton(few.zero, Price(0.0), ROUGH)
    free = problem.finish(start)
    if _excess(free, limits) <= 1:
        return free
    rho = max(STEEP, 10 / limits.min())
    tried: list[FrontierPoint] = []
    for aim in (limits, limits / 2):
        ends: list[FrontierPoint] = []
        for theta in (start.theta, *few.fair_by_covariance):
            ends += _search(few, theta, aim, rho)
        best = _best(ends, limits)
        for stage in dict.fromkeys((more, problem)):
            ends = _search(stage, best.theta, aim, rho, best.price) if stage is not few else ends
            best = _best(ends, limits)
        tried += ends
        best = _best(tried, limits)
        if 1 - SPARE <= _excess(best, limits) <= 1:
            break
    return best


def _search(
    problem: GlobalProblem,
    theta: np.ndarray,
    limits: np.ndarray,
    rho: float,
    price: Price | None = None,
) -> list[FrontierPoint]:
    """Return the models of a search for the share t of the limits that is free."""
    t = 1.0 if price is None else _share(price, limits)
    low: tuple[float, float, FrontierPoint] | None = None
    high, tries = low, []
    for _ in range(MOST_TRIES):
        widths = t * np.minimum(limits, 1e9)
        near = problem.near(theta, Price(rho, *widths.tolist()))
        tries.append(near)
        e = _excess(near, limits)
        if e > 1 and problem.is_flipped(near.theta):
            e = -e  # beyond the limit on the other side: t is too small
        low, high = ((t, e, near), high) if e <= 1 else (low, (t, e, near))
        if (
            1 - SPARE <= e <= 1
            or (e > 1 and t == 0)
            or (low and high and abs(high[0] - low[0]) < 1e-3)
        ):
            break
        if low and high:
            share = np.clip((1 - SPARE / 2 - low[1]) / (high[1] - low[1]), 0.1, 0.9)
            t = low[0] + share * (high[0] - low[0])
            theta = min(low, high, key=lambda end: abs(end[1] - 1))[2].theta
        else:
            t, theta = max(0.0, t + 1.2 * (1 - SPARE / 2 - e)), near.theta
    return tries


def _share(price: Price, limits: np.ndarray) -> float:
    which = int(np.argmin(limits))
    return price[1 + which] / limits[which]


def _best(points: Sequence[FrontierPoint], limits: np.ndarray) -> FrontierPoint:
    """Return the most accurate of the models that meet the limits, else that of the least gap."""
    met = [point for point in points if _excess(point, limits) <= 1]
    if met:
        return max(met, key=lambda point: point.accuracy)
    return min(points, key=lambda point: _excess(point, limits))


def _excess(point: FrontierPoint, limits: np.ndarray) -> float:
    """Return the gap as a share of its limit, or that of a client, the larger."""
    return float(np.fmax(point.gap / limits[0], point.client_gap / limits[1]))
