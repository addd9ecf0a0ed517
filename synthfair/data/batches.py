"""Rows that are read some at a time, as often as need be: from memory, files, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from synthfair.data.encode import Clipping, Encoded, content_order, encode
from synthfair.data.schema import Schema
from synthfair.data.tables import read_chunks
from synthfair.errors import InputError

if TYPE_CHECKING:
    import dask.dataframe
    import pandas as pd

ROWS = 2**16
"""Number of rows in memory of a batch."""

ALIGNMENT = 64
"""Bytes; jax.device_put uses an array of NumPy's in place where it begins at a multiple of this."""


Sum = TypeVar("Sum", bound=Any)
"""The type of summable results: a number, an array, or an object with ``+``."""


class Batches(Protocol):
    """Encoded rows over which sums can be computed, wherever they lie."""

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """``terms`` of each batch of rows, added up. Every call reads all rows anew."""
        ...


@dataclass(frozen=True)
class BatchesInOrder:
    """Batches read one after the other, in this process.

    Attributes:
        read: begins anew each time that it is called; yields at least one batch.
    """

    read: Callable[[], Iterable[Encoded]]

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """Adds up the terms of all batches, see :class:`Batches`."""
        return reduce(add, map(terms, self.read()))


def in_memory(rows: Encoded) -> BatchesInOrder:
    """Batches of rows that are encoded already."""

    def read() -> Iterator[Encoded]:
        for begin in range(0, max(1, len(rows.y)), ROWS):
            yield Encoded(*(field[begin : begin + ROWS] for field in rows))

    return BatchesInOrder(read)


def from_files(
    path: str | PathLike[str], schema: Schema, *, clipping: Clipping | None = None
) -> BatchesInOrder:
    """Batches of a CSV or Parquet file, or of all in a folder: a stream in constant memory.

    Args:
        path: of the file or folder.
        schema: of its rows.
        clipping: counts the values that are clipped, in every reading.

    Raises:
        InputError: when the rows are read: a file cannot be read or does not fit the schema, or
            there are no rows.
    """

    def read() -> Iterator[Encoded]:
        source, rows = str(path), 0
        for part in read_chunks(Path(path), schema):
            if len(part):
                yield encode(part, schema, source=source, rows_before=rows, clipping=clipping)
                rows += len(part)
        if rows == 0:
            raise InputError(f"{path}: has no rows")

    return BatchesInOrder(read)


class DaskBatches:
    """The partitions of a Dask DataFrame; sums are computed where they lie, and added in pairs.

    Needs the extra ``synthfair[dask]``. Where a ``dask.distributed.Client`` is active, its cluster
    computes; the workers need synthfair, too. Only the sums travel.

    Args:
        frame: of the table, with the schema's columns.
        schema: of its rows.

    Example:
        >>> import dask.dataframe
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> frame = dask.dataframe.from_pandas(table, npartitions=3)
        >>> rows = sf.data.DaskBatches(frame, schema)
        >>> made = sf.distill_table(rows, schema, sf.SurrogateConfig())
        >>> round(made.release.weight.sum())
        1990
    """

    def __init__(self, frame: dask.dataframe.DataFrame, schema: Schema) -> None:
        """Makes batches of partitions; computes nothing yet."""
        self._parts, self._schema = frame.to_delayed(), schema

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """Adds up the terms of all batches, see :class:`Batches`.

        Raises:
            InputError: a partition does not fit the schema, or there are no rows.
        """
        from dask.base import compute
        from dask.delayed import delayed

        def of_part(part: pd.DataFrame, number: int) -> Sum | None:
            """Returns None for a partition without rows, as filters leave some."""
            if len(part) == 0:
                return None
            return terms(encode(part, schema, source=f"partition {number}"))

        def both(first: Sum | None, second: Sum | None) -> Sum | None:
            if first is None or second is None:
                return second if first is None else first
            return first + second

        schema, one, two = self._schema, delayed(of_part), delayed(both)
        sums = [one(part, i) for i, part in enumerate(self._parts)]
        while len(sums) > 1:
            pairs = [two(*sums[i : i + 2]) for i in range(0, len(sums) - 1, 2)]
            sums = pairs + sums[2 * len(pairs) :]
        (total,) = compute(*sums)
        if total is None:
            raise InputError("the Dask table has no rows")
        return total


class RealRows(NamedTuple):
    """All rows in one array that JAX uses in place: a million of them must not lie there twice.

    They have the model inputs that are no features, too, and lie column by column, an input a line:
    on a CPU, products with long lines are faster. They are not to be written to.

    Attributes:
        columns: [n, N] of model inputs: features, then those of :func:`other_inputs`.
        s: [N] groups.
        y: [N] labels, -1 or +1.
        n_features: d.
        weight: [N] how much each counts; None: all alike.
    """

    columns: np.ndarray
    s: np.ndarray
    y: np.ndarray
    n_features: int
    weight: np.ndarray | None = None

    @property
    def encoded(self) -> Encoded:
        """The rows without the columns added; x is a view."""
        return Encoded(self.columns[: self.n_features].T, self.s, self.y)


def gather(
    parts: Iterable[Encoded],
    n_rows: int,
    *,
    n_groups: int,
    intercept: bool,
    source: str = "table",
    leave_out: Callable[[Encoded], np.ndarray] | None = None,
    weight: np.ndarray | None = None,
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
        weight: [n_rows] how much each row counts, in the order they come in, where none is left
            out; all alike if None.

    Raises:
        InputError: there are more or fewer rows, or they do not fit into memory.
    """
    columns, s, y, end, n_read = np.empty((0, 0)), np.empty(0, int), np.empty(0), 0, 0
    for part in parts:
        d = part.x.shape[1]
        if n_read == 0:
            n = d + n_groups - 1 + int(intercept)
            try:
                columns = _aligned(n_rows * n, np.dtype(float)).reshape(n, n_rows)
                s, y = _aligned(n_rows, np.dtype(int)), _aligned(n_rows, np.dtype(float))
            except MemoryError as error:
                size = f"{n_rows * (n + 2) * 8 / 1e9:.1f}"
                raise InputError(f"{source}: {n_rows} rows need {size} GB of memory") from error
        n_read += len(part.y)
        if n_read > n_rows:
            break
        if leave_out:
            keep = ~leave_out(part)
            part = Encoded(*(field[keep] for field in part))  # noqa: PLW2901
        begin, end = end, end + len(part.y)
        columns[:d, begin:end] = part.x.T
        columns[d:, begin:end] = other_inputs(part.s, n_groups=n_groups, intercept=intercept)
        s[begin:end], y[begin:end] = part.s, part.y
    if n_read != n_rows:
        how_many = n_read if n_read < n_rows else "more"
        raise InputError(f"{source}: {n_rows} rows counted, {how_many} read: did the file change?")

    # A column at a time, since the rows may fill half of the memory; and next to each other where
    # rows were left out, since JAX would copy gaps.
    n_features, s, y = len(columns) - n_groups + 1 - int(intercept), s[:end], y[:end]
    order = content_order([*columns[:n_features, :end], s, y])
    memory = columns.reshape(-1)
    for i, column in enumerate(columns):
        memory[i * end : (i + 1) * end] = column[:end][order]
    s[:], y[:] = s[order], y[order]
    columns = memory[: len(columns) * end].reshape(len(columns), end)
    for array in (columns, s, y):
        array.flags.writeable = False  # JAX computes with this very memory
    return RealRows(columns, s, y, n_features, None if weight is None else weight[order])


def other_inputs(s: np.ndarray, *, n_groups: int, intercept: bool) -> np.ndarray:
    """The model inputs [n - d, N] that are no features, of rows in groups s [N].

    Indicators of the groups 1 to n_groups - 1, which in the binary case are the column s of Wu et
    al. (2024), and ones where the model has an intercept.
    """
    groups = s == np.arange(1, n_groups)[:, None]
    return np.concatenate([groups, np.ones((int(intercept), len(s)))])


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    memory = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size * dtype.itemsize].view(dtype)
