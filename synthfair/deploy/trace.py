"""What a site was asked, and what left it: a log that shows where a line is lost or altered."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from synthfair.chain import Chain, Linked
from synthfair.config.rules import FROZEN
from synthfair.deploy.messages import Hex32, JobId, SiteCode
from synthfair.privacy.statement import Line

FILE = "trace.jsonl"
"""Its name, in the folder ``synthfair`` of a kit."""


class Event(BaseModel):
    """One question, and how it was answered.

    Attributes:
        job: the engine's name of it.
        submitter: who submitted the job, as the engine says.
        task: what for.
        round: from 0.
        code: of the answer.
        carried_bytes: that left with it.
        sha256: of what left; None where nothing did.
        epsilon: that the release claims, or the training, for all its rounds; None where what left
            claims none.
    """

    model_config = FROZEN

    job: JobId
    submitter: Line
    task: Line
    round: int = Field(ge=0)
    code: SiteCode
    carried_bytes: int = Field(default=0, ge=0)
    sha256: Hex32 | None = None
    epsilon: float | None = None


class TraceLine(Linked):
    """A line of the trace.

    Attributes:
        what: happened.
    """

    what: Event


class Trace:
    """The log of a site: appended to before an answer leaves, refused ones too."""

    def __init__(self, path: Path) -> None:
        """The file need not exist; its folder must."""
        self._chain = Chain(path, TraceLine, elsewhere="the folder of the kit")

    def write(self, event: Event) -> None:
        """Adds an event, durably.

        Raises:
            InputError: the file cannot be read or written, or its chain is broken.
        """
        with self._chain.locked():
            self._chain.append(what=event)

    def events(self) -> list[Event]:
        """All of them. Raises as :meth:`write`."""
        return [line.what for line, _ in self._chain.read()]

    def bare_rounds(self, task: str) -> int:
        """Answers to a task, over all jobs, that claimed no epsilon. Raises as :meth:`write`."""
        good = [event for event in self.events() if event.code == "ok"]
        return sum(event.task == task and event.epsilon is None for event in good)

    def has_answered(self, job: str, number: int) -> bool:
        """Whether a round of a job was answered with what it asked for. Raises as :meth:`write`."""
        return any(e.code == "ok" and (e.job, e.round) == (job, number) for e in self.events())
