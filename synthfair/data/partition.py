"""Cuts one table into clients and train/test rows, for simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


class ClientTable(NamedTuple):
    """One client's rows."""

    train: pd.DataFrame
    test: pd.DataFrame


def partition(
    table: pd.DataFrame, *, clients: int, seed: int, test_fraction: float = 0.2
) -> list[ClientTable]:
    """Deals the rows out at random: every client's rows are a sample of the whole table.

    Parts differ by at most one row; of n rows, floor((1 - test_fraction) n) are for training.

    Args:
        clients: at least 1.
        seed: at least 0; the same seed gives the same parts.
        test_fraction: above 0 and below 1.

    Raises:
        InputError: a client would have no training or no test row.
    """
    per_client = len(table) // max(clients, 1)
    n_train = int(per_client * (1 - test_fraction))
    if clients < 1 or not 0 < test_fraction < 1 or n_train < 1 or n_train == per_client:
        raise InputError(
            f"clients = {clients}, test fraction = {test_fraction}: {len(table)} rows cannot be"
            " cut so that each client has training and test rows"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    return [_cut(table.iloc[part], test_fraction) for part in np.array_split(order, clients)]


def _cut(rows: pd.DataFrame, test_fraction: float) -> ClientTable:
    n_train = int(len(rows) * (1 - test_fraction))
    return ClientTable(rows.iloc[:n_train], rows.iloc[n_train:])
