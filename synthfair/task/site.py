"""A site's side: a question in, an answer out, whatever carries them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from synthfair import __version__
from synthfair.data.schema import read_schema
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, parse_as
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.task.answer_store import AnswerStore
from synthfair.task.federation_file import SiteCode
from synthfair.task.limits import Claim
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
from synthfair.task.trace import FILE as TRACE
from synthfair.task.trace import Event, Trace


class RefusedError(Exception):
    """A question that a site does not answer.

    Attributes:
        code: all that is said of why.
    """

    def __init__(self, code: SiteCode) -> None:
        """Refuses with the code alone."""
        super().__init__(code)
        self.code: SiteCode = code


@contextmanager
def refused_as(code: SiteCode) -> Iterator[None]:
    """Turns errors in the block into a code for the server; the log has the words."""
    try:
        yield
    except ValueError as error:
        raise RefusedError(code) from error


class Work(NamedTuple):
    """The work for a question, by its settings: what came with it is not read yet, nor a row.

    Attributes:
        claim: what the site's limits look at; None of what has limits of its own.
        epsilon: that the content of the answer has by itself; None where the server sees it without
            noise.
        answer: computes the content of the answer, once the limits allow it; it raises RefusedError
            for what came with the question, BudgetError for what the ledger forbids, InputError for
            what the table forbids, and KeyboardInterrupt where it was stopped.
    """

    claim: Claim | None
    epsilon: float | None
    answer: Callable[[], bytes]


class Request(NamedTuple):
    """A question to a site.

    Attributes:
        site: that answers it.
        ask: the question; its schema is the site's.
        carried: what came with it.
        stopped: whether the job was stopped meanwhile.
    """

    site: Site
    ask: Ask
    carried: bytes
    stopped: Callable[[], bool]


Routine = Callable[[Request], Work]
"""Reads a task's questions.

Raises:
    RefusedError: the question is none that a site may answer.
"""


class Site:
    """Answers questions with its own table, ledger and limits, and writes down what left it.

    Nothing but a code is ever said of why a question is refused: texts of errors may quote the
    table, and go to the site's own log alone.

    Attributes:
        name: of the site.
        settings: its own, of a site or of an aggregator.
        schema: the public schema; that of a question is the same.
        folder: the site's own, for releases and the like.
        log: takes text that must not leave the site.
        trace: of its questions and answers.
    """

    def __init__(
        self,
        name: str,
        workspace: Path,
        settings: Any,
        routines: Mapping[TaskName, Routine],
        log: Callable[[str], None],
    ) -> None:
        """Reads the schema and the key.

        Args:
            name: of the site.
            workspace: folder of its kit.
            settings: its own, of a site or of an aggregator.
            routines: of the tasks that it answers.
            log: takes text that must not leave the site.

        Raises:
            InputError: the schema or the key is refused.
        """
        self.name, self.settings, self._routines, self.log = name, settings, routines, log
        self.schema, self._key = read_schema(settings.schema_path), settings.signing_key()
        self.folder = workspace / "synthfair"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.trace = Trace(self.folder / TRACE)

    @property
    def ledger(self) -> Ledger:
        """The site's book of all that has left, with what its limits allow of the next answer."""
        limits = self.settings.limits
        book = Ledger(self.settings.ledger_file, limits.least_epsilon_left)
        return replace(book, again=book.spent().releases == limits.again)

    def store(self, name: str, ending: str) -> AnswerStore:
        """The answers of one kind that were bought, in a folder of the site's own."""
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return AnswerStore(folder, ending)

    def answer(
        self,
        message: Message,
        *,
        job: str,
        submitter: str,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Message:
        """The signed answer to a question, traced before it leaves.

        Args:
            message: the question.
            job: the engine's name of the job that asks.
            submitter: of the job, as the engine says.
            stopped: whether the job was stopped meanwhile.
        """
        start, content, ask = time.monotonic(), b"", None
        event: dict[str, Any] = {"job": job, "submitter": submitter, "task": "unknown", "round": 0}
        code: SiteCode = "ok"
        try:
            ask = self._read(message, job)
            event |= {"task": ask.task, "round": ask.round}
            content = self._content(ask, message.carried, stopped, event)
        except RefusedError as error:
            if error.__cause__:
                self.log(f"job {job}: {error.code}: {error.__cause__}")
            code = error.code
        except KeyboardInterrupt:
            code = "stopped"
        except Exception as error:  # whatever it says may quote the table
            self.log(f"job {job}: {error!r}")
            code = "failed"
        if code != "ok":
            try:
                self.trace.write(Event(**event, code=code))
            except Exception as error:  # nothing leaves but that it failed
                self.log(f"job {job}: {error!r}")
                code = "failed"
        private = ask is not None and ask.has_epsilon
        answer = Answer(
            job=job,
            round=ask.round if ask else 0,
            asked=sha256(message.text),
            recipient=ask.recipient if ask else "unknown",
            site=self.name,
            code="failed" if private and code in DEPENDS_ON_ROWS else code,
            seconds=None if private else round(time.monotonic() - start, 3),
            version=__version__,
        )
        return make_answer(answer, content, self._key)

    def _read(self, message: Message, job: str) -> Ask:
        """The question, if it is one, of this job."""
        if len(message.text) > MAX_TEXT or len(message.carried) > MAX_CARRIED:
            raise RefusedError("message")
        with refused_as("message"):
            ask = parse_as(message.text, Ask, "question")
        if ask.job != job:
            raise RefusedError("message")
        return ask

    def _content(
        self, ask: Ask, carried: bytes, stopped: Callable[[], bool], event: dict[str, Any]
    ) -> bytes:
        """The answer: within the limits, computed, and traced, under one lock over all jobs."""
        from filelock import FileLock, Timeout

        if ask.task not in self._routines:
            raise RefusedError("message")
        if ask.schema_hash != self.schema.hash:
            raise RefusedError("schema")
        busy = FileLock(self.folder / ".busy.lock", timeout=0, mode=OWNER_ONLY)
        with ExitStack() as lock:
            try:  # one at a time, so that two jobs cannot both have what is left
                lock.enter_context(busy)
            except Timeout as error:
                raise RefusedError("busy") from error
            if self.trace.has_answered(ask.job, ask.round):
                raise RefusedError("answered")
            work = self._routines[ask.task](Request(self, ask, carried, stopped))
            if work.claim:
                self._require_allowed(ask, work)
            try:
                content = work.answer()
            except BudgetError as error:
                raise RefusedError("budget") from error
            except InputError as error:
                raise RefusedError("table") from error
            left = {"carried_bytes": len(content), "sha256": sha256(content) if content else None}
            self.trace.write(Event(**event, **left, code="ok", epsilon=work.epsilon))
            return content

    def _require_allowed(self, ask: Ask, work: Work) -> None:
        """Refuses an answer beyond the site's limits, before any row is read."""
        bare = None if work.epsilon is not None else self.trace.unprotected(ask.task)
        claim = cast(Claim, work.claim)
        code = self.settings.limits.refusal(claim, unprotected=bare)
        if code:
            raise RefusedError(code)
        if claim.epsilon is not None and self.ledger.spent().limit is None:
            raise RefusedError("budget")
