"""A file that holds what was computed once, and is never computed again."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, claimed, open_file, whole_file

_HEAD = re.compile(rb"(reserved|complete) ([0-9a-f]{64}) ([0-9a-f]{64})\n")
_HEAD_BYTES = 8 + 1 + 64 + 1 + 64 + 1


class DamagedError(ValueError):
    """Content that cannot be read: the file was altered, or another version has written it."""


def compute_once(
    path: Path,
    digest: str,
    compute: Callable[[], bytes],
    *,
    max_bytes: int,
    allow: Callable[[str], object] = lambda _: None,
    book: Callable[[str], object] = lambda _: None,
    is_spent: Callable[[str], bool] = lambda _: False,
) -> bytes:
    """Return the content of the file: what it holds already, or else what is computed now.

    First room for the content is written, at its full size and durably, with a random name. Then
    this name is booked, then the content is computed, and written into the room. So a full disk
    refuses before anything is spent, and wherever a run ends, the next run that asks the same finds

    - no room, or room whose name was not booked: nothing was spent, and it is booked;
    - room whose name is booked: a run ended between booking and saving. Content is used only once
      it is saved as a whole, so that none has left. What is computed now, with new noise, is the
      only content that ever leaves for this name;
    - the content: it is what is used, and no other is computed.

    Where the file is removed, its name goes with it, and the next content has another name. The
    file knows nothing of an older version of itself that is put back. Only its owner may read it.

    Args:
        path: of the file.
        digest: sha256 of all that the content depends on, in hexadecimal.
        compute: returns the content.
        max_bytes: of the content.
        allow: called with a new name; raises InputError where it could not be booked.
        book: called with the name; books it, if it is not booked.
        is_spent: whether the name is of an earlier content, which gives way to a new one.

    Raises:
        InputError: ``allow`` or ``book`` refuses, the file is damaged, or another run holds it.
        OSError: there is no room.
    """
    with claimed(path, force=True):
        # Room, if the name could be booked: a full disk refuses before anything is spent.
        state, name = _read_head(path, digest)
        if not state or is_spent(name):
            state, name = "reserved", secrets.token_hex(32)
            allow(name)
            with whole_file(path, mode=OWNER_ONLY) as temporary:
                temporary.write_bytes(f"reserved {digest} {name}\n".encode() + bytes(max_bytes))

        # The booking, which the next run finds if this one ends here. Of a whole content it is
        # there, unless it was lost.
        book(name)
        if state == "complete":
            with open_file(path) as file:
                return file.read()[_HEAD_BYTES:]

        # The content, and only then the word that says that all of it is there.
        content = compute()
        with path.open("r+b") as file:
            file.seek(_HEAD_BYTES)
            file.write(content)
            file.truncate()
            _sync(file)
            file.seek(0)
            file.write(b"complete")
            _sync(file)
        return content


def is_complete(path: Path) -> bool:
    """Return whether there is a file, and it holds its content."""
    try:
        with open_file(path) as file:
            return file.read(8) == b"complete"
    except FileNotFoundError:
        return False


def damaged(path: Path) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(
        f"{path}: holds what was bought, and is damaged, or of another version of synthfair. Run"
        " the version that wrote it, to its end; or delete the file to compute it again, which"
        " spends epsilon once more"
    )


def _read_head(path: Path, digest: str) -> tuple[str, str]:
    """Return the state of a file, and its name; empty texts where there is no file."""
    try:
        with open_file(path) as file:
            head = _HEAD.fullmatch(file.read(_HEAD_BYTES))
    except FileNotFoundError:
        return "", ""
    state, of, name = (part.decode() for part in head.groups()) if head else ("", "", "")
    if of != digest:
        raise damaged(path)
    return state, name


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
