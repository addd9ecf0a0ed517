"""The real rows in one array that JAX uses in place: a million of them must not lie there twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np

from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.model import Rows

ALIGNMENT = 64
"""Bytes; jax.device_put uses an array of NumPy's in place where it begins at a multiple of this."""


class RealRows(NamedTuple):
    """Encoded rows with the columns that a model sees beside the features; not to be written to.

    Attributes:
        a: [N, n] model inputs, as :func:`synthfair.model.model_inputs` has them.
        s: [N] groups.
        y: [N] labels, -1 or +1.
        n_features: d.
    """

    a: np.ndarray
    s: np.ndarray
    y: np.ndarray
    n_features: int

    @property
    def encoded(self) -> Encoded:
        """The rows without the columns added; x is a view."""
        return Encoded(self.a[:, : self.n_features], self.s, self.y)

    def as_rows(self) -> Rows:
        """For a model."""
        return Rows(*(jax.device_put(part) for part in (self.a, self.s, self.y)))


def gather(
    parts: Iterable[Encoded],
    n_rows: int,
    *,
    n_groups: int,
    intercept: bool,
    source: str = "table",
) -> RealRows:
    """Puts parts of a table one below the other; each may be forgotten before the next is made.

    Args:
        parts: at least one, of n_rows rows in all.
        n_rows: at least 1.
        n_groups: number of groups.
        intercept: whether the model has one.
        source: what to call the table in errors.

    Raises:
        InputError: there are more or fewer rows, or they do not fit into memory.
    """
    a, s, y, end = np.empty((0, 0)), np.empty(0, int), np.empty(0), 0
    for part in parts:
        d = part.x.shape[1]
        if end == 0:
            a, s, y = _allocated(n_rows, d + n_groups - 1 + int(intercept), source)
        begin, end = end, end + len(part.y)
        if end > n_rows:
            break
        a[begin:end, :d] = part.x
        a[begin:end, d : d + n_groups - 1] = part.s[:, None] == np.arange(1, n_groups)
        a[begin:end, d + n_groups - 1 :] = 1.0
        s[begin:end], y[begin:end] = part.s, part.y
    if end != n_rows:
        read = end if end < n_rows else "more"
        raise InputError(f"{source}: {n_rows} rows counted, {read} read: did the file change?")
    for part in (a, s, y):
        part.flags.writeable = False  # JAX computes with this very memory
    return RealRows(a, s, y, a.shape[1] - n_groups + 1 - int(intercept))


def _allocated(rows: int, columns: int, source: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for a, s and y; a begins where JAX wants it to."""
    size = rows * columns * 8
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
        s, y = np.empty(rows, int), np.empty(rows)
    except MemoryError as error:
        raise InputError(f"{source}: {rows} rows need {size / 1e9:.1f} GB of memory") from error
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(np.float64).reshape(rows, columns), s, y
