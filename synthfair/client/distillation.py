"""From a bilevel problem to a fair release: the outer steps, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import numpy as np

from synthfair.checkpoint import Checkpoint, CheckpointFile
from synthfair.client.run import Run
from synthfair.config import DistillConfig
from synthfair.data.schema import Schema
from synthfair.distill import gap_search
from synthfair.distill import problem as outer
from synthfair.distill.gap_search import Search
from synthfair.distill.problem import Best, OuterState, Problem, StepRecord, outer_excess
from synthfair.distill.solvers import choose_method
from synthfair.errors import InputError
from synthfair.model import Params
from synthfair.privacy.statement import GRID
from synthfair.release.format import MAX_ABSOLUTE, Header, Release

if TYPE_CHECKING:
    import optax

OUTER_TOLERANCE = 1e-3
"""The outer problem counts as solved where :func:`outer_excess` is at most this."""


class ClientProblem(NamedTuple):
    """What is optimised, and what the release will say of itself.

    Attributes:
        problem: the bilevel problem.
        header: of the release.
        fingerprint: sha256 of all that the distillation depends on. Private: who guesses the rows
            could confirm them by it.
    """

    problem: Problem
    header: Header
    fingerprint: str


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
        resumed_at: step at which an interrupted run was continued; 0 if it was not.
        baseline: what the release's model must not fall behind, on the training rows; only where
            they are in a file, and read without noise.
    """

    release: Release
    history: StepRecord
    reached: StepRecord
    outer_excess: float
    rho_o: float
    theta: Params
    tried: Mapping[float, float] = MappingProxyType({})
    search_ended: bool = True
    resumed_at: int = 0
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


def distill_prepared(
    prepared: ClientProblem,
    schema: Schema,
    config: DistillConfig,
    run: Run = Run(),  # noqa: B008 - immutable
    *,
    optimizer: optax.GradientTransformation | None = None,
) -> Distillation:
    """Optimises the synthetic rows of a problem; from an interrupted run's checkpoint, if any."""
    problem = prepared.problem
    method = choose_method(problem, config, optimizer=optimizer)
    file = CheckpointFile.next_to(run.checkpoint, prepared.fingerprint) if run.checkpoint else None
    if config.max_gap is None:
        state = outer.init(problem, method, steps=config.steps)
    else:
        state = gap_search.init(problem, method)
    empty = jax.tree.map(lambda leaf: np.zeros(0, leaf.dtype), state.best.record)
    resumed = (file and file.load(Checkpoint(state, empty))) or Checkpoint(state, empty)
    state, parts = resumed.state, [resumed.history]
    if isinstance(state, Search):
        chunks = gap_search.run(
            problem, state, method, max_gap=config.max_gap or 0.0, steps=config.steps
        )
    else:
        chunks = outer.run(problem, state, method)
    try:
        for after, records in chunks:
            refuse_divergence(after.best, records, step=int(after.step), source=run.source)
            state, parts = after, [*parts, records]  # one assignment: never half done
            if run.progress:
                run.progress(records, int(after.step) - 1, config.steps)
        found = finished(prepared, schema, config, state, joined(parts))
    except KeyboardInterrupt as stop:
        history = joined(parts)
        if file is None or len(history.objective) == 0:
            raise
        file.save(Checkpoint(state, history))
        continues = f"{file.path} holds step {int(state.step)}, and the same run goes on from there"
        raise KeyboardInterrupt(continues) from stop
    if file and run.ends is not None:
        run.ends[file] = Checkpoint(state, found.history)
    return found._replace(resumed_at=int(resumed.state.step) or run.resumed_at)


def finished(
    prepared: ClientProblem,
    schema: Schema,
    config: DistillConfig,
    state: OuterState | Search,
    history: StepRecord,
) -> Distillation:
    """The result of a run that ended in this state."""
    best: Best = state.best
    problem: Problem = prepared.problem
    rho_o = config.rho_o
    if isinstance(state, Search):
        rho_o = float(state.best_rho_o)
        problem = gap_search.with_weight(problem, rho_o)
    s, y = np.asarray(problem.s), np.asarray(problem.y)
    x = np.rint(np.asarray(best.x).T / GRID) * GRID  # of the file, and of what is checked before
    release = Release(prepared.header, schema.encoded_names, x, s, y)
    result = Distillation(
        release,
        history,
        jax.tree.map(np.asarray, best.record),
        outer_excess(problem, best),
        rho_o,
        problem.params(best.theta),
    )
    if isinstance(state, Search):
        over = gap_search.next_weight(state.tried, config.max_gap or 0.0) is None
        result = result._replace(tried=state.tried, search_ended=over)
    return result


def joined(parts: list[StepRecord]) -> StepRecord:
    """Records of chunks one after the other, as one."""
    return StepRecord(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def refuse_divergence(best: Best, records: StepRecord, *, step: int, source: str) -> None:
    """Stops a run whose release no server would accept.

    Raises:
        InputError: an objective is not finite, or an entry of the best x larger than a release may
            hold.
    """
    if not (np.isfinite(records.objective).all() and np.abs(best.x).max() <= MAX_ABSOLUTE):
        raise InputError(
            f"{source}: distillation diverged, by step {step}: lower learning_rate, rho_o or"
            " temperature, or raise lambda_theta (the inner problem must be strictly convex)"
        )
