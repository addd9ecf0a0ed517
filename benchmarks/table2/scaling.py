"""Ways to scale features that a paper may have used and did not say."""

from __future__ import annotations

import numpy as np

from synthfair.compare import Federation
from synthfair.compare.federation import pooled
from synthfair.data.encode import Encoded
from synthfair.data.schema import Categorical, Numeric, Schema, encoded_as


def rescaled(federation: Federation, how: str) -> Federation:
    """The federation with its features scaled in another way.

    Args:
        federation: as encoded, with the schema's bounds.
        how: "range" leaves that; "standard" gives mean 0 and variance 1 over all clients' training
            rows, which no client could know; "unscaled" gives numbers in their own units.
    """
    if how == "range":
        return federation
    if how == "standard":
        x = pooled(federation.train).x
        mean, spread = x.mean(axis=0), x.std(axis=0)
    else:
        mean, spread = _units(federation.schema)

    def one(part: Encoded) -> Encoded:
        return part._replace(x=(part.x - mean) / spread)

    return federation._replace(
        train=tuple(map(one, federation.train)), test=tuple(map(one, federation.test))
    )


def _units(schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """What turns [0, 1] back into a column's own numbers: x = (own - lower) / (upper - lower)."""
    mean, spread = [], []
    for name, column in schema.features.items():
        numeric = isinstance(column, Numeric)
        first = (column.lower, column.upper) if numeric else _codes(column)
        width = len(encoded_as(name, column))
        mean += [-first[0] / (first[1] - first[0])] + [0.0] * (width - 1)
        spread += [1 / (first[1] - first[0])] + [1.0] * (width - 1)
    return np.array(mean), np.array(spread)


def _codes(column: Categorical) -> tuple[float, float]:
    """The two codes of a binary column of numbers, as the published tables hold them."""
    codes = column.categories
    if len(codes) == 2 and not isinstance(codes[0], str):
        return float(codes[0]), float(codes[1])
    return 0.0, 1.0
