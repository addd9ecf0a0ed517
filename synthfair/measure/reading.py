"""Files of reports, some rows at a time, in memory that does not grow with their number.

CSV is cut into blocks at the ends of lines, and each block parsed by itself: nothing that a line
holds can reach the lines after it. Columns come as texts; what they mean is judged later.
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
"""Bytes of CSV that are parsed together."""

LONGEST = 2**16
"""Bytes of a line of CSV; what is longer is no report."""

BATCH_ROWS = 2**16
"""Of Parquet, that are read together."""

QUOTED = re.compile(rb'(^|,)"([^",\r\n]*)"(?=[,\r\n]|$)', re.MULTILINE)
"""A cell in quotation marks, as other programs write texts; none of a report needs them."""

NEWLINE = re.compile(rb"\r\n|\n|\r")

IS_ID = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)


class Batch(NamedTuple):
    """Some rows of one file.

    Attributes:
        name: of the file.
        first: number of the batch's first row there; a file's first is 1, below any header.
        rows: texts by column; values may be numbers.
        broken: places, from 0, of lines that are no rows, with what is wrong with each.
        blank: which of the rows are lines of CSV without a character; those are no reports.
    """

    name: str
    first: int
    rows: pa.RecordBatch
    broken: dict[int, str]
    blank: np.ndarray

    def number(self, place: int) -> int:
        """In the file, of the row that stands at a place in ``rows``."""
        count = self.rows.num_rows + len(self.broken)
        return self.first + int(np.setdiff1d(np.arange(count), list(self.broken))[place])

    @property
    def next(self) -> int:
        """Number of the row after it."""
        return self.first + self.rows.num_rows + len(self.broken)


def read_batches(path: Path | IO[bytes], wanted: Sequence[str]) -> Iterator[Batch]:
    """The wanted columns of a file, CSV or Parquet by its first bytes, or of a stream of CSV.

    CSV without a header is taken to have the columns of a report in their order.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    if not isinstance(path, Path):
        name = "standard input"
        with _understood(name):
            yield from _from_csv(path, name, wanted)
        return
    with _understood(str(path)), path.open("rb") as file:
        parquet = file.peek(4).startswith(b"PAR1")  # without moving back, which no pipe can
        yield from (_from_parquet if parquet else _from_csv)(file, str(path), wanted)


def _from_parquet(file: IO[bytes], name: str, wanted: Sequence[str]) -> Iterator[Batch]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    # Otherwise all of the file that was read stays in memory, or all of a group of its rows.
    reader = ParquetFile(file, pre_buffer=False, buffer_size=BLOCK)
    _require(wanted, reader.schema_arrow.names, name)
    kind = reader.schema_arrow.field("value").type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"{name}: column 'value': is {kind}; must be numbers, or text")
    first = 1
    for rows in reader.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)):
        # Whatever a writer has made of texts: large, encoded, or numbers.
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
    """What stands in the first line."""
    try:
        return next(lines.reader([head.decode("utf-8-sig", errors="replace")]), [])
    except lines.Error as error:
        raise InputError(
            f"{source}: its beginning is no line of CSV; lines end in a line feed, and compressed"
            " files, or Parquet from standard input, are not read"
        ) from error


def _blocks(file: IO[bytes], rest: bytes) -> Iterator[bytes]:
    """The rest of a file in whole lines, save for one that is too long."""
    while more := file.read(BLOCK):
        rest += more
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > LONGEST:
            yield b"a line that is too long\n"  # one column, and so refused
            rest = _after_line(file)
    if rest:
        yield rest + b"\n"


def _after_line(file: IO[bytes]) -> bytes:
    """What stands behind the next end of a line."""
    while more := file.read(BLOCK):
        _, found, rest = more.partition(b"\n")
        if found:
            return rest
    return b""


def _parsed(
    block: bytes, names: Sequence[str], wanted: Sequence[str]
) -> tuple[pa.RecordBatch, dict[int, str], np.ndarray]:
    """Rows as texts, without those of another number of columns; and which of them are blank."""
    import pyarrow as pa
    from pyarrow import csv

    broken = {}

    def skip(row: csv.InvalidRow) -> str:
        said = f"{row.actual_columns} columns where {row.expected_columns} are expected"
        broken[row.number - 1] = said
        return "skip"

    text = _as_text(block)
    table = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(text) + 1
        ),
        # One stray quotation mark must not swallow the reports after it.
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
    """Which rows [N] stand for lines of a text that hold nothing, not even a comma."""
    empty = ~np.any([column.is_valid() for column in rows.columns], axis=0)
    if empty.any():
        bare = np.array([not line for line in NEWLINE.split(text)])
        empty &= np.delete(bare, list(broken))[: rows.num_rows]
    return empty


def _as_text(block: bytes) -> bytes:
    """Cells without quotation marks around them; bytes that are not UTF-8 spoil their row alone."""
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
def _understood(name: str) -> Iterator[None]:
    """Says of which file a problem is."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{name}: cannot read as CSV or Parquet: {reason(error)}") from error
