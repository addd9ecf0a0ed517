"""Training in rounds: every site is one user of a method of :mod:`synthfair.federated`.

The sites compute its ``report``, the server its ``update``: the numbers are those of the engine in
one process, to rounding. The server sees each site's report, and where the users are protected it
is the server that adds the noise; so sites agree to that, and to how many rounds, in their limits.
With ``secure``, reports are shared among aggregators, which add the noise; the server sees none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, model_validator

from synthfair.config import ServerConfig
from synthfair.config.rules import STRICT
from synthfair.deploy.agreed import (
    Agreed,
    LeastRows,
    TrainSettings,
    counts_by_rows,
    make_planned,
    packed,
    require_rows,
    train_config,
    unpacked,
)
from synthfair.deploy.sums import make_sum, secure_sum
from synthfair.errors import InputError
from synthfair.secure.summands import ClippedVectors
from synthfair.task.job_sites import JobSites, Query

if TYPE_CHECKING:
    import jax

    from synthfair.checkpoint import CheckpointFile
    from synthfair.federated.algorithm import Algorithm
    from synthfair.federated.engine import Protection, RunProgress
    from synthfair.federated.settings import TrainConfig, TrainingPlan
    from synthfair.trained import TrainedModel


ROUNDING = 1e-3
"""By which the norm of a report may pass the clip, as a share of it."""


class TrainJob(BaseModel):
    """What a job asks for.

    Attributes:
        train: settings of the method, see :class:`synthfair.federated.TrainConfig`.
        least_rows: rows of the smallest site, a public number; ``dp_sgd``,
            ``fair_sgd`` and ``two_phase`` need it.
        most_rows: rows of the largest site, a public number, which a job must name where sites
            count by their rows: in fedavg without a clip, dp_sgd, fair_sgd and two_phase. A site
            that claims more is refused.
        least_answers: sites that must answer well in every round; all if not given.
        timeout: seconds to wait for the answers of a round; in the first one of ``two_phase`` sites
            train their teachers as well.
        save_each: rounds between two checkpoints; from the last, the same job submitted anew goes
            on. With an epsilon every round is saved, as sites answer one question a round.
    """

    model_config = STRICT

    train: TrainSettings
    least_rows: LeastRows
    most_rows: int | None = Field(default=None, ge=1, lt=2**31)
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)
    save_each: int = Field(default=10, ge=1)

    @property
    def rounds(self) -> int:
        """Of the training."""
        return train_config(self.train).rounds

    @model_validator(mode="after")
    def _is_whole(self) -> TrainJob:
        config = train_config(self.train)
        require_rows(config, self.least_rows)
        if self.most_rows is None and counts_by_rows(config):
            raise ValueError(
                f"most_rows: {config.method} counts sites by their rows, and needs those of the"
                " largest site"
            )
        if self.most_rows is not None and self.most_rows < (self.least_rows or 1):
            raise ValueError("most_rows: must be at least least_rows")
        return self


def run_train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> None:
    """The server's side of a job of rounds alone, see :func:`train`."""
    train(federation, job, private, output).unlink()


def train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> Path:
    """Rounds, checkpoints, a model and its metrics.

    Guarantee: the plan's, for all that a job's result holds; of methods whose noise is the
    server's, the server itself sees what each site sends, unless ``secure`` is set.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: a folder of the server's own, next to which checkpoints lie. With an epsilon they
            hold the seed of the noise: whoever reads them can undo the privacy of the run.
        output: folder for model.json, metrics.json and rounds.csv.

    Returns:
        The checkpoint of the last round. While it is there, the same training asks for no round
        anew; whoever removes it says that the job has come to its end.

    Raises:
        TooFewError: in a round, fewer sites than the job says have answered well.
        InputError: the settings do not fit together, training diverged, or a training with an
            epsilon would go on with other sums than it began with.
    """
    from synthfair.federated import engine
    from synthfair.federated.training import make_model, rounds_csv, to_save
    from synthfair.files import write_text
    from synthfair.jax_setup import start_jax
    from synthfair.trained import write_model

    start_jax()
    import jax

    sites = tuple(sorted(federation.sites))
    agreed = Agreed(train=job.train, sites=sites, least_rows=job.least_rows)
    config, (data, plan) = agreed.config, make_planned(agreed, federation.schema)
    private.parent.mkdir(mode=0o700, exist_ok=True)
    run = agreed.run(federation.schema)
    checkpoint, progress = _begin(federation, job, agreed, private.parent)
    noise_key = engine.key_from(progress.seed, 2)
    private_rounds = plan.guarantee is not None
    asked = agreed.model_dump(mode="json")
    save_each = 1 if private_rounds else job.save_each
    some = data.users.rows_of(0)
    like = jax.eval_shape(plan.algorithm.report, progress.state, some, noise_key)
    expected = _Report(like, plan.protection.clip, *_weights(job, data.row_weights))
    # With an epsilon, a training that goes on asks for the very sums that it had asked for before.
    salt = progress.seed if private_rounds else federation.job
    label = f"{run} {salt}"
    anew = checkpoint.path if private_rounds else None
    shares = plan.secure and _Shares(plan.secure.what, label, private.parent / "sums", like, anew)
    protection = engine.UNPROTECTED if plan.secure else plan.protection

    update = _compiled_update()
    while (number := progress.rounds) < config.rounds:
        if number % save_each == 0:
            checkpoint.save(to_save(progress))
        query = Query("train", number, asked, job.timeout, packed(progress.state))
        summed = shares.total if shares else expected.total
        total, count = summed(federation, query, job.least_answers)
        # A site that is missing must not make the step shorter; with an epsilon it does, as the
        # guarantee is for a public number of sites, where one's part is zeroed out.
        cohort = float(count if plan.guarantee is None else len(sites))
        key = jax.random.fold_in(noise_key, number)
        state, record = update(
            plan.algorithm, protection, progress.state, total=total, cohort=cohort, key=key
        )
        history = jax.tree.map(
            lambda old, new: np.concatenate([old, np.asarray(new)[None]]), progress.history, record
        )
        progress = engine.RunProgress(number + 1, state, history, progress.seed)
    checkpoint.save(to_save(progress))
    converged = config.converged(plan, progress.history)
    model = make_model(plan, config, data, progress.state, converged=converged)
    output.mkdir(parents=True, exist_ok=True)
    _write_metrics(federation, config, plan, model, output)
    write_text(output / "rounds.csv", rounds_csv(progress.history))
    write_model(model, output / "model.json")
    return checkpoint.path


def _begin(
    federation: JobSites, job: TrainJob, agreed: Agreed, folder: Path
) -> tuple[CheckpointFile, RunProgress]:
    """Where rounds are saved, and those that there are; else a start.

    Raises:
        InputError: with an epsilon, what is there cannot go on: begun anew, every site would book
            the training once more.
    """
    from synthfair.checkpoint import CheckpointFile
    from synthfair.federated.training import first_progress, read_progress

    config, (data, plan) = agreed.config, make_planned(agreed, federation.schema)
    run = agreed.run(federation.schema)
    checkpoint = CheckpointFile.next_to(folder / "train", run)
    if plan.secure and plan.guarantee:
        sums = make_sum(federation, plan.secure.what, label=run, least=job.least_answers)
        checkpoint = replace(checkpoint, fingerprint=sums.id.hex())
    progress = read_progress(plan, data, checkpoint)
    if progress is not None:
        return checkpoint, progress
    if plan.guarantee and checkpoint.path.exists():
        raise InputError(
            f"{checkpoint.path}: of this training, but with other aggregators, keys or"
            " least_answers, or damaged: go on with the same, or remove the file to begin anew,"
            " which every site books once more"
        )
    return checkpoint, first_progress(plan, data, config)


@cache
def _compiled_update() -> Callable[..., tuple[Any, Any]]:
    import jax

    from synthfair.federated.engine import add_noise

    @jax.jit
    def update(
        algorithm: Algorithm,
        protection: Protection,
        state: Any,
        *,
        total: Any,
        cohort: float,
        key: jax.Array,
    ) -> tuple[Any, Any]:
        noisy = add_noise(total, protection.noise, key)
        return algorithm.update(state, noisy, cohort)

    return update


def _weights(job: TrainJob, row_weights: jax.Array | None) -> tuple[float, float]:
    """Between which the weight of a site lies: the sum of its rows' weights."""
    low, high = (1.0, 1.0) if row_weights is None else (row_weights.min(), row_weights.max())
    return (job.least_rows or 0) * min(float(low), 1.0), (job.most_rows or 0) * max(
        float(high), 1.0
    )


class _Report(NamedTuple):
    """What a report must be: its shapes and types, and the norm and weight that it may have."""

    like: Any
    clip: jax.Array | float | None
    least_weight: float
    most_weight: float

    def read(self, content: bytes) -> Any:
        """Of a site. Raises ValueError: another length, not finite, too large, or too heavy."""
        from synthfair.federated.fedavg import Movement
        from synthfair.federated.fpfl import Statistics

        norm = np.linalg.norm(np.frombuffer(content[: len(content) // 8 * 8], "<f8"))
        most = np.inf if self.clip is None else float(self.clip) * (1 + ROUNDING)
        if not np.isfinite(norm) or norm > most:
            raise ValueError("its numbers are not finite, or larger than the clip allows")
        found = unpacked(content, self.like)
        if isinstance(found, Movement) and found.weight.size:  # else sites count alike
            if not self.least_weight <= float(found.weight) <= self.most_weight:
                raise ValueError("its weight is not that of a number of rows that a site may have")
        elif isinstance(found, Statistics) and not 0 <= found.sums.right <= found.sums.rows:
            raise ValueError("its counts of rows are negative, or more are right than there are")
        return found

    def total(self, federation: JobSites, query: Query, least: int | None) -> tuple[Any, int]:
        """The sum of the sites' reports in a round, and their number; what is none is refused.

        Raises:
            TooFewError: fewer than the job says, or nobody, has sent one.
        """
        import jax

        read = federation.collect(query, lambda _, content: self.read(content), least=least)
        reports = [*read.values()]
        return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *reports), len(reports)


class _Shares(NamedTuple):
    """How reports are summed so that the server sees none: what, in which sums, and where to.

    Attributes:
        what: is summed.
        label: of the training and its job.
        folder: of the server's own, for uploads.
        like: shapes and types of a report.
        anew: file that holds later jobs to these very sums, if any.
    """

    what: ClippedVectors
    label: str
    folder: Path
    like: Any
    anew: Path | None

    def total(self, federation: JobSites, query: Query, least: int | None) -> tuple[Any, int]:
        """The noisy sum of a round, as aggregators open it, and the number of sites in it."""
        label, bare = f"{self.label} {query.number}", self.what.rho is None
        task = make_sum(federation, self.what, label=label, least=least, without_noise=bare)
        opened = secure_sum(federation, task, query, folder=self.folder, anew=self.anew)
        total = unpacked(self.what.values(opened.total).astype("<f8").tobytes(), self.like)
        return total, opened.statement["clients"]


def _write_metrics(
    federation: JobSites,
    config: TrainConfig,
    plan: TrainingPlan,
    model: TrainedModel,
    output: Path,
) -> None:
    from synthfair.evaluation import evaluate, evaluation_document, read_tests
    from synthfair.files import write_json

    if not federation.settings.tests:
        return
    report, schema = ServerConfig(seed=config.seed), federation.schema
    evaluation = evaluate(model, read_tests(federation.settings.tests, schema), report)
    stated: dict[str, Any] = {}
    if plan.guarantee:
        stated["guarantee"] = plan.guarantee.model_dump(mode="json")
    if plan.secure:
        stated["secure_sums"] = plan.secure.shares.model_dump() | {"simulated": False}
    write_json(
        output / "metrics.json",
        {
            **evaluation_document(evaluation, schema, report),
            "method": config.method,
            "config": {},
            "train": config.model_dump(mode="json"),
            "converged": model.converged,
            **stated,
        },
    )
