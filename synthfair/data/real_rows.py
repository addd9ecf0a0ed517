"""The real rows in one array that JAX uses in place: a million of them must not lie there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import numpy as np

from synthfair.data.encode import Encoded, content_order
from synthfair.errors import InputError

ALIGNMENT = 64
"""Bytes; jax.device_put uses an array of NumPy's in place where it begins at a multiple of this."""


class RealRows(NamedTuple):
    """Encoded rows with the model inputs that are no features; not to be written to.

    They lie column by column, an input a line: on a CPU, products with long lines are faster.

    Attributes:
        columns: [n, N] of model inputs: features, then those of :func:`other_inputs`.
        s: [N] groups.
        y: [N] labels, -1 or +1.
        n_features: d.
    """

    columns: np.ndarray
    s: np.ndarray
    y: np.ndarray
    n_features: int

    @property
    def encoded(self) -> Encoded:
        """The rows without the columns added; x is a view."""
        return Encoded(self.columns[: self.n_features].T, self.s, self.y)

    def on_device(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Columns, groups and labels as JAX has them."""
        return tuple(map(jax.device_put, (self.columns, self.s, self.y)))  # type: ignore[return-value]


def gather(
    parts: Iterable[Encoded],
    n_rows: int,
    *,
    n_groups: int,
    intercept: bool,
    source: str = "table",
    leave_out: Callable[[Encoded], np.ndarray] | None = None,
) -> RealRows:
    """Puts parts of a table together; each may be deleted before the next is made.

    The rows are in their :func:`content_order`, whatever order they come in.

    Args:
        parts: at least one, of n_rows rows in all.
        n_rows: at least 1.
        n_groups: number of groups.
        intercept: whether the model has one.
        source: what to call the table in errors.
        leave_out: says of each row [N] of a part whether it is to be left out.

    Raises:
        InputError: there are more or fewer rows, or they do not fit into memory.
    """
    columns, s, y, end, read = np.empty((0, 0)), np.empty(0, int), np.empty(0), 0, 0
    for part in parts:
        d = part.x.shape[1]
        if read == 0:
            columns, s, y = _allocated(n_rows, d + n_groups - 1 + int(intercept), source)
        read += len(part.y)
        if read > n_rows:
            break
        if leave_out:
            keep = ~leave_out(part)
            part = Encoded(*(field[keep] for field in part))  # noqa: PLW2901
        begin, end = end, end + len(part.y)
        columns[:d, begin:end] = part.x.T
        columns[d:, begin:end] = other_inputs(part.s, n_groups=n_groups, intercept=intercept)
        s[begin:end], y[begin:end] = part.s, part.y
    if read != n_rows:
        found = read if read < n_rows else "more"
        raise InputError(f"{source}: {n_rows} rows counted, {found} read: did the file change?")
    columns, s, y = _shortened(columns, end), s[:end], y[:end]
    n_features = len(columns) - n_groups + 1 - int(intercept)
    order = content_order([*columns[:n_features], s, y])
    for array in (*columns, s, y):
        array[:] = array[order]  # a column at a time: the rows may fill half of the memory
    for array in (columns, s, y):
        array.flags.writeable = False  # JAX computes with this very memory
    return RealRows(columns, s, y, n_features)


def other_inputs(s: np.ndarray, *, n_groups: int, intercept: bool) -> np.ndarray:
    """The model inputs [n - d, N] that are no features, of rows in groups s [N].

    Indicators of the groups 1 to n_groups - 1, which in the binary case are the column s of Wu et
    al. (2024), and ones where the model has an intercept.
    """
    groups = s == np.arange(1, n_groups)[:, None]
    return np.concatenate([groups, np.ones((int(intercept), len(s)))])


def _shortened(columns: np.ndarray, rows: int) -> np.ndarray:
    """The first rows of columns [n, N], moved together in the same memory: JAX would copy gaps."""
    n, allocated = columns.shape
    if rows == allocated:
        return columns
    flat = columns.reshape(-1)
    for i in range(1, n):
        flat[i * rows : (i + 1) * rows] = flat[i * allocated : i * allocated + rows]
    return flat[: n * rows].reshape(n, rows)


def _allocated(rows: int, columns: int, source: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for columns, s and y, each of which begins where JAX wants it to."""
    try:
        s, y = _aligned(rows, np.dtype(int)), _aligned(rows, np.dtype(float))
        return _aligned(rows * columns, y.dtype).reshape(columns, rows), s, y
    except MemoryError as error:
        size = rows * (columns + 2) * 8 / 1e9
        raise InputError(f"{source}: {rows} rows need {size:.1f} GB of memory") from error


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    memory = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size * dtype.itemsize].view(dtype)
