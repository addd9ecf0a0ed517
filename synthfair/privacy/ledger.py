"""What a table's releases have cost so far: one line each, written before it is spent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthfair.config import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON
from synthfair.errors import InputError, reason, refusal
from synthfair.privacy.accounting import composed
from synthfair.privacy.rounds import TrainingGuarantee
from synthfair.privacy.sampled import Composition
from synthfair.privacy.statement import Guarantee, Line

ENDING = ".ledger.jsonl"
"""Added to a table's name."""

PATIENCE = 60.0
"""Seconds to wait for another process that books."""

MAX_BYTES = 50_000_000
"""Of a ledger that is read."""

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_START = "0" * 64
_USER = "one user, with all its rows"


class Booking(BaseModel):
    """A release, or a training, before it leaves.

    Attributes:
        kind: of entry.
        output: name of the file or folder.
        run: fingerprint of rows and settings.
        guarantee: what it promises, or None: then it has no epsilon.
    """

    model_config = _STRICT

    kind: Literal["release", "training"] = "release"
    output: Line
    run: str = Field(pattern="^[0-9a-f]{64}$")
    guarantee: Guarantee | TrainingGuarantee | None

    @property
    def composition(self) -> Composition | None:
        """Its mechanisms; None where it promises nothing, or only on a condition."""
        if isinstance(self.guarantee, TrainingGuarantee):
            return None if self.guarantee.condition else self.guarantee.composition
        return Composition(self.guarantee.mu) if self.guarantee else None


class Limit(BaseModel):
    """What all releases together may cost from now on.

    Attributes:
        kind: of entry.
        epsilon: positive.
        delta: above 0, below 1.
    """

    model_config = _STRICT

    kind: Literal["limit"] = "limit"
    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)


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
        releases: number of releases and trainings.
        composition: all of them together, for one row of the table, or one user; None where one
            promised nothing.
        limit: the one that holds, if any.
    """

    model_config = _STRICT

    releases: int
    composition: Composition | None
    limit: Limit | None

    @property
    def mu(self) -> float | None:
        """Of Gaussian differential privacy, all releases together; None where there is none."""
        return self.composition and self.composition.mu

    def epsilon(self, delta: float) -> float | None:
        """Of all together at this delta; None where there is none."""
        return self.composition and self.composition.epsilon(delta)


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

    def __post_init__(self) -> None:
        """Follows links: a ledger has one lock, whatever it is called by."""
        object.__setattr__(self, "path", self.path.resolve())

    @classmethod
    def beside(cls, data: Path) -> Ledger:
        """That of a table, also where the table is named by a link."""
        place = data.resolve()
        return cls(place.with_name(place.name + ENDING))

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
            lines = self._read()
            before = [entry.what for entry, _ in lines]
            self._refuse_what_is_too_much(before, booking)
            if booking.guarantee or booking not in before:
                self._append(booking, [line for _, line in lines])

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
            self._append(limit, [line for _, line in self._read()])

    def require_affordable(self, booking: Booking) -> None:
        """Refuses what could not be booked, without booking it. Raises as :meth:`book`."""
        self._refuse_what_is_too_much([entry.what for entry in self.entries()], booking)

    def _refuse_what_is_too_much(self, before: Sequence[Booking | Limit], booking: Booking) -> None:
        self._require_same_relation(before, booking)
        limit, after = _spent(before).limit, _spent([*before, booking])
        if limit is None:
            return
        if after.composition is None:
            raise InputError(
                f"{self.path}: the limit of epsilon = {limit.epsilon:g} allows no release without"
                " an epsilon (or there was one)"
            )
        if after.composition.delta(limit.epsilon) > limit.delta:
            would_be = after.composition.epsilon(limit.delta)
            raise InputError(
                f"{self.path}: with this release, epsilon would be {would_be:.3g} in all at delta ="
                f" {limit.delta:g}; the limit is {limit.epsilon:g}"
            )

    def _require_same_relation(self, before: Sequence[Booking | Limit], new: Booking) -> None:
        for old in before:
            if not (isinstance(old, Booking) and old.guarantee and new.guarantee):
                continue
            if (old.guarantee.unit, new.guarantee.unit).count(_USER) == 1:
                raise InputError(
                    f"{self.path}: protects {old.guarantee.unit}; {new.guarantee.unit} needs a"
                    " ledger of its own"
                )
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

    def _append(self, what: Booking | Limit, lines: Sequence[bytes]) -> None:
        """Adds a line after those, which survives a crash once this returns."""
        last = hashlib.sha256(lines[-1]).hexdigest() if lines else _START
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(time=now, previous=last, what=what)
        whole = sum(len(line) + 1 for line in lines)
        with self.path.open("ab") as file:
            file.truncate(min(whole, file.tell()))  # what a crash cut off was never booked
            if file.seek(0, os.SEEK_END) < whole:
                file.write(b"\n")  # an editor took it away
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.path.parent)

    def _read(self) -> list[tuple[Entry, bytes]]:
        """The lines, parsed and as they are.

        A last one without its end counts if it is whole; if not, a crash cut it off while it was
        written, which is before anything was spent.
        """
        *ended, last = self._lines()
        entries, previous = [], _START
        for number, line in enumerate(ended, 1):
            entry = self._parsed(line, number)
            if entry.previous != previous:
                raise InputError(f"{self.path}: line {number}: a line before it is lost or altered")
            previous = hashlib.sha256(line).hexdigest()
            entries.append((entry, line))
        with suppress(InputError):
            entry = self._parsed(last, len(ended) + 1)
            if entry.previous == previous:
                entries.append((entry, last))
        return entries

    def _lines(self) -> list[bytes]:
        try:
            if not self.path.exists():
                return [b""]
            if self.path.stat().st_size > MAX_BYTES:
                raise InputError(f"{self.path}: larger than {MAX_BYTES} bytes; not a ledger")
            return self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error

    def _parsed(self, line: bytes, number: int) -> Entry:
        try:
            return Entry.model_validate_json(line)
        except ValidationError as error:
            raise refusal(f"{self.path}: line {number}", error) from error


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable, where folders can be opened for that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _spent(entries: Sequence[Booking | Limit]) -> Spent:
    bookings = [entry for entry in entries if isinstance(entry, Booking)]
    limits = [entry for entry in entries if isinstance(entry, Limit)]
    parts = [booking.composition for booking in bookings]
    together = None if None in parts else _together([part for part in parts if part])
    limit = limits[-1] if limits else None
    return Spent(releases=len(bookings), composition=together, limit=limit)


def _together(parts: Sequence[Composition]) -> Composition:
    sampled = tuple(one for part in parts for one in part.sampled)
    return Composition(composed(part.mu for part in parts), sampled)
