"""Reads the UCI repository's own files of the tables adult and bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)
"""In the order of adult.names: the files have no header."""


def read_adult(path: Path, schema: Schema) -> pd.DataFrame:
    """A table from adult.data or adult.test.

    The latter begins with a comment and ends its labels in a full stop; both put a blank after
    each comma. ``schema.missing_values`` become missing.
    """
    import pandas as pd

    table = pd.read_csv(
        path,
        names=list(ADULT_COLUMNS),
        comment="|",
        skipinitialspace=True,
        na_values=list(schema.missing_values),
        keep_default_na=False,
    )
    return table.assign(income=table["income"].str.removesuffix("."))


def read_bank(path: Path, schema: Schema) -> pd.DataFrame:
    """A table from bank-full.csv, whose sensitive attribute is made of the age in years.

    The column ``age_25_to_60`` takes the place of ``age``: "yes" from 25 to 60, both included, as
    in Padala et al. (2021), else "no".
    """
    import pandas as pd

    table = pd.read_csv(path, sep=";", na_values=list(schema.missing_values), keep_default_na=False)
    within = table.pop("age").between(25, 60)
    return table.assign(age_25_to_60=within.map({True: "yes", False: "no"}))
