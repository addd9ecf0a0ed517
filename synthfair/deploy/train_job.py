"""Training in rounds: every site is one user of a method of :mod:`synthfair.federated`.

The sites compute its ``report``, the server its ``update``: the numbers are those of the engine in
one process, to rounding. The server sees each site's report, and where the users are protected it
is the server that adds the noise; so sites agree to that, and to how many rounds, in their limits.
With ``secure``, reports are shared among aggregators, which add the noise; the server sees none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

from synthfair.deploy.agreement import (
    Agreement,
    LeastRows,
    TrainingSetup,
    TrainSettings,
    make_setup,
    pack,
    require_rows,
    train_config,
    unpack,
)
from synthfair.deploy.job_sums import make_sum, secure_sum
from synthfair.errors import InputError
from synthfair.settings import Checked, ServerConfig
from synthfair.task.job_sites import JobSites, Query

if TYPE_CHECKING:
    from synthfair.federated.engine import CheckpointFile, RunProgress
    from synthfair.metrics_file import Evaluation
    from synthfair.secure.summands import ClippedVectors
    from synthfair.trained import TrainedModel

ROUNDING = 1e-3
"""The share of the clip by which the norm of a report may pass it."""


class TrainJob(Checked):
    """The settings of a job.

    Attributes:
        train: settings of the method, see :class:`synthfair.federated.TrainConfig`.
        least_rows: rows of the smallest site, a public number; ``dp_sgd``,
            ``fair_sgd`` and ``two_phase`` need it.
        most_rows: rows of the largest site, a public number, which a job must name where sites
            count by their rows: in fedavg and refine without a clip, dp_sgd, fair_sgd and
            two_phase. A site that claims more is refused.
        least_answers: sites that must answer well in every round; all if not given.
        timeout: seconds to wait for the answers of a round; in the first one of ``two_phase`` sites
            train their teachers as well.
        save_each: rounds between two checkpoints; from the last, the same job submitted anew goes
            on. With an epsilon every round is saved, as sites answer one question a round.
    """

    train: TrainSettings
    least_rows: LeastRows
    most_rows: int | None = Field(default=None, ge=1, lt=2**31)
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)
    save_each: int = Field(default=10, ge=1)

    @property
    def rounds(self) -> int:
        """The number of rounds of the training."""
        return train_config(self.train).rounds

    @model_validator(mode="after")
    def _is_whole(self) -> TrainJob:
        config = train_config(self.train)
        require_rows(config, self.least_rows)
        if self.most_rows is None and config.counts_by_rows:
            raise ValueError(
                f"most_rows: {config.method} counts sites by their rows, and needs those of the"
                " largest site"
            )
        if self.most_rows is not None and self.most_rows < (self.least_rows or 1):
            raise ValueError("most_rows: must be at least least_rows")
        return self


def run_train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> None:
    """Run the server's side of a job of rounds alone, see :func:`train`."""
    train(federation, job, private, output).unlink()


def train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> Path:
    """Run the rounds, and write checkpoints, a model and its metrics.

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
    from synthfair.federated.training import make_model, rounds_csv
    from synthfair.files import write_text
    from synthfair.jax_setup import start_jax
    from synthfair.metrics_file import METRICS, MetricsFile, RoundSettings, write_metrics
    from synthfair.trained import write_model

    start_jax()

    # What is agreed, and where an earlier job has come to.
    agreement = Agreement(
        train=job.train, sites=tuple(sorted(federation.sites)), least_rows=job.least_rows
    )
    config, setup = agreement.config, make_setup(agreement, federation.schema)
    data, plan = setup
    private.parent.mkdir(mode=0o700, exist_ok=True)
    checkpoint, progress = _begin(federation, job, agreement, setup, private.parent)
    save_each = job.save_each if plan.guarantee is None else 1

    def save(after: RunProgress) -> None:
        if after.rounds % save_each == 0 or after.rounds == config.rounds:
            checkpoint.save(after)

    # The rounds: sites report, the server adds up and moves on.
    save(progress)
    progress = engine.run(
        plan,
        data.users,
        plan.cohorts,
        rounds=config.rounds,
        seed=progress.seed,
        protection=plan.protection,
        totals=_Sites(federation, job, agreement, setup, checkpoint.path, progress.seed).total,
        progress=progress,
        on_round=save,
    )

    # The model, and what it does on test tables.
    model = make_model(plan, data, progress)
    output.mkdir(parents=True, exist_ok=True)
    if evaluation := evaluation_of(model, federation, ServerConfig(seed=config.seed)):
        metrics = MetricsFile.of(
            evaluation,
            method=config.method,
            config={},
            train=RoundSettings.model_validate(config.model_dump()),
            asked=config.asked,
            converged=model.converged,
            guarantee=plan.guarantee,
            secure_sums=plan.protection.shares,
        )
        write_metrics(metrics, output / METRICS)
    write_text(output / "rounds.csv", rounds_csv(progress.history))
    write_model(model, output / "model.json")
    return checkpoint.path


def evaluation_of(
    model: TrainedModel, federation: JobSites, report: ServerConfig
) -> Evaluation | None:
    """Return the metrics of a model on the server's test tables; None where it has none.

    Raises:
        InputError: a test table does not fit the schema.
    """
    from synthfair.evaluation import evaluate, read_tests

    if not federation.settings.tests:
        return None
    return evaluate(model, read_tests(federation.settings.tests, federation.schema), report)


def _begin(
    federation: JobSites, job: TrainJob, agreement: Agreement, setup: TrainingSetup, folder: Path
) -> tuple[CheckpointFile, RunProgress]:
    """Return the file of the rounds, and the rounds in it; else a start.

    Raises:
        InputError: with an epsilon, what is there cannot go on: begun anew, every site would book
            the training once more.
    """
    from synthfair.federated.engine import CheckpointFile, start
    from synthfair.federated.training import first_progress

    data, plan = setup
    run = agreement.run(federation.schema)
    checkpoint = CheckpointFile.next_to(folder / "train", run)
    if plan.protection.vectors and plan.guarantee:
        sums = make_sum(federation, plan.protection.vectors, label=run, least=job.least_answers)
        checkpoint = replace(checkpoint, fingerprint=sums.id.hex())
    progress = checkpoint.load(start(plan, data.users, 0))
    if progress is not None:
        return checkpoint, progress
    if plan.guarantee and checkpoint.path.exists():
        raise InputError(
            f"{checkpoint.path}: of this training, but with other aggregators, keys or"
            " least_answers, or damaged: go on with the same, or remove the file to begin anew,"
            " which every site books once more"
        )
    return checkpoint, first_progress(plan, data)


@dataclass(frozen=True)
class _Sites:
    """The sites of a training as the engine asks them: reports in, or sums that nobody sees."""

    federation: JobSites
    job: TrainJob
    agreement: Agreement
    setup: TrainingSetup
    checkpoint: Path
    seed: int

    def total(self, state: Any, t: int) -> tuple[np.ndarray, float]:
        """[k] the sum of the reports of a round, and the number of sites that it counts as of.

        A site that is missing must not make the step shorter. With an epsilon it does, as the
        guarantee is for a public number of sites, where one's part is zeroed out.

        Raises:
            TooFewError: fewer sites than the job says, or nobody, has sent one.
        """
        plan, settings = self.setup.plan, self.agreement.model_dump(mode="json")
        query = Query("train", t, settings, self.job.timeout, pack(state))
        if plan.protection.vectors:
            total, count = self._by_shares(query, plan.protection.vectors)
        else:
            total, count = self._of_reports(query, state)
        return total, float(count if plan.guarantee is None else len(self.agreement.sites))

    def _of_reports(self, query: Query, state: Any) -> tuple[np.ndarray, int]:
        """Add up reports that the server sees, and refuse those that do not fit."""
        from synthfair.federated.engine import report_shapes

        like = report_shapes(self.setup.plan, self.setup.users.users, state)
        reports = self.federation.collect(
            query, lambda _, content: self._report(content, like), least=self.job.least_answers
        )
        return np.sum([*reports.values()], axis=0), len(reports)

    def _report(self, content: bytes, like: Any) -> np.ndarray:
        """Read a site's report [k]. Raises ValueError: a wrong length, size or weight."""
        report, clip, job = unpack(content, like), self.setup.plan.protection.clip, self.job
        numbers = np.frombuffer(content, "<f8")
        norm, most = np.linalg.norm(numbers), np.inf if clip is None else float(clip)
        if not np.isfinite(norm) or norm > most * (1 + ROUNDING):
            raise ValueError("its numbers are not finite, or larger than the clip allows")
        self.setup.plan.check(report, job.least_rows or 0, job.most_rows or np.inf)
        return numbers

    def _by_shares(self, query: Query, what: ClippedVectors) -> tuple[np.ndarray, int]:
        """Return the noisy sum as aggregators open it; the server sees no report."""
        # With an epsilon, a training that goes on asks for the very sums that it had asked for.
        private = self.setup.plan.guarantee is not None
        salt = self.seed if private else self.federation.job
        task = make_sum(
            self.federation,
            what,
            label=f"{self.agreement.run(self.federation.schema)} {salt} {query.number}",
            least=self.job.least_answers,
            without_noise=what.rho is None,
        )
        folder, anew = self.checkpoint.parent / "sums", self.checkpoint if private else None
        result = secure_sum(self.federation, task, query, folder=folder, anew=anew)
        return result.total * what.step, result.clients
