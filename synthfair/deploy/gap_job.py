"""The job ``gap``: the gaps of a model between groups, from counts with noise of each site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from synthfair.client.page import Site
from synthfair.data.encode import Clipping
from synthfair.deploy.model_file import ModelFile, model_of
from synthfair.errors import InputError
from synthfair.files import validated
from synthfair.measure.gaps_file import GAPS_NAME, GapsFile
from synthfair.postprocess.histogram import MAX_COUNT
from synthfair.privacy.guarantee import Guarantee
from synthfair.settings import Checked, Epsilon
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import Claim, refused_as
from synthfair.task.messages import sha256
from synthfair.task.protocol import ReadRows, Run, Task, read_rows

if TYPE_CHECKING:
    from synthfair.deploy.party import Request

COUNTS_BYTES = 8 * 2 * 2
"""The size of the counts of a group, by label and decision."""

GAP_CONFIDENCE = 0.95
"""The confidence of each interval by itself."""


class GapQuestion(Checked):
    """The question to sites; the model comes with it.

    Attributes:
        epsilon: of the counts of one site.
    """

    epsilon: Epsilon


class GapJob(GapQuestion):
    """The settings of a job. A project names the model's file, a job has what is in it.

    Attributes:
        model: of which the gaps are.
        least_answers: sites that must have answered well for the job to go on; all if not given.
        timeout: seconds to wait for answers.
    """

    model: ModelFile
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=3600, ge=1, le=7 * 24 * 3600)


def guarantee_of(epsilon: float) -> Guarantee:
    """Return the guarantee of a site's counts, see :mod:`synthfair.measure.gaps_file`.

    Guarantee: epsilon-differential privacy. Unit: one row; of a person with several rows the
    epsilons add up. Relation: add or remove.
    """
    return Guarantee(epsilon=epsilon, delta=0.0, unit="row", relation="add_or_remove")


def answer_gap(request: Request) -> bytes:
    """Return a site's counts of a model's decisions, by group and label, to which it adds noise.

    Guarantee: :func:`guarantee_of`, against everyone who sees the counts. The same question of the
    same rows gets the very same counts, at no cost; any other is booked anew.

    Raises:
        RefusedError: the question's settings are none, or beyond the site's limits.
    """
    from synthfair.evaluation import pooled_scores
    from synthfair.measure.gaps_file import noisy_counts

    schema, carried = request.party.schema, request.question.carried
    with refused_as("settings"):
        epsilon = validated(GapQuestion, request.question.settings).epsilon

    def read(site: Site, clipping: Clipping) -> ReadRows:
        with refused_as("settings"):
            model = model_of(carried, schema)
        rows, sha256 = read_rows(site, clipping)
        return ReadRows((model, rows), sha256)

    def counts(rows: ReadRows, run: Run) -> bytes:
        model, encoded = rows.real
        scores = pooled_scores(model, {run.source: encoded})
        return noisy_counts(scores, epsilon).astype("<i8").tobytes()

    # The fingerprint is of the model and not of its decisions. Else a model that differs a little
    # would get the same counts, or others, and so tell whether any row is decided otherwise.
    return request.answer(
        Task(
            Claim("gap", epsilon),
            f"{schema.hash} {epsilon} {sha256(carried)}",
            guarantee=guarantee_of(epsilon),
            measure=counts,
            max_bytes=COUNTS_BYTES * len(schema.groups),
            read=read,
        )
    )


def run_gap(federation: JobSites, job: GapJob, private: Path, output: Path) -> None:  # noqa: ARG001
    """Ask all sites for counts at the server, and write the gaps that they show together.

    A site that makes counts up cannot be recognised.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: folder for what stays at the server, which is nothing.
        output: folder for gaps.json.

    Raises:
        TooFewError: fewer sites than the job says have answered well.
        InputError: the model does not fit the schema.
    """
    from synthfair.measure.gaps_file import gaps_of_counts

    model = model_of(job.model, federation.schema)
    groups = tuple(map(str, federation.schema.groups))

    def read(_site: str, answer: bytes) -> np.ndarray:
        counts = np.frombuffer(answer, "<i8").reshape(len(groups), 2, 2)
        if np.abs(counts.astype(float)).max() > MAX_COUNT:
            raise InputError(f"counts: must be at most {MAX_COUNT}")
        return counts

    settings = {"epsilon": job.epsilon}
    question = federation.question(
        task="gap", settings=settings, timeout=job.timeout, carried=job.model
    )
    answers = federation.ask(question, read, least=job.least_answers)
    gaps = gaps_of_counts(
        np.sum([*answers.values()], axis=0),
        groups,
        epsilon=job.epsilon,
        sites=len(answers),
        confidence=GAP_CONFIDENCE,
    )
    document = GapsFile(
        epsilon=job.epsilon,
        confidence=GAP_CONFIDENCE,
        model=model.sha256,
        guarantee=guarantee_of(job.epsilon),
        sites=list(answers),
        gaps=gaps,
    )
    document.write(output / GAPS_NAME)
