"""Keeps an interrupted run, so that it can go on as if never stopped. Stays on the client."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill.outer import OuterState, Record
from synthfair.files import whole_file


def save_checkpoint(path: Path, fingerprint: str, state: OuterState, records: Record) -> None:
    """Writes a checkpoint, whole or not at all.

    Args:
        path: where.
        fingerprint: of everything that the run depends on.
        state: after the last full chunk.
        records: of all steps so far.
    """
    leaves = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    contents: dict[str, Any] = {
        "fingerprint": np.asarray(fingerprint),
        **records._asdict(),
        **leaves,
    }
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **contents)


def load_checkpoint(
    path: Path, fingerprint: str, like: OuterState
) -> tuple[OuterState, Record] | None:
    """The state and records saved, or None where there is none of this very run.

    Args:
        path: where.
        fingerprint: a checkpoint with another is of another run.
        like: a state of the same shapes.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if str(file["fingerprint"]) != fingerprint:
                return None
            leaves, tree = jax.tree.flatten(like)
            saved = [jnp.asarray(file[f"leaf_{i}"]) for i in range(len(leaves))]
            records = Record(*(file[name] for name in Record._fields))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return jax.tree.unflatten(tree, saved), records
