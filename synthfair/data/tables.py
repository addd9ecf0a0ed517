"""Reads tables from CSV and Parquet files, and writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from synthfair.data.header import find_separator, separator_of
from synthfair.data.schema import MOST, repeated
from synthfair.errors import InputError, reason
from synthfair.files import open_file, whole_file

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow.parquet import ParquetFile

    from synthfair.data.schema import Schema


CHUNK_ROWS = 2**13
"""Rows that are encoded together: few enough to be small compared to the table, and enough that
encoding them costs little more than encoding all at once."""

_GZIP = b"\x1f\x8b"
_NOT_CSV = {
    _GZIP: "it is compressed by gzip; name it .csv.gz, or unpack it",
    b"PK\x03\x04": "it is a zip or spreadsheet file; save the table as CSV",
    b"\xff\xfe": "its text is UTF-16; save it as UTF-8",
    b"\xfe\xff": "its text is UTF-16; save it as UTF-8",
}
"""How files begin that are taken for CSV, and what to do about it."""

_ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")
"""Of the names of tables in a folder."""

_ROW, _COLUMN = re.compile(r"Row #(\d+)"), re.compile(r"In CSV column #(\d+)")
"""In Arrow's errors, which count the header as row 1, and columns from 0. Everywhere here row 1 is
the first after the header; a row may have several lines, and empty lines are none."""


def read_table(
    path: str | PathLike[str], schema: Schema, *, text: Sequence[str] = ()
) -> pd.DataFrame:
    """A table from a CSV or Parquet file, which are distinguished by their first bytes.

    The columns of a CSV file are separated as :func:`find_separator` finds. Fields of the schema's
    columns stay text, so that :func:`encode` checks each as it was written; texts in
    ``schema.missing_values`` become missing, in Parquet files, too.

    Args:
        path: of the file.
        schema: its columns stay text, its ``missing_values`` become missing.
        text: further columns of a CSV file that stay text, such as ids, where 007 is not 7.

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
    texts = [*schema.columns, *text]
    return _read(Path(path), lambda _: _text(texts, schema.missing_values), schema)


def read_raw_table(path: str | PathLike[str]) -> pd.DataFrame:
    """The same without a schema: a CSV file is text, in which nothing is missing yet."""
    return _read(Path(path), lambda names: _text(names, ()))


def files_of(path: Path) -> list[Path]:
    """The tables of a folder and the folders in it, by name; of a file, the file alone.

    Raises:
        InputError: a folder without a CSV or Parquet file.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.name.endswith(_ENDINGS))
    if not found:
        raise InputError(f"{path}: a folder without a file named {' or '.join(_ENDINGS)}")
    return found


def count_rows(path: Path) -> int:
    """Number of rows of a file or folder, found without holding them. Raises as read_chunks."""
    return sum(map(_count_rows, files_of(path)))


def _count_rows(path: Path) -> int:
    with _understood(path), open_file(path) as file:
        if _is_parquet(file):
            return _parquet(file).metadata.num_rows
        return sum(batch.num_rows for batch in _stream(path, lambda names: _bytes(names[0])))


def read_chunks(path: Path, schema: Schema, *, text: Sequence[str] = ()) -> Iterator[pd.DataFrame]:
    """The rows of a file, or of all files of a folder, some at a time.

    Args:
        path: of the file or folder.
        schema: as of :func:`read_table`; the columns that it ignores are not read.
        text: ignored columns that are nevertheless read, such as ids.

    Raises:
        InputError: as :func:`read_table` does, and :func:`files_of`; when it gets there.
    """
    for file in files_of(path):
        yield from _read_chunks(file, schema, text)


def parse_rows(
    header: bytes,
    records: bytes,
    schema: Schema,
    *,
    text: Sequence[str] = (),
    source: str,
    rows_before: int = 0,
) -> pd.DataFrame:
    """Rows of CSV text with its header, which came after other rows.

    Raises:
        InputError: not CSV, or a column name is repeated.
    """
    from pyarrow import csv

    with _understood(source, rows_before):
        parsing = csv.ParseOptions(delimiter=separator_of(header), newlines_in_values=True)
        names = csv.read_csv(BytesIO(header), parse_options=parsing).column_names
        _check_names(names)
        options = _text(_used(names, schema, text), schema.missing_values, alone=True)
        table = csv.read_csv(
            BytesIO(header + records),
            read_options=csv.ReadOptions(use_threads=False),  # errors then name the row
            parse_options=parsing,
            convert_options=options,
        )
        return table.to_pandas(ignore_metadata=True)


def _read_chunks(path: Path, schema: Schema, text: Sequence[str]) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    with _understood(path), open_file(path) as file:
        if _is_parquet(file):
            table = _parquet(file, schema.ignored)
            names = _used(table.schema_arrow.names, schema, text)
            batches = (
                _without(batch, schema)
                for batch in table.iter_batches(batch_size=CHUNK_ROWS, columns=names)
            )
        else:
            batches = _stream(
                path,
                lambda names: _text(_used(names, schema, text), schema.missing_values, alone=True),
            )
        for some in _gathered(batches):
            yield pa.Table.from_batches(some).to_pandas(ignore_metadata=True)
        pa.default_memory_pool().release_unused()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Lists of batches of at least CHUNK_ROWS rows each, but for the last."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(part.num_rows for part in some) >= CHUNK_ROWS:
            yield some
            some = []
    if some:
        yield some


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


def _parquet(file: IO[bytes], ignored: Collection[str] | None = None) -> ParquetFile:
    """A Parquet file; nested columns are refused unless ignored, or unless nothing is read."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    found = ParquetFile(file)
    _check_names(found.schema_arrow.names)
    for column in found.schema_arrow if ignored is not None else ():
        if pa.types.is_nested(column.type) and column.name not in ignored:
            raise ValueError(
                f"column {column.name!r} holds {column.type}, and must hold one number or text a"
                " row; drop it, or list it under 'ignored'"
            )
    return found


def _used(names: Sequence[str], schema: Schema, text: Sequence[str]) -> list[str]:
    """The columns that the schema does not ignore; encoding refuses those it does not know."""
    ignored = set(schema.ignored) - set(text)
    return [name for name in names if name not in ignored]


def _stream(
    path: Path, options: Callable[[list[str]], csv.ConvertOptions]
) -> Iterator[pa.RecordBatch]:
    """Batches of a CSV file, converted as ``options`` says of its columns' names.

    Types are never guessed: a guess from the first block may fail in a later one.
    """
    from pyarrow import csv

    how = _parsing(path, options)
    with _numbered_rows(path, how), csv.open_csv(path, **how) as reader:
        yield from reader


def _parsing(path: Path, options: Callable[[list[str]], csv.ConvertOptions]) -> dict[str, Any]:
    """How a CSV file is parsed and converted; it is not left to Arrow to guess."""
    from pyarrow import csv

    how = {
        "parse_options": csv.ParseOptions(delimiter=find_separator(path), newlines_in_values=True)
    }
    with _numbered_rows(path, how), csv.open_csv(path, **how) as file:
        names = file.schema.names
    _check_names(names)
    return how | {"convert_options": options(names)}


@contextmanager
def _numbered_rows(path: Path, how: dict[str, Any]) -> Iterator[None]:
    """Where Arrow fails, it reads the file again in one thread: then its error numbers the row."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        yield
    except pa.ArrowInvalid:
        one_thread = csv.ReadOptions(use_threads=False)
        with csv.open_csv(path, read_options=one_thread, **how) as rows:
            for _ in rows:
                pass
        raise


def _bytes(name: str) -> csv.ConvertOptions:
    """Reads one column alone, whatever it holds."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.ConvertOptions(column_types={name: pa.binary()}, include_columns=[name])


def _text(
    names: Sequence[str], missing_values: Sequence[str], *, alone: bool = False
) -> csv.ConvertOptions:
    """Reads these columns as text, alone or with all others, whose types are guessed."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=list(names) if alone else None,
        null_values=list(missing_values),
        strings_can_be_null=True,
    )


def _read(
    path: Path, options: Callable[[list[str]], csv.ConvertOptions], schema: Schema | None = None
) -> pd.DataFrame:
    from pyarrow import csv

    with _understood(path), open_file(path) as file:
        if _is_parquet(file):
            table = _parquet(file, schema.ignored if schema else ()).read()
            table = _without(table, schema) if schema else table
        else:
            how = _parsing(path, options)
            with _numbered_rows(path, how):
                table = csv.read_csv(path, **how)
        return table.to_pandas(ignore_metadata=True)


_Rows = TypeVar("_Rows", "pa.Table", "pa.RecordBatch")


def _without(rows: _Rows, schema: Schema) -> _Rows:
    """Parquet's rows in which the texts that stand for a missing value are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pc.SetLookupOptions(pa.array(schema.missing_values, pa.large_string()))
    none = pa.scalar(None, pa.large_string())
    for i, name in enumerate(rows.schema.names):
        if name in schema.columns and _holds_text(rows.schema.types[i]):
            texts = rows.column(i).cast(pa.large_string())
            found = pc.call_function("is_in", [texts], words)
            rows = rows.set_column(i, name, pc.call_function("if_else", [found, none, texts]))
    return rows


def _holds_text(kind: pa.DataType) -> bool:
    """Whether a column is of text, however it is stored; pandas' categories are dictionaries."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    of_text = types.is_string, types.is_large_string, types.is_string_view
    of_bytes = types.is_binary, types.is_large_binary, types.is_binary_view
    return any(is_of(kind) for is_of in of_text + of_bytes)


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
def _understood(path: Path | str, rows_before: int = 0) -> Iterator[None]:
    """Turns errors of the libraries into one that names the file."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        said = _ROW.sub(lambda row: f"row {rows_before + int(row[1]) - 1}", reason(error))
        said = _COLUMN.sub(lambda column: f"column {int(column[1]) + 1}", said)
        if "utf-8" in said.lower().replace("utf8", "utf-8") and said not in _NOT_CSV.values():
            said += "; save the table as UTF-8"
        raise InputError(f"{path}: cannot read as CSV or Parquet: {said}") from error


def take_users(table: pd.DataFrame, column: str) -> tuple[np.ndarray, pd.DataFrame]:
    """[N] whose each row is, as text, and the table without that column.

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
