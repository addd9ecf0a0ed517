"""An append-only file of JSON lines, each of which carries the sha256 of the one before it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError

from synthfair.config.rules import FROZEN
from synthfair.errors import InputError, reason, refusal
from synthfair.files import OWNER_ONLY, sync_folder

PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

MAX_BYTES = 50_000_000
"""Of a file that is read."""

_START = "0" * 64


class Linked(BaseModel):
    """A line of the file; what it says is added by those that derive from it.

    Attributes:
        time: when, UTC.
        previous: sha256 of the line before, so that a line that is lost or altered shows.
    """

    model_config = FROZEN

    time: str = Field(max_length=40, pattern="^[0-9T:+-]*$")
    previous: str = Field(pattern="^[0-9a-f]{64}$")


_Entry = TypeVar("_Entry", bound=Linked)


class Chain(Generic[_Entry]):
    """The file. It is locked while it is written to, and its owner alone reads it.

    It knows not of an older version of the whole file put back.
    """

    def __init__(self, path: Path, entry: type[_Entry], *, elsewhere: str) -> None:
        """The file need not exist.

        Args:
            path: of the file.
            entry: what a line is.
            elsewhere: what names another place for it, for errors.
        """
        self.path, self._entry, self._elsewhere = path, entry, elsewhere

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time is inside.

        Raises:
            InputError: another process is, for longer than a minute, or the folder cannot be
                written to.
        """
        from filelock import FileLock, Timeout

        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            with FileLock(lock, timeout=PATIENCE, mode=OWNER_ONLY):
                yield
        except Timeout as error:
            raise InputError(f"{self.path}: locked by another process") from error
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot write: {reason(error)}; {self._elsewhere} names another place"
            ) from error

    def append(self, **content: Any) -> None:
        """Adds a line, which survives a crash once this returns; the file must be locked."""
        lines = [line for _, line in self.read()]
        last = hashlib.sha256(lines[-1]).hexdigest() if lines else _START
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = self._entry(time=now, previous=last, **content)
        whole = sum(len(line) + 1 for line in lines)
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, OWNER_ONLY)
        with os.fdopen(handle, "ab") as file:
            file.truncate(min(whole, file.tell()))  # what a crash cut off was never written
            if file.seek(0, os.SEEK_END) < whole:
                file.write(b"\n")  # an editor took it away
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)

    def read(self) -> list[tuple[_Entry, bytes]]:
        """The lines, parsed and as they are.

        A last one without its end counts if it is whole; if not, a crash cut it off while it was
        written, which is before anything followed from it.

        Raises:
            InputError: unreadable, a line that is none of this file's, or the chain is broken.
        """
        try:
            if not self.path.exists():
                return []
            if self.path.stat().st_size > MAX_BYTES:
                raise InputError(f"{self.path}: larger than the {MAX_BYTES} bytes that are allowed")
            *lines, last = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error
        entries, previous = [], _START
        for number, line in enumerate(lines, 1):
            try:
                entry = self._entry.model_validate_json(line)
            except ValidationError as error:
                raise refusal(f"{self.path}: line {number}", error) from error
            if entry.previous != previous:
                raise InputError(f"{self.path}: line {number}: a line before it is lost or altered")
            previous = hashlib.sha256(line).hexdigest()
            entries.append((entry, line))
        with suppress(ValidationError):
            entry = self._entry.model_validate_json(last)
            if entry.previous == previous:
                entries.append((entry, last))
        return entries
