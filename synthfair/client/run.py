"""One run of a task: what it shows, saves and is known by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

if TYPE_CHECKING:
    from synthfair.checkpoint import Checkpoint, CheckpointFile
    from synthfair.distill.problem import StepRecord
    from synthfair.privacy.gate import Preview

Progress = Callable[["StepRecord", int, int], None]
"""Called between chunks with the chunk's records, the steps taken, and the steps of a full run."""


class Run(NamedTuple):
    """One run of a task: what it is called in errors, what it shows, and what it saves.

    Attributes:
        source: what to call the table in errors.
        progress: called between chunks of steps.
        on_stage: called with what is done next, in a few words.
        checkpoint: name next to which an interrupted distillation is saved.
        resumed_at: step at which an earlier distillation of the run was continued.
        ends: the last state of each distillation that has ended, by the file that it is saved to if
            the run is interrupted later; None where nobody would save them.
    """

    source: str = "table"
    progress: Progress | None = None
    on_stage: Callable[[str], None] = lambda _: None
    checkpoint: Path | None = None
    resumed_at: int = 0
    ends: dict[CheckpointFile, Checkpoint] | None = None


class Trial(NamedTuple):
    """What a release without some rows has shown. Private.

    Attributes:
        preview: what the checks of it found; None where there was none.
        note: why there was none, in words.
        resumed_at: step at which an interrupted trial was continued; 0 if it was not.
    """

    preview: Preview | None = None
    note: str = ""
    resumed_at: int = 0


def fingerprint(rows_sha256: str, settings: str) -> str:
    """sha256 of rows and settings, and of the precision that is computed with."""
    precision = np.dtype(jax.dtypes.canonicalize_dtype(float)).name
    return hashlib.sha256(f"{rows_sha256} {precision} {settings}".encode()).hexdigest()


def sha256_of(arrays: tuple[np.ndarray, ...]) -> str:
    """Of the bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)  # in place: the rows may be a million
    return digest.hexdigest()
