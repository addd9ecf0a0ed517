"""A party of a federation: a question comes as a message, and an answer leaves, signed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from synthfair import __version__
from synthfair.client.page import Site, answer
from synthfair.data.schema import read_schema
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, parse_as
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.task.federation_file import SiteCode
from synthfair.task.limits import RefusedError, SiteSettings, refused_as
from synthfair.task.messages import (
    DEPENDS_ON_ROWS,
    MAX_CARRIED,
    MAX_TEXT,
    Answer,
    Ask,
    Message,
    TaskName,
    make_answer,
    sha256,
)
from synthfair.task.protocol import Run, Task


class Request:
    """A question to a party.

    Attributes:
        party: that answers it.
        ask: the question; its schema is the party's.
        carried: what came with it.
        submitter: of the job, as the engine says.
        stopped: whether the job was stopped meanwhile.
        task: that the question comes to; None before it is known.
    """

    def __init__(
        self,
        party: Party,
        ask: Ask,
        carried: bytes,
        submitter: str,
        stopped: Callable[[], bool],
    ) -> None:
        """Hold a question."""
        self.party, self.ask, self.carried = party, ask, carried
        self.submitter, self.stopped = submitter, stopped
        self.task: Task | None = None

    def answer(self, task: Task) -> Any:
        """Return what the party's table answers, see :func:`synthfair.client.page.answer`."""
        self.task, job = task, self.ask.job

        def stop(*_: object) -> None:
            if self.stopped():
                raise KeyboardInterrupt

        def on_rows(clipping: Any) -> None:
            for line in clipping.warnings():
                self.party.log(f"job {job}: {line}")

        run = Run(str(self.party.settings.data), stop, stop, on_rows)
        return answer(task, self.party.site, output=job, run=run, submitter=self.submitter)


Routine = Callable[[Request], bytes]
"""Returns the content of an answer; raises RefusedError: the question is none that it answers."""


class Party:
    """Answers questions with its own table, ledger and limits; or sums, as an aggregator.

    Nothing but a code is ever said of why a question is refused: texts of errors may quote the
    table, and go to the party's own log alone.

    Attributes:
        name: of the party.
        settings: its own, of a site or of an aggregator.
        schema: the public schema; that of a question is the same.
        folder: the party's own, for releases and the like.
        log: takes text that must not leave.
        site: with its table; None of an aggregator.
    """

    def __init__(
        self,
        name: str,
        workspace: Path,
        settings: Any,
        routines: Mapping[TaskName, Routine],
        log: Callable[[str], None],
    ) -> None:
        """Read the schema and the key.

        Args:
            name: of the party.
            workspace: folder of its kit.
            settings: its own, of a site or of an aggregator.
            routines: of the tasks that it answers.
            log: takes text that must not leave.

        Raises:
            InputError: the schema or the key is refused.
        """
        self.name, self.settings, self._routines, self.log = name, settings, routines, log
        self.schema, self.key = read_schema(settings.schema_path), settings.signing_key()
        self.folder = workspace / "synthfair"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.site: Any = None
        if isinstance(settings, SiteSettings):
            ledger = Ledger(settings.ledger_file)
            self.site = Site(settings.data, self.schema, ledger, settings.limits)

    def answer(
        self,
        message: Message,
        *,
        job: str,
        submitter: str,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Message:
        """Return the signed answer to a question, booked before it leaves.

        Args:
            message: the question.
            job: the engine's name of the job that asks.
            submitter: of the job, as the engine says.
            stopped: whether the job was stopped meanwhile.
        """
        start, content, request = time.monotonic(), b"", None
        code: SiteCode = "ok"
        try:
            request = Request(self, _read(message, job), message.carried, submitter, stopped)
            content = self._content(request)
        except RefusedError as error:
            if error.__cause__:
                self.log(f"job {job}: {error.code}: {error.__cause__}")
            code = error.code
        except KeyboardInterrupt:
            code = "stopped"
        except Exception as error:  # whatever it says may quote the table
            self.log(f"job {job}: {error!r}")
            code = "failed"
        # How the work on private rows went, and how long it took, is no part of the guarantee.
        task = request.task if request else None
        private = task is not None and task.guarantee is not None
        return make_answer(
            Answer(
                job=job,
                round=request.ask.round if request else 0,
                asked=sha256(message.text),
                recipient=request.ask.recipient if request else "unknown",
                site=self.name,
                code="failed" if private and code in DEPENDS_ON_ROWS else code,
                seconds=None if private else round(time.monotonic() - start, 3),
                version=__version__,
            ),
            content,
            self.key,
        )

    def _content(self, request: Request) -> bytes:
        """Return the content of the answer, computed under one lock over all jobs."""
        from filelock import FileLock, Timeout

        ask = request.ask
        if ask.task not in self._routines:
            raise RefusedError("message")
        if ask.schema_hash != self.schema.hash:
            raise RefusedError("schema")
        busy = FileLock(self.folder / ".busy.lock", timeout=0, mode=OWNER_ONLY)
        try:  # one at a time, so that two jobs cannot both have what is left
            busy.acquire()
        except Timeout as error:
            raise RefusedError("busy") from error
        try:
            return self._routines[ask.task](request)
        except BudgetError as error:
            raise RefusedError("budget") from error
        except InputError as error:
            raise RefusedError("table" if self.site else "failed") from error
        finally:
            busy.release()


def _read(message: Message, job: str) -> Ask:
    """Return the question, if it is one, of this job."""
    if len(message.text) > MAX_TEXT or len(message.carried) > MAX_CARRIED:
        raise RefusedError("message")
    with refused_as("message"):
        ask = parse_as(message.text, Ask, "question")
    if ask.job != job:
        raise RefusedError("message")
    return ask
