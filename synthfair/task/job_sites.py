"""The server's side of a job: questions to all sites, and a record of their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import synthfair
from synthfair.data.schema import read_schema
from synthfair.files import write_json
from synthfair.release.keys import read_keys
from synthfair.task.federation_file import FILE, FederationFile, SiteRecord
from synthfair.task.limits import ServerSettings
from synthfair.task.messages import Ask, BadAnswerError, Message, TaskName, read_answer

if TYPE_CHECKING:
    from synthfair.secure.task import AggregatorKeys


Content = TypeVar("Content")


class Query(NamedTuple):
    """A question of the server.

    Attributes:
        task: what for.
        number: of the round, from 0.
        settings: of the method.
        timeout: seconds to wait.
        carried: goes with the question.
    """

    task: TaskName
    number: int
    settings: dict[str, Any]
    timeout: int
    carried: bytes = b""


class Reply(NamedTuple):
    """The reply of a site.

    Attributes:
        message: as it came; None where the engine says that the site failed.
        seconds: since the question was sent.
    """

    message: Message | None
    seconds: float


class Channel(Protocol):
    """A carrier of messages."""

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


class JobSites:
    """The sites of a job, as its server sees them.

    Attributes:
        settings: of the server.
        job: the engine's name of the job.
        schema: the public schema.
        sites: that hold tables.
        aggregators: public keys of the sites that add up shares, by name, in the order of roles.
        keys: public keys of all sites in hexadecimal, by name, but for revoked ones.
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
        aggregators: Mapping[str, AggregatorKeys] = MappingProxyType({}),
    ) -> None:
        """Reads schema and keys.

        Args:
            channel: what carries messages.
            settings: of the server.
            job: the engine's name of the job.
            server: its own name.
            sites: that are asked.
            log: takes text for the server's operator.
            aggregators: public keys of the sites that add up shares, by name, in the order of their
                roles.

        Raises:
            InputError: the schema or a key is refused.
        """
        self.settings, self.schema = settings, read_schema(settings.schema_path)
        self.sites, self.aggregators = sites, aggregators
        every = {name: key for key, name in read_keys([settings.keys]).items()}
        every |= {name: keys.signature for name, keys in self.aggregators.items()}
        self._revoked = {name for name, key in every.items() if key in settings.revoked}
        self.keys = {name: key for name, key in every.items() if name not in self._revoked}
        self.booked = dict.fromkeys((*sites, *self.aggregators), SiteRecord())
        self.job, self._channel, self._server, self._log = job, channel, server, log
        self._begun = time.monotonic()
        self._round_seconds: list[float] = []

    def collect(
        self, query: Query, read: Callable[[str, bytes], Content], *, least: int | None
    ) -> dict[str, Content]:
        """Asks all sites that hold tables, and reads what each has sent.

        Args:
            query: what is asked.
            read: of a site's name and what came from it; an InputError or ValueError refuses it.
            least: sites that must have answered well; all if not given.

        Returns:
            What was read, by site, in the order of the names.

        Raises:
            TooFewError: fewer have answered well.
        """
        contents = {}
        for site, content in self.ask(query).items():
            try:
                contents[site] = read(site, content)
            except ValueError as error:
                self.refuse(site, str(error))
        self.require(least)
        return contents

    def ask(self, query: Query, sites: tuple[str, ...] | None = None) -> dict[str, bytes]:
        """Asks sites, and books their answers.

        Args:
            query: what is asked.
            sites: who is asked; if not given, all that hold tables, and a round begins.

        Returns:
            What came from those that answered well, by name, in the order of the names.
        """
        ask = Ask(
            task=query.task,
            job=self.job,
            round=query.number,
            recipient=self._server,
            version=synthfair.__version__,
            schema_hash=self.schema.hash,
            settings=query.settings,
        )
        message = Message(ask.model_dump_json().encode(), query.carried)
        if sites is None or not self._round_seconds:
            self._round_seconds.append(0.0)
        targets, start = self.sites if sites is None else sites, time.monotonic()
        replies = self._channel.send(query.task, message, targets, timeout=query.timeout)
        self._round_seconds[-1] += time.monotonic() - start
        good = {}
        for site in sorted(targets):
            changes = self._changes(site, replies.get(site), message)
            self.booked[site] = self.booked[site].model_copy(update=changes)
            if changes["code"] == "ok":
                good[site] = replies[site].message.carried  # type: ignore[union-attr]
        return good

    def refuse(self, site: str, reason: str) -> None:
        """Books the answer of a site as one to another question."""
        self._log(f"{site}: refused: {reason}")
        old = self.booked[site]
        update = {"code": "refused", "rounds": old.rounds - 1}
        self.booked[site] = old.model_copy(update=update)

    def require(self, least: int | None, sites: tuple[str, ...] | None = None) -> None:
        """Goes on only if enough have answered well; all if ``least`` is not given.

        Args:
            least: number of them.
            sites: of which; all that hold tables if not given.

        Raises:
            TooFewError: names those that have not, with their codes.
        """
        codes = {name: self.booked[name].code for name in (self.sites if sites is None else sites)}
        bad = {name: code for name, code in codes.items() if code != "ok"}
        n_good = len(codes) - len(bad)
        number = len(codes) if least is None else least
        if n_good < number:
            remarks = ", ".join(f"{name}: {code}" for name, code in sorted(bad.items()))
            raise TooFewError(
                f"{n_good} sites have answered well of the {number} needed ({remarks})"
            )

    def document(self, error: str | None = None) -> FederationFile:
        """The course of the job; with the error that stopped it, if any."""
        text = error and "".join(c if c.isprintable() else " " for c in error)[:1000]
        return FederationFile(
            job=self.job,
            server=self._server,
            version=synthfair.__version__,
            seconds=round(time.monotonic() - self._begun, 3),
            rounds=len(self._round_seconds),
            median_round_seconds=round(median(self._round_seconds or [0.0]), 3),
            error=text,
            sites=dict(sorted(self.booked.items())),
        )

    def write(self, folder: Path, error: str | None) -> None:
        """Writes the document to federation.json in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, self.document(error).model_dump(mode="json"))

    def _changes(self, site: str, reply: Reply | None, ask: Message) -> dict[str, Any]:
        """The changes of a site's record by an answer, or by none."""
        if reply is None:
            return {"code": "late"}
        if reply.message is None:
            return {"code": "lost"}
        if site in self._revoked:
            return {"code": "revoked"}
        try:
            answer = read_answer(reply.message, ask, site=site, keys=self.keys)
        except BadAnswerError as error:
            return {"code": error.code}
        old, seconds = self.booked[site], answer.seconds
        before = old.site_seconds or 0.0
        return {
            "code": answer.code,
            "rounds": old.rounds + (answer.code == "ok"),
            "seconds": round(old.seconds + reply.seconds, 3),
            "site_seconds": None if seconds is None else round(before + seconds, 3),
            "carried_bytes": old.carried_bytes + len(reply.message.carried),
            "version": answer.version,
        }
