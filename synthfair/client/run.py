"""One run of a task: what it shows, and is known by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from synthfair.distill.problem import StepRecord

Progress = Callable[["StepRecord", int, int], None]
"""Called between chunks with the chunk's records, the steps taken, and the steps of a full run."""


class Run(NamedTuple):
    """One run of a task: what it is called in errors, and what it shows.

    Attributes:
        source: what to call the table in errors.
        progress: called between chunks of steps.
        on_stage: called with what is done next, in a few words.
    """

    source: str = "table"
    progress: Progress | None = None
    on_stage: Callable[[str], None] = lambda _: None


class ReadRows(NamedTuple):
    """A client's rows, as a task reads them. Private.

    Attributes:
        real: gathered for a model, or read as a stream.
        sha256: their fingerprint.
    """

    real: Any
    sha256: str


def fingerprint(*parts: object) -> str:
    """Return the sha256 of texts: the fingerprint of rows, settings and the like."""
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def sha256_of(arrays: tuple[np.ndarray, ...]) -> str:
    """Of the bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)  # in place: the rows may be a million
    return digest.hexdigest()
