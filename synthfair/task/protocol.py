"""The protocol of a task: how a table is read, what an answer costs, how it is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from synthfair.data.batches import from_files
from synthfair.data.encode import Clipping, Encoded, content_sha256, in_content_order
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Purchase
from synthfair.task.limits import Claim

if TYPE_CHECKING:
    from synthfair.client.page import Site
    from synthfair.distill.problem import StepRecord

Progress = Callable[["StepRecord", int, int], None]
"""Called between chunks with the chunk's records, the steps taken, and the steps of a full run."""


class Run(NamedTuple):
    """A run of a task: what the table is called in errors, and who is told what happens.

    Attributes:
        source: name of the table.
        progress: called between chunks of steps.
        on_stage: called with what is done next, in a few words.
        on_rows: called when the rows are read, with what was clipped of them, before anything is
            booked or an epsilon spent; an exception ends the run there. What it is given is
            private, and has no noise.
    """

    source: str = "table"
    progress: Progress | None = None
    on_stage: Callable[[str], None] = lambda _: None
    on_rows: Callable[[Clipping], None] = lambda _: None


class ReadRows(NamedTuple):
    """A site's rows, as a task reads them. Private.

    Attributes:
        real: encoded, gathered for a model, or read as a stream.
        sha256: fingerprint of the rows.
    """

    real: Any
    sha256: str


def read_rows(site: Site, clipping: Clipping) -> ReadRows:
    """Return the encoded rows of a table in an order that tells nothing; count what is clipped.

    Raises:
        InputError: the table cannot be read, or does not fit the schema.
    """
    batches = [*from_files(site.data, site.schema, clipping=clipping).read()]
    rows = Encoded(*map(np.concatenate, zip(*batches, strict=True)))
    return ReadRows(in_content_order(rows), content_sha256(batches))


@dataclass(frozen=True)
class Task:
    """A question to a site: what is asked of its rows.

    :func:`synthfair.client.page.answer` is its one caller, and says in which order.

    Attributes:
        claim: what the site's limits look at.
        asked: all that the answer depends on but for the rows, as text.
        answer: returns the answer of what was bought alone; or, without a guarantee, of the rows.
        guarantee: of the answer; None where it has none.
        measure: returns what an epsilon buys: all that the answer will know of the rows.
        max_bytes: of what it returns.
        read: returns the rows of a table; counts what is clipped of them.
        check: refuses an answer without a guarantee that gives rows away.
        question: sha256 of what is asked in a round; None where ``asked`` says all.
    """

    claim: Claim
    asked: str
    answer: Callable[[ReadRows, bytes | None, Run], Any] = lambda _rows, bought, _run: bought
    guarantee: Guarantee | None = None
    measure: Callable[[ReadRows, Run], bytes] | None = None
    max_bytes: int = 0
    read: Callable[[Site, Clipping], ReadRows] = read_rows
    check: Callable[[Any, ReadRows, Run], None] = lambda _answer, _rows, _run: None
    question: str | None = None

    @property
    def asked_now(self) -> str:
        """The sha256 of what is asked; where there are rounds, in this one."""
        return self.question or fingerprint(self.asked)

    def purchase(self, rows: ReadRows, output: str, submitter: str | None = None) -> Purchase:
        """Return what is booked for an answer of these rows, by the name of its file or job."""
        return Purchase(
            kind=self.claim.purchase_kind,
            output=output,
            run=fingerprint(self.asked, rows.sha256),
            guarantee=self.guarantee,
            round=self.claim.number,
            question=self.asked_now,
            seen=self.claim.seen,
            submitter=submitter,
        )


def fingerprint(*parts: object) -> str:
    """Return the sha256 of texts: the fingerprint of rows, settings and the like."""
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()
