"""How the sites of a federation have answered: federation.json, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from synthfair.config.rules import FROZEN
from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.statement import Line

if TYPE_CHECKING:
    from rich.table import Table

FILE = "federation.json"
"""Its name, next to the results of a job."""

MAX_BYTES = 10_000_000
"""Of such a file: a thousand sites fill a thirtieth of it."""

CODES = {
    "ok": "has answered with what was asked for",
    "message": "the question is none that it knows",
    "version": "it has another version of synthfair",
    "schema": "it has another schema",
    "settings": "the method does not allow the settings",
    "kind": "this kind of release is beyond its limits",
    "k_min": "so few rows of a pair of group and label are beyond its limits",
    "epsilon": "this epsilon, or none, is beyond its limits",
    "rounds": "so many rounds are beyond its limits, or of the job's own",
    "releases": "one more release without an epsilon is beyond its limits",
    "aggregators": "the job's aggregators are not those that it trusts",
    "uploads": "an aggregator: what a site sent is no upload of this sum",
    "tasks": "an aggregator: one more sum is beyond its limits",
    "budget": "its ledger's limit would be passed, or too little of it left",
    "answered": "it has answered this before",
    "busy": "it works for another job",
    "table": "its table is unreadable, or the checks of the release refused it",
    "stopped": "the job was stopped meanwhile",
    "failed": "its own log says why",
    "late": "no answer in time",
    "lost": "the engine has lost it",
    "signature": "not signed by that site for this very question",
    "revoked": "its key was revoked",
    "refused": "what came is not what was asked for",
}
"""How a site has answered, in words; from ``late`` on it is the server that says so."""


def _known(code: str) -> str:
    if code not in CODES:
        raise ValueError(f"must be one of {', '.join(CODES)}")
    return code


class Booked(BaseModel):
    """How a site has answered in a job, over all rounds so far.

    Attributes:
        code: of its last answer, see :data:`CODES`.
        rounds: answered well.
        seconds: from question to answer, summed.
        site_seconds: that the site worked, summed, as it says; None where it does not, as the job
            has an epsilon.
        carried_bytes: that came with its answers, summed.
        version: of synthfair, as it says; None before its first answer.
    """

    model_config = FROZEN

    code: Annotated[str, AfterValidator(_known)] = "late"
    rounds: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0)
    site_seconds: float | None = Field(default=0.0, ge=0)
    carried_bytes: int = Field(default=0, ge=0)
    version: Line | None = None

    def but(self, **changes: Any) -> Booked:
        """The same with some changes."""
        return self.model_copy(update=changes)


class Course(BaseModel):
    """How a job went, or goes: federation.json.

    Attributes:
        job: the engine's name of it.
        server: its name.
        version: of synthfair at the server.
        seconds: since the job began.
        rounds: asked for.
        median_round_seconds: from question to the last answer.
        error: what stopped it, if anything has.
        sites: how each has answered.
    """

    model_config = FROZEN

    format: Literal["synthfair-federation/1"] = "synthfair-federation/1"
    job: Line
    server: Line
    version: Line
    seconds: float = Field(ge=0)
    rounds: int = Field(ge=0)
    median_round_seconds: float = Field(ge=0)
    error: Line | None
    sites: dict[Line, Booked] = Field(max_length=1000)

    @property
    def meanings(self) -> dict[str, str]:
        """The codes of its sites, in words."""
        found = {booked.code for booked in self.sites.values()}
        return {code: words for code, words in CODES.items() if code in found}


def read_course(path: Path) -> Course:
    """A federation.json.

    Raises:
        InputError: unreadable, too large, or not of that kind; the message names key and value.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: larger than the {MAX_BYTES} bytes that are read")
    try:
        return Course.model_validate_json(content)
    except ValidationError as error:
        raise refusal(str(path), error) from error


def course_table(course: Course) -> Table:
    """For a terminal: each site's answer, and what its code means."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"job {course.job}", caption_justify="left")
    for title in ("site", "answer", "rounds", "seconds", "bytes", "version"):
        table.add_column(title)
    for name, booked in course.sites.items():
        numbers = booked.rounds, f"{booked.seconds:.1f}", booked.carried_bytes
        cells = name, booked.code, *map(str, numbers), booked.version or "unknown"
        table.add_row(*map(Text, cells))
    table.caption = "\n".join(f"{code}: {words}" for code, words in course.meanings.items())
    return table
