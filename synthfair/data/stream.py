"""Rows of CSV text as they arrive, through a pipe or from a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from synthfair.data.tables import parse_rows
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

MOST_AT_ONCE, LONGEST_RECORD = 2**20, 2**20
"""Bytes. The second bounds memory where a quote is never closed."""


class Arriving(Protocol):
    """What bytes are read from, such as ``sys.stdin.buffer``."""

    def read1(self, size: int, /) -> bytes:
        """At most ``size`` bytes, as soon as there are any; none at the end."""
        ...


def read_stream(
    stream: Arriving, schema: Schema, *, text: Sequence[str] = (), source: str = "standard input"
) -> Iterator[pd.DataFrame]:
    """The rows of a CSV stream, as soon as they are whole: in constant memory, and never late.

    Args:
        stream: UTF-8 text; the first record is the header.
        schema: as of :func:`synthfair.read_table`.
        text: ignored columns that are nevertheless read, such as ids.
        source: what to call the stream in errors.

    Raises:
        InputError: not CSV; when it gets there.
    """
    header, rows = b"", 0
    for records in _whole_records(stream, source):
        body = records
        if not header:
            end = _ends(records)[0] + 1
            header, body = records[:end], records[end:]
            if b"\0" in header:
                raise InputError(
                    f"{source}: is not text; only CSV in UTF-8 is streamed, other files are named"
                )
        part = parse_rows(header, body, schema, text=text, source=source, rows_before=rows)
        rows += len(part)
        if len(part):
            yield part


def _whole_records(stream: Arriving, source: str) -> Iterator[bytes]:
    """Bytes that end where records end; the last gets a line end if it has none."""
    held = b""
    while arrived := stream.read1(MOST_AT_ONCE):
        held += arrived
        ends = _ends(held)
        if len(ends):
            yield held[: ends[-1] + 1]
            held = held[ends[-1] + 1 :]
        if len(held) > LONGEST_RECORD:
            raise InputError(
                f"{source}: a row is longer than {LONGEST_RECORD} bytes; is a quote not closed?"
            )
    if held:
        yield held + b"\n"


def _ends(text: bytes) -> np.ndarray:
    """Positions of the line ends that are outside quotes, where a record ends."""
    codes = np.frombuffer(text, np.uint8)
    quoted = np.cumsum(codes == ord('"')) % 2 == 1
    return np.flatnonzero((codes == ord("\n")) & ~quoted)
