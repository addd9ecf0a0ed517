"""Reads tables from CSV and Parquet files and from streams of CSV text, and writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from synthfair.data.schema import MOST, Schema, repeated
from synthfair.errors import InputError, reason
from synthfair.files import open_file, whole_file

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

CHUNK_ROWS = 2**13
"""Rows that are encoded together: few enough to be small compared to the table, and enough that
encoding them costs little more than encoding all at once."""

MOST_AT_ONCE, LONGEST_HEADER = 2**20, 2**20
"""Bytes that are read of a stream at a time, and of a header."""

MOST_LINES = 100
"""The most lines of a row of a stream, in quotes: it bounds the wait for a closing quote."""

_SEPARATORS = {b",": "comma", b";": "semicolon", b"\t": "tab", b"|": "vertical bar"}

_QUOTED = re.compile(rb'(?:^|(?<=[\n,;\t|]))"[^"]*(?:""[^"]*)*(?:"|\Z)')
"""A quoted field, which may hold separators and line ends. A quote opens a field only as its first
character; elsewhere, as in 5" pipe, it is one."""

_GZIP = b"\x1f\x8b"
_NOT_CSV = {
    _GZIP: "it is compressed by gzip; name it .csv.gz, or unpack it",
    b"PK\x03\x04": "it is a zip or spreadsheet file; save the table as CSV",
    b"\xff\xfe": "its text is UTF-16; save it as UTF-8",
    b"\xfe\xff": "its text is UTF-16; save it as UTF-8",
}
"""The first bytes of files that are mistaken for CSV, and what to do about each."""

_ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")
"""Endings of the names of tables in a folder."""

_Choice = Callable[[list[str]], list[str]]
"""Picks some of a file's columns."""

_ROW, _COLUMN = re.compile(r"Row #(\d+)"), re.compile(r"In CSV column #(\d+)")
"""Patterns of Arrow's errors, which count the header as row 1, and columns from 0. Here row 1 is
the first after the header; a row may have several lines, and empty lines are none."""

_VALUES = re.compile(r"(Expected \d+ columns, got \d+|invalid value).*", re.DOTALL)
"""The values of a private row, which Arrow quotes behind what it says of the row."""


def read_table(path: str | PathLike[str], schema: Schema) -> pd.DataFrame:
    """A table from a CSV or Parquet file, which are distinguished by their first bytes.

    The columns of a CSV file are separated by whichever of comma, semicolon, tab and vertical bar
    its header holds most often outside quotes. Fields of the schema's columns stay text, so that
    :func:`encode` checks each as it was written; texts in ``schema.missing_values`` become missing,
    in Parquet files, too.

    Args:
        path: of the file.
        schema: its columns stay text, its ``missing_values`` become missing.

    Returns:
        All columns of the file; :func:`encode` refuses those that the schema does not know.

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
    return _read(Path(path), lambda _: list(schema.columns), schema)


def read_raw_table(path: str | PathLike[str]) -> pd.DataFrame:
    """Reads a table without a schema: a CSV file is text, in which nothing is missing yet."""
    return _read(Path(path), lambda names: names)


def _read(path: Path, text: _Choice, schema: Schema | None = None) -> pd.DataFrame:
    with _errors_of(path), open_file(path) as file:
        if _is_parquet(file):
            table = _parquet(file, schema.ignored if schema else ()).read()
            table = _without_words(table, schema) if schema else table
        else:
            table = csv.read_csv(path, **_csv_options(_begin(path), text, schema))
        return table.to_pandas(ignore_metadata=True)


def read_chunks(path: Path, schema: Schema, *, text: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows of a file, or of all files of a folder, some at a time: in constant memory.

    Args:
        path: of the file or folder.
        schema: as of :func:`read_table`; the columns that it ignores are not read.
        text: ignored columns that are nevertheless read, such as ids.

    Raises:
        InputError: as :func:`read_table` does, or a folder holds no table; when it gets there.
    """
    for name in files_of(path):
        with _errors_of(name), open_file(name) as file:
            if is_parquet := _is_parquet(file):
                parquet = _parquet(file, schema.ignored)
                columns = _used_columns(schema, text)(parquet.schema_arrow.names)
                batches = parquet.iter_batches(batch_size=CHUNK_ROWS, columns=columns)
            else:
                options = _csv_options(
                    _begin(name), _used_columns(schema, text), schema, alone=True
                )
                batches = csv.open_csv(name, **options)
            for rows in _chunks(batches):
                part = _without_words(rows, schema) if is_parquet else rows
                yield part.to_pandas(ignore_metadata=True)
            pa.default_memory_pool().release_unused()


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches together, until they have CHUNK_ROWS rows; the last may have fewer."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(part.num_rows for part in some) >= CHUNK_ROWS:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


def files_of(path: Path) -> list[Path]:
    """The tables of a folder and the folders in it, by name; of a file, the file alone.

    Raises:
        InputError: a folder without a CSV or Parquet file.
    """
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS))
    if not files:
        raise InputError(f"{path}: a folder without a file named {' or '.join(_ENDINGS)}")
    return files


def read_stream(
    stream: BufferedReader, schema: Schema, *, text: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a CSV stream as they arrive, in constant memory.

    Arrow's own stream would hold each row back until the next has arrived.

    Args:
        stream: UTF-8 text, such as ``sys.stdin.buffer``; the first record is the header.
        schema: as of :func:`read_chunks`.
        text: as of :func:`read_chunks`.

    Raises:
        InputError: not CSV; when it gets there.
    """
    header, options, rows = b"", {}, 0
    while records := stream.read1(MOST_AT_ONCE):
        with _errors_of("standard input", rows):
            for _ in range(MOST_LINES):
                if _unquoted(records).endswith(b"\n"):
                    break
                records += stream.readline() or b"\n"
            else:
                raise ValueError(f"a row has more than {MOST_LINES} lines; is a quote not closed?")
            options = options or _csv_options(
                records, _used_columns(schema, text), schema, alone=True
            )
            part = csv.read_csv(BytesIO(header + records), **options)
        header = header or _header(records) + b"\n"
        rows += len(part)
        if len(part):
            yield part.to_pandas(ignore_metadata=True)


def _unquoted(text: bytes) -> bytes:
    """CSV text with a mark in place of each byte of quoted fields."""
    return _QUOTED.sub(lambda field: b"x" * len(field[0]), text) if b'"' in text else text


def _begin(path: Path) -> bytes:
    """The first bytes of a file; unpacked where its name ends as that of a compressed one."""
    with pa.input_stream(str(path)) as file:
        return file.read(LONGEST_HEADER)


def _header(begin: bytes) -> bytes:
    """The first record of CSV text, without its end."""
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    return text[: len(re.split(rb"[\r\n]", _unquoted(text), maxsplit=1)[0])]


def _csv_options(
    begin: bytes, columns: _Choice, schema: Schema | None = None, *, alone: bool = False
) -> dict[str, Any]:
    """Options with which Arrow reads CSV text: its own guesses at types may fail after a block.

    Args:
        begin: of the text, up to LONGEST_HEADER bytes.
        columns: those that are read as text, of all.
        schema: says which texts are missing.
        alone: whether no other columns are read.

    Raises:
        ValueError: the header is none; the message says what it holds.
    """
    header = _header(begin)
    if not header:
        raise ValueError("it is empty")
    if len(header) >= LONGEST_HEADER:
        raise ValueError(f"its first line is longer than {LONGEST_HEADER} bytes, as no header is")

    # What stands most often in the header, outside quotes, separates the columns.
    counts = {separator: _unquoted(header).count(separator) for separator in _SEPARATORS}
    most = max(counts.values())
    separators = [separator for separator, count in counts.items() if count == most]
    if most == 0:
        start = header.decode(errors="replace")
        blanks = ", not blanks; save the table with one of them" if " " in start.strip() else ""
        raise ValueError(
            f"its header {start if len(start) <= 60 else start[:57] + '...'!r} holds no"
            f" {', '.join(_SEPARATORS.values())}; one of them must separate the columns{blanks}"
        )
    if most >= MOST:
        raise ValueError(f"it has {most + 1} columns; at most {MOST} are allowed")
    if len(separators) > 1:
        words = " and ".join(f"a {_SEPARATORS[separator]}" for separator in separators)
        raise ValueError(
            f"its header holds {words} {most} times each, and only one of them can separate the"
            " columns; quote the names that hold one"
        )

    parse_options = csv.ParseOptions(delimiter=separators[0].decode(), newlines_in_values=True)
    names = csv.read_csv(BytesIO(header + b"\n"), parse_options=parse_options).column_names
    _check_names(names)
    texts = columns(names)
    return {
        "read_options": csv.ReadOptions(use_threads=False),  # errors then name the row
        "parse_options": parse_options,
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(texts, pa.string()),
            include_columns=texts if alone else None,
            null_values=schema.missing_values if schema else (),
            strings_can_be_null=True,
        ),
    }


def _used_columns(schema: Schema, text: Sequence[str]) -> _Choice:
    """The columns that the schema does not ignore; encoding refuses those it does not know."""
    ignored = set(schema.ignored) - set(text)
    return lambda names: [name for name in names if name not in ignored]


def _is_parquet(file: IO[bytes]) -> bool:
    """Whether a file begins as Parquet does; it is read from its start afterwards.

    Raises:
        ValueError: it begins as another format does that is neither Parquet nor CSV.
    """
    begins = file.read(4)
    file.seek(0)
    for start, what in _NOT_CSV.items():
        if begins.startswith(start) and not (start == _GZIP and file.name.endswith(".gz")):
            raise ValueError(what)
    return begins == b"PAR1"


def _parquet(file: IO[bytes], ignored: Sequence[str]) -> ParquetFile:
    """A Parquet file; nested columns are refused unless ignored."""
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file)
    _check_names(parquet.schema_arrow.names)
    for column in parquet.schema_arrow:
        if pa.types.is_nested(column.type) and column.name not in ignored:
            raise ValueError(
                f"column {column.name!r} holds {column.type}, and must hold one number or text a"
                " row; drop it, or list it under 'ignored'"
            )
    return parquet


def _without_words(rows: pa.Table, schema: Schema) -> pa.Table:
    """Parquet's rows in which the texts that stand for a missing value are missing."""
    words = pc.SetLookupOptions(pa.array(schema.missing_values, pa.large_string()))
    none = pa.scalar(None, pa.large_string())
    for i, column in enumerate(rows.schema):
        # However texts are stored: as strings, as bytes, or in the dictionaries of categories.
        if column.name in schema.columns and re.search("string|binary", str(column.type)):
            texts = rows.column(i).cast(pa.large_string())
            missing = pc.call_function("is_in", [texts], words)
            rows = rows.set_column(
                i, column.name, pc.call_function("if_else", [missing, none, texts])
            )
    return rows


def _check_names(names: Sequence[str]) -> None:
    if len(names) > MOST:
        raise ValueError(f"it has {len(names)} columns; at most {MOST} are allowed")
    if twice := repeated(names):
        where = [str(i) for i, name in enumerate(names, 1) if name == twice[0]]
        others = f", and so do {', '.join(map(repr, twice[1:]))}" if twice[1:] else ""
        raise ValueError(
            f"column {twice[0]!r} appears more than once, as columns {' and '.join(where)}{others};"
            " rename them in the file, or add a header, if that line is a row"
        )


@contextmanager
def _errors_of(source: Path | str, rows_before: int = 0) -> Iterator[None]:
    """Turns errors of the libraries into one that names the file, and counts rows as we do."""
    try:
        yield
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        message = _ROW.sub(lambda row: f"row {rows_before + int(row[1]) - 1}", reason(error))
        message = _COLUMN.sub(lambda column: f"column {int(column[1]) + 1}", message)
        message = _VALUES.sub(r"\1", message)
        if "utf-8" in message.lower().replace("utf8", "utf-8") and message not in _NOT_CSV.values():
            message += "; save the table as UTF-8"
        raise InputError(f"{source}: cannot read as CSV or Parquet: {message}") from error


def take_users(table: pd.DataFrame, column: str) -> tuple[np.ndarray, pd.DataFrame]:
    """[N] the user of each row, as text, and the table without that column.

    Raises:
        InputError: no such column, or a row without a user.
    """
    if column not in table.columns:
        raise InputError(f"user column {column!r}: the table has no such column")
    names = table[column]
    if names.isna().any():
        row = int(names.isna().to_numpy().argmax()) + 1
        raise InputError(f"user column {column!r}, row {row}: missing; each row needs a user")
    return names.astype("string").to_numpy(object), table.drop(columns=column)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Writes a table as CSV, whole or not at all."""
    with whole_file(path) as temporary:
        table.to_csv(temporary, index=False)
