"""The rows of a client's file as a stream, some of them held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from synthfair.client.held_out import HeldOut
from synthfair.data.batches import BatchesInOrder, Sum, from_files
from synthfair.data.encode import Clipping, Encoded
from synthfair.data.schema import Schema


class FileBatches:
    """Batches of a CSV or Parquet file, or of a folder of them, read anew for each sum.

    Args:
        path: of the file or folder.
        schema: of its rows.
        hold_out: share of the rows that no sum sees, 0 to 0.5; see :class:`HeldOut`.
        seed: says which.

    Attributes:
        clipping: values that the last sum met beyond the schema's bounds, held-out rows included.
    """

    def __init__(self, path: Path, schema: Schema, hold_out: float = 0.0, seed: int = 0) -> None:
        """Reads nothing yet."""
        self._path, self._schema = path, schema
        self._share, self._seed = hold_out, seed
        self._apart = HeldOut(hold_out, seed)
        self.clipping = Clipping()

    def sum(self, terms: Callable[[Encoded], Sum]) -> Sum:
        """See :class:`synthfair.data.batches.Batches`.

        Raises:
            InputError: the file cannot be read, has no rows, or does not fit the schema.
        """
        self._apart = HeldOut(self._share, self._seed)
        self.clipping = Clipping()
        return BatchesInOrder(self._read).sum(terms)

    def _read(self) -> Iterator[Encoded]:
        parts = from_files(self._path, self._schema, clipping=self.clipping).read()
        for part in parts:
            if self._share == 0:
                yield part
                continue
            keep = ~self._apart(part)
            yield Encoded(*(field[keep] for field in part))

    @property
    def held_out(self) -> Encoded:
        """Rows held out, for the checks, as the last sum met them."""
        return self._apart.rows
