"""What a table's releases have cost so far: one line each, written before it is spent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.accounting import composed, delta_of, epsilon_of
from synthfair.privacy.statement import Guarantee, Line

ENDING = ".ledger.jsonl"
"""Added to a table's name."""

PATIENCE = 60.0
"""Seconds to wait for another process that books."""

MAX_BYTES = 50_000_000
"""Of a ledger that is read."""

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_START = "0" * 64


class _Line(BaseModel):
    model_config = _STRICT

    time: str = Field(max_length=40)
    previous: str = Field(pattern="^[0-9a-f]{64}$")


class Booking(_Line):
    """A release, before it was made.

    Attributes:
        time: when, UTC.
        previous: sha256 of the line before, so that a line that is lost or altered shows.
        kind: of line.
        output: name of the release file.
        run: fingerprint of rows and settings.
        guarantee: what it promises, or None: then it has no epsilon.
    """

    kind: Literal["release"] = "release"
    output: Line
    run: str = Field(pattern="^[0-9a-f]{64}$")
    guarantee: Guarantee | None


class Limit(_Line):
    """What all releases together may cost from now on.

    Attributes:
        time: when, UTC.
        previous: as above.
        kind: of line.
        epsilon: positive.
        delta: above 0, below 1.
    """

    kind: Literal["limit"] = "limit"
    epsilon: float = Field(gt=0, le=100)
    delta: float = Field(gt=0, lt=1)


_ENTRY: TypeAdapter[Booking | Limit] = TypeAdapter(
    Annotated[Booking | Limit, Field(discriminator="kind")]
)


class Spent(BaseModel):
    """What a ledger adds up to.

    Attributes:
        releases: number of releases.
        mu: of Gaussian differential privacy, all of them together, for one row of the table; None
            where one promised nothing.
        limit: the one that holds, if any.
    """

    model_config = _STRICT

    releases: int
    mu: float | None
    limit: Limit | None

    def epsilon(self, delta: float) -> float | None:
        """Of all releases together at this delta; None where there is none."""
        return None if self.mu is None else epsilon_of(self.mu, delta)


@dataclass(frozen=True)
class Ledger:
    """An append-only file of JSON lines, locked while it is written to.

    Neighbouring tables, and the unit, one row, are those of the guarantees booked; all of one
    ledger must have the same relation. Mechanisms compose, whatever the order, and also where a
    later release was chosen by an earlier one. It knows only what was booked in this very file: not
    a copy of the table elsewhere, nor an older version of the file put back.

    Attributes:
        path: of the file; it need not exist.
    """

    path: Path

    @classmethod
    def beside(cls, data: Path) -> Ledger:
        """That of a table."""
        return cls(data.with_name(data.name + ENDING))

    def entries(self) -> list[Booking | Limit]:
        """All lines.

        Raises:
            InputError: unreadable, a line that is not one of a ledger, or the chain is broken.
        """
        return [entry for entry, _ in self._read()]

    def spent(self) -> Spent:
        """What the releases so far add up to. Raises as :meth:`entries`."""
        return _spent(self.entries())

    def book(self, output: Path, run: str, guarantee: Guarantee | None) -> None:
        """Writes down a release that is about to be made, durably, or refuses it.

        A run that promises nothing is booked once: it would only give the same file again.

        Raises:
            InputError: the limit would be passed; another relation; or the ledger cannot be read or
                written.
        """
        with self._locked():
            entries = self.entries()
            again = any(isinstance(e, Booking) and e.run == run for e in entries)
            if guarantee is None and again:
                return
            time, previous = self._stamp()
            booking = Booking(
                time=time, previous=previous, output=output.name, run=run, guarantee=guarantee
            )
            self._require_affordable(entries, booking)
            self._append(booking)

    def set_limit(self, epsilon: float, delta: float) -> None:
        """Bounds what is spent in all, from now on.

        Raises:
            InputError: values out of range, or the ledger cannot be read or written.
        """
        with self._locked():
            time, previous = self._stamp()
            try:
                limit = Limit(time=time, previous=previous, epsilon=epsilon, delta=delta)
            except ValidationError as error:
                raise refusal("limit", error) from error
            self._append(limit)

    def _require_affordable(self, entries: Sequence[Booking | Limit], new: Booking) -> None:
        limit = _spent(entries).limit
        relations = {
            e.guarantee.relation for e in entries if isinstance(e, Booking) and e.guarantee
        }
        if new.guarantee and relations - {new.guarantee.relation}:
            raise InputError(
                f"{self.path}: relation = {new.guarantee.relation!r}: all releases of a ledger must"
                f" have the same; its own is {relations.pop()!r}"
            )
        if limit is None:
            return
        after = _spent([*entries, new]).mu
        if after is None:
            raise InputError(
                f"{self.path}: the limit of epsilon = {limit.epsilon:g} allows no release without"
                " an epsilon (or there was one)"
            )
        if delta_of(after, limit.epsilon) > limit.delta:
            raise InputError(
                f"{self.path}: with this release, epsilon would be"
                f" {epsilon_of(after, limit.delta):.3g} in all at delta = {limit.delta:g}; the"
                f" limit is {limit.epsilon:g}"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=PATIENCE):
                yield
        except Timeout as error:
            raise InputError(f"{self.path}: locked by another process") from error
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot write: {reason(error)}; --ledger names another place"
            ) from error

    def _stamp(self) -> tuple[str, str]:
        """The time, and the digest of the last line."""
        lines = self._read()
        last = hashlib.sha256(lines[-1][1]).hexdigest() if lines else _START
        return datetime.now(UTC).isoformat(timespec="seconds"), last

    def _append(self, entry: Booking | Limit) -> None:
        """Adds a line that survives a crash once this returns."""
        whole = sum(len(line) + 1 for _, line in self._read())
        with self.path.open("ab") as file:
            file.truncate(whole)  # a line without an end was never booked: nothing was spent
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[tuple[Booking | Limit, bytes]]:
        """The lines, parsed and as they are; a last one that was not written to its end is none."""
        try:
            if not self.path.exists():
                return []
            if self.path.stat().st_size > MAX_BYTES:
                raise InputError(f"{self.path}: larger than {MAX_BYTES} bytes; not a ledger")
            lines = self.path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error
        entries, previous = [], _START
        for number, line in enumerate(lines, 1):
            entry = self._parsed(line, number)
            if entry.previous != previous:
                raise InputError(f"{self.path}: line {number}: a line before it is lost or altered")
            previous = hashlib.sha256(line).hexdigest()
            entries.append((entry, line))
        return entries

    def _parsed(self, line: bytes, number: int) -> Booking | Limit:
        try:
            return _ENTRY.validate_json(line)
        except ValidationError as error:
            raise refusal(f"{self.path}: line {number}", error) from error


def _spent(entries: Sequence[Booking | Limit]) -> Spent:
    bookings = [entry for entry in entries if isinstance(entry, Booking)]
    limits = [entry for entry in entries if isinstance(entry, Limit)]
    guarantees = [booking.guarantee for booking in bookings]
    known = [guarantee.mu for guarantee in guarantees if guarantee]
    mu = composed(known) if len(known) == len(guarantees) else None
    return Spent(releases=len(bookings), mu=mu, limit=limits[-1] if limits else None)
