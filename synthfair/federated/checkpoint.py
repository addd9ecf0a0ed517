"""Saves an interrupted run, so that it can go on as if never stopped. Stays where it ran."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.files import OWNER_ONLY, open_file, whole_file


class Checkpoint(NamedTuple):
    """The content of a checkpoint.

    Attributes:
        state: a pytree of arrays.
        history: a pytree of arrays whose first axis grows with the run.
    """

    state: Any
    history: Any


@dataclass(frozen=True)
class CheckpointFile:
    """The file of a run's checkpoint.

    Attributes:
        path: of the file.
        fingerprint: of everything that the run depends on; a file with another is of another run.
    """

    path: Path
    fingerprint: str

    @classmethod
    def next_to(cls, output: Path, fingerprint: str) -> CheckpointFile:
        """Returns the file named after an output and the run, so that it is never another."""
        return cls(output.with_name(f"{output.name}.{fingerprint[:16]}.checkpoint"), fingerprint)

    def save(self, content: Checkpoint) -> None:
        """Writes a checkpoint, whole or not at all; only its owner may read it."""
        contents = {
            f"{name}_{i}": np.asarray(leaf)
            for name, tree in content._asdict().items()
            for i, leaf in enumerate(jax.tree.leaves(tree))
        }
        contents["fingerprint"] = np.asarray(self.fingerprint)
        with whole_file(self.path, mode=OWNER_ONLY) as temporary, temporary.open("wb") as file:
            np.savez(file, **contents)  # type: ignore[arg-type]

    def load(self, like: Checkpoint) -> Checkpoint | None:
        """The checkpoint saved, or None where there is none of this very run.

        Args:
            like: of the same structure; shapes are the same but for the first axis of the history.
        """
        try:
            with open_file(self.path) as raw, np.load(raw, allow_pickle=False) as file:
                if str(file["fingerprint"]) != self.fingerprint:
                    return None
                state = _read(file, "state", like.state)
                history = _read(file, "history", like.history)
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        if not _alike(state, like.state, 0) or not _alike(history, like.history, 1):
            return None
        return Checkpoint(jax.tree.map(jnp.asarray, state), history)


def _read(file: Any, name: str, like: Any) -> Any:
    leaves, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [file[f"{name}_{i}"] for i in range(len(leaves))])


def _alike(tree: Any, like: Any, first_axis: int) -> bool:
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(like), strict=True)
    return all(
        a.shape[first_axis:] == b.shape[first_axis:] and a.dtype == b.dtype for a, b in pairs
    )
