"""What an epsilon buys: booked once, and saved until it has left. Stays with the client."""

from __future__ import annotations

import io
import os
import re
import secrets
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import numpy as np

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, claimed, open_file, whole_file
from synthfair.privacy.ledger import Booking, Ledger

Answers = TypeVar("Answers", bound=tuple)

_HEAD = re.compile(rb"(reserved|complete) ([0-9a-f]{64}) ([0-9a-f]{64})\n")
_HEAD_BYTES = 8 + 1 + 64 + 1 + 64 + 1

OVERHEAD = 4096
"""Bytes of a file of answers, at most, that are no numbers."""


@dataclass(frozen=True)
class BoughtFile:
    """A noisy answer, bought once: room for it, a line in the ledger, and then the answer.

    First the room is written, at its full size and durably, with a random name of the purchase.
    Then this name is booked, then the answer is computed, and written into the room. So a full disk
    refuses before anything is spent, and wherever a run ends, the next run of the same answer has
    one of these:

    - no room, or room whose name is in no line of the ledger: nothing was spent, and it is booked;
    - room whose name is booked: a run ended between booking and saving. An answer is used only
      once it is saved as a whole, so that none has left, nor shown in anything that did. The one
      that is computed now, with new noise, is the only one that ever leaves for this booking;
    - an answer: it is what is used, and no other is computed.

    The file of a release goes when the release is written, and with it the name: the next purchase
    is another one. A site's reports of a gap stay: the same question gets them again. Like the
    ledger, the file knows nothing of an older version of itself that is put back. Its name tells of
    the rows: who guesses them could confirm them by it. Only its owner may read it.

    Attributes:
        path: of the file.
        run: fingerprint, 64 hexadecimal digits, of rows, settings and guarantee.
    """

    path: Path
    run: str

    def buy(
        self,
        ledger: Ledger | None,
        booking: Booking,
        make: Callable[[], bytes],
        *,
        room: int,
        reserve: float = 0.0,
    ) -> None:
        """Has the answer there afterwards.

        Args:
            ledger: in which it is booked; None of noise that protects nothing.
            booking: of the answer.
            make: computes it.
            room: its size in bytes, at most.
            reserve: as of :meth:`synthfair.privacy.ledger.Ledger.book`.

        Raises:
            InputError: the ledger refuses, the file is damaged, or another run buys the same.
            OSError: there is no room.
        """
        with claimed(self.path, force=True):
            if self.complete:
                return
            # Room, if the ledger could book it: a full disk refuses before anything is spent.
            word, name = self._head()
            if not word:
                if ledger:
                    ledger.require_affordable(booking, reserve=reserve)
                with whole_file(self.path, mode=OWNER_ONLY) as temporary:
                    temporary.write_bytes(f"reserved {self.run} {name}\n".encode() + bytes(room))
            # The line in the ledger, which the next run finds if this one ends here.
            if ledger:
                ledger.book(booking.model_copy(update={"purchase": name}), reserve=reserve)
            # The answer, and only then the word that says that it is there.
            content = make()
            with self.path.open("r+b") as file:
                file.seek(_HEAD_BYTES)
                file.write(content)
                file.truncate()
                _sync(file)
                file.seek(0)
                file.write(b"complete")  # last: a file that says so holds all of it
                _sync(file)

    @property
    def complete(self) -> bool:
        """Whether the answer is there. Raises InputError: the file is damaged."""
        return self._head()[0] == "complete"

    def open(self) -> BinaryIO:
        """The answer, from its first byte on, where it is there."""
        file = open_file(self.path)
        file.seek(_HEAD_BYTES)
        return file

    @property
    def damaged(self) -> InputError:
        """What to say of a file that cannot be read."""
        return InputError(
            f"{self.path}: holds what an epsilon has bought, and is damaged, or of another version"
            " of synthfair. Run the version that wrote it, to its end; or delete the file to"
            " measure again, which spends epsilon once more"
        )

    def _head(self) -> tuple[str, str]:
        """How far a purchase is, and its name; "" and a new name where there is none."""
        try:
            with open_file(self.path) as file:
                found = _HEAD.fullmatch(file.read(_HEAD_BYTES))
        except FileNotFoundError:
            return "", secrets.token_hex(32)
        word, run, name = (part.decode() for part in found.groups()) if found else ("", "", "")
        if run != self.run:
            raise self.damaged
        return word, name


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@dataclass(frozen=True)
class AnswersFile(BoughtFile, Generic[Answers]):
    """Noisy answers about a client's rows, which are as private as the release.

    Attributes:
        kind: of the answers, a named tuple of arrays.
    """

    kind: type[Answers]

    @classmethod
    def next_to(cls, output: Path, run: str, kind: type[Answers]) -> AnswersFile[Answers]:
        """Named after an output and the run, so that it is never another file."""
        return cls(output.with_name(f"{output.name}.{run[:16]}.fit"), run, kind)

    def answers(
        self,
        ledger: Ledger | None,
        booking: Booking,
        measure: Callable[[], Answers],
        *,
        numbers: int,
        reserve: float = 0.0,
    ) -> Answers:
        """The answers that are saved, or else those that ``measure`` gives, once they are saved.

        These are ``numbers`` at most. Other arguments and errors are those of :meth:`buy`.
        """

        def packed() -> bytes:
            content = io.BytesIO()
            np.savez(content, **measure()._asdict())  # type: ignore[attr-defined]
            return content.getvalue()

        self.buy(ledger, booking, packed, room=8 * numbers + OVERHEAD, reserve=reserve)
        names = self.kind._fields  # type: ignore[attr-defined]
        try:
            with self.open() as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as found:
                return self.kind(*(found[name] for name in names))
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise self.damaged from error
