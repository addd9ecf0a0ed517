"""The course of a federation's job in codes, federation.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from synthfair.settings import Checked, Line

FEDERATION = "federation.json"
"""The file's name, next to the results of a job."""

SiteCode = Literal[
    "ok", "message", "schema", "settings", "kind", "k_min", "epsilon", "rounds",
    "rows", "releases", "aggregators", "uploads", "tasks", "budget", "busy", "table", "stopped",
    "failed",
]  # fmt: skip
"""The code of a site's answer; nothing else of why is ever sent. Where the answer has a guarantee,
``table`` and ``stopped`` are sent as ``failed``, too."""

ServerCode = Literal[SiteCode, "late", "lost", "signature", "revoked", "refused"]
"""The code under which the server books an answer: the site's, or one of its own."""

CODES: dict[ServerCode, str] = {
    "ok": "has answered",
    "message": "it cannot read the question; perhaps it has another version of synthfair",
    "schema": "it has another schema",
    "settings": "the method does not allow the settings",
    "kind": "this kind of answer is beyond its limits",
    "k_min": "so few rows of a sum are beyond its limits",
    "epsilon": "this epsilon or delta, or none, is beyond its limits",
    "rounds": "so many rounds are beyond its limits, or of the job's own",
    "rows": "the job's least_rows is above that of its limits, or these have none",
    "releases": "one more release without an epsilon is beyond its limits",
    "aggregators": "the job's aggregators are not those that it trusts",
    "uploads": "an aggregator: what a site sent is no upload of this sum",
    "tasks": "an aggregator: one more sum is beyond its limits",
    "budget": "its ledger has no limit, or one that would be passed, or too little of it left",
    "busy": "it works for another job",
    "table": "its table is unreadable, or cannot make this release",
    "stopped": "the job was stopped meanwhile",
    "failed": "its own log says why",
    "late": "no answer in time",
    "lost": "the engine has lost it",
    "signature": "not signed by that site for this very question",
    "revoked": "its key was revoked",
    "refused": "the answer does not fit the question",
}
"""The meanings of the codes."""


class SiteRecord(Checked):
    """The answers of a site in a job, over all rounds so far.

    Attributes:
        code: of its last answer, see :data:`CODES`.
        rounds: answered well.
        seconds: from question to answer, summed.
        site_seconds: that the site worked, summed, as it says; None where it does not, as the job
            has an epsilon.
        carried_bytes: that came with its answers, summed.
        version: of synthfair, as it says; None before its first answer.
    """

    code: ServerCode = "late"
    rounds: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0)
    site_seconds: float | None = Field(default=0.0, ge=0)
    carried_bytes: int = Field(default=0, ge=0)
    version: Line | None = None


class FederationFile(Checked):
    """The course of a job: federation.json.

    Attributes:
        job: the engine's name of it.
        server: its name.
        version: of synthfair at the server.
        seconds: since the job began.
        rounds: that have ended.
        median_round_seconds: from question to the last answer.
        error: what stopped it, if anything has.
        sites: how each has answered.
    """

    format: Literal["synthfair-federation/1"] = "synthfair-federation/1"
    job: Line
    server: Line
    version: Line
    seconds: float = Field(ge=0)
    rounds: int = Field(ge=0)
    median_round_seconds: float = Field(ge=0)
    error: Line | None
    sites: dict[Line, SiteRecord] = Field(max_length=1000)
