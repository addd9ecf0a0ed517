"""Finds the weight of the penalty that a wanted gap needs: Wu et al. (2024) problem (8).

The paper states the problem with a tolerance on the gap and then solves it with a fixed weight
rho_o. Here the gap between decisions is what is wanted, and rho_o is found by trying weights, each
for a chunk of steps that goes on from the synthetic rows of the one before. The gap need not fall
as rho_o grows: what is penalised is a smooth surrogate, and decisions can overshoot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill import problem as outer
from synthfair.distill.problem import CHUNK, Best, OuterState, Problem, StepRecord
from synthfair.distill.solvers import Method

FIRST, FACTOR = 1.0, 10.0
"""The first weight, and the ratio of neighbours as long as none is large enough, or all are."""

LEAST, MOST = 1e-3, 1e6
"""Weights searched; below the least a penalty does nothing, above the most it is given up."""

PRECISION = 1.1
"""Weights within this ratio are not told apart."""

MOST_TRIED = 60
"""Weights that a search tries at most."""


class Search(NamedTuple):
    """A search for rho_o; a pytree, so that it can be saved and continued.

    Attributes:
        outer: of the chunk now.
        weights: [MOST_TRIED] tried so far, in that order; not-a-number beyond.
        gaps: [MOST_TRIED] that they reached.
        best: of the smallest weight that suffices, or else of the smallest gap.
        best_rho_o: that weight.
    """

    outer: OuterState
    weights: jax.Array
    gaps: jax.Array
    best: Best
    best_rho_o: jax.Array

    @property
    def step(self) -> jax.Array:
        """Number of x evaluated."""
        return self.outer.step

    @property
    def tried(self) -> dict[float, float]:
        """Gap reached by each weight tried."""
        pairs = zip(np.asarray(self.weights), np.asarray(self.gaps), strict=True)
        return {float(weight): float(gap) for weight, gap in pairs if not np.isnan(weight)}


def next_weight(tried: dict[float, float], wanted: float) -> float | None:
    """What to try next, given the gap that each weight reached; None where the search is over.

    Upwards until a weight suffices, then by bisection between it and the next smaller one. Where
    none suffices, the neighbourhood of the smallest gap is refined.
    """
    if not tried:
        return FIRST
    if len(tried) == MOST_TRIED:
        return None
    enough = [weight for weight, gap in tried.items() if gap <= wanted]
    if enough:
        return _between(max((w for w in tried if w < min(enough)), default=None), min(enough))
    if max(tried) < MOST:
        return max(tried) * FACTOR
    best = min(tried, key=lambda weight: tried[weight])
    left = _between(max((w for w in tried if w < best), default=None), best)
    right = _between(best, min((w for w in tried if w > best), default=best))
    sides = [weight for weight in (left, right) if weight is not None]
    return max(sides, key=lambda weight: abs(np.log(weight / best)), default=None)


def _between(low: float | None, high: float) -> float | None:
    """A weight between two, on the logarithm, or below the lowest; None if that is close enough."""
    if low is None:
        return high / FACTOR if high > LEAST else None
    return float(np.sqrt(low * high)) if high > low * PRECISION else None


def init(problem: Problem, method: Method) -> Search:
    """A search from the problem's first x."""
    state, dtype = outer.init(problem, method, steps=CHUNK - 1), problem.start.dtype
    nothing = jnp.full(MOST_TRIED, jnp.nan, dtype)
    return Search(state, nothing, nothing, state.best, jnp.asarray(FIRST, dtype))


def run(
    problem: Problem, search: Search, method: Method, *, max_gap: float, steps: int
) -> Iterator[tuple[Search, StepRecord]]:
    """Searches until it is over or the steps are spent.

    Args:
        problem: with a :class:`~synthfair.distill.problem.PenalizedLoss` as objective.
        search: from :func:`init`, or one that an earlier run yielded.
        method: optimizer and solvers.
        max_gap: the gap wanted, 0 to 1.
        steps: bound of all weights together, but one chunk is run.

    Yields:
        The search after a chunk, and the records of the chunk, as
        :func:`synthfair.distill.problem.run` does.
    """

    def rank(weight: float, gap: float) -> tuple[bool, float]:
        """Of weights that suffice the smallest comes first, then of the others the smallest gap."""
        return (True, gap) if gap > max_gap else (False, weight)

    while not (tried := search.tried) or int(search.step) + CHUNK <= steps:
        weight = next_weight(tried, max_gap)
        if weight is None:
            return
        ((state, records),) = outer.run(with_weight(problem, weight), search.outer, method)
        i, gap = len(tried), float(state.best.record.gap)
        search = search._replace(
            outer=outer.init(problem, method, steps=CHUNK - 1, after=state),
            weights=search.weights.at[i].set(weight),
            gaps=search.gaps.at[i].set(gap),
        )
        if all(rank(weight, gap) < rank(*other) for other in tried.items()):
            rho_o = jnp.asarray(weight, search.best_rho_o.dtype)
            search = search._replace(best=state.best, best_rho_o=rho_o)
        yield search, records


def with_weight(problem: Problem, rho_o: float) -> Problem:
    """The same problem with this weight of the penalty."""
    weight = jnp.asarray(rho_o, problem.y.dtype)  # the same type each time: one compilation
    objective = dataclasses.replace(problem.objective, rho_o=weight)  # type: ignore[type-var]
    return dataclasses.replace(problem, objective=objective)
