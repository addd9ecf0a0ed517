"""One client's whole routine: a private table in, one release out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

import jax
import numpy as np

from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.client.baseline import Baseline
from synthfair.client.prepare import Prepared, prepare
from synthfair.config import DistillConfig, SurrogateConfig
from synthfair.data.batches import Batches, RealRows, in_memory
from synthfair.data.encode import Encoded, encode_own
from synthfair.data.schema import Schema
from synthfair.distill import gap_search
from synthfair.distill import problem as outer
from synthfair.distill.gap_search import Search
from synthfair.distill.problem import Best, OuterState, Problem, StepRecord, outer_excess
from synthfair.distill.solvers import choose_method
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import GRID
from synthfair.release.format import MAX_ABSOLUTE, Release

if TYPE_CHECKING:
    import optax
    import pandas as pd

    from synthfair.client.surrogate_release import SurrogateRelease

Progress = Callable[[StepRecord, int, int], None]
"""Called between chunks with the chunk's records, the steps taken, and the steps of a full run."""

OUTER_TOLERANCE = 1e-3
"""The outer problem counts as solved where :func:`outer_excess` is at most this."""


class Distillation(NamedTuple):
    """A release and how well it was computed.

    Attributes:
        release: what may be sent.
        history: records [steps + 1] of every step; fewer where it stopped early. Private: computed
            from real rows.
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


@overload
def distill_table(
    table: pd.DataFrame,
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    release: Literal["fair"] = "fair",
    model: Model | None = None,
    penalty: Penalty | None = None,
    optimizer: optax.GradientTransformation | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Distillation: ...


@overload
def distill_table(
    table: pd.DataFrame | Batches,
    schema: Schema,
    config: SurrogateConfig | None = None,
    *,
    release: Literal["surrogate"] = "surrogate",
    noise: RandomBytes = system_entropy,
    source: str = "table",
) -> SurrogateRelease: ...


def distill_table(
    table: pd.DataFrame | Batches,
    schema: Schema,
    config: DistillConfig | SurrogateConfig | None = None,
    *,
    release: Literal["fair", "surrogate"] | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    **fair: Any,
) -> Distillation | SurrogateRelease:
    """Distils a private table into a release.

    A *fair* release (the default) has synthetic rows on which ``model``, trained without a penalty,
    is accurate and fair on the real ones: Wu et al. (2024) algorithm 1, lines 1 to 16. A
    *surrogate* has weighted records that stand in for the real rows; fairness is chosen at the
    server, over all clients, which may be unlike.

    Without ``config.epsilon`` no guarantee of privacy: the rows are a function of the real ones
    without noise. With it, (epsilon, delta)-differential privacy of the release. Unit: one row.
    Neighbouring relation: ``config.relation``. Releases of one table add up, which only a
    :class:`~synthfair.privacy.ledger.Ledger` keeps account of.

    Where more than a twentieth of a column of a DataFrame lies outside the schema's bounds, and is
    clipped, there is a UserWarning: before an epsilon is spent, and with shares that have no noise.

    Args:
        table: one row a person; for a surrogate also batches of rows that are read as a stream.
        schema: public; the same for all clients.
        config: settings; the defaults if not given.
        release: its kind; that of the settings if not given.
        noise: where the bytes of noise come from; other than the system's, it protects nothing, and
            the release says so.
        source: what to call the table in errors.
        **fair: of fair releases only. ``model``: another than the linear model with the logistic
            loss; with epsilon, a linear one. ``penalty``: another than ``config.penalty``;
            ``config.notion`` then only chooses the covariance that is shown; with epsilon, one of
            those that come with synthfair. ``optimizer``: of the synthetic features, such as
            ``optax.adabelief(1e-2)``, in place of ``config.optimizer`` and
            ``config.learning_rate``; clients of one process that are given the same object share a
            compilation. ``progress``: called between chunks of steps. ``checkpoint``: name next to
            which an interrupted run is saved, and continued from; with an optimizer, only by a run
            with the same one.

    Raises:
        InputError: the table does not fit the schema, or cannot be distilled with these settings,
            or diverges. A fair release needs both labels and all groups; a surrogate needs one pair
            of group and label with ``config.k_min`` rows.
        KeyboardInterrupt: after the checkpoint, if any, is written.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> config = sf.DistillConfig(n_synthetic=40, steps=20)
        >>> sf.distill_table(table, schema, config).release.x.shape
        (40, 37)
        >>> made = sf.distill_table(table, schema, sf.SurrogateConfig())
        >>> round(made.release.weight.sum())  # 1,989 real rows, to a multiple of five
        1990
    """
    kind = "surrogate" if isinstance(config, SurrogateConfig) else "fair"
    if config is None and release is not None:
        kind = release
    if release not in (None, kind):
        raise InputError(f"release = {release!r}: the settings are those of a {kind} release")
    if kind == "surrogate":
        if fair:
            raise InputError(f"{', '.join(fair)}: not used for a surrogate; the server trains")
        from synthfair.client.surrogate_release import surrogate_release  # SciPy takes a while

        rows = table
        if hasattr(table, "columns"):
            rows = in_memory(encode_own(cast("pd.DataFrame", table), schema, source=source))
        settings = cast(SurrogateConfig, config or SurrogateConfig())
        return surrogate_release(cast(Batches, rows), schema, settings, noise=noise, source=source)
    real = encode_own(cast("pd.DataFrame", table), schema, source=source)
    return distill_rows(
        real, schema, cast("DistillConfig | None", config), noise=noise, source=source, **fair
    )


def distill_rows(
    real: Encoded | RealRows,
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    optimizer: optax.GradientTransformation | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Distillation:
    """:func:`distill_table` for rows that are encoded already; if gathered, for these settings."""
    config = config or DistillConfig()
    if optimizer is not None:
        config = config.model_copy(update={"optimizer": "custom"})
    prepared = prepare(
        real, schema, config, model=model, penalty=penalty, noise=noise, source=source
    )
    return distill_prepared(
        prepared,
        schema,
        config,
        optimizer=optimizer,
        source=source,
        progress=progress,
        checkpoint=checkpoint,
    )


def distill_prepared(
    prepared: Prepared,
    schema: Schema,
    config: DistillConfig,
    *,
    optimizer: optax.GradientTransformation | None = None,
    source: str = "table",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    on_end: Callable[[CheckpointFile, Saved], None] | None = None,
) -> Distillation:
    """Optimises the synthetic rows of a problem; from an interrupted run's checkpoint, if any.

    ``on_end`` is called with what to save, and where, for the same run to be at its end at once.
    """
    problem = prepared.problem
    method = choose_method(problem, config, optimizer=optimizer)
    file = CheckpointFile.next_to(checkpoint, prepared.fingerprint) if checkpoint else None
    if config.max_gap is None:
        state = outer.init(problem, method, steps=config.steps)
    else:
        state = gap_search.init(problem, method)
    empty = jax.tree.map(lambda leaf: np.zeros(0, leaf.dtype), state.best.record)
    resumed = (file and file.load(Saved(state, empty))) or Saved(state, empty)
    state, parts = resumed.state, [resumed.history]
    if isinstance(state, Search):
        chunks = gap_search.run(
            problem, state, method, max_gap=config.max_gap or 0.0, steps=config.steps
        )
    else:
        chunks = outer.run(problem, state, method, stop_tolerance=config.stop_tolerance)
    try:
        for after, records in chunks:
            refuse_divergence(after.best, records, step=int(after.step), source=source)
            state, parts = after, [*parts, records]  # one assignment: never half done
            if progress:
                progress(records, int(after.step) - 1, config.steps)
        found = finished(prepared, schema, config, state, joined(parts))
    except KeyboardInterrupt as stop:
        history = joined(parts)
        if file is None or len(history.objective) == 0:
            raise
        file.save(Saved(state, history))
        continues = f"{file.path} holds step {int(state.step)}, and the same run goes on from there"
        raise KeyboardInterrupt(continues) from stop
    if file and on_end:
        on_end(file, Saved(state, found.history))
    return found._replace(resumed_at=int(resumed.state.step))


def finished(
    prepared: Prepared,
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
