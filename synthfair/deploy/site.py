"""A site's side: a question in, an answer out, whatever carries them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import synthfair
from synthfair.data.schema import Schema, read_schema
from synthfair.deploy.messages import (
    DEPENDS_ON_ROWS,
    MAX_CARRIED,
    MAX_TEXT,
    Answer,
    Ask,
    Message,
    SiteCode,
    TaskName,
    make_answer,
    sha256,
)
from synthfair.deploy.settings import (
    FILE,
    AggregatorSettings,
    Kind,
    SiteSettings,
    read_site_settings,
)
from synthfair.deploy.trace import FILE as TRACE
from synthfair.deploy.trace import Event, Trace
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, parse_as
from synthfair.privacy.answers import BoughtFile
from synthfair.privacy.ledger import Booking, Ledger

Settings = TypeVar("Settings", bound=SiteSettings | AggregatorSettings)


class RefusedError(Exception):
    """What a site will not answer.

    Attributes:
        code: all that is said of why.
    """

    def __init__(self, code: SiteCode) -> None:
        """With the code alone."""
        super().__init__(code)
        self.code: SiteCode = code


class Made(NamedTuple):
    """What an answer carries.

    Attributes:
        content: bytes.
        epsilon: that it claims; None where it claims none.
    """

    content: bytes
    epsilon: float | None = None


@dataclass(frozen=True)
class Asked(Generic[Settings]):
    """A question that may be answered, and what a routine needs for that.

    Attributes:
        site: its name.
        ask: the question.
        carried: what came with it.
        settings: of the site, or of the aggregator.
        schema: the public schema; the question has the same.
        folder: the site's own, for releases and the like.
        stopped: whether the job was stopped meanwhile.
        unprotected: answers to this task so far, over all jobs, that claim no epsilon themselves.
        log: takes text that must not leave the site.
    """

    site: str
    ask: Ask
    carried: bytes
    settings: Settings
    schema: Schema
    folder: Path
    stopped: Callable[[], bool]
    unprotected: int
    log: Callable[[str], None]

    def require_allowed(
        self: Asked[SiteSettings], kind: Kind, epsilon: float | None, delta: float | None = None
    ) -> None:
        """Before any work: whether the site's limits allow such an answer.

        Raises:
            RefusedError: of another kind, or with another epsilon or delta, than they allow; or
                with an epsilon where the ledger has no limit of all of them together.
        """
        limits = self.settings.limits
        if kind not in limits.kinds:
            raise RefusedError("kind")
        if not limits.allow(epsilon, delta):
            raise RefusedError("epsilon")
        if epsilon is not None and Ledger(self.settings.ledger_file).spent().limit is None:
            raise RefusedError("budget")

    def require_affordable(self: Asked[SiteSettings], booking: Booking) -> None:
        """Before any work: whether the site's limits allow it to be booked.

        Raises:
            RefusedError: the ledger's limit would be passed, or too little of it left.
        """
        reserve = self.settings.limits.least_epsilon_left
        try:
            Ledger(self.settings.ledger_file).require_affordable(booking, reserve=reserve)
        except InputError as error:
            raise RefusedError("budget") from error

    def buy(
        self: Asked[SiteSettings],
        file: BoughtFile,
        booking: Booking,
        make: Callable[[], bytes],
        *,
        room: int,
    ) -> None:
        """Books what leaves, once, then computes and saves it.

        Raises:
            RefusedError: as :meth:`require_affordable`.
            InputError: the file is damaged.
        """
        ledger, reserve = Ledger(self.settings.ledger_file), self.settings.limits.least_epsilon_left
        if file.complete:
            return
        try:
            file.buy(ledger, booking, make, room=room, reserve=reserve)
        except InputError as error:
            raise RefusedError("budget") from error

    def book(self: Asked[SiteSettings], booking: Booking) -> None:
        """Books what leaves. Raises as :meth:`require_affordable`."""
        reserve = self.settings.limits.least_epsilon_left
        try:
            Ledger(self.settings.ledger_file).book(booking, reserve=reserve)
        except InputError as error:
            raise RefusedError("budget") from error


Routine = Callable[[Asked[Any]], Made]
"""Answers a task's questions.

It raises RefusedError for a limit, InputError for what its table forbids, and KeyboardInterrupt
where it was stopped.
"""


class Site:
    """Answers questions with its own table, ledger and limits, and writes down what left it.

    Nothing but a code is ever said of why a question is refused: texts of errors may quote the
    table, and go to the site's own log alone.
    """

    def __init__(
        self,
        name: str,
        workspace: Path,
        routines: dict[TaskName, Routine],
        log: Callable[[str], None],
    ) -> None:
        """Reads the site's own file.

        Args:
            name: of the site.
            workspace: folder of its kit.
            routines: by task.
            log: takes text that must not leave the site.

        Raises:
            InputError: the file, the schema or the key is refused.
        """
        self.name, self._routines, self._log = name, routines, log
        self.settings = read_site_settings(workspace / "local" / FILE)
        self.schema = read_schema(self.settings.schema_path)
        self._key = self.settings.signing_key()
        self.folder = workspace / "synthfair"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.trace = Trace(self.folder / TRACE)

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
        begun, made, ask = time.monotonic(), Made(b""), None
        code: SiteCode = "ok"
        try:
            ask = self._read(message, job)
            made = self._make(ask, message.carried, stopped, submitter)
        except RefusedError as error:
            if error.__cause__:
                self._log(f"job {job}: {error.code}: {error.__cause__}")
            code = error.code
        except KeyboardInterrupt:
            code = "stopped"
        except Exception as error:  # whatever it says may quote the table
            self._log(f"job {job}: {error!r}")
            code = "failed"
        if code != "ok":
            try:
                self._write_down(code, made, ask, job=job, submitter=submitter)
            except Exception as error:  # nothing leaves but that it failed
                self._log(f"job {job}: {error!r}")
                code = "failed"
        private = ask is not None and ask.has_epsilon
        answer = Answer(
            job=job,
            round=ask.round if ask else 0,
            asked=sha256(message.text),
            recipient=ask.recipient if ask else "unknown",
            site=self.name,
            code="failed" if private and code in DEPENDS_ON_ROWS else code,
            seconds=None if private else round(time.monotonic() - begun, 3),
            version=synthfair.__version__,
        )
        return make_answer(answer, made.content, self._key)

    def _read(self, message: Message, job: str) -> Ask:
        if len(message.text) > MAX_TEXT or len(message.carried) > MAX_CARRIED:
            raise RefusedError("message")
        try:
            ask = parse_as(message.text, Ask, "question")
        except InputError as error:
            raise RefusedError("message") from error
        if ask.job != job:
            raise RefusedError("message")
        return ask

    def _make(self, ask: Ask, carried: bytes, stopped: Callable[[], bool], submitter: str) -> Made:
        """What leaves: made within the limits, and traced, under one lock over all jobs."""
        from filelock import FileLock, Timeout

        if ask.version != synthfair.__version__:
            raise RefusedError("version")
        if ask.schema_hash != self.schema.hash:
            raise RefusedError("schema")
        aggregates = isinstance(self.settings, AggregatorSettings)
        if ask.task not in self._routines or aggregates != (ask.task == "add"):
            raise RefusedError("message")
        try:  # one at a time, so that two jobs cannot both have what is left
            with FileLock(self.folder / ".busy.lock", timeout=0, mode=OWNER_ONLY):
                if self.trace.has_answered(ask.job, ask.round):
                    raise RefusedError("answered")
                known = self.settings, self.schema, self.folder
                bare = self.trace.unprotected(ask.task)
                asked = Asked(self.name, ask, carried, *known, stopped, bare, self._log)
                try:
                    made = self._routines[ask.task](asked)
                except InputError as error:
                    self._log(f"job {ask.job}: {error}")
                    raise RefusedError("table") from error
                self._write_down("ok", made, ask, job=ask.job, submitter=submitter)
                return made
        except Timeout as error:
            raise RefusedError("busy") from error

    def _write_down(
        self, code: SiteCode, made: Made, ask: Ask | None, *, job: str, submitter: str
    ) -> None:
        self.trace.write(
            Event(
                job=job,
                submitter=submitter,
                task=ask.task if ask else "unknown",
                round=ask.round if ask else 0,
                code=code,
                carried_bytes=len(made.content),
                sha256=sha256(made.content) if made.content else None,
                epsilon=made.epsilon,
            )
        )
