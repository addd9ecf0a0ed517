"""The check that the groups of a table can be compared."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.settings import DistillConfig

if TYPE_CHECKING:
    from synthfair.data.batches import RealRows
    from synthfair.settings import ServerConfig


def check_rows(
    real: Encoded | RealRows,
    schema: Schema,
    config: DistillConfig | ServerConfig,
    *,
    source: str,
    remedy: str = "merge small groups",
) -> None:
    """Refuse a table in which groups cannot be compared.

    Args:
        real: its rows.
        schema: of the rows.
        config: says which notion, penalty and attributes compare groups.
        source: of the rows, for messages.
        remedy: what to do, for messages.

    Raises:
        InputError: fewer rows than groups; only one label; or, among the rows that the fairness
            notion compares, fewer groups than the penalty needs: two for the covariance, all for
            the selection rate.
    """
    asked = config.groups_by or (schema.sensitive_name,)
    schema.groupings_by(asked)
    for by in asked:
        if len(real.y) < (n_groups := len(schema.groups_of(by))):
            raise InputError(
                f"{source}: {len(real.y)} rows are fewer than the {n_groups} groups of"
                f" {by!r}; {remedy}"
            )
    if len(np.unique(real.y)) < 2:
        only = schema.decisions[int(real.y[0] > 0)]
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels; {remedy}"
        )
    negative, positive = (f"rows with {schema.label}={value}" for value in schema.decisions)
    compared = {
        "statistical_parity": {},
        "equal_opportunity": {positive: real.y > 0},
        "equalized_odds": {positive: real.y > 0, negative: real.y < 0},
    }[config.notion]
    among = {"all rows": np.full(len(real.y), True), **compared}
    for (name, rows), by in product(among.items(), asked):
        groups, grouping = schema.groups_of(by), np.array(schema.groupings[by])
        needed = len(groups) if config.penalty == "selection_rate" else 2
        present = np.unique(grouping[real.s[rows]])
        if len(present) < needed:
            raise InputError(
                f"{source}: column {by!r}, among {name}, holds only"
                f" {[groups[g] for g in present]}; {config.notion} by {config.penalty} needs"
                f" {needed} of {list(groups)}; {remedy}"
                + (", or compare by each attribute (groups_by)" * (len(schema.attributes) > 1))
            )
