"""Rows that are read some at a time, as often as need be: in memory, or a stream from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

from synthfair.data.encode import Encoded

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
