"""Whether the groups of a table can be compared."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from synthfair.config.client_settings import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.data.batches import RealRows


def check_rows(
    real: Encoded | RealRows, schema: Schema, config: DistillConfig, *, source: str
) -> None:
    """Refuses tables in which groups cannot be compared.

    Raises:
        InputError: fewer rows than groups; only one label; or, among the rows that the fairness
            notion compares, fewer groups than the penalty needs: two for the covariance, all for
            the selection rate.
    """
    asked = config.groups_by or (schema.sensitive_name,)
    remedy = "A surrogate (release = surrogate) takes a client of one label, or one group"
    if config.epsilon is not None:
        remedy = (
            f"These are private records: k_min = {config.k_min}, or the noise of epsilon ="
            f" {config.epsilon:g}, may hide the others; with other values they are bought anew"
        )
    schema.groupings_by(asked)
    for by in asked:
        if len(real.y) < (n_groups := len(schema.groups_of(by))):
            raise InputError(
                f"{source}: {len(real.y)} rows are fewer than the {n_groups} groups of"
                f" {by!r}; merge small groups (in the schema, by 'unlisted')"
            )
    if len(np.unique(real.y)) < 2:
        only = schema.decisions[int(real.y[0] > 0)]
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels. {remedy}"
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
                f" {needed} of {list(groups)}. {remedy}; or merge small groups (in the schema, by"
                " 'unlisted')"
                + (", or compare by each attribute (groups_by)" * (len(schema.attributes) > 1))
            )
