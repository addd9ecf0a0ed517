"""Tables in CSV or Parquet files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from synthfair.data.encode import tidied
from synthfair.data.schema import MAX_COLUMNS, Schema, repeated
from synthfair.errors import InputError, reason
from synthfair.files import open_file, whole_file

CHUNK_ROWS, CHUNK_BYTES = 2**14, 2**21
"""Rows of Parquet, and bytes of CSV, that are encoded together: few enough to be small compared to
the table, and enough that encoding them costs little more than encoding all at once."""

MAX_HEADER_BYTES = 2**20
"""The most bytes of a header."""

_SEPARATORS = {b",": "comma", b";": "semicolon", b"\t": "tab", b"|": "vertical bar"}

_QUOTED = re.compile(rb'(?:^|(?<=[\r\n,;\t|]))"[^"]*(?:""[^"]*)*(?:"|\Z)')
"""A quoted field, which may hold separators and line ends. A quote opens a field only as its first
character; elsewhere, as in 5" pipe, it is one."""

_BEFORE = re.compile(
    rb"\A(?:\xef\xbb\xbf)?[\r\n]*(?:\"?sep=([,;\t|])\"?[ ,;\t]*(?:\r\n?|\n)[\r\n]*)?", re.I
)
"""The bytes before a header: a byte order mark, empty lines, and Excel's line ``sep=;``."""

_LINE = re.compile(rb"[^\r\n]*[\r\n]*")

_PACKED = "it is a spreadsheet, or a zip of other things than one CSV file; save as CSV or Parquet"

_TRAILING = " "
"""The name of the column behind a trailing separator. It is empty, and no name has blanks."""

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_NOT_CSV = {
    _GZIP: "it is compressed by gzip; name it .csv.gz, or unpack it",
    b"\xd0\xcf\x11\xe0": "it is a spreadsheet; save as CSV or Parquet",
    b"\xff\xfe": "its text is UTF-16; save it as UTF-8",
    b"\xfe\xff": "its text is UTF-16; save it as UTF-8",
}
"""The first bytes of files that are mistaken for CSV, and what to do about each."""

_ENDINGS = (".csv", ".csv.gz", ".csv.zip", ".tsv", ".parquet")
"""Endings of the names of tables in a folder."""

_COLUMN = re.compile(r"In CSV column #(\d+)")
"""A pattern of Arrow's errors, which count columns from 0."""

_VALUES = re.compile(r"(Expected \d+ columns, got \d+|invalid value).*", re.DOTALL)
"""The values of a private row, which Arrow quotes behind what it says of the row."""


def read_table(path: str | PathLike[str], schema: Schema) -> pd.DataFrame:
    """Return a table from a CSV or Parquet file, which are distinguished by their first bytes.

    The columns of a CSV file are separated by whichever of comma, semicolon, tab and vertical bar
    its header holds most often outside quotes. Its fields stay text, so that :func:`encode`
    checks each as it was written; texts in ``schema.missing_values`` become missing, in Parquet
    files, too.

    Args:
        path: of the file.
        schema: its ``missing_values`` become missing.

    Returns:
        All columns of the file, without blanks around names and values; :func:`encode` refuses
        those that the schema does not know.

    Raises:
        InputError: unreadable, ragged, a column name repeated, or more columns than allowed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "loans.csv"
        ...     table.head(3).to_csv(path, index=False)
        ...     back = sf.read_table(path, schema)
        >>> back["loanamt"].tolist()
        ['89', '128', '128']
    """
    with _open_rows(Path(path), schema) as rows:
        return tidied(_frame(rows.read_all(), schema), schema.missing_values, schema.columns)


def read_raw_table(path: str | PathLike[str]) -> pd.DataFrame:
    """Return a table without a schema: a CSV file is text, in which nothing is missing yet."""
    with _open_rows(Path(path), None) as rows:
        return _frame(rows.read_all(), None)


def read_chunks(path: Path, schema: Schema, *, text: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file, or of all files of a folder, some at a time: in constant memory.

    Args:
        path: of the file or folder.
        schema: as of :func:`read_table`; the columns that it ignores are not read.
        text: ignored columns that are nevertheless read, such as ids.

    Raises:
        InputError: as :func:`read_table` does, or a folder holds no table; when it gets there.
    """
    for name in files_of(path):
        with _open_rows(name, schema, set(schema.ignored) - set(text)) as rows:
            for batch in rows:
                yield _frame(pa.Table.from_batches([batch]), schema)
            pa.default_memory_pool().release_unused()


def files_of(path: Path) -> list[Path]:
    """Return the tables of a folder and the folders in it, by name; of a file, the file alone.

    Raises:
        InputError: a folder without a CSV or Parquet file.
    """
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS))
    if not files:
        raise InputError(f"{path}: a folder without a file named {' or '.join(_ENDINGS)}")
    return files


def _alike(line: bytes, below: bytes, mark: bytes) -> bool:
    """Return whether two lines have as many fields, give or take empty ones at their ends."""
    inside, n = line.rstrip(b",;\t|").count(mark), below.count(mark)
    widths = {inside, min(line.count(mark), inside + 1)}
    return bool(inside and widths & {n, n - below.endswith(mark)})


def _open_text(path: Path) -> pa.NativeFile:
    """Open a file of CSV text, unpacked where gzip or zip have packed it.

    Raises:
        ValueError: a zip file that is no single CSV file, such as a spreadsheet.
    """
    with open_file(path) as file:
        if file.read(4) != _ZIP:
            return pa.input_stream(str(path))
    try:
        archive = zipfile.ZipFile(path)
        other = re.compile(r"^__MACOSX/|/$|(^|/)\.[^/]*$")
        (inside,) = (name for name in archive.namelist() if not other.search(name))
        return pa.input_stream(archive.open(inside))
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        raise ValueError(_PACKED) from error


@contextmanager
def _open_rows(
    path: Path, schema: Schema | None, ignored: Collection[str] = ()
) -> Iterator[pa.RecordBatchReader]:
    """Open the rows of a file; without a schema, no text is missing.

    Raises:
        InputError: an error of the libraries, also while rows are read; it names the file, and row
            1 is the one after the header.
    """
    try:
        with open_file(path) as file:
            open_ = _open_parquet if _is_parquet(file) else _open_csv
            yield open_(file, path, schema, ignored)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        message = reason(error).replace("Row #", "row ")
        message = _COLUMN.sub(lambda column: f"column {int(column[1]) + 1}", message)
        message = _VALUES.sub(r"\1", message)
        if "utf-8" in message.lower().replace("utf8", "utf-8") and message not in _NOT_CSV.values():
            message += "; save the table as UTF-8"
        raise InputError(f"{path}: cannot read as CSV or Parquet: {message}") from error


def _open_parquet(
    file: IO[bytes], _path: Path, schema: Schema | None, ignored: Collection[str]
) -> pa.RecordBatchReader:
    """Return the rows of a Parquet file. Raises ValueError: a nested column of the schema."""
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file)
    columns = [column for column in parquet.schema_arrow if column.name.strip() not in ignored]
    _check_names([name.strip() for name in parquet.schema_arrow.names])
    for column in columns:
        if pa.types.is_nested(column.type) and schema and column.name.strip() in schema.columns:
            raise ValueError(f"column {column.name!r} holds {column.type}, no number or text")
    names = [column.name for column in columns]
    batches = parquet.iter_batches(CHUNK_ROWS, columns=names)
    return pa.RecordBatchReader.from_batches(pa.schema(columns), batches)


def _open_csv(
    _file: IO[bytes], path: Path, schema: Schema | None, ignored: Collection[str]
) -> pa.RecordBatchReader:
    """Return the rows of a file of CSV text, in which all is text: guesses fail after a block.

    Raises:
        ValueError: the header is none; the message says what it holds.
    """
    with _open_text(path) as file:
        end, separator, names = _header(file.read(MAX_HEADER_BYTES))
    file = _open_text(path)
    file.read(end)
    return csv.open_csv(
        file,
        # With threads, errors do not name rows.
        csv.ReadOptions(use_threads=False, column_names=names, block_size=CHUNK_BYTES),
        csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=[name for name in names if name not in ignored],
            null_values=schema.missing_values if schema else (),
            strings_can_be_null=True,
        ),
    )


def _header(begin: bytes) -> tuple[int, str, list[str]]:
    """Return where the header of CSV text ends, what separates its columns, and their names.

    Lines before it that begin with # are comments, unless they have as many fields as the line
    below, give or take empty ones at their ends.

    Raises:
        ValueError: the header is none; the message says what it holds.
    """
    before = cast(re.Match, _BEFORE.match(begin))  # it matches nothing, too
    start, allowed = before.end(), [before[1]] if before[1] else [*_SEPARATORS]
    # Separators and line ends in quoted fields do not count.
    text = _QUOTED.sub(lambda field: b"x" * len(field[0]), begin[start:])
    for line, below in pairwise(_LINE.finditer(text)):
        masked, row = (record[0].rstrip(b"\r\n") for record in (line, below))
        if not masked.startswith(b"#") or any(_alike(masked, row, mark) for mark in allowed):
            break
    else:
        raise ValueError("it is empty")
    end = start + line.start() + len(masked)
    header = begin[start + line.start() : end]
    if len(header) >= MAX_HEADER_BYTES:
        raise ValueError(f"its first line is longer than {MAX_HEADER_BYTES} bytes, as no header is")

    # What stands most often in the header, outside quotes, separates the columns.
    counts = {mark: masked.count(mark) for mark in allowed}
    most = max(counts.values())
    separator, *rivals = (mark for mark, count in counts.items() if count == most)
    if most == 0:
        text = header.decode(errors="replace")
        blanks = ", not blanks; save the table with one of them" if " " in text.strip() else ""
        raise ValueError(
            f"its header {text if len(text) <= 60 else text[:57] + '...'!r} holds no"
            f" {', '.join(_SEPARATORS.values())}; one of them must separate the columns{blanks}"
        )
    if most >= MAX_COLUMNS:
        raise ValueError(f"it has {most + 1} columns; at most {MAX_COLUMNS} are allowed")
    if rivals:
        words = " and ".join(f"a {_SEPARATORS[mark]}" for mark in (separator, *rivals))
        raise ValueError(f"its header holds {words} {most} times each; quote names that hold one")

    parse_options = csv.ParseOptions(delimiter=separator.decode(), newlines_in_values=True)
    names = csv.read_csv(BytesIO(header + b"\n"), parse_options=parse_options).column_names
    names = [name.strip() for name in names]
    row = row.rstrip(b" ")
    if row.endswith(separator) and row.count(separator) == len(names):
        names.append("")
    names[-1] = names[-1] or _TRAILING
    _check_names(names)
    return end, separator.decode(), names


def _frame(rows: pa.Table, schema: Schema | None) -> pd.DataFrame:
    """Return rows in pandas, without the column behind a trailing separator.

    Texts of the schema's columns are strings, and not bytes.

    Raises:
        ValueError: the column behind a trailing separator holds a value.
    """
    names = schema.columns if schema else ()
    for i, column in enumerate(rows.schema):
        if column.name.strip() in names and re.search("binary|view", str(column.type)):
            rows = rows.set_column(i, column.name, rows.column(i).cast(pa.large_string()))
    table = rows.replace_schema_metadata().to_pandas()  # pandas' metadata may be broken
    if _TRAILING in table:
        filled = table.pop(_TRAILING).astype("string").str.strip().fillna("") != ""
        if filled.any():
            raise ValueError(f"its last column has no name, and values in {filled.sum()} rows")
    return table


def _is_parquet(file: IO[bytes]) -> bool:
    """Return whether a file begins as Parquet does; it is read from its start afterwards.

    Raises:
        ValueError: it begins as another format does that is neither Parquet nor CSV.
    """
    begins = file.read(4)
    file.seek(0)
    for start, remedy in _NOT_CSV.items():
        if begins.startswith(start) and not (start == _GZIP and file.name.endswith(".gz")):
            raise ValueError(remedy)
    return begins == b"PAR1"


def _check_names(names: Sequence[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise ValueError(f"it has {len(names)} columns; at most {MAX_COLUMNS} are allowed")
    if twice := repeated(names):
        raise ValueError(f"column {twice[0]!r} appears more than once; rename it, or add a header")


def with_starts(parts: Iterable[pd.DataFrame], source: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield the parts that have rows, each with the number of rows before it.

    Raises:
        InputError: there are none; at the end.
    """
    rows = 0
    for chunk in parts:
        if len(chunk):
            yield rows, chunk
            rows += len(chunk)
    if rows == 0:
        raise InputError(f"{source}: has no rows")


def take_names(
    table: pd.DataFrame, column: str, *, source: str, rows_before: int = 0
) -> tuple[np.ndarray, pd.DataFrame]:
    """Return whose each row [N] is, as text, and the table without that column.

    Args:
        table: some rows.
        column: of the names.
        source: what to call table and column in errors, such as "user column".
        rows_before: number of rows before these, for errors.

    Raises:
        InputError: no such column, or a row without a name.
    """
    if column not in table.columns:
        raise InputError(f"{source} {column!r}: the table has no such column")
    names = table[column].astype("string")
    if names.isna().any():
        row = rows_before + int(np.argmax(names.isna())) + 1
        raise InputError(f"{source} {column!r}, row {row}: missing; each row needs one")
    return names.to_numpy(object), table.drop(columns=column)


def write_csv(table: pd.DataFrame, path: Path, *, missing: str = "") -> None:
    """Write a table as CSV, whole or not at all, with a word for what is missing."""
    with whole_file(path) as temporary:
        table.to_csv(temporary, index=False, na_rep=missing)
