"""Files of reports in batches of rows, in memory that does not grow with their number.

CSV is split into blocks at line ends and each block is parsed by itself, without quoting, so that
no line can affect the lines after it. Columns are returned as texts and are not checked here.
"""

from __future__ import annotations

import csv as lines
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.errors import InputError, reason
from synthfair.measure.reports import COLUMNS, ID_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

BLOCK = 2**20
"""Bytes of CSV that are parsed at a time."""

LONGEST = 2**16
"""Bytes of a line of CSV; a longer one is not a report."""

BATCH_ROWS = 2**16
"""Of Parquet that are read at a time."""

QUOTED = re.compile(rb'(^|,)"([^",\r\n]*)"(?=[,\r\n]|$)', re.MULTILINE)
"""A cell in quotation marks, as some programs write all texts."""

NEWLINE = re.compile(rb"\r\n|\n|\r")

IS_ID = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)


class Batch(NamedTuple):
    """Some consecutive rows of one file.

    Attributes:
        name: of the file.
        first: row number of the batch's first line; 1 is the first below any header.
        rows: the columns as texts; values may be numbers.
        broken: lines that are not in ``rows``, by position from 0 in the batch: what is wrong.
        blank: [N] which of the rows are empty lines of CSV.
    """

    name: str
    first: int
    rows: pa.RecordBatch
    broken: dict[int, str]
    blank: np.ndarray

    def number(self, place: int) -> int:
        """Row number in the file of a position in ``rows``."""
        count = self.rows.num_rows + len(self.broken)
        return self.first + int(np.setdiff1d(np.arange(count), list(self.broken))[place])

    @property
    def next(self) -> int:
        """Row number after the batch."""
        return self.first + self.rows.num_rows + len(self.broken)


def read_batches(path: Path | IO[bytes], wanted: Sequence[str]) -> Iterator[Batch]:
    """The wanted columns of a file, CSV or Parquet by its first bytes, or of a stream of CSV.

    CSV without a header has the columns of a report, in their order. A pipe is read until whoever
    writes to it closes it, and waited for until somebody does.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    if not isinstance(path, Path):
        name = "standard input"
        with _errors_named(name):
            yield from _from_csv(path, name, wanted)
        return
    if path.is_char_device() or path.is_block_device():  # some never end
        raise InputError(f"{path}: cannot read: it must be a file or a pipe, not a device")
    with _errors_named(str(path)), path.open("rb") as file:
        parquet = file.peek(4).startswith(b"PAR1")  # peek, as a pipe cannot seek
        yield from (_from_parquet if parquet else _from_csv)(file, str(path), wanted)


def _from_parquet(file: IO[bytes], name: str, wanted: Sequence[str]) -> Iterator[Batch]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    # The defaults would hold the whole file, or a whole row group, in memory.
    reader = ParquetFile(file, pre_buffer=False, buffer_size=BLOCK)
    _require(wanted, reader.schema_arrow.names, name)
    kind = reader.schema_arrow.field("value").type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"{name}: column 'value': is {kind}; must be numbers or text")
    first = 1
    for rows in reader.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)):
        # Writers may store texts as large strings, dictionaries or numbers.
        columns = {
            key: rows.column(key) if key == "value" else rows.column(key).cast(pa.string())
            for key in wanted
        }
        blank = np.zeros(rows.num_rows, bool)
        yield Batch(name, first, pa.RecordBatch.from_pydict(columns), {}, blank)
        first += rows.num_rows


def _from_csv(file: IO[bytes], name: str, wanted: Sequence[str]) -> Iterator[Batch]:
    head = file.readline(LONGEST)
    names = _names(head, name)
    headless = len(names) == len(COLUMNS) and bool(IS_ID.fullmatch(names[0]))
    if headless:
        names = list(COLUMNS)
    _require(wanted, names, name)
    first = 1
    for block in _blocks(file, head if headless else b""):
        batch = Batch(name, first, *_parsed(block, names, wanted))
        first = batch.next
        yield batch


def _names(head: bytes, source: str) -> list[str]:
    """The cells of the first line."""
    try:
        return next(lines.reader([head.decode("utf-8-sig", errors="replace")]), [])
    except lines.Error as error:
        raise InputError(
            f"{source}: does not begin with a line of CSV; lines must end in a line feed, and"
            " compressed files, or Parquet from standard input, cannot be read"
        ) from error


def _blocks(file: IO[bytes], rest: bytes) -> Iterator[bytes]:
    """The rest of a file in whole lines; a line that is too long is replaced."""
    while more := file.read(BLOCK):
        rest += more
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > LONGEST:
            yield b"a line that is too long\n"  # has one column, and so is rejected
            rest = _after_line_end(file)
    if rest:
        yield rest + b"\n"


def _after_line_end(file: IO[bytes]) -> bytes:
    """The start of the next line, as far as it was read."""
    while more := file.read(BLOCK):
        _, found, rest = more.partition(b"\n")
        if found:
            return rest
    return b""


def _parsed(
    block: bytes, names: Sequence[str], wanted: Sequence[str]
) -> tuple[pa.RecordBatch, dict[int, str], np.ndarray]:
    """Rows as texts; the lines with another number of columns; and which rows are blank."""
    import pyarrow as pa
    from pyarrow import csv

    broken = {}

    def skip(row: csv.InvalidRow) -> str:
        broken[row.number - 1] = (
            f"{row.actual_columns} columns where {row.expected_columns} are expected"
        )
        return "skip"

    text = _as_text(block)
    table = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(text) + 1
        ),
        # No quoting: one stray quotation mark must not hide the reports after it.
        parse_options=csv.ParseOptions(
            invalid_row_handler=skip, quote_char=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    rows = pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())
    return rows, broken, _blank(rows, text, broken)


def _blank(rows: pa.RecordBatch, text: bytes, broken: dict[int, str]) -> np.ndarray:
    """Which rows [N] are lines without any character, not even a comma."""
    empty = ~np.any([column.is_valid() for column in rows.columns], axis=0)
    if empty.any():
        bare = np.array([not line for line in NEWLINE.split(text)])
        empty &= np.delete(bare, list(broken))[: rows.num_rows]
    return empty


def _as_text(block: bytes) -> bytes:
    """Removes quotation marks around cells; replaces bytes that are not UTF-8."""
    if b'"' in block:
        block = QUOTED.sub(rb"\1\2", block)
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode(errors="replace").encode()
    return block


def _require(wanted: Sequence[str], names: Sequence[str], source: str) -> None:
    for key in wanted:
        if key not in names:
            found = ", ".join(names)[:200] or "nothing"
            raise InputError(
                f"{source}: column {key!r}: missing; a file of reports begins with the line"
                f" {','.join(COLUMNS)}; found {found}"
            )
        if list(names).count(key) > 1:
            raise InputError(f"{source}: column {key!r}: appears more than once")


@contextmanager
def _errors_named(name: str) -> Iterator[None]:
    """Turns the errors of libraries into InputErrors that name the file."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{name}: cannot read as CSV or Parquet: {reason(error)}") from error
