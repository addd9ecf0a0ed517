"""Rows that are read some at a time, as often as need be: from memory, files, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from synthfair.data.encode import Clipping, Encoded, encode, encode_chunks
from synthfair.data.schema import Schema
from synthfair.data.tables import read_chunks
from synthfair.errors import InputError

if TYPE_CHECKING:
    import dask.dataframe
    import pandas as pd

ROWS = 2**16
"""Of a batch of rows in memory."""


class Adds(Protocol):
    """What can be added up: a number, an array, or an object with ``+``."""

    def __add__(self, other: Any, /) -> Any:
        """The sum."""
        ...


Sum = TypeVar("Sum", bound=Adds)


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
        """See :class:`Batches`."""
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
        empty = True
        chunks = read_chunks(Path(path), schema)
        for part in encode_chunks(chunks, schema, source=str(path), clipping=clipping):
            empty = False
            yield part
        if empty:
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
        1989
    """

    def __init__(self, frame: dask.dataframe.DataFrame, schema: Schema) -> None:
        """Computes nothing yet."""
        self._parts, self._schema = frame.to_delayed(), schema

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """See :class:`Batches`.

        Raises:
            InputError: a partition does not fit the schema, or there are no rows.
        """
        from dask.base import compute
        from dask.delayed import delayed

        of_part, both = delayed(_terms_of_part), delayed(_both)
        sums = [of_part(part, self._schema, terms, i) for i, part in enumerate(self._parts)]
        while len(sums) > 1:
            pairs = [both(*sums[i : i + 2]) for i in range(0, len(sums) - 1, 2)]
            sums = pairs + sums[2 * len(pairs) :]
        (found,) = compute(*sums)
        if found is None:
            raise InputError("the Dask table has no rows")
        return found


def _terms_of_part(
    part: pd.DataFrame, schema: Schema, terms: Callable[[Encoded], Sum], number: int
) -> Sum | None:
    """None for a partition without rows, as filters leave some."""
    return terms(encode(part, schema, source=f"partition {number}")) if len(part) else None


def _both(first: Sum | None, second: Sum | None) -> Sum | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second
