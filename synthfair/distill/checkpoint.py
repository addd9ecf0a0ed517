"""Keeps an interrupted run, so that it can go on as if never stopped. Stays on the client."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill.judge import Record
from synthfair.distill.outer import OuterState
from synthfair.distill.tolerance import Search
from synthfair.files import whole_file


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


@dataclass(frozen=True)
class CheckpointFile:
    """Where a checkpoint is kept.

    Attributes:
        path: of the file.
        fingerprint: of everything that the run depends on; a file with another is of another run.
    """

    path: Path
    fingerprint: str

    @classmethod
    def beside(cls, output: Path, fingerprint: str) -> CheckpointFile:
        """Named after an output and the run, so that it is never another file."""
        return cls(output.with_name(f"{output.name}.{fingerprint[:16]}.checkpoint"), fingerprint)

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint, whole or not at all."""
        leaves = jax.tree.leaves(checkpoint.state)
        contents: dict[str, Any] = {
            "fingerprint": np.asarray(self.fingerprint),
            **checkpoint.history._asdict(),
            **{f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)},
        }
        with whole_file(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, **contents)

    def load(self, like: OuterState | Search) -> Checkpoint | None:
        """The checkpoint saved, or None where there is none of this very run.

        Args:
            like: a state of the same structure.
        """
        leaves, tree = jax.tree.flatten(like)
        try:
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if str(file["fingerprint"]) != self.fingerprint:
                    return None
                saved = [jnp.asarray(file[f"leaf_{i}"]) for i in range(len(leaves))]
                history = Record(*(file[name] for name in Record._fields))
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        if any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(saved, leaves, strict=True)
        ):
            return None
        return Checkpoint(jax.tree.unflatten(tree, saved), (history,))
