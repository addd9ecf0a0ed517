"""From encoded rows to users whose rows a model sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from synthfair.config import TrainConfig
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.federated.users import Users, make_users
from synthfair.model import model_inputs


class Population(NamedTuple):
    """Users, and what their rows mean.

    Attributes:
        schema: of the rows.
        users: with their rows, as a model of the configuration sees them.
        attributes: names of the attributes whose groups the rows have, the sensitive one first.
        groups: number of groups of each.
    """

    schema: Schema
    users: Users
    attributes: tuple[str, ...]
    groups: tuple[int, ...]


def populate(
    rows: Encoded,
    user: np.ndarray,
    schema: Schema,
    config: TrainConfig,
    *,
    others: Sequence[np.ndarray] = (),
) -> Population:
    """Gives rows to users.

    Args:
        rows: N of them.
        user: [N] whose each row is.
        schema: of the rows.
        config: settings; what the model sees follows from them.
        others: [N] group index in each attribute of ``config.also``, see :func:`other_groups`.

    Raises:
        InputError: nobody has a row of some group, among the rows that are compared; or the groups
            of a further attribute are not given.
    """
    if len(others) != len(config.also):
        raise InputError(
            f"also = {list(config.also)}: needs the groups of each; {len(others)} given"
        )
    s = np.column_stack([rows.s, *others])
    attributes = (schema.sensitive, *config.also)
    groups = tuple(len(schema.with_sensitive(name).groups) for name in attributes)
    a = inputs(rows, schema, config)
    owner = np.arange(len(rows.y)) if config.method == "mmdm" else user
    population = Population(
        schema, make_users(a, s, rows.y.astype(a.dtype), owner), attributes, groups
    )
    if config.constrained:
        _require_all_groups(population, s, rows.y, config)
    return population


def inputs(rows: Encoded, schema: Schema, config: TrainConfig) -> np.ndarray:
    """[N, n] what the model sees: the features, the group unless it must not, and perhaps a 1.

    Only linear models get the 1; networks have intercepts of their own.
    """
    n_groups = len(schema.groups) if config.group_input else 1
    linear = not config.hidden
    return np.asarray(model_inputs(rows.x, rows.s, n_groups=n_groups, intercept=linear))


def other_groups(
    table: pd.DataFrame, schema: Schema, config: TrainConfig, *, source: str
) -> list[np.ndarray]:
    """[N] group index of each row of a table, in each attribute of ``config.also``.

    Raises:
        InputError: an attribute is unknown, is the sensitive one or the label, or is given twice.
    """
    if len({schema.sensitive, *config.also}) <= len(config.also):
        raise InputError(
            f"also = {list(config.also)}: must be attributes other than {schema.sensitive!r}, each"
            " once"
        )
    return [encode(table, schema.with_sensitive(name), source=source).s for name in config.also]


def _require_all_groups(
    population: Population, s: np.ndarray, y: np.ndarray, config: TrainConfig
) -> None:
    conditions = {
        "equal_opportunity": {population.schema.positive: y > 0},
        "equalized_odds": {population.schema.positive: y > 0, population.schema.negative: y < 0},
    }.get(config.notion, {None: np.ones(len(y), bool)})
    for column, name in enumerate(population.attributes):
        groups = population.schema.with_sensitive(name).groups
        for label, among in conditions.items():
            there = set(s[among, column].tolist())
            missing = [group for g, group in enumerate(groups) if g not in there]
            if missing:
                told = "" if label is None else f" and {population.schema.label} = {label!r}"
                raise InputError(
                    f"no user has a row with {name} = {missing[0]!r}{told}: nothing can be held to"
                    f" {config.notion}; take another notion, or a schema without that group"
                )
