"""One client's whole routine: a private table in, one release out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from synthfair.checkpoint import CheckpointFile
from synthfair.client.private import measure, private_problem, promise
from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded, encode
from synthfair.data.real_rows import RealRows, gather
from synthfair.data.schema import Schema
from synthfair.distill import outer, tolerance
from synthfair.distill.checkpoint import Checkpoint, keep, kept
from synthfair.distill.judge import Record
from synthfair.distill.outer import OuterState
from synthfair.distill.problem import Problem, make_problem
from synthfair.distill.tolerance import Search
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params
from synthfair.privacy.fit import PrivateFit
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import MAX_ABSOLUTE, Header, Release, make_header

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[Record, int, int], None]
"""Called between chunks with the chunk's records, the steps taken, and the steps of a full run."""

LAST_STEPS = 50
"""Inner convergence is judged over so many last steps."""


class Run(NamedTuple):
    """What a distillation depends on beside the rows, and how it is shown and kept."""

    schema: Schema
    config: DistillConfig
    model: Model | None = None
    penalty: Penalty | None = None
    source: str = "table"
    progress: Progress | None = None
    checkpoint: Path | None = None


class Distillation(NamedTuple):
    """A release and how well it was computed.

    Attributes:
        release: what may be sent.
        history: records [steps + 1] of every step; fewer where it ended before, see
            :func:`synthfair.distill.outer.run`. Private: computed from real rows.
        rho_o: weight of the penalty: the one given, or, with ``max_gap``, the one found. Private,
            like the history.
        tried: gap on the real rows that each weight reached, with ``max_gap``. Private.
        search_ended: whether the search found nothing more to try; false where the steps were spent
            before.
        theta: of the model that anybody can train on the release.
        resumed_at: step at which an interrupted run was taken up; 0 if it was not.
        checkpoint: a file that is of no more use once the release is written; it may not exist.
    """

    release: Release
    history: Record
    rho_o: float
    theta: Params
    tried: Mapping[float, float] = MappingProxyType({})
    search_ended: bool = True
    resumed_at: int = 0
    checkpoint: Path | None = None

    @property
    def unconverged(self) -> int:
        """In how many of the last steps the inner problem missed its tolerance."""
        return int(np.sum(~self.history.inner_converged[-LAST_STEPS:]))

    @property
    def gap_met(self) -> bool | None:
        """Whether the gap on the real rows is at most ``max_gap``; None where none was wanted."""
        wanted = self.release.header.config.max_gap
        return None if wanted is None else bool(self.history.gap[-1] <= wanted)

    @property
    def inner_converged(self) -> bool:
        """Whether the inner problem met its tolerance in all of the last steps."""
        return self.unconverged == 0


def distill_table(
    table: pd.DataFrame,
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Distillation:
    """Distils a private table into a release, Wu et al. (2024) algorithm 1, lines 1 to 16.

    Without ``config.epsilon`` no guarantee of privacy: the synthetic rows are a function of the
    real ones without noise. With it, (epsilon, delta)-differential privacy of the release. Unit:
    one row. Neighbouring relation: ``config.relation``. Releases of one table add up, which only
    a :class:`~synthfair.privacy.ledger.Ledger` keeps account of.

    Args:
        table: one row a person.
        schema: public; the same for all clients.
        config: settings; the defaults if not given.
        model: another than the linear model with the logistic loss; with epsilon, a linear one.
        penalty: another than ``config.penalty``; ``config.notion`` then only chooses the
            covariance that is shown. With epsilon, one of those that come with synthfair.
        noise: where the bytes of noise come from; other than the system's, it protects nothing, and
            the release says so.
        source: what to call the table in errors.
        progress: called between chunks of steps.
        checkpoint: name beside which an interrupted run is kept, and taken up from.

    Raises:
        InputError: the table does not fit the schema, lacks a group or a label, or cannot be
            distilled with these settings, or diverges.
        KeyboardInterrupt: after the checkpoint, if any, is written.
    """
    return distill_rows(
        encode(table, schema, source=source),
        schema,
        config,
        model=model,
        penalty=penalty,
        noise=noise,
        source=source,
        progress=progress,
        checkpoint=checkpoint,
    )


def distill_rows(
    real: Encoded | RealRows,
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Distillation:
    """:func:`distill_table` for rows that are encoded already; if gathered, for these settings."""
    config = config or DistillConfig()
    run = Run(schema, config, model, penalty, source, progress, checkpoint)
    if config.epsilon is not None:
        encoded = real if isinstance(real, Encoded) else real.encoded
        fit = measure(encoded, schema, config, model=model, penalty=penalty, noise=noise)
        return distill_fit(fit, run, secure=noise is system_entropy)
    n_groups = len(schema.groups)
    check_rows(real, schema, config, source=source)
    if isinstance(real, Encoded):
        real = gather([real], len(real.y), n_groups=n_groups, intercept=config.intercept)
    problem, x = make_problem(real, config, n_groups=n_groups, model=model, penalty=penalty)
    header = make_header(config, schema, model=problem.model, penalty=problem.penalty)
    return _distill(problem, x, header, run, fingerprint(real, header.model_dump_json()))


def distill_fit(fit: PrivateFit, run: Run, *, secure: bool = True) -> Distillation:
    """Distils what was measured privately: no real row is known here, so none can be read.

    Args:
        fit: from :func:`synthfair.client.private.measure` with the same settings.
        run: settings.
        secure: whether its noise came from the system.
    """
    schema, config = run.schema, run.config
    kinds = {"model": run.model, "penalty": run.penalty}
    problem, x = private_problem(fit, schema, config, **kinds)
    promised = promise(config, schema, **kinds) if secure else None
    header = make_header(
        config, schema, model=problem.model, penalty=problem.penalty, guarantee=promised
    )
    return _distill(problem, x, header, run, fingerprint(fit, header.model_dump_json()))


def _distill(
    problem: Problem, x: jax.Array, header: Header, run: Run, fingerprint: str
) -> Distillation:
    config = run.config
    file = CheckpointFile.beside(run.checkpoint, fingerprint) if run.checkpoint else None
    start = Checkpoint(_first_state(problem, x, config))
    resumed = (file and kept(file, start.state)) or start
    done = _run(problem, resumed, run, file)
    outer_state = done.state.outer if isinstance(done.state, Search) else done.state
    distillation = Distillation(
        make_release(header, run.schema, done.state.x, problem),
        done.history,
        config.rho_o,
        outer_state.params,
        resumed_at=resumed.steps,
        checkpoint=file and file.path,
    )
    return _with_search(distillation, done.state, config)


def _with_search(
    distillation: Distillation, state: OuterState | Search, config: DistillConfig
) -> Distillation:
    if not isinstance(state, Search):
        return distillation
    return distillation._replace(
        rho_o=float(state.best_rho_o),
        tried=state.tried,
        search_ended=tolerance.next_weight(state.tried, config.max_gap or 0.0) is None,
    )


def make_release(
    header: Header, schema: Schema, x: jax.Array | np.ndarray, problem: Problem
) -> Release:
    """A release of the features x [d, N_s] with the problem's groups and labels."""
    x, s, y = map(np.asarray, (x, problem.s, problem.y))
    return Release(header, schema.encoded_names, x.T, s, y)


def _first_state(problem: Problem, x: jax.Array, config: DistillConfig) -> OuterState | Search:
    if config.max_gap is None:
        return outer.init(problem, x, config)
    return tolerance.init(problem, x, config)


def _chunks(
    problem: Problem, state: OuterState | Search, config: DistillConfig
) -> Iterator[tuple[OuterState | Search, Record]]:
    if isinstance(state, Search):
        return tolerance.run(problem, state, config)
    return outer.run(problem, state, config)


def _run(problem: Problem, done: Checkpoint, run: Run, file: CheckpointFile | None) -> Checkpoint:
    """Goes on from ``done`` to the end; on Ctrl-C, keeps how far it came."""
    try:
        for state, records in _chunks(problem, done.state, run.config):
            refuse_divergence(np.asarray(state.x), records, step=int(state.step), source=run.source)
            done = Checkpoint(state, (*done.records, records))  # one assignment: never half done
            if run.progress:
                run.progress(records, done.steps - 1, run.config.steps)
    except KeyboardInterrupt as stop:
        if not (file and done.records):
            raise
        keep(done, file)
        told = f"{file.path} keeps step {done.steps}, and the same run goes on from there"
        raise KeyboardInterrupt(told) from stop
    return done


def refuse_divergence(x: np.ndarray, records: Record, *, step: int, source: str) -> None:
    """Stops a run whose release no server would accept.

    Raises:
        InputError: the objective is not finite, or an entry of x larger than a release may hold.
    """
    if not (np.isfinite(records.objective).all() and np.abs(x).max() <= MAX_ABSOLUTE):
        raise InputError(
            f"{source}: distillation diverged, by step {step}: lower learning_rate, rho_o or"
            " temperature, or raise lambda_theta (the inner problem must be strictly convex)"
        )


def fingerprint(numbers: RealRows | PrivateFit, settings: str) -> str:
    """sha256 of all that a run depends on. Private: who guesses the rows could confirm them."""
    precision = np.dtype(jax.dtypes.canonicalize_dtype(float)).name
    digest = hashlib.sha256(f"{precision} {settings}".encode())
    for part in numbers[:3] if isinstance(numbers, RealRows) else numbers:
        digest.update(np.ascontiguousarray(part).data)  # in place: the rows may be a million
    return digest.hexdigest()


def check_rows(
    real: Encoded | RealRows, schema: Schema, config: DistillConfig, *, source: str
) -> None:
    """Refuses tables in which groups cannot be compared.

    Raises:
        InputError: fewer rows than groups; only one label; or, among the rows that the fairness
            notion compares, fewer groups than the penalty needs: two for the covariance, all for
            the selection rate.
    """
    groups = schema.groups
    if len(real.y) < len(groups):
        raise InputError(f"{source}: {len(real.y)} rows are fewer than the {len(groups)} groups")
    if len(np.unique(real.y)) < 2:
        only = schema.positive if real.y[0] > 0 else schema.negative
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels"
        )
    needed = len(groups) if config.penalty == "selection_rate" else 2
    for name, rows in _compared(real.y, config.notion).items():
        present = np.unique(real.s[rows])
        if len(present) < needed:
            raise InputError(
                f"{source}: column {schema.sensitive!r}, among {name} rows, holds only"
                f" {[groups[g] for g in present]}; {config.notion} by {config.penalty} needs"
                f" {needed} of {list(groups)}"
            )


def _compared(y: np.ndarray, notion: str) -> dict[str, np.ndarray]:
    everything = {"all": np.full(len(y), True)}
    positive, negative = {"positive": y > 0}, {"negative": y < 0}
    notions = {
        "statistical_parity": everything,
        "equal_opportunity": everything | positive,
        "equalized_odds": everything | positive | negative,
    }
    return notions[notion]
