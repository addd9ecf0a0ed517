"""Splits one table into clients with training and test rows, for simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.data.schema import Schema
from synthfair.data.tables import write_csv
from synthfair.errors import InputError
from synthfair.files import require_free, write_text

if TYPE_CHECKING:
    import pandas as pd


class ClientTable(NamedTuple):
    """One client's rows."""

    train: pd.DataFrame
    test: pd.DataFrame


def partition(
    table: pd.DataFrame, *, clients: int, seed: int, test_fraction: float = 0.2
) -> list[ClientTable]:
    """Assigns rows to clients at random: every client's rows are a sample of the whole table.

    Every client has floor((1 - test_fraction) floor(N / clients)) training rows, the same number
    for all, so that they share compiled code; the rest, assigned evenly, are its test rows.

    Args:
        table: N rows.
        clients: at least 1.
        seed: at least 0; the same seed gives the same parts.
        test_fraction: above 0 and below 1.

    Returns:
        The rows of each client; every row of the table is in exactly one part.

    Raises:
        InputError: a client would have no training or no test row, or the seed is negative.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> [(len(train), len(test)) for train, test in sf.partition(table, clients=2, seed=0)]
        [(795, 200), (795, 199)]
    """
    if seed < 0:
        raise InputError(f"seed = {seed}: must be at least 0")
    possible = clients >= 1 and 0 < test_fraction < 1
    per_client = len(table) // clients if possible else 0
    n_train = int(per_client * (1 - test_fraction)) if possible else 0
    if n_train < 1 or n_train == per_client:
        raise InputError(
            f"clients = {clients}, test fraction = {test_fraction}: {len(table)} rows cannot be"
            " split so that each client has training and test rows"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    parts = (table.iloc[part] for part in np.array_split(order, clients))
    return [ClientTable(part.iloc[:n_train], part.iloc[n_train:]) for part in parts]


def write_clients(
    clients: Sequence[ClientTable], schema: Schema, folder: Path, *, force: bool = False
) -> list[Path]:
    """Writes client_I_train.csv and client_I_test.csv for each client, and schema.json.

    Returns:
        The files written.

    Raises:
        InputError: one exists and force is false, or the folder cannot be written to.
    """
    tables = {
        folder / f"client_{i}_{part}.csv": table
        for i, client in enumerate(clients)
        for part, table in client._asdict().items()
    }
    schema_path = folder / "schema.json"
    require_free(*tables, schema_path, force=force)
    for path, table in tables.items():
        write_csv(table, path)
    write_text(schema_path, schema.to_json())
    return [*tables, schema_path]
