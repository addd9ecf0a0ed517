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

from synthfair.deploy.agreement import Agreement, TrainJob, pack, unpack
from synthfair.deploy.job_sums import make_sum, secure_sum
from synthfair.errors import InputError
from synthfair.settings import ServerConfig
from synthfair.task.job_sites import JobSites
from synthfair.task.messages import Question

if TYPE_CHECKING:
    from synthfair.federated.engine import RunProgress
    from synthfair.federated.method import TrainingPlan
    from synthfair.federated.users import UserData
    from synthfair.metrics_file import Evaluation
    from synthfair.secure.summands import ClippedVectors
    from synthfair.trained import TrainedModel

ROUNDING = 1e-3
"""The share of the clip by which the norm of a report may pass it."""


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
    from synthfair.federated.checkpoint import CheckpointFile
    from synthfair.federated.training import (
        first_progress,
        make_model,
        read_progress,
        rounds_csv,
        to_save,
    )
    from synthfair.files import write_text
    from synthfair.jax_setup import start_jax
    from synthfair.metrics_file import METRICS, MetricsFile, RoundSettings, write_metrics
    from synthfair.trained import write_model

    start_jax()

    # What is agreed, and where an earlier job has come to.
    agreement = Agreement(sites=tuple(sorted(federation.sites)), **job.model_dump())
    config, run = agreement.config, agreement.run(federation.schema)
    data, plan = agreement.plan(federation.schema)
    private.parent.mkdir(mode=0o700, exist_ok=True)
    checkpoint = CheckpointFile.next_to(private.parent / "train", run)
    if plan.secure and plan.guarantee:
        sums = make_sum(federation, plan.secure.what, label=run, least=job.least_answers)
        checkpoint = replace(checkpoint, fingerprint=sums.id.hex())
    progress = read_progress(plan, data, checkpoint)
    if progress is None and plan.guarantee and checkpoint.path.exists():
        raise InputError(
            f"{checkpoint.path}: of this training, but with other aggregators, keys or"
            " least_answers, or damaged: go on with the same, or remove the file to begin anew,"
            " which every site books once more"
        )
    progress = progress or first_progress(plan, data, config)
    save_each = job.save_each if plan.guarantee is None else 1

    def save(after: RunProgress) -> None:
        if after.rounds % save_each == 0 or after.rounds == config.rounds:
            checkpoint.save(to_save(after))

    # The rounds: sites report, the server adds up and moves on.
    save(progress)
    progress = engine.run(
        plan.algorithm,
        data.users,
        plan.cohorts,
        rounds=config.rounds,
        seed=progress.seed,
        protection=plan.protection,
        totals=_Sites(federation, agreement, data, plan, checkpoint.path, progress.seed).total,
        progress=progress,
        on_round=save,
    )

    # The model, and what it does on test tables.
    converged = config.converged(plan, progress.history)
    model = make_model(plan, config, data, progress.state, converged=converged)
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
            secure_sums=plan.secure and plan.secure.shares,
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


@dataclass(frozen=True)
class _Sites:
    """The sites of a training as the engine asks them: reports in, or sums that nobody sees."""

    federation: JobSites
    agreement: Agreement
    data: UserData
    plan: TrainingPlan
    checkpoint: Path
    seed: int

    def total(self, state: Any, t: int) -> tuple[np.ndarray, float]:
        """[k] the sum of the reports of a round, and the number of sites that it counts as of.

        A site that is missing must not make the step shorter. With an epsilon it does, as the
        guarantee is for a public number of sites, where one's part is zeroed out.

        Raises:
            TooFewError: fewer sites than the job says, or nobody, has sent one.
        """
        plan, settings = self.plan, self.agreement.model_dump(mode="json")
        timeout, carried = self.agreement.timeout, pack(state)
        question = self.federation.question("train", t, settings, timeout=timeout, carried=carried)
        if plan.secure:
            total, count = self._by_shares(question, plan.secure.what)
        else:
            total, count = self._of_reports(question, state)
        return total, float(count if plan.guarantee is None else len(self.agreement.sites))

    def _of_reports(self, question: Question, state: Any) -> tuple[np.ndarray, int]:
        """Add up reports that the server sees, and refuse those that do not fit."""
        from synthfair.federated.engine import report_shapes

        like, clip = (
            report_shapes(self.plan.algorithm, self.data.users, state),
            self.plan.protection.clip,
        )
        least, most = self.agreement.least_rows or 0, self.agreement.most_rows or np.inf

        def read(_site: str, content: bytes) -> np.ndarray:
            report, numbers = unpack(content, like), np.frombuffer(content, "<f8")
            norm, bound = np.linalg.norm(numbers), np.inf if clip is None else float(clip)
            if not np.isfinite(norm) or norm > bound * (1 + ROUNDING):
                raise ValueError("its numbers are not finite, or larger than the clip allows")
            self.plan.algorithm.check(report, least, most)
            return numbers

        reports = self.federation.ask(question, read, least=self.agreement.least_answers)
        return np.sum([*reports.values()], axis=0), len(reports)

    def _by_shares(self, question: Question, what: ClippedVectors) -> tuple[np.ndarray, int]:
        """Return the noisy sum as aggregators open it; the server sees no report."""
        # With an epsilon, a training that goes on asks for the very sums that it had asked for.
        private = self.plan.guarantee is not None
        salt = self.seed if private else self.federation.job
        task = make_sum(
            self.federation,
            what,
            label=f"{self.agreement.run(self.federation.schema)} {salt} {question.round}",
            least=self.agreement.least_answers,
            without_noise=what.rho is None,
        )
        folder, anew = self.checkpoint.parent / "sums", self.checkpoint if private else None
        result = secure_sum(self.federation, task, question, folder=folder, anew=anew)
        return result.total * what.step, result.clients
