"""The job ``privfairfl``: thresholds by group from a histogram over all sites that nobody sees.

The sites count a model's scores by group and label, share the counts among aggregators that are
sites of their own, and get the model back with decisions by group. Pentyala et al. (2022); see
:mod:`synthfair.postprocess` for the method and its guarantee.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import Field, model_validator

from synthfair.deploy.job_sums import job_label, make_sum, secure_sum
from synthfair.deploy.model_file import ModelFile, model_of
from synthfair.deploy.train_job import TrainJob, evaluation_of, train
from synthfair.metrics_file import METRICS, read_metrics, write_metrics
from synthfair.postprocess.histogram import MAX_HISTOGRAM_BINS
from synthfair.secure.summands import GroupCounts
from synthfair.server.settings import ServerConfig
from synthfair.settings import Checked, Epsilon, Notion
from synthfair.task.job_sites import JobSites

MODEL, FAIR_MODEL, HISTOGRAM = "model.json", "fair_model.json", "histogram.json"
"""Files of the result: as it was trained, with decisions by group, and what they come from."""


class PrivFairFLJob(Checked):
    """The settings of a job.

    Attributes:
        train: a training in rounds that comes first, or
        model: one that is there already. A project names its file; a job has what is in it.
        notion: of the rates that are compared.
        alpha: most by which they may differ between groups, as estimated.
        bins: of the score.
        epsilon: of the histogram, for one row of one site.
        rows_per_client: a public number that no site's rows pass.
        send_back: whether the sites get the model with its decisions; those that store models.
        least_answers: sites that must be in the sum; all if not given.
        timeout: seconds to wait for the sites, and for each aggregator.
    """

    train: TrainJob | None = None
    model: ModelFile | None = None
    notion: Notion
    alpha: float = Field(default=0.02, ge=0, lt=1)
    bins: int = Field(default=101, ge=2, le=MAX_HISTOGRAM_BINS)
    epsilon: Epsilon
    rows_per_client: int = Field(ge=1, le=2**40)
    send_back: bool = True
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)

    @model_validator(mode="after")
    def _one_model(self) -> PrivFairFLJob:
        if (self.train is None) == (self.model is None):
            raise ValueError("train, model: must have one of both")
        return self


def run_privfairfl(federation: JobSites, job: PrivFairFLJob, private: Path, output: Path) -> None:
    """Run the server's side: a model, a noisy histogram of its scores, decisions by group.

    The same job, submitted again after it ended early, goes on: it asks for no round, and for no
    count, that it has. Then the sites that had answered book nothing more.

    Guarantee: epsilon-differential privacy of all that is written but what the training wrote,
    against any single aggregator together with the server and all who see the result. Unit: one
    row. Relation: add or remove.

    Args:
        federation: of the sites and the aggregators.
        job: what is asked for.
        private: a folder of the server's own; next to it lies what a job goes on with.
        output: folder for model.json, fair_model.json, histogram.json and metrics.json.

    Raises:
        TooFewError: fewer sites than the job says, or not all aggregators, have answered well.
        InputError: the model is of another schema, or there are too few rows for the noise.
    """
    from synthfair.evaluation import decision_metrics
    from synthfair.postprocess import choose_decision
    from synthfair.secure.aggregator import score_histogram
    from synthfair.trained import write_model

    output.mkdir(parents=True, exist_ok=True)
    checkpoint = job.train and train(federation, job.train, private, output)
    if job.model is not None:
        (output / MODEL).write_bytes(job.model)
    content = (output / MODEL).read_bytes()
    model = model_of(content, federation.schema)
    counts = GroupCounts(
        schema_hash=federation.schema.hash,
        groups=tuple(map(str, federation.schema.groups)),
        model=model.sha256,
        **job.model_dump(include={"bins", "epsilon", "rows_per_client"}),
    )
    least = job.least_answers
    label, folder = job_label(federation, counts, private.parent, "privfairfl", least=least)
    task = make_sum(federation, counts, label=label, least=least)
    question = federation.question(task="privfairfl", timeout=job.timeout, carried=content)
    total = secure_sum(federation, task, question, folder=folder, anew=folder)
    histogram = score_histogram(counts, total)
    histogram.write(output / HISTOGRAM)
    choice = choose_decision(histogram, job.notion, job.alpha)
    fair = model.model_copy(update={"decision": choice.decision})
    write_model(fair, output / FAIR_MODEL)
    if evaluation := evaluation_of(fair, federation, ServerConfig()):
        path = output / METRICS  # what it says of the privacy of the training stays
        before = read_metrics(path) if path.exists() else None
        stays = {name: getattr(before, name, None) for name in ("guarantee", "secure_sums")}
        write_metrics(decision_metrics(fair, evaluation, **stays), path)
    # Whatever becomes of it now, all that costs an epsilon is done.
    shutil.rmtree(folder, ignore_errors=True)
    if checkpoint:
        checkpoint.unlink()
    if job.send_back:
        changes = {"task": "deliver", "carried": (output / FAIR_MODEL).read_bytes()}
        federation.ask(question.model_copy(update=changes), least=0)  # who stores none refuses
