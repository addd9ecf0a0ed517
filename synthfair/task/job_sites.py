"""The server's questions to the sites of a job, with a record of their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import synthfair
from synthfair.data.schema import read_schema
from synthfair.files import write_json
from synthfair.release.keys import read_keys
from synthfair.task.federation_file import FEDERATION, FederationFile, ServerCode, SiteRecord
from synthfair.task.limits import RefusedError, ServerSettings
from synthfair.task.messages import Message, Question, read_answer

if TYPE_CHECKING:
    from synthfair.secure.task import AggregatorKeys

Reply = tuple[Message | None, float]
"""A site's answer as it came, None where the engine says that the site failed; and the seconds
since the question was sent."""

Read = Callable[[str, bytes], Any]
"""Reads what came from a site, by its name; an InputError or ValueError refuses it."""

Channel = Callable[[Question, tuple[str, ...]], dict[str, Reply]]
"""A carrier of messages: sends a question to sites, and returns what each has replied, by site,
when all have or the question's time is over; without those that have not."""


class TooFewError(RuntimeError):
    """An error: fewer sites than the job needs have answered well."""


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
        aggregators: Mapping[str, AggregatorKeys] | None = None,
    ) -> None:
        """Read schema and keys.

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
        self.sites, self.aggregators = sites, aggregators or {}
        all_keys = {name: key for key, name in read_keys([settings.keys]).items()}
        all_keys |= {name: keys.signature for name, keys in self.aggregators.items()}
        self._revoked = {name for name, key in all_keys.items() if key in settings.revoked}
        self.keys = {name: key for name, key in all_keys.items() if name not in self._revoked}
        self.booked = dict.fromkeys((*sites, *self.aggregators), SiteRecord())
        self.job, self._channel, self._server, self._log = job, channel, server, log
        self._begun = time.monotonic()
        self._round_seconds: list[float] = []

    def question(self, **fields: Any) -> Question:
        """Return a question of the job, of these fields; by default of the first round."""
        return Question(
            job=self.job,
            recipient=self._server,
            version=synthfair.__version__,
            schema_hash=self.schema.hash,
            **({"round": 0, "settings": {}} | fields),
        )

    def ask(
        self,
        question: Question,
        read: Read = lambda _, content: content,
        *,
        least: int | None = None,
        sites: tuple[str, ...] | None = None,
    ) -> dict[str, Any]:
        """Ask sites, book their answers, and return what was read of each that answered well.

        Args:
            question: what is asked.
            read: reads what came.
            least: sites that must have answered well; all if not given.
            sites: who is asked; if not given, all that hold tables, and a round begins.

        Returns:
            By site, in the order of the names.

        Raises:
            TooFewError: fewer have answered well; it names those that have not, with their codes.
        """
        if sites is None or not self._round_seconds:
            self._round_seconds.append(0.0)
        sites, start, contents = sites or self.sites, time.monotonic(), {}
        replies = self._channel(question, sites)
        self._round_seconds[-1] += time.monotonic() - start
        for site in sorted(sites):
            try:
                contents[site] = self._book(site, replies.get(site), question, read)
            except RefusedError as error:
                self.booked[site] = self.booked[site].model_copy(update={"code": error.code})
        least = len(sites) if least is None else least
        if len(contents) < least:
            bad = sorted(set(sites) - contents.keys())
            remarks = ", ".join(f"{site}: {self.booked[site].code}" for site in bad)
            raise TooFewError(
                f"{len(contents)} sites have answered well of the {least} needed ({remarks})"
            )
        return contents

    def document(self, error: str | None = None) -> FederationFile:
        """Return the course of the job; with the error that stopped it, if any."""
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
        """Write the document to federation.json in a folder."""
        write_json(folder / FEDERATION, self.document(error).model_dump(mode="json"))

    def _book(self, site: str, reply: Reply | None, question: Question, read: Read) -> Any:
        """Return what was read of a site's reply, and book it. Raises RefusedError: it is bad."""
        message, seconds = reply or (None, 0.0)
        if message is None:
            raise RefusedError("lost" if reply else "late")
        if site in self._revoked:
            raise RefusedError("revoked")
        answer = read_answer(message, question, site=site, keys=self.keys)
        code: ServerCode = answer.code
        try:
            content = read(site, message.carried) if code == "ok" else None
        except ValueError as error:
            self._log(f"{site}: refused: {error}")
            code, content = "refused", None
        old, before = self.booked[site], self.booked[site].site_seconds or 0.0
        self.booked[site] = SiteRecord(
            code=code,
            rounds=old.rounds + (code == "ok"),
            seconds=round(old.seconds + seconds, 3),
            site_seconds=None if answer.seconds is None else round(before + answer.seconds, 3),
            carried_bytes=old.carried_bytes + len(message.carried),
            version=answer.version,
        )
        if code != "ok":
            raise RefusedError(code)
        return content
