"""Reads tables from CSV and Parquet files, and writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.data.schema import MISSING_VALUES
from synthfair.errors import InputError, reason
from synthfair.files import whole_file

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow import csv

    from synthfair.data.schema import Schema


def read_table(path: Path, schema: Schema) -> pd.DataFrame:
    """A table from a CSV or Parquet file, told apart by their first bytes.

    CSV fields of the schema's columns are kept as text, so that encoding judges each as it was
    written; texts in ``schema.missing_values`` become missing.

    Raises:
        InputError: unreadable, ragged, or a column name repeated.
    """
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types={name: pa.string() for name in schema.columns},
        null_values=list(schema.missing_values),
        strings_can_be_null=True,
    )
    return _read(path, options)


def read_raw_table(path: Path) -> pd.DataFrame:
    """The same without a schema: column types are guessed. Raises as :func:`read_table`."""
    from pyarrow import csv

    # Without words for true and false, such columns stay the text that a schema must list.
    return _read(
        path,
        csv.ConvertOptions(
            null_values=list(MISSING_VALUES),
            strings_can_be_null=True,
            true_values=[],
            false_values=[],
        ),
    )


def _read(path: Path, options: csv.ConvertOptions) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        with path.open("rb") as file:
            binary = file.read(4) == b"PAR1"
        if binary:
            table = parquet.ParquetFile(path).read()
        else:
            parsing = csv.ParseOptions(newlines_in_values=True)
            table = csv.read_csv(path, parse_options=parsing, convert_options=options)
        names = table.column_names
        frame = table.to_pandas(ignore_metadata=True)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot read as CSV or Parquet: {reason(error)}") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: column {repeated[0]!r} appears more than once")
    return frame


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Writes a table as CSV, whole or not at all."""
    with whole_file(path) as temporary:
        table.to_csv(temporary, index=False)
