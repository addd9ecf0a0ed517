"""A model's gap between groups, of reports that each site perturbs row by row. Both sides.

A site's part is the routine of ``python -m synthfair gap perturb``, the server's that of
``gap aggregate``, whatever carries their bytes.
"""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from synthfair.config.rules import STRICT
from synthfair.data.encode import content_sha256, encode
from synthfair.data.schema import Schema
from synthfair.deploy.model_file import ModelFile, content_of
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, validated, write_json
from synthfair.measure.collection import Collection, read_collection
from synthfair.measure.reports import Rate, perturb_rates, require_rates, write_reports
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Booking
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.task.job_sites import JobSites, Query
from synthfair.task.limits import Claim
from synthfair.task.messages import sha256
from synthfair.task.site import Request, Work, refused_as
from synthfair.trained import TrainedModel, parse_model

FOLDER = "gaps"
"""The folder, in the site's own, of the reports that it has answered with."""

MOST_BATCHES = 1000
"""The most batches of a site in a job."""

MOST_LINE = 200
"""Bytes of a report; a usual one has 70."""


class GapQuestion(BaseModel):
    """The question to sites; the model comes with it.

    Attributes:
        collection: the public file of ``gap plan``, with "(no value)" among its groups.
        rate: of the model, of which the gap is measured.
        batch: lines of one answer; a site is asked until it has sent fewer.
    """

    model_config = STRICT

    collection: Collection
    rate: Rate
    batch: int = Field(default=100_000, ge=1, le=1_000_000)


class GapJob(GapQuestion):
    """The settings of a job. A project names files, a job has what is in them.

    Attributes:
        model: of which the gaps are.
        confidence: of each interval.
        least_answers: sites that must have answered well for the job to go on; all if not given.
        timeout: seconds to wait for answers.
    """

    model: ModelFile
    confidence: float = Field(default=0.95, gt=0, lt=1)
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=3600, ge=1, le=7 * 24 * 3600)

    @field_validator("collection", mode="before")
    @classmethod
    def _of_a_file(cls, collection: Any, info: ValidationInfo) -> Any:
        if isinstance(collection, str) and info.context:
            return read_collection(info.context["folder"] / collection)
        return collection

    @property
    def question(self) -> GapQuestion:
        """The question to sites."""
        return GapQuestion(collection=self.collection, rate=self.rate, batch=self.batch)


def guarantee_of(collection: Collection) -> Guarantee:
    """The guarantee of all reports of a site together, each being of one row.

    Guarantee: epsilon-local differential privacy of each row's report. So epsilon for the rows of
    two tables that differ in one row: add or remove, where the number of rows is public, and also
    replace. Unit: one row; of a person with several rows the epsilons add up.
    """
    return Guarantee(epsilon=collection.epsilon, unit="one row", relation="add_or_remove")


def answer_gap(request: Request, source: RandomBytes = system_entropy) -> Work:
    """A site's side: a report for each of its rows, within its limits, booked once.

    They are booked, made and stored when the first batch is asked for; every answer is the batch of
    the question's round. After the last one, nothing is left to send.

    Guarantee: :func:`guarantee_of`, against everyone who sees the reports. The same question of the
    same rows gets the very same reports, at no cost; any other is booked anew.

    Args:
        request: the question; the model is what it carries.
        source: of all randomness; one that can be repeated gives no guarantee.

    Raises:
        RefusedError: the question's settings are none.
    """
    with refused_as("settings"):
        question = validated(GapQuestion, request.ask.settings)
    epsilon = question.collection.epsilon
    return Work(Claim("gap", epsilon), epsilon, lambda: _batch(request, question, source))


def _batch(request: Request, question: GapQuestion, source: RandomBytes) -> bytes:
    """The reports of one round; they are bought in the first."""
    from synthfair.data.tables import read_table
    from synthfair.evaluation import pooled_scores

    with refused_as("settings"):
        model = parse_model(request.carried, "model")
        _require_fit(question, model, request.schema)
    path, schema = request.settings.data, request.schema
    table = read_table(path, schema)

    def make() -> bytes:
        rows = pooled_scores(model, {path.name: table}, sources=[path])
        reports = perturb_rates(
            question.collection, rows, _groups(schema), question.rate, source=source
        )
        text = io.StringIO()
        write_reports(reports, text, header=True)
        return text.getvalue().encode()

    # The fingerprint is of the model and not of its decisions. Else a model that differs a little
    # would get the same reports, or others, and so tell whether any row is decided otherwise.
    what = schema.hash, question.model_dump_json(exclude={"batch"}), sha256(request.carried)
    rows_sha256 = content_sha256([encode(table, schema, source=str(path))])
    run = sha256(repr((*what, rows_sha256)).encode())
    guarantee = guarantee_of(question.collection)
    booking = Booking(output=request.ask.job, run=run, guarantee=guarantee)
    begin, room = request.ask.round * question.batch, MOST_LINE * (len(table) + 1)
    with request.store(FOLDER, ".csv").buy(run, booking, make, room=room) as lines:
        return b"".join(islice(lines, begin, begin + question.batch))


def _require_fit(question: GapQuestion, model: TrainedModel, schema: Schema) -> None:
    """Refuses a model of another schema, and a plan without its groups. Raises InputError."""
    if model.schema_.hash != schema.hash:
        raise InputError(
            f"model: of the schema {model.schema_.hash}; must be of {schema.hash}, as all sites are"
        )
    require_rates(question.collection, _groups(schema))


def _groups(schema: Schema) -> tuple[str, ...]:
    return tuple(map(str, schema.groups))


def _reports_in(path: Path, collection: Collection) -> int:
    """Counts a site's reports. Raises InputError: none, or a line that no site would send."""
    from synthfair.measure.aggregate import aggregate_reports

    sums = aggregate_reports([path], collection, ids=None)
    if sums.examples:
        raise InputError(next(iter(sums.examples.values())))
    if not sums.tally.reports:
        raise InputError(f"{path}: has no reports")
    return sums.tally.reports


def _collect(federation: JobSites, job: GapJob, private: Path) -> list[str]:
    """Asks for batches until no site has more; returns those that have sent all of theirs."""
    settings, model = job.question.model_dump(mode="json"), content_of(job.model)
    sites = federation.sites
    for number in range(MOST_BATCHES):
        answers = federation.ask(Query("gap", number, settings, job.timeout, model), sites)
        sites = ()
        for site, content in answers.items():
            lines = content.count(b"\n")
            if lines > job.batch or len(content) > MOST_LINE * job.batch:
                federation.refuse(site, f"{lines} lines, {len(content)} bytes: not one batch")
                continue
            path = private / f"{site}.csv"
            path.touch(mode=OWNER_ONLY)
            with path.open("ab" if number else "wb") as file:
                file.write(content)
            if lines == job.batch:
                sites += (site,)
        if not sites:
            break
    for site in sites:
        federation.refuse(site, f"more than {MOST_BATCHES} batches")
    return [site for site in federation.sites if federation.booked[site].code == "ok"]


def run_gap(federation: JobSites, job: GapJob, private: Path, output: Path) -> None:
    """The server's side: asks for reports, and writes the gaps that they show.

    A site whose answer has a line that the mechanism cannot have made is refused. One that makes
    reports up cannot be recognised: gaps.json says how many came from each site.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: folder for the reports, which stay at the server.
        output: folder for gaps.json.

    Raises:
        TooFewError: fewer sites than the job says have answered well.
        InputError: model and plan do not fit the schema, or there are too few reports.
    """
    from synthfair.measure.aggregate import SeenIds, aggregate_reports
    from synthfair.measure.diagnostics import diagnose_reports
    from synthfair.measure.estimate import estimate_gaps
    from synthfair.report.gaps import estimate_document

    question, collection = job.question, job.collection
    model = parse_model(content_of(job.model), "model")
    _require_fit(question, model, federation.schema)
    # Batches of reports, until each site has sent all of its own; wrong ones refuse a site.
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    senders = _collect(federation, job, private)
    reports: dict[str, int] = {}
    for site in senders:
        path = private / f"{site}.csv"
        try:
            reports[site] = _reports_in(path, collection)
        except InputError as error:
            federation.refuse(site, str(error))
    federation.require(job.least_answers)
    # The gaps that all reports together show.
    paths = [private / f"{site}.csv" for site in reports]
    sums = aggregate_reports(paths, collection, SeenIds())
    estimate = estimate_gaps(sums.tally, collection.make_mechanism(), confidence=job.confidence)
    output.mkdir(parents=True, exist_ok=True)
    write_json(
        output / "gaps.json",
        {
            **estimate_document(estimate, sums, collection),
            "warnings": diagnose_reports(sums.tally, collection),
            "rate": job.rate,
            "model": model.sha256,
            "guarantee": guarantee_of(collection).model_dump(mode="json"),
            "sites": reports,
        },
    )
