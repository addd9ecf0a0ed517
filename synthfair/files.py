"""Writes files whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from synthfair.errors import InputError, reason


def require_free(*paths: Path, force: bool) -> None:
    """Refuses paths that exist, unless forced, before any work is done for them.

    Raises:
        InputError: a path exists and force is false, or is a folder, or its folder cannot be
            written to.
    """
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file")
        if (path.exists() or path.is_symlink()) and not force:
            raise InputError(f"{path}: exists; choose another name, or --force to overwrite it")
        _make_folder(path.parent)


def require_distinct(output: Path, *inputs: Path) -> None:
    """Refuses an output that is also an input or another output, even where overwriting is forced.

    Raises:
        InputError: it is one of the others, whether or not it exists yet.
    """
    exists, place = output.exists(), output.resolve()
    for path in inputs:
        # Links are only resolved for files that do not exist, as that takes ten times longer.
        # Path.exists would raise where a folder may not be searched.
        there = os.path.exists(path)  # noqa: PTH110
        if (exists and output.samefile(path)) if there else path.resolve() == place:
            raise InputError(f"{output}: is named twice; choose another name for the output")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # os.access is not enough: it allows everything to root, and on read-only file systems.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: cannot write here: {reason(error)}") from error


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Yields a temporary name next to ``path``; renames it to ``path`` if the block succeeds.

    The file then has those bits of ``mode`` that the user's umask allows; before, only its owner
    may read it. On any exception, Ctrl-C included, the temporary file is removed and ``path`` is as
    it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(mode & ~umask)  # mkstemp makes files private; an ordinary file is not
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes text whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Writes a document as JSON, whole or not at all.

    Raises:
        ValueError: it holds not-a-number or infinity, which JSON cannot express.
    """
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable, where folders can be opened for that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
