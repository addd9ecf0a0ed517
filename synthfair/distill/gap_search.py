"""The weight of the penalty that a wanted gap needs: Wu et al. (2024) problem (8).

The paper states the problem with a tolerance on the gap and then solves it with a fixed weight
rho_o. Here the gap between decisions is what is wanted, and rho_o is found by trying weights, each
for a chunk of steps that goes on from the synthetic rows of the one before. The gap need not fall
as rho_o grows: what is penalised is a smooth surrogate, and decisions can overshoot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from synthfair.distill import problem as outer
from synthfair.distill.problem import CHUNK, Point, Problem, StepRecord
from synthfair.distill.solvers import Method

FIRST_RHO, RHO_RATIO = 1.0, 10.0
"""The first weight, and the ratio of neighbours as long as none is large enough, or all are."""

MIN_RHO, MAX_RHO = 1e-3, 1e6
"""Weights searched; below the least a penalty does nothing, above the most it is given up."""

MIN_RATIO = 1.1
"""Weights within this ratio are not told apart."""

MAX_TRIALS = 60
"""Weights that a search tries at most."""


class Search(NamedTuple):
    """The best release of a search for rho_o so far, and what each weight reached.

    Attributes:
        best: of the smallest weight that suffices, or else of the smallest gap.
        rho_o: that weight.
        tried: gap reached by each weight tried.
    """

    best: Point
    rho_o: float
    tried: dict[float, float]


def best_weight(tried: dict[float, float], wanted: float) -> float:
    """Return the smallest weight that reaches the wanted gap, else that of the smallest gap."""
    enough = [weight for weight, gap in tried.items() if gap <= wanted]
    return min(enough) if enough else min(tried, key=lambda weight: tried[weight])


def next_weight(tried: dict[float, float], wanted: float) -> float | None:
    """Return the next weight, given the gap that each reached; None where the search is over.

    Upwards until a weight suffices, then by bisection between it and the next smaller one. Where
    none suffices, the neighbourhood of the smallest gap is refined.
    """
    if not tried:
        return FIRST_RHO
    if len(tried) == MAX_TRIALS:
        return None
    best = best_weight(tried, wanted)
    lower = _between(max((w for w in tried if w < best), default=None), best)
    if tried[best] <= wanted:
        return lower
    if max(tried) < MAX_RHO:
        return max(tried) * RHO_RATIO
    upper = _between(best, min((w for w in tried if w > best), default=best))
    sides = [weight for weight in (lower, upper) if weight is not None]
    return max(sides, key=lambda weight: abs(np.log(weight / best)), default=None)


def _between(low: float | None, high: float) -> float | None:
    """Return a weight between two, by the logarithm, or below the lowest; None if near enough."""
    if low is None:
        return high / RHO_RATIO if high > MIN_RHO else None
    return float(np.sqrt(low * high)) if high > low * MIN_RATIO else None


def run(
    problem: Problem, method: Method, *, max_gap: float | None, steps: int
) -> Iterator[tuple[Search, StepRecord]]:
    """Yield the search's results until no weight is left to try, or the steps are spent.

    Where no gap is wanted, the problem's own weight is the one that is solved for, in all steps.

    Args:
        problem: with a :class:`~synthfair.distill.problem.PenalizedLoss` as objective.
        method: optimizer and solvers.
        max_gap: the gap wanted, 0 to 1; None if none is.
        steps: bound of all weights together, but one chunk is run.

    Yields:
        The search after a chunk, and the records of the chunk, as
        :func:`synthfair.distill.problem.run` does.
    """
    state = outer.init(problem, method)
    if max_gap is None:
        for end, records in outer.run(problem, state, method, steps=steps):
            yield Search(end.best, float(problem.objective.rho_o), {}), records
        return
    search = Search(state.best, FIRST_RHO, {})
    while not search.tried or CHUNK * (len(search.tried) + 1) <= steps:
        weight = next_weight(search.tried, max_gap)
        if weight is None:
            return
        weighted = with_weight(problem, weight)
        ((state, records),) = outer.run(weighted, state, method, steps=CHUNK - 1)
        search = search._replace(tried=search.tried | {weight: float(state.best.record.gap)})
        if best_weight(search.tried, max_gap) == weight:
            search = search._replace(best=state.best, rho_o=weight)
        yield search, records
        state = outer.init(problem, method, after=state)


def with_weight(problem: Problem, rho_o: float) -> Problem:
    """Return the same problem with this weight of the penalty."""
    weight = jnp.asarray(rho_o, problem.y.dtype)  # the same type each time: one compilation
    objective = dataclasses.replace(problem.objective, rho_o=weight)  # type: ignore[type-var]
    return dataclasses.replace(problem, objective=objective)
