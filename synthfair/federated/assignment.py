"""Deals a table out to users, for simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.data.partition import partition
from synthfair.errors import InputError
from synthfair.federated.users import deal_rows

if TYPE_CHECKING:
    import pandas as pd

TEST_SHARE = 0.2
"""Of the rows, where no test table is given."""


@dataclass(frozen=True)
class Dealing:
    """How rows become users: exactly one of four ways.

    Attributes:
        clients: so many users with equally many rows.
        rows_per_user: many users, with so many rows on average.
        each_row: every row is a user by itself.
        user_column: the table says whose each row is.
    """

    clients: int | None = None
    rows_per_user: float | None = None
    each_row: bool | None = None
    user_column: str | None = None

    def __post_init__(self) -> None:
        """Refuses none and several."""
        if len(self.given) != 1:
            raise InputError("users: give one of clients, rows_per_user, each_row and user_column")

    @property
    def given(self) -> dict[str, int | float | str]:
        """The one way, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Dealt(NamedTuple):
    """A table, dealt out.

    Attributes:
        train: rows to train on.
        user: [N] whose each of them is.
        tests: test tables by name.
        dealing: how it was done.
    """

    train: pd.DataFrame
    user: np.ndarray
    tests: Mapping[str, pd.DataFrame]
    dealing: Dealing


def deal(
    table: pd.DataFrame,
    dealing: Dealing,
    *,
    seed: int,
    tests: Mapping[str, pd.DataFrame] | None = None,
) -> Dealt:
    """Deals a table out to users, and keeps rows for testing where no test tables are given.

    Clients test on rows of their own; of many users, a fifth of the rows, or of the users where
    the table names them, is kept.

    Raises:
        InputError: there are too few rows, no such column, or numbers out of range.
    """
    if dealing.clients is not None and tests is None:
        return _dealt_to_clients(table, dealing, seed)
    user, table = _owners(table, dealing, seed)
    if tests is not None:
        return Dealt(table, user, tests, dealing)
    names = np.unique(user) if dealing.user_column else np.arange(len(table))
    kept = np.random.default_rng(seed).permutation(names)[: int(len(names) * TEST_SHARE)]
    is_test = np.isin(user if dealing.user_column else np.arange(len(table)), kept)
    if not is_test.any() or is_test.all():
        raise InputError(f"{len(table)} rows of {len(np.unique(user))} users: too few to test on")
    return Dealt(table[~is_test], user[~is_test], {"test": table[is_test]}, dealing)


def _dealt_to_clients(table: pd.DataFrame, dealing: Dealing, seed: int) -> Dealt:
    import pandas as pd

    clients = dealing.clients or 0
    parts = partition(table, clients=clients, seed=seed)
    user = np.repeat(np.arange(clients), [len(part.train) for part in parts])
    tests = {f"client_{i}": part.test for i, part in enumerate(parts)}
    return Dealt(pd.concat([part.train for part in parts]), user, tests, dealing)


def _owners(table: pd.DataFrame, dealing: Dealing, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    if dealing.user_column is not None:
        return _named_owners(table, dealing.user_column)
    return owners(len(table), dealing, seed), table


def owners(n_rows: int, dealing: Dealing, seed: int) -> np.ndarray:
    """[N] whose each row is, where no column says so.

    Raises:
        InputError: numbers out of range.
    """
    if dealing.each_row:
        return np.arange(n_rows)
    if dealing.rows_per_user is not None:
        return deal_rows(n_rows, mean=dealing.rows_per_user, seed=seed)
    clients = dealing.clients or 0
    if not 1 <= clients <= n_rows:
        raise InputError(f"clients = {clients}: must be 1 to {n_rows}, the number of rows")
    return np.random.default_rng(seed).permutation(n_rows) % clients


def _named_owners(table: pd.DataFrame, column: str) -> tuple[np.ndarray, pd.DataFrame]:
    if column not in table.columns:
        raise InputError(f"user column {column!r}: the table has no such column")
    names = table[column]
    if names.isna().any():
        row = int(np.argmax(names.isna())) + 1
        raise InputError(f"user column {column!r}, row {row}: missing; each row needs a user")
    return names.astype("string").to_numpy(object), table.drop(columns=column)
