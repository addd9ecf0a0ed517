"""What a release file holds and claims, and whether it is what its reader expects."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from synthfair.data.schema import Schema
from synthfair.errors import InputError, reason
from synthfair.files import open_file
from synthfair.release.format import Release
from synthfair.release.reading import read_release
from synthfair.release.signature import Keys, Signature, require_signer


class Inspection(NamedTuple):
    """A release file that was not altered, and what was compared with it.

    Attributes:
        path: of the file.
        size: in bytes.
        sha256: of the file.
        release: what it holds; its own signature, if any, is right.
        fits: whether it fits the schema; None where none was given.
        client: that signed it, by the keys; None where it is none of theirs, or none were given.
        problems: what does not fit, each a sentence with the file, what was found and what is
            allowed.
    """

    path: Path
    size: int
    sha256: str
    release: Release
    fits: bool | None
    client: str | None
    problems: tuple[str, ...]

    @property
    def signature(self) -> Signature:
        """What the file says of its own content, verified."""
        if self.release.signature is None:
            raise ValueError("a release that was read from a file has a digest of its content")
        return self.release.signature


def inspect_release(
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
    sha256: str | None = None,
    keys: Keys | None = None,
) -> Inspection:
    """Reads a release file and compares it with what is known of it.

    Args:
        path: of the file.
        schema: that it must be made with; any, if not given.
        sha256: that the file must have, as its client printed it; any, if not given.
        keys: of the clients, one of which must have signed it; anybody, if not given.

    Returns:
        What it holds, and all that does not fit. For an example see :func:`write_release`.

    Raises:
        InputError: it cannot be read as a release, was altered, or is wrongly signed: then nothing
            that it holds can be shown.
    """
    path = Path(path)
    release = read_release(path, None)
    size, digest = _size_and_digest(path)
    found = Inspection(path, size, digest, release, None, None, ())
    problems: list[str] = []
    if schema is not None:
        try:
            read_release(path, schema)
        except InputError as error:
            problems.append(str(error))
        found = found._replace(fits=not problems)
    if sha256 is not None and digest != sha256.strip().lower():
        problems.append(f"{path}: has sha256 {digest}; must have {sha256}")
    if keys is not None:
        try:
            signer = require_signer(found.signature, keys, source=str(path))
            found = found._replace(client=signer)
        except InputError as error:
            problems.append(str(error))
    return found._replace(problems=tuple(problems))


def _size_and_digest(path: Path) -> tuple[int, str]:
    try:
        with open_file(path) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), sha256
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
