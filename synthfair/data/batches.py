"""Encoded rows in batches, which are read as often as need be: memory, files, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from synthfair.data.encode import Clipping, Encoded, encode
from synthfair.data.schema import Schema
from synthfair.data.tables import read_chunks, with_starts
from synthfair.errors import InputError

if TYPE_CHECKING:
    import dask.dataframe
    import pandas as pd

MAX_BATCH_ROWS = 2**16
"""The most rows of a batch of rows in memory."""


Sum = TypeVar("Sum", bound=Any)
"""The type of summable results: a number, an array, or an object with ``+``."""


class Batches(Protocol):
    """A table of encoded rows over which sums can be computed, wherever the rows lie."""

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """Return the sum of ``terms`` of each batch. Every call reads all rows anew."""
        ...


@dataclass(frozen=True)
class BatchesInOrder:
    """A table whose batches are read one after the other, in this process.

    Attributes:
        read: begins anew each time that it is called; yields at least one batch.
    """

    read: Callable[[], Iterable[Encoded]]

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """Add up the terms of all batches, see :class:`Batches`."""
        return reduce(add, map(terms, self.read()))


def in_memory(rows: Encoded) -> BatchesInOrder:
    """Return batches of rows that are encoded already."""
    begins = range(0, max(1, len(rows.y)), MAX_BATCH_ROWS)
    return BatchesInOrder(
        lambda: (Encoded(*(field[i : i + MAX_BATCH_ROWS] for field in rows)) for i in begins)
    )


def from_files(
    path: str | PathLike[str], schema: Schema, *, clipping: Clipping | None = None
) -> BatchesInOrder:
    """Return batches of a CSV or Parquet file, or of all files in a folder, in constant memory.

    Args:
        path: of the file or folder.
        schema: of its rows.
        clipping: counts the values that are clipped, in every reading.

    Raises:
        InputError: when the rows are read: a file cannot be read or does not fit the schema, or
            there are no rows.
    """

    def read() -> Iterator[Encoded]:
        source, n_rows = str(path), 0
        for before, partition in with_starts(read_chunks(Path(path), schema), source):
            rows = encode(partition, schema, source=source, rows_before=before, clipping=clipping)
            n_rows += len(rows.y)
            if len(rows.y):
                yield rows
        if not n_rows:
            raise InputError(f"{path}: has no rows with a label")

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
        """Make batches of partitions; nothing is computed yet."""
        self._parts, self._schema = frame.to_delayed(), schema

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """Add up the terms of all batches, see :class:`Batches`.

        Raises:
            InputError: a partition does not fit the schema, or there are no rows.
        """
        from dask.bag import from_delayed
        from dask.delayed import delayed

        schema = self._schema

        def of_part(partition: pd.DataFrame, number: int) -> list[Sum | None]:
            """Return a partition's sum; None where it has no rows, as filters leave some."""
            source = f"partition {number}"
            rows = len(partition) and encode(partition, schema, source=source, rows_before=0)
            return [terms(rows) if rows and len(rows.y) else None]

        def both(first: Sum | None, second: Sum | None) -> Sum | None:
            return second if first is None else first if second is None else first + second

        sums = from_delayed(
            [delayed(of_part)(partition, i) for i, partition in enumerate(self._parts)]
        )
        total: Any = sums.fold(both, split_every=2)
        if (total := total.to_delayed().compute()) is None:
            raise InputError("the Dask table has no rows")
        return total


def other_inputs(s: np.ndarray, *, n_groups: int, intercept: bool) -> np.ndarray:
    """Return the model inputs [n - d, N] that are no features, of rows in groups s [N].

    Indicators of the groups 1 to n_groups - 1, which in the binary case are the column s of Wu et
    al. (2024), and ones where the model has an intercept. A blind model reads one group: none.
    """
    groups = s == np.arange(1, n_groups)[:, None]
    return np.concatenate([groups, np.ones((int(intercept), len(s)))])
