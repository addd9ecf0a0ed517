"""The trace of a site's questions and answers: a log that shows where a line is lost or altered."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from pydantic import Field

from synthfair.privacy.chain import Chain, Link
from synthfair.release.keys import Hex32
from synthfair.settings import Checked, Line
from synthfair.task.messages import JobId, SiteCode

FILE = "trace.jsonl"
"""The trace's name, in the folder ``synthfair`` of a kit."""

MOST_BYTES = 500_000_000
"""The largest trace, about a million lines; with a longer one, a site answers nothing."""


class Event(Checked):
    """A question, and how it was answered.

    Attributes:
        job: the engine's name of it.
        submitter: who submitted the job, as the engine says.
        task: what for.
        round: from 0.
        code: how it went. Where the question has an epsilon, the server was told less, see
            :attr:`synthfair.task.messages.Ask.has_epsilon`.
        refused: questions of this job that ended with this code so far, this one included; 0 for
            ``ok``.
        carried_bytes: that left with it.
        sha256: of what left; None where nothing did.
        epsilon: that the release claims, or the training, for all its rounds; None where what left
            claims none.
    """

    job: JobId
    submitter: Line
    task: Line
    round: int = Field(ge=0)
    code: SiteCode
    refused: int = Field(default=0, ge=0)
    carried_bytes: int = Field(default=0, ge=0)
    sha256: Hex32 | None = None
    epsilon: float | None = None


class TraceLine(Link):
    """A line of the trace.

    Attributes:
        what: happened.
    """

    what: Event


class Trace:
    """The log of a site: appended to before an answer leaves.

    Whatever leaves has a line of its own. Of the refused questions of one job with one code, the
    1st, 2nd, 4th, 8th and so on have one, which says how many there were: a job cannot fill the
    file with junk, and at most half of its questions are not in it.

    The file is read and verified once in the life of this object; later only what was added.
    """

    def __init__(self, path: Path) -> None:
        """The file need not exist; its folder must."""
        self._chain = Chain(
            path,
            TraceLine,
            elsewhere="the folder of the kit",
            on_line=self._count,
            most_bytes=MOST_BYTES,
        )
        self._answered: defaultdict[str, set[int]] = defaultdict(set)
        self._bare: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()

    def write(self, event: Event) -> None:
        """Adds an event, durably; one that was refused is counted, and not always written.

        Raises:
            InputError: the file cannot be read or written, or its chain is broken.
        """
        with self._chain.locked():
            self._chain.catch_up()
            if event.code != "ok":
                number = self._refused[event.job, event.code] + 1
                if number & (number - 1):  # no power of two
                    self._refused[event.job, event.code] = number
                    return
                event = event.model_copy(update={"refused": number})
            self._chain.append(what=event)

    def events(self) -> list[Event]:
        """Reads all events. Raises as :meth:`write`."""
        return [line.what for line in self._chain.read()]

    def unprotected(self, task: str) -> int:
        """Answers to a task, over all jobs, that claimed no epsilon. Raises as :meth:`write`."""
        self._chain.catch_up()
        return self._bare[task]

    def has_answered(self, job: str, number: int) -> bool:
        """Whether a round of a job was answered with what it asked for. Raises as :meth:`write`."""
        self._chain.catch_up()
        return job in self._answered and number in self._answered[job]

    def _count(self, line: TraceLine) -> None:
        event = line.what
        if event.code != "ok":
            count = self._refused[event.job, event.code]
            self._refused[event.job, event.code] = max(count, event.refused, 1)
            return
        self._answered[event.job].add(event.round)
        self._bare[event.task] += event.epsilon is None
