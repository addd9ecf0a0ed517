"""The server's side of a job: questions to all sites, and a book of how each has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import synthfair
from synthfair.data.schema import read_schema
from synthfair.deploy.messages import (
    Ask,
    BadAnswerError,
    Message,
    ServerCode,
    TaskName,
    read_answer,
)
from synthfair.deploy.settings import ServerSettings
from synthfair.files import write_json
from synthfair.release.keys import read_keys
from synthfair.report.federation import FILE, Booked, Course


class Reply(NamedTuple):
    """What came from a site.

    Attributes:
        message: as it came; None where the engine says that the site failed.
        seconds: since the question was sent.
    """

    message: Message | None
    seconds: float


class Channel(Protocol):
    """What carries messages."""

    def send(
        self, task: TaskName, message: Message, sites: tuple[str, ...], *, timeout: int
    ) -> dict[str, Reply]:
        """Sends a question to sites, and waits until all have answered, or for so many seconds.

        Returns:
            By site; without those that have not answered.
        """
        ...


class TooFewError(RuntimeError):
    """Fewer sites than the job needs have answered well."""


class Federation:
    """The sites of a job, as its server sees them.

    Attributes:
        settings: of the server.
        schema: the public schema.
        keys: public keys of the sites in hexadecimal, by name, but for revoked ones.
        booked: how each site has answered.
    """

    def __init__(
        self,
        channel: Channel,
        settings: ServerSettings,
        *,
        job: str,
        server: str,
        sites: tuple[str, ...],
        log: Callable[[str], None],
    ) -> None:
        """Reads schema and keys.

        Args:
            channel: what carries messages.
            settings: of the server.
            job: the engine's name of the job.
            server: its own name.
            sites: that are asked.
            log: takes text for the server's operator.

        Raises:
            InputError: the schema or a key is refused.
        """
        self.settings, self.schema = settings, read_schema(settings.schema_path)
        every = {name: key for key, name in read_keys([settings.keys]).items()}
        self._revoked = {name for name, key in every.items() if key in settings.revoked}
        self.keys = {name: key for name, key in every.items() if name not in self._revoked}
        self.booked = dict.fromkeys(sites, Booked())
        self._channel, self._job, self._server, self._log = channel, job, server, log
        self._begun = time.monotonic()
        self._round_seconds: list[float] = []

    def ask(
        self,
        task: TaskName,
        number: int,
        settings: dict[str, Any],
        carried: bytes = b"",
        *,
        timeout: int,
    ) -> dict[str, bytes]:
        """Asks all sites, and books their answers.

        Args:
            task: what for.
            number: of the round, from 0.
            settings: of the method.
            carried: goes with the question.
            timeout: seconds to wait.

        Returns:
            What came from those that answered well, by name, in the order of the names.
        """
        ask = Ask(
            task=task,
            job=self._job,
            round=number,
            recipient=self._server,
            version=synthfair.__version__,
            schema_hash=self.schema.hash,
            settings=settings,
        )
        message = Message(ask.model_dump_json().encode(), carried)
        begun = time.monotonic()
        replies = self._channel.send(task, message, tuple(self.booked), timeout=timeout)
        self._round_seconds.append(time.monotonic() - begun)
        good = {}
        for site in sorted(self.booked):
            code = self._book(site, replies.get(site), message)
            if code == "ok":
                good[site] = replies[site].message.carried  # type: ignore[union-attr]
        return good

    def refuse(self, site: str, reason: str) -> None:
        """Books that what a site has sent is not what was asked for."""
        self._log(f"{site}: refused: {reason}")
        old = self.booked[site]
        self.booked[site] = old.but(code="refused", rounds=old.rounds - 1)

    def require(self, least: int | None) -> None:
        """Goes on only if enough sites have answered well; all if ``least`` is not given.

        Raises:
            TooFewError: names those that have not, with their codes.
        """
        bad = {name: booked.code for name, booked in self.booked.items() if booked.code != "ok"}
        n_good = len(self.booked) - len(bad)
        needed = len(self.booked) if least is None else least
        if n_good < needed:
            named = ", ".join(f"{name}: {code}" for name, code in sorted(bad.items()))
            raise TooFewError(f"{n_good} sites have answered well of the {needed} needed ({named})")

    def course(self, error: str | None = None) -> Course:
        """How the job goes; with what stopped it, if anything has."""
        said = error and "".join(c if c.isprintable() else " " for c in error)[:1000]
        return Course(
            job=self._job,
            server=self._server,
            version=synthfair.__version__,
            seconds=round(time.monotonic() - self._begun, 3),
            rounds=len(self._round_seconds),
            median_round_seconds=round(median(self._round_seconds or [0.0]), 3),
            error=said,
            sites=dict(sorted(self.booked.items())),
        )

    def write(self, folder: Path, error: str | None) -> None:
        """Writes that to federation.json in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, self.course(error).model_dump(mode="json"))

    def _book(self, site: str, reply: Reply | None, ask: Message) -> ServerCode:
        old, code = self.booked[site], "late"
        if reply is None:
            self.booked[site] = old.but(code=code)
        elif reply.message is None:
            self.booked[site] = old.but(code=(code := "lost"))
        elif site in self._revoked:
            self.booked[site] = old.but(code=(code := "revoked"))
        else:
            try:
                answer = read_answer(reply.message, ask, site=site, keys=self.keys)
            except BadAnswerError as error:
                self.booked[site] = old.but(code=error.code)
                return error.code
            self.booked[site] = Booked(
                code=(code := answer.code),
                rounds=old.rounds + (code == "ok"),
                seconds=round(old.seconds + reply.seconds, 3),
                site_seconds=None
                if answer.seconds is None
                else round((old.site_seconds or 0.0) + answer.seconds, 3),
                carried_bytes=old.carried_bytes + len(reply.message.carried),
                version=answer.version,
            )
        return code  # type: ignore[return-value]
