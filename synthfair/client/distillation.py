"""From a bilevel problem to a fair release: the outer steps, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import numpy as np

from synthfair.distill import gap_search
from synthfair.distill import problem as outer
from synthfair.distill.gap_search import Search
from synthfair.distill.problem import OuterState, Problem, StepRecord, outer_excess
from synthfair.distill.solvers import choose_method
from synthfair.errors import InputError
from synthfair.model import Params
from synthfair.privacy.guarantee import GRID
from synthfair.release.format import MAX_ABSOLUTE, Header, Release
from synthfair.settings import DistillConfig
from synthfair.task.protocol import Run

if TYPE_CHECKING:
    import optax

OUTER_TOLERANCE = 1e-3
"""The outer problem counts as solved where :func:`outer_excess` is at most this."""


class Baseline(NamedTuple):
    """How a release's model does on the training rows, and what it must not fall behind. Private.

    Attributes:
        accuracy: of the model that is trained on the release.
        gap: largest difference between its decision rates of the groups.
        majority: accuracy of the more frequent label for everybody.
        plain_gap: gap of the model that is trained on the real rows without a penalty.
    """

    accuracy: float
    gap: float
    majority: float
    plain_gap: float


class Distillation(NamedTuple):
    """A release and how well it was computed.

    Attributes:
        release: what may be sent.
        history: records [steps + 1] of every step. Private: computed from real rows.
        reached: the record of the release's own x, where P(x) was least. Private.
        outer_excess: how far P(x) is above its optimum, as a share of F of the untrained model;
            see :func:`synthfair.distill.problem.outer_excess`. Private.
        rho_o: weight of the penalty: the one given, or, with ``max_gap``, the one found. Private,
            like the history.
        theta: of the model that anybody can train on the release.
        tried: gap on the real rows that each weight reached, with ``max_gap``. Private.
        search_ended: whether the search found nothing more to try; false where the steps were spent
            before.
        baseline: what the release's model must not fall behind, on the rows, or records, that it is
            distilled from; only of a table in a file.
    """

    release: Release
    history: StepRecord
    reached: StepRecord
    outer_excess: float
    rho_o: float
    theta: Params
    tried: Mapping[float, float]
    search_ended: bool
    baseline: Baseline | None = None

    def __repr__(self) -> str:
        """The release and how well it was computed, in a line."""
        solved = f"inner_converged={self.inner_converged}, outer_converged={self.outer_converged}"
        return f"Distillation({self.release!r}, {solved})"

    @property
    def config(self) -> DistillConfig:
        """The settings."""
        return cast(DistillConfig, self.release.header.config)

    @property
    def inner_converged(self) -> bool:
        """Whether the inner problem at the release's x met its tolerance."""
        return bool(self.reached.inner_converged)

    @property
    def outer_converged(self) -> bool:
        """Whether P(x) is near its optimum, to :data:`OUTER_TOLERANCE`."""
        return self.outer_excess <= OUTER_TOLERANCE

    @property
    def converged(self) -> bool:
        """Whether both problems are solved."""
        return self.inner_converged and self.outer_converged

    @property
    def gap_met(self) -> bool | None:
        """Whether the gap on the real rows is at most ``max_gap``; None where none was wanted."""
        wanted = self.config.max_gap
        return None if wanted is None else bool(self.reached.gap <= wanted)


def distill_problem(
    problem: Problem,
    header: Header,
    run: Run,
    optimizer: optax.GradientTransformation | None = None,
) -> Distillation:
    """Optimise the synthetic rows of a bilevel problem, with the settings of the header.

    Raises:
        InputError: an objective is not finite, or an entry of the best x larger than a release may
            hold.
    """
    config = cast(DistillConfig, header.config)
    method = choose_method(problem, config, optimizer=optimizer)
    state: OuterState | Search = outer.init(problem, method)
    if config.max_gap is None:
        chunks = outer.run(problem, state, method, steps=config.steps)
    else:
        chunks = gap_search.run(problem, state, method, max_gap=config.max_gap, steps=config.steps)
    parts, taken = [], 0
    for state, records in chunks:
        taken += len(records.objective)
        is_finite = np.isfinite(records.objective).all()
        if not (is_finite and np.abs(state.best.x).max() <= MAX_ABSOLUTE):
            raise InputError(
                f"{run.source}: distillation diverged, by step {taken}: lower learning_rate, rho_o"
                " or temperature, or raise lambda_theta (the inner problem must be strictly convex)"
            )
        parts.append(records)
        if run.progress:
            run.progress(records, taken - 1, config.steps)
    best, rho_o, tried, ended = state.best, config.rho_o, {}, True
    if config.max_gap is not None:
        _, rho_o, tried = cast(Search, state)
        problem = gap_search.with_weight(problem, rho_o)
        ended = gap_search.next_weight(tried, config.max_gap) is None
    s, y = np.asarray(problem.s), np.asarray(problem.y)
    x = np.rint(np.asarray(best.x).T / GRID) * GRID  # of the file, and of what is checked before
    return Distillation(
        Release(header, x, s, y),
        StepRecord(*(np.concatenate(fields) for fields in zip(*parts, strict=True))),
        jax.tree.map(np.asarray, best.record),
        outer_excess(problem, best),
        rho_o,
        problem.params(best.theta),
        tried,
        ended,
    )
