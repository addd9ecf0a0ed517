"""Adult as a federation of users with about two rows each, and what is measured of a model."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from jax import Array

from synthfair.data.datasets import published_split
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Numeric, Schema
from synthfair.federated.user_data import poisson_users
from synthfair.federated.users import Users, make_users

BOUNDS = {"fnlwgt": 500_000.0, "capital_gain": 20_000.0, "capital_loss": 2_500.0}
"""Public upper bounds narrower than the schema's, that the values beyond are clipped to.

Round numbers, chosen so that a step of gradient descent sees the columns at all: between the
schema's bounds nearly everybody's capital gain is 0.
"""

SPREAD = 4.0
"""Numbers are scaled to [-2, 2], near the unit variance of the paper, without its statistics."""

ROWS_PER_USER = 2.0


class Adult(NamedTuple):
    """The published split, as numbers."""

    train: Encoded
    test: Encoded


@cache
def load() -> Adult:
    """Seven categorical columns one-hot, six numbers in [-2, 2]; sex is no input."""
    train, test, schema = published_split("adult")
    schema = with_bounds(schema)
    return Adult(scaled(encode(train, schema), schema), scaled(encode(test, schema), schema))


def with_bounds(schema: Schema) -> Schema:
    """The schema with BOUNDS."""
    columns = dict(schema.columns)
    for name, upper in BOUNDS.items():
        columns[name] = Numeric(lower=0.0, upper=upper, out_of_range="clip")
    return schema.model_copy(update={"columns": columns})


def scaled(encoded: Encoded, schema: Schema) -> Encoded:
    """Numbers from [0, 1] to [-SPREAD / 2, SPREAD / 2]."""
    numbers = [name for name, column in schema.features.items() if isinstance(column, Numeric)]
    numeric = np.isin(schema.encoded_names, numbers)
    x = np.where(numeric, SPREAD * (encoded.x - 0.5), encoded.x)
    return Encoded(x.astype(np.float32), encoded.s, encoded.y.astype(np.float32))


def users_of(rows: Encoded, *, central: bool, seed: int) -> Users:
    """Rows assigned to users; or, for central training, each a user of its own."""
    n = len(rows.y)
    user = np.arange(n) if central else poisson_users(n, mean=ROWS_PER_USER, seed=seed)
    return make_users(rows.x, rows.s, rows.y, user)


class AdultValues(NamedTuple):
    """Accuracy, and gaps: the largest difference between a group's value and that of all rows.

    Attributes:
        accuracy: of the decisions.
        fnr_gap: of the false negative rate.
        eo_gap: the larger of that and the false positive rate's.
        demp_gap: of the share of positive decisions.
        pp_gap: of P(y = +1 | decided +1); not-a-number where a group has no positive decision.
    """

    accuracy: float
    fnr_gap: float
    eo_gap: float
    demp_gap: float
    pp_gap: float


def measured(scores: Array, rows: Encoded) -> AdultValues:
    """Of a model's scores on some rows."""
    decided, positive = np.asarray(scores) > 0, rows.y > 0
    fnr = gap(~decided, positive, rows.s)
    fpr = gap(decided, ~positive, rows.s)
    everyone = np.ones_like(decided)
    return AdultValues(
        accuracy=float(np.mean(decided == positive)),
        fnr_gap=fnr,
        eo_gap=max(fnr, fpr),
        demp_gap=gap(decided, everyone, rows.s),
        pp_gap=gap(positive, decided, rows.s),
    )


def gap(event: np.ndarray, among: np.ndarray, groups: np.ndarray) -> float:
    """Largest |P(event | among) - P(event | among, group)|; not-a-number if one has no row."""
    if not all(np.any(among & (groups == g)) for g in np.unique(groups)):
        return np.nan
    overall = np.mean(event[among])
    each = [np.mean(event[among & (groups == g)]) for g in np.unique(groups)]
    return float(np.max(np.abs(overall - np.array(each))))
