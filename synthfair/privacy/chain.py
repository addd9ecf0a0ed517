"""An append-only file of JSON lines, each of which carries the sha256 of the one before it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from synthfair.errors import InputError, reason
from synthfair.files import OWNER_ONLY, open_file, parse_as, sync_folder
from synthfair.settings import Checked

PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

MAX_BYTES = 50_000_000
"""The largest size of a file that is read."""

_START = "0" * 64


class Link(Checked):
    """A line of the file; what it says is added by those that derive from it.

    Attributes:
        time: when, UTC.
        previous: sha256 of the line before, so that a line that is lost or altered shows.
    """

    time: str = Field(max_length=40, pattern="^[0-9T:+-]*$")
    previous: str = Field(pattern="^[0-9a-f]{64}$")


_Entry = TypeVar("_Entry", bound=Link)


@dataclass(eq=False)
class Chain(Generic[_Entry]):
    """The file, which need not exist; locked while it is written to, and its owner's alone.

    Each line is read and verified once in the life of this object, however often it is asked, and
    handed to ``on_line``. It knows not of an older version of the whole file put back before that.

    Attributes:
        path: of the file.
        entry: what a line is.
        elsewhere: what names another place for it, for errors.
        on_line: called once for every line, in their order.
        most_bytes: of a file that is read.
    """

    path: Path
    entry: type[_Entry]
    elsewhere: str
    on_line: Callable[[_Entry], object] = lambda _: None
    most_bytes: int = MAX_BYTES

    # What was verified: its bytes, its lines, the sha256 of the last, and whether that has its end.
    _end: int = field(default=0, init=False)
    _lines: int = field(default=0, init=False)
    _last: str = field(default=_START, init=False)
    _ended: bool = field(default=True, init=False)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the file: only one process at a time is inside.

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
                f"{self.path}: cannot write: {reason(error)}; {self.elsewhere} names another place"
            ) from error

    def append(self, **content: Any) -> None:
        """Adds a line, which survives a crash once this returns; the file must be locked."""
        # The line follows the last one that is whole.
        self.catch_up()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = self.entry(time=now, previous=self._last, **content).model_dump_json().encode()
        # It is on disk, and so is its folder's entry, before anything follows from it.
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, OWNER_ONLY)
        with os.fdopen(handle, "ab") as file:
            file.truncate(self._end)  # what a crash cut off was never written
            file.write((b"" if self._ended else b"\n") + line + b"\n")  # an editor took the end
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)
        self.catch_up()

    def read(self) -> list[_Entry]:
        """Reads all lines. Raises as :meth:`catch_up`."""
        entries: list[_Entry] = []
        replace(self, on_line=entries.append).catch_up()
        return entries

    def catch_up(self) -> None:
        """Reads the lines that have come since the last time; all, the first time.

        A last one without its end counts if it is whole; if not, a crash cut it off while it was
        written, which is before anything followed from it.

        Raises:
            InputError: unreadable, a line that is none of this file's, or the chain is broken.
        """
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            if size > self.most_bytes:
                raise InputError(
                    f"{self.path}: larger than the {self.most_bytes} bytes that are allowed"
                )
            if size < self._end:
                raise InputError(f"{self.path}: lines that it had are lost")
            if size == self._end and (self.path.is_file() or not self.path.exists()):
                return
            with open_file(self.path) as file:
                file.seek(self._end)
                for line in file:
                    self._take(line)
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error

    def _take(self, line: bytes) -> None:
        """Verifies a line that follows; one that a crash cut off is left for the next time."""
        whole, content = line.endswith(b"\n"), line.removesuffix(b"\n")
        if not self._ended and line == b"\n":
            self._end, self._ended = self._end + 1, True
            return
        number = self._lines + 1
        try:
            entry = parse_as(content, self.entry, f"{self.path}: line {number}")
        except InputError:
            if whole:
                raise
            return
        if entry.previous != self._last:
            if whole:
                raise InputError(f"{self.path}: line {number}: a line before it is lost or altered")
            return
        self._end, self._lines, self._ended = self._end + len(line), number, whole
        self._last = hashlib.sha256(content).hexdigest()
        self.on_line(entry)
