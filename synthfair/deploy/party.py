"""A party of a federation, which returns a signed answer to each question.

What is asked, and answered, is of a kind of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from pydantic import BaseModel

from synthfair import __version__
from synthfair.client.page import Site, answer
from synthfair.data.schema import read_schema
from synthfair.deploy.gap_job import GapJob, answer_gap, run_gap
from synthfair.deploy.privfairfl_job import PrivFairFLJob, run_privfairfl
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site_sums import answer_add, answer_model, answer_part
from synthfair.deploy.train_job import SiteTraining, TrainJob, answer_train, run_train
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.release.keys import read_signing_key
from synthfair.secure.task import read_aggregator_secret
from synthfair.task.federation_file import SiteCode
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import PARTY_FILE, AggregatorSettings, RefusedError, read_site_settings
from synthfair.task.messages import Answer, Message, Question, make_answer, read_question, sha256
from synthfair.task.protocol import Run, Task

ROW_DEPENDENT_CODES = frozenset({"table", "stopped", "failed"})
"""Codes that say how far the work on private rows came."""

Stopped = Callable[[], bool]
"""Says whether a job was stopped meanwhile."""


@dataclass
class Request:
    """A question to a party.

    Attributes:
        party: that answers it.
        question: of the server; its schema is the party's.
        submitter: of the job, as the engine says.
        stopped: whether the job was stopped meanwhile.
        private: whether the answer has a guarantee; false before that is known.
    """

    party: Party
    question: Question
    submitter: str
    stopped: Stopped
    private: bool = False

    def answer(self, task: Task) -> Any:
        """Return what the party's table answers, see :func:`synthfair.client.page.answer`."""
        self.private, job, site = task.guarantee is not None, self.question.job, self.party.site

        def stop(*_: object) -> None:
            if self.stopped():
                raise KeyboardInterrupt

        def on_rows(clipping: Any) -> None:
            for line in clipping.warnings():
                self.party.log(f"job {job}: {line}")

        run = Run(str(site.data), stop, stop, on_rows)
        return answer(task, site, output=job, run=run, submitter=self.submitter)


class JobKind(NamedTuple):
    """A kind of jobs.

    Attributes:
        settings: what ``project.yml`` says of such a job.
        answer: the site's side: returns the content of an answer; raises RefusedError where the
            question is none that it answers.
        run: the server's side, with the settings, a folder that stays at the server, and one that
            the submitter downloads.
    """

    settings: type[BaseModel]
    answer: Callable[[Request], bytes]
    run: Callable[[JobSites, Any, Path, Path], object]


JOB_KINDS: dict[str, JobKind] = {
    "single_shot": JobKind(SingleShotJob, answer_single_shot, run_single_shot),
    "train": JobKind(TrainJob, answer_train, run_train),
    "gap": JobKind(GapJob, answer_gap, run_gap),
    "privfairfl": JobKind(PrivFairFLJob, answer_part, run_privfairfl),
}
"""The kinds by the name of the job, which is also that of its first task."""


class Party:
    """A site, which answers by its table, ledger and limits; or an aggregator, which sums.

    Nothing but a code is ever said of why a question is refused: texts of errors may quote the
    table, and go to the party's own log alone.

    Attributes:
        name: of the party.
        settings: its own, of a site or of an aggregator.
        schema: the public schema; that of a question is the same.
        folder: the party's own, for releases and the like.
        log: takes text that must not leave.
        site: with its table; None of an aggregator.
        training: the last one in rounds that it was asked for; None before.
    """

    def __init__(self, name: str, workspace: Path, log: Callable[[str], None]) -> None:
        """Read the settings, the schema and the key.

        Args:
            name: of the party.
            workspace: folder of its kit.
            log: takes text that must not leave.

        Raises:
            InputError: one of these is refused.
        """
        self.name, self.log = name, log
        self.settings: Any = read_site_settings(workspace / "local" / PARTY_FILE)
        self.schema = read_schema(self.settings.schema_path)
        self.folder = workspace / "synthfair"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.site: Any = None
        self.training: SiteTraining | None = None
        self._routines: dict[str, Callable[[Request], bytes]] = {"add": answer_add}
        if isinstance(self.settings, AggregatorSettings):
            self.key = read_aggregator_secret(self.settings.key).signing_key
        else:
            self.key = read_signing_key(self.settings.key)
            ledger = Ledger(self.settings.ledger_file)
            self.site = Site(self.settings.data, self.schema, ledger, self.settings.limits)
            self._routines = {name: kind.answer for name, kind in JOB_KINDS.items()}
            self._routines["deliver"] = answer_model

    def answer(
        self, message: Message, *, job: str, submitter: str, stopped: Stopped = lambda: False
    ) -> Message:
        """Return the signed answer to a question, booked before it leaves.

        Args:
            message: the question.
            job: the engine's name of the job that asks.
            submitter: of the job, as the engine says.
            stopped: whether the job was stopped meanwhile.
        """
        start, content, request, code = time.monotonic(), b"", None, "ok"
        try:
            request = Request(self, read_question(message, job), submitter, stopped)
            content = self._content(request)
        except KeyboardInterrupt:
            code = "stopped"
        except Exception as error:  # whatever it says may quote the table
            code = self._code(error)
            self.log(f"job {job}: {code}: {error.__cause__ or repr(error)}")
        # How the work on private rows went, and how long it took, is no part of the guarantee.
        private = request is not None and request.private
        return make_answer(
            Answer(
                asked=sha256(message.text),
                site=self.name,
                code="failed" if private and code in ROW_DEPENDENT_CODES else code,
                seconds=None if private else round(time.monotonic() - start, 3),
                version=__version__,
            ),
            content,
            self.key,
        )

    def _content(self, request: Request) -> bytes:
        """Return the content of the answer, computed under one lock over all jobs."""
        question = request.question
        if question.task not in self._routines:
            raise RefusedError("message")
        if question.schema_hash != self.schema.hash:
            raise RefusedError("schema")
        # Two jobs cannot both have what is left.
        with FileLock(self.folder / ".busy.lock", timeout=0, mode=OWNER_ONLY):
            return self._routines[question.task](request)

    def _code(self, error: Exception) -> SiteCode:
        """Return all that is said of an error."""
        if isinstance(error, RefusedError):
            return error.code
        table = "table" if self.site else "failed"
        codes: dict[type, Any] = {BudgetError: "budget", Timeout: "busy", InputError: table}
        return next((codes[kind] for kind in codes if isinstance(error, kind)), "failed")
