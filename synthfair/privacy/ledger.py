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

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.accounting import LARGEST_EPSILON, composed, delta_of, epsilon_of
from synthfair.privacy.statement import Guarantee, Line

ENDING = ".ledger.jsonl"
"""Added to a table's name."""

PATIENCE = 60.0
"""Seconds to wait for another process that books."""

MAX_BYTES = 50_000_000
"""Of a ledger that is read."""

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_START = "0" * 64


class Booking(BaseModel):
    """A release, before it leaves.

    Attributes:
        kind: of entry.
        output: name of the release file.
        run: fingerprint of rows and settings.
        guarantee: what it promises, or None: then it has no epsilon.
    """

    model_config = _STRICT

    kind: Literal["release"] = "release"
    output: Line
    run: str = Field(pattern="^[0-9a-f]{64}$")
    guarantee: Guarantee | None


class Limit(BaseModel):
    """What all releases together may cost from now on.

    Attributes:
        kind: of entry.
        epsilon: positive.
        delta: above 0, below 1.
    """

    model_config = _STRICT

    kind: Literal["limit"] = "limit"
    epsilon: float = Field(gt=0, le=LARGEST_EPSILON)
    delta: float = Field(gt=0, lt=1)


class Entry(BaseModel):
    """A line of the file.

    Attributes:
        time: when, UTC.
        previous: sha256 of the line before, so that a line that is lost or altered shows.
        what: a release or a limit.
    """

    model_config = _STRICT

    time: str = Field(max_length=40, pattern="^[0-9T:+-]*$")
    previous: str = Field(pattern="^[0-9a-f]{64}$")
    what: Annotated[Booking | Limit, Field(discriminator="kind")]


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

    def entries(self) -> list[Entry]:
        """All lines.

        Raises:
            InputError: unreadable, a line that is not one of a ledger, or the chain is broken.
        """
        return [entry for entry, _ in self._read()]

    def spent(self) -> Spent:
        """What the releases so far add up to. Raises as :meth:`entries`."""
        return _spent([entry.what for entry in self.entries()])

    def book(self, booking: Booking) -> None:
        """Writes down a release that is about to be made, durably, or refuses it.

        One that promises nothing is booked once a run: it would only give the same file again.

        Raises:
            InputError: the limit would be passed; another relation; or the ledger cannot be read or
                written.
        """
        with self._locked():
            self.require_affordable(booking)
            if booking.guarantee or booking not in [entry.what for entry in self.entries()]:
                self._append(booking)

    def set_limit(self, epsilon: float, delta: float) -> None:
        """Bounds what is spent in all, from now on.

        Raises:
            InputError: values out of range, or the ledger cannot be read or written.
        """
        try:
            limit = Limit(epsilon=epsilon, delta=delta)
        except ValidationError as error:
            raise refusal("limit", error) from error
        with self._locked():
            self._append(limit)

    def require_affordable(self, booking: Booking) -> None:
        """Refuses what could not be booked, without booking it. Raises as :meth:`book`."""
        before = [entry.what for entry in self.entries()]
        self._require_same_relation(before, booking)
        limit, after = _spent(before).limit, _spent([*before, booking])
        if limit is None:
            return
        if after.mu is None:
            raise InputError(
                f"{self.path}: the limit of epsilon = {limit.epsilon:g} allows no release without"
                " an epsilon (or there was one)"
            )
        if delta_of(after.mu, limit.epsilon) > limit.delta:
            raise InputError(
                f"{self.path}: with this release, epsilon would be"
                f" {epsilon_of(after.mu, limit.delta):.3g} in all at delta = {limit.delta:g}; the"
                f" limit is {limit.epsilon:g}"
            )

    def _require_same_relation(self, before: Sequence[Booking | Limit], new: Booking) -> None:
        for old in before:
            if not (isinstance(old, Booking) and old.guarantee and new.guarantee):
                continue
            if old.guarantee.relation != new.guarantee.relation:
                raise InputError(
                    f"{self.path}: relation = {new.guarantee.relation!r}: all releases of a ledger"
                    f" must have the same, and its own is {old.guarantee.relation!r}"
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

    def _append(self, what: Booking | Limit) -> None:
        """Adds a line that survives a crash once this returns."""
        lines = [line for _, line in self._read()]
        last = hashlib.sha256(lines[-1]).hexdigest() if lines else _START
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(time=now, previous=last, what=what)
        with self.path.open("ab") as file:
            # A line without an end was never booked: nothing was spent.
            file.truncate(sum(len(line) + 1 for line in lines))
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[tuple[Entry, bytes]]:
        """The lines, parsed and as they are; a last one that was not written to its end is none."""
        entries, previous = [], _START
        for number, line in enumerate(self._lines(), 1):
            entry = self._parsed(line, number)
            if entry.previous != previous:
                raise InputError(f"{self.path}: line {number}: a line before it is lost or altered")
            previous = hashlib.sha256(line).hexdigest()
            entries.append((entry, line))
        return entries

    def _lines(self) -> list[bytes]:
        try:
            if not self.path.exists():
                return []
            if self.path.stat().st_size > MAX_BYTES:
                raise InputError(f"{self.path}: larger than {MAX_BYTES} bytes; not a ledger")
            return self.path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error

    def _parsed(self, line: bytes, number: int) -> Entry:
        try:
            return Entry.model_validate_json(line)
        except ValidationError as error:
            raise refusal(f"{self.path}: line {number}", error) from error


def _spent(entries: Sequence[Booking | Limit]) -> Spent:
    bookings = [entry for entry in entries if isinstance(entry, Booking)]
    limits = [entry for entry in entries if isinstance(entry, Limit)]
    known = [booking.guarantee.mu for booking in bookings if booking.guarantee]
    mu = composed(known) if len(known) == len(bookings) else None
    return Spent(releases=len(bookings), mu=mu, limit=limits[-1] if limits else None)
