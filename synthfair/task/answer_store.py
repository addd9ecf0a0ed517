"""Answers already bought: each is booked once, and saved before it leaves. They stay at home."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, claimed, open_file, whole_file
from synthfair.privacy.ledger import Booking, Ledger

_HEAD = re.compile(rb"(reserved|complete) ([0-9a-f]{64}) ([0-9a-f]{64})\n")
_HEAD_BYTES = 8 + 1 + 64 + 1 + 64 + 1
_NO_NAME = "0" * 64


@dataclass(frozen=True)
class AnswerStore:
    """A folder of answers, each found by the hash of a question: none is bought twice.

    First room for the answer is written, at its full size and durably, with a random name of the
    purchase. Then this name is booked, then the answer is computed, and written into the room. So a
    full disk refuses before anything is spent, and wherever a run ends, the next run that asks the
    same has one of these:

    - no room, or room whose name is in no line of the ledger: nothing was spent, and it is booked;
    - room whose name is booked: a run ended between booking and saving. An answer is used only
      once it is saved as a whole, so that none has left, nor shown in anything that did. The one
      that is computed now, with new noise, is the only one that ever leaves for this booking;
    - an answer: it is what is used, and no other is computed.

    Where an answer is removed, its name goes with it, and the next purchase is another one. Like
    the ledger, a file knows nothing of an older version of itself that is put back. Its name tells
    of the rows: who guesses them could confirm them by it. Only its owner may read it.

    Attributes:
        folder: of the files, each named PREFIX, hash of a question, ENDING.
        ending: see there.
        prefix: see there.
        digits: of the hash that are in the name; the file itself has all 64.
    """

    folder: Path
    ending: str
    prefix: str = ""
    digits: int = 64

    def path(self, digest: str) -> Path:
        """The path of the answer to the question with this hash, 64 hexadecimal digits."""
        return self.folder / f"{self.prefix}{digest[: self.digits]}{self.ending}"

    def buy(
        self, digest: str, booking: Booking, make: Callable[[], bytes], ledger: Ledger, *, room: int
    ) -> bytes:
        """Return the answer: the saved one, or else a new one, once it is saved.

        Args:
            digest: hash of rows, settings and guarantee.
            booking: of the answer.
            make: computes it.
            ledger: in which it is booked.
            room: its size in bytes, at most.

        Raises:
            InputError: the ledger refuses, the file is damaged, or another run buys the same.
            OSError: there is no room.
        """
        path = self.path(digest)
        with claimed(path, force=True):
            state, name = self._head(digest)
            booking = booking.model_copy(update={"purchase": name})
            # Room, if the ledger could book it: a full disk refuses before anything is spent.
            if not state:
                ledger.require_next(booking)
                self._write(digest, f"reserved {digest} {name}\n".encode() + bytes(room))
            # The line in the ledger, which the next run finds if this one ends here. Of a whole
            # answer it is there, unless it was lost.
            ledger.book(booking)
            if (saved := self.read(digest)) is not None:
                return saved
            # The answer, and only then the word that says that it is there.
            content = make()
            with path.open("r+b") as file:
                file.seek(_HEAD_BYTES)
                file.write(content)
                file.truncate()
                _sync(file)
                file.seek(0)
                file.write(b"complete")  # last: a file that says so holds all of it
                _sync(file)
            return content

    def read(self, digest: str) -> bytes | None:
        """A whole answer; None where there is none. Raises InputError: the file is damaged."""
        if self._head(digest)[0] != "complete":
            return None
        with open_file(self.path(digest)) as file:
            return file.read()[_HEAD_BYTES:]

    def save(self, digest: str, content: bytes) -> None:
        """Puts an answer, durably, in the place of the one before: of a training, which grows."""
        self._write(digest, f"complete {digest} {_NO_NAME}\n".encode() + content)

    def damaged(self, digest: str) -> InputError:
        """The error for a file that cannot be read."""
        return InputError(
            f"{self.path(digest)}: holds what an epsilon has bought, and is damaged, or of another"
            " version of synthfair. Run the version that wrote it, to its end; or delete the file"
            " to measure again, which spends epsilon once more"
        )

    def _head(self, digest: str) -> tuple[str, str]:
        """The state of a purchase, and its name; "" and a new name where there is none."""
        try:
            with open_file(self.path(digest)) as file:
                head = _HEAD.fullmatch(file.read(_HEAD_BYTES))
        except FileNotFoundError:
            return "", secrets.token_hex(32)
        state, of, name = (part.decode() for part in head.groups()) if head else ("", "", "")
        if of != digest:
            raise self.damaged(digest)
        return state, name

    def _write(self, digest: str, content: bytes) -> None:
        with whole_file(self.path(digest), mode=OWNER_ONLY) as temporary:
            temporary.write_bytes(content)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
