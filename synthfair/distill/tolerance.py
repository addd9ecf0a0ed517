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

from synthfair.config import DistillConfig
from synthfair.distill import outer
from synthfair.distill.judge import Record
from synthfair.distill.outer import OuterState
from synthfair.distill.problem import Problem

FIRST, FACTOR = 1.0, 10.0
"""The first weight, and the ratio of neighbours as long as none is large enough, or all are."""

LEAST, MOST = 1e-3, 1e6
"""Weights searched; below the least a penalty does nothing, above the most it is given up."""

PRECISION = 1.1
"""Weights within this ratio are not told apart."""

MOST_TRIED = 60
"""Weights that a search tries at most."""


class Search(NamedTuple):
    """A search for rho_o; a pytree, so that it can be kept and gone on with.

    Attributes:
        outer: of the chunk now.
        weights: [MOST_TRIED] tried so far, in that order; not-a-number beyond.
        gaps: [MOST_TRIED] that they reached.
        best_x: [d, N_s] synthetic rows of the smallest weight that suffices, or else of the
            smallest gap.
        best_rho_o: their weight.
        finished: whether those were judged once more, as the last thing.
    """

    outer: OuterState
    weights: jax.Array
    gaps: jax.Array
    best_x: jax.Array
    best_rho_o: jax.Array
    finished: jax.Array

    @property
    def x(self) -> jax.Array:
        """The synthetic rows now."""
        return self.outer.x

    @property
    def step(self) -> jax.Array:
        """Number of steps taken."""
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


def init(problem: Problem, x: jax.Array, config: DistillConfig) -> Search:
    """A search from features x [d, N_s]."""
    state = outer.init(problem, x, config, steps=outer.CHUNK - 1)
    nothing = jnp.full(MOST_TRIED, jnp.nan, x.dtype)
    return Search(state, nothing, nothing, x, jnp.asarray(FIRST, x.dtype), jnp.zeros((), bool))


def run(problem: Problem, search: Search, config: DistillConfig) -> Iterator[tuple[Search, Record]]:
    """Searches until it is over or the steps are spent; then judges what it found once more.

    Args:
        problem: with a :class:`~synthfair.distill.objective.PenalizedLoss` as objective.
        search: from :func:`init`, or one that an earlier run yielded.
        config: with ``max_gap``; its ``steps`` bound all weights together, but one chunk is run.

    Yields:
        The search after a chunk, and the records of the chunk, as :func:`outer.run` does. The last
        record is that of the synthetic rows to release.
    """
    if bool(search.finished):
        return
    wanted = config.max_gap or 0.0
    while (weight := next_weight(search.tried, wanted)) is not None and (
        not search.tried or int(search.step) + outer.CHUNK <= config.steps
    ):
        state, records = outer.advance(_with_weight(problem, weight), search.outer, config)
        search = _learn(search._replace(outer=state), weight, float(records.gap[-1]), wanted)
        search = search._replace(outer=outer.restart(state, outer.CHUNK, config))
        yield search, records
    last = outer.restart(search.outer._replace(x=search.best_x), 1, config)
    state, records = outer.advance(_with_weight(problem, search.best_rho_o), last, config)
    yield search._replace(outer=state, finished=jnp.ones((), bool)), records


def _with_weight(problem: Problem, rho_o: jax.Array | float) -> Problem:
    rho_o = jnp.asarray(rho_o, problem.y.dtype)  # the same type each time: one compilation
    objective = dataclasses.replace(problem.objective, rho_o=rho_o)  # type: ignore[type-var]
    return dataclasses.replace(problem, objective=objective)


def _learn(search: Search, weight: float, gap: float, wanted: float) -> Search:
    """Notes what a weight has reached, and its rows if they are the best."""
    before, i = search.tried, len(search.tried)
    search = search._replace(
        weights=search.weights.at[i].set(weight), gaps=search.gaps.at[i].set(gap)
    )
    enough = [w for w, g in before.items() if g <= wanted]
    if gap <= wanted:
        best = not enough or weight < min(enough)
    else:
        best = not enough and gap < min(before.values(), default=np.inf)
    if not best:
        return search
    return search._replace(best_x=search.x, best_rho_o=jnp.asarray(weight, search.x.dtype))
