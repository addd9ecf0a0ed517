"""Rows of CSV text as they arrive, through a pipe or from a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from synthfair.data.header import SEPARATORS, separator_of
from synthfair.data.tables import parse_rows
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

MOST_AT_ONCE, LONGEST_RECORD = 2**20, 2**20
"""Bytes. The second bounds memory where a quote is never closed."""

MOST_LINES = 100
"""Of a row, in quotes. It bounds the wait where a quote is never closed."""


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
            end = _ends(records, _ANY)[0] + 1
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
    held, separators = b"", _ANY
    while arrived := stream.read1(MOST_AT_ONCE):
        held += arrived
        ends = _ends(held, separators)
        if ends and separators == _ANY:  # the header is whole
            with suppress(ValueError):  # said where it is parsed
                separators = separator_of(held[: ends[0] + 1]).encode()
            ends = _ends(held, separators)
        if ends:
            yield held[: ends[-1] + 1]
            held = held[ends[-1] + 1 :]
        if len(held) > LONGEST_RECORD or held.count(b"\n") > MOST_LINES:
            begins = held[:60].decode(errors="replace").splitlines()[0]
            raise InputError(
                f"{source}: the row that begins {begins!r} is longer than {LONGEST_RECORD} bytes or"
                f" {MOST_LINES} lines; is a quote not closed?"
            )
    if held:
        yield held + b"\n"


_ANY = "".join(SEPARATORS).encode()


def _ends(text: bytes, separators: bytes) -> list[int]:
    """Positions of the line ends that are outside quotes, where a record ends.

    A quote opens a field only as its first character; elsewhere, as in 5" pipe, it is one.
    """
    if b'"' in text:
        begins = rb"(?:^|(?<=[\n%s]))" % re.escape(separators)
        quoted = begins + rb'"[^"]*(?:""[^"]*)*(?:"|\Z)'
        text = re.sub(quoted, lambda field: b"x" * len(field[0]), text)
    return [found.start() for found in re.finditer(b"\n", text)]
