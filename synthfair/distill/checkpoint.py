"""How far a distillation has come, and how it is kept."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.distill.judge import Record, no_record
from synthfair.distill.outer import OuterState
from synthfair.distill.tolerance import Search


class Checkpoint(NamedTuple):
    """How far a run has come.

    Attributes:
        state: after the last full chunk.
        records: of the chunks so far.
    """

    state: OuterState | Search
    records: tuple[Record, ...] = ()

    @property
    def history(self) -> Record:
        """The records of all chunks in one."""
        return Record(*(np.concatenate(parts) for parts in zip(*self.records, strict=True)))

    @property
    def steps(self) -> int:
        """Number of steps with a record."""
        return sum(len(records.objective) for records in self.records)


def keep(checkpoint: Checkpoint, file: CheckpointFile) -> None:
    """Writes a checkpoint that has records, whole or not at all."""
    file.save(Saved(checkpoint.state, checkpoint.history))


def kept(file: CheckpointFile, start: OuterState | Search) -> Checkpoint | None:
    """The checkpoint in a file, or None where there is none of this very run.

    Args:
        file: where it may be.
        start: a state of the same structure.
    """
    empty = jax.tree.map(lambda leaf: np.zeros(0, leaf.dtype), no_record(start.x.dtype))
    saved = file.load(Saved(start, empty))
    return saved and Checkpoint(saved.state, (saved.history,))
