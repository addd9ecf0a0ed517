"""Finds the weight of the penalty that a wanted gap needs: Wu et al. (2024) problem (8).

The paper states the problem with a tolerance on the gap and then solves it with a fixed weight
rho_o. Here the gap between decisions is what is wanted, and rho_o is found: a bisection on its
logarithm, each chunk of steps going on from the synthetic rows of the one before.
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

FACTOR = 10.0
"""By which rho_o grows or shrinks until one weight too small and one large enough are known."""

LEAST, MOST = 1e-3, 1e6
"""Weights searched; below the least a penalty does nothing, above the most it is given up."""

PRECISION = 1.1
"""The search ends when the bounds on rho_o are within this ratio."""


class Search(NamedTuple):
    """A search for rho_o; a pytree, so that it can be kept and gone on with.

    Attributes:
        outer: of the chunk now.
        rho_o: weight now.
        low: largest weight found too small; 0 if none.
        high: smallest weight found large enough; infinite if none.
        best_x: [N_s, d] synthetic rows of ``high``, or else of the smallest gap.
        best_gap: that those reach.
        best_rho_o: their weight.
        finished: whether those were judged once more, as the last thing.
    """

    outer: OuterState
    rho_o: jax.Array
    low: jax.Array
    high: jax.Array
    best_x: jax.Array
    best_gap: jax.Array
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
    def over(self) -> bool:
        """Whether no weight is left to try."""
        found = self.high <= self.low * PRECISION
        return bool(found | (self.rho_o < LEAST) | (self.rho_o > MOST))


def init(problem: Problem, x: jax.Array, config: DistillConfig) -> Search:
    """A search that starts with the weight ``config.rho_o``, from features x [N_s, d]."""
    state = outer.init(problem, x, outer.CHUNK - 1, optimizer=config.optimizer)
    infinite = jnp.asarray(np.inf, x.dtype)
    rho_o = jnp.asarray(np.clip(config.rho_o, LEAST, MOST), x.dtype)
    no = jnp.zeros((), bool)
    return Search(state, rho_o, jnp.zeros_like(rho_o), infinite, x, infinite, rho_o, no)


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
    while not search.over and (
        int(search.step) == 0 or int(search.step) + outer.CHUNK <= config.steps
    ):
        weighted = _with_weight(problem, search.rho_o)
        state, records = outer.advance(weighted, search.outer, config)
        search = _learn(search._replace(outer=state), float(records.gap[-1]), config)
        search = search._replace(outer=outer.restart(state, outer.CHUNK, config))
        yield search, records
    best = _with_weight(problem, search.best_rho_o)
    last = outer.restart(search.outer._replace(x=search.best_x), 1, config)
    state, records = outer.advance(best, last, config)
    yield search._replace(outer=state, finished=jnp.ones((), bool)), records


def _with_weight(problem: Problem, rho_o: jax.Array) -> Problem:
    objective = dataclasses.replace(problem.objective, rho_o=rho_o)  # type: ignore[type-var]
    return dataclasses.replace(problem, objective=objective)


def _learn(search: Search, gap: float, config: DistillConfig) -> Search:
    """Updates the bounds with the gap that the weight now reached, and chooses the next weight."""
    rho_o, low, high = search.rho_o, search.low, search.high
    enough = gap <= (config.max_gap or 0.0)
    low, high = (low, rho_o) if enough else (rho_o, high)
    if np.isinf(float(high)):
        following = rho_o * FACTOR
    elif float(low) == 0:
        following = rho_o / FACTOR
    else:
        following = jnp.sqrt(low * high)
    search = search._replace(rho_o=following, low=low, high=high)
    if enough or (np.isinf(float(high)) and gap < float(search.best_gap)):
        reached = jnp.asarray(gap, rho_o.dtype)
        return search._replace(best_x=search.x, best_gap=reached, best_rho_o=rho_o)
    return search
