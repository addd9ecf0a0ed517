"""What a release file holds and claims, and whether it is what its reader expects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from synthfair.data.schema import Schema
from synthfair.errors import InputError, reason
from synthfair.release.format import Release
from synthfair.release.reading import read_release
from synthfair.release.signature import Keys, Seal, check_seal


class Inspection(NamedTuple):
    """A release file whose content is that of its seal, and what was compared with it.

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
    def seal(self) -> Seal:
        """What the file says of its own content."""
        if self.release.seal is None:
            raise ValueError("a release that was read from a file has a seal")
        return self.release.seal


def inspect_release(
    path: Path,
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

    Raises:
        InputError: it cannot be read as a release, was altered, or is wrongly signed: then nothing
            that it holds can be shown.
    """
    release = read_release(path, None)
    found = Inspection(path, *_file(path), release, None, None, ())
    by_schema = _complaint(lambda: read_release(path, schema)) if schema else None
    by_hash = _complaint(lambda: _check_hash(found, sha256)) if sha256 is not None else None
    by_keys = _complaint(lambda: _check_signer(found, keys)) if keys is not None else None
    return found._replace(
        fits=None if schema is None else by_schema is None,
        client=(keys or {}).get(found.seal.public_key or ""),
        problems=tuple(filter(None, (by_schema, by_hash, by_keys))),
    )


def _file(path: Path) -> tuple[int, str]:
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), sha256
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error


def _complaint(check: Callable[[], object]) -> str | None:
    try:
        check()
    except InputError as error:
        return str(error)
    return None


def _check_hash(found: Inspection, sha256: str) -> None:
    if found.sha256 != sha256.strip().lower():
        raise InputError(f"{found.path}: has sha256 {found.sha256}; must have {sha256}")


def _check_signer(found: Inspection, keys: Keys) -> None:
    digest = bytes.fromhex(found.seal.sha256)  # of the content, which reading it has verified
    check_seal(found.seal, digest, keys, source=str(found.path))
