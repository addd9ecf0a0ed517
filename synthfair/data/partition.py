"""Splits of one table into clients with training rows, test rows: a simulated federation."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from synthfair.data.encode import encode, in_pandas, labelled
from synthfair.data.schema import Schema, repeated, shown
from synthfair.data.tables import write_csv
from synthfair.errors import InputError
from synthfair.files import require_free, write_text

MAX_SKEW = 1e6
"""The largest parameter of the Dirichlet distribution: clients are alike long before."""

NO_VALUE_CLIENT = "missing"
"""The client of the rows that have no value in the column that a table is cut by."""

MAX_NAME_CHARACTERS = 50
"""Characters of a client's name that its files' names have: file systems allow 255 bytes."""


class ClientTable(NamedTuple):
    """The rows of one client."""

    train: pd.DataFrame
    test: pd.DataFrame


def partition(
    table: pd.DataFrame,
    *,
    clients: int,
    seed: int,
    test_fraction: float = 0.2,
    skew: float | None = None,
    schema: Schema | None = None,
    min_rows: int = 0,
) -> list[ClientTable]:
    """Assign rows to clients at random: alike clients, or unlike ones by ``skew``.

    Without ``skew`` every client's rows are a sample of the whole table. Every client has
    floor((1 - test_fraction) floor(N / clients)) training rows, the same number for all, so that
    they share compiled code; the rest, assigned evenly, are its test rows.

    With ``skew`` = alpha, the rows of each group s and label y are cut by shares of their own::

        (p_1, ..., p_K) ~ Dirichlet(alpha, ..., alpha)    for each (s, y)

    of which client k gets about N_sy p_k rows, drawn at random. A client's groups, labels and
    number of rows n_k then differ from those of others: much at 0.1, little at 100. Of its rows,
    floor((1 - test_fraction) n_k), drawn at random, are training rows. Yurochkin et al. (2019),
    "Bayesian nonparametric federated learning of neural networks", deal each class so.

    Args:
        table: N rows.
        clients: K, at least 1.
        seed: at least 0; the same seed gives the same parts.
        test_fraction: above 0 and below 1.
        skew: alpha, above 0 and at most 1e6; None: alike clients.
        schema: of the table; needed with ``skew``, which reads groups and labels.
        min_rows: clients with fewer rows, test rows included, are left out, and their rows too.

    Returns:
        The rows of each client; every row of the table is in exactly one part, but for those of
        clients that ``min_rows`` leaves out.

    Raises:
        InputError: a client that is not left out would have no training or no test row, all are
            left out, a number is out of range, or the table does not fit the schema.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> [(len(train), len(test)) for train, test in sf.partition(table, clients=2, seed=0)]
        [(795, 200), (795, 199)]
        >>> unlike = sf.partition(table, clients=2, seed=0, skew=0.3, schema=schema)
        >>> [(len(train), len(test)) for train, test in unlike]
        [(1215, 304), (376, 94)]
    """
    rng, table = _generator(seed), labelled(table, schema) if schema else in_pandas(table)
    if not 1 <= clients <= len(table):
        rows = f"the number of rows, {len(table)}"
        raise InputError(f"clients = {clients}: must be at least 1, and at most {rows}")
    if skew is None:
        parts = np.array_split(rng.permutation(len(table)), clients)
    elif schema is None:
        raise InputError(f"skew = {skew}: needs the schema, which says groups and labels")
    elif not 0 < skew <= MAX_SKEW:
        raise InputError(f"skew = {skew}: must be above 0 and at most {MAX_SKEW:g}")
    else:
        # The order of the draws is part of the result: a cell's rows, then its shares, cell by
        # cell, a cell being a group and label; and then each client's rows.
        encoded, pieces = encode(table, schema), []
        for rows in _rows_by(2 * encoded.s + (encoded.y > 0)).values():
            mixed, shares = rng.permutation(rows), rng.dirichlet(np.full(clients, skew))
            pieces.append(np.split(mixed, (np.cumsum(shares) * len(rows)).astype(int)[:-1]))
        parts = [rng.permutation(np.concatenate(rows)) for rows in zip(*pieces, strict=True)]
    named = dict(enumerate(parts))
    return [*_clients(table, named, test_fraction, min_rows, alike=skew is None).values()]


def partition_by(
    table: pd.DataFrame, column: str, *, seed: int, test_fraction: float = 0.2, min_rows: int = 0
) -> dict[str, ClientTable]:
    """Assign rows to clients by a column, such as a region or a hospital: one client per value.

    Of a client's n rows, floor((1 - test_fraction) n), drawn at random, are training rows. The
    column stays in the table.

    Args:
        table: N rows.
        column: its values, as text, are the clients' names; rows without a value are the client
            "missing".
        seed: at least 0; the same seed gives the same parts.
        test_fraction: above 0 and below 1.
        min_rows: clients with fewer rows, test rows included, are left out, and their rows too.

    Returns:
        The rows of each client by its name, in the order of the names.

    Raises:
        InputError: the table has no such column, a client that is not left out would have no
            training or no test row, all are left out, or a number is out of range.

    Example:
        >>> import pandas as pd
        >>> from synthfair.data.partition import partition_by
        >>> table = pd.DataFrame({"region": list("nnnnnsssss"), "income": range(10)})
        >>> found = partition_by(table, "region", seed=0)
        >>> {name: (len(client.train), len(client.test)) for name, client in found.items()}
        {'n': (4, 1), 's': (4, 1)}
    """
    rng, table = _generator(seed), in_pandas(table)
    if column not in table.columns:
        raise InputError(f"column {column!r}: must be one of {shown([*table.columns], 100)}")
    names = table[column].astype("string").fillna(NO_VALUE_CLIENT).to_numpy(object)
    parts = {name: rng.permutation(rows) for name, rows in _rows_by(names).items()}
    return _clients(table, parts, test_fraction, min_rows)


@dataclass(frozen=True)
class Split:
    """A rule that splits a table into clients: at random, alike or unlike, or by a column.

    Attributes:
        clients: their number; 2 if not given. Not with ``by``.
        skew: makes them unlike, see :func:`partition`. Not with ``by``.
        by: the column whose values are the clients, see :func:`partition_by`.
        min_rows: clients with fewer rows are left out.
        test_fraction: share of each client's rows that are test rows.

    Raises:
        InputError: ``by`` is given with ``clients`` or ``skew``.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.partition import Split
        >>> table, schema = sf.load_dataset("loanapp")
        >>> clients = Split(by="suffolk").apply(table, schema, seed=0)
        >>> {name: len(client.train) for name, client in clients.items()}
        {'0': 1345, '1': 245}
    """

    clients: int | None = None
    skew: float | None = None
    by: str | None = None
    min_rows: int = 0
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what excludes each other."""
        if self.by is not None and (self.clients is not None or self.skew is not None):
            raise InputError("by: gives one client of each value; leave out clients and skew", "by")

    @property
    def arguments(self) -> dict[str, int | float | str]:
        """The settings that differ from the defaults, and the clients where no column says them."""
        other = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}
        return other if self.by is not None else {"clients": 2} | other

    def apply(self, table: pd.DataFrame, schema: Schema, *, seed: int) -> dict[str, ClientTable]:
        """Return the rows of each client by its name. Raises as the functions named above."""
        how = {"seed": seed, "test_fraction": self.test_fraction, "min_rows": self.min_rows}
        if self.by is not None:
            return partition_by(table, self.by, **how)
        n_clients = 2 if self.clients is None else self.clients
        parts = partition(table, clients=n_clients, skew=self.skew, schema=schema, **how)
        return {str(i): client for i, client in enumerate(parts)}

    def left_out_warning(
        self, table: pd.DataFrame, clients: Mapping[str, ClientTable]
    ) -> str | None:
        """Return a warning of the rows of clients that ``min_rows`` may have left out."""
        if not self.min_rows:
            return None
        n_rows = sum(len(client.train) + len(client.test) for client in clients.values())
        return (
            f"{len(clients)} clients have at least {self.min_rows} rows;"
            f" {len(table) - n_rows} rows, of smaller ones, are left out"
        )


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise InputError(f"seed = {seed}: must be at least 0")
    return np.random.default_rng(seed)


def _clients(
    table: pd.DataFrame,
    parts: Mapping[Any, np.ndarray],
    test_fraction: float,
    min_rows: int,
    *,
    alike: bool = False,
) -> dict[Any, ClientTable]:
    """Return the parts, their first rows for training, the others for tests; alike: of as many."""
    if not 0 < test_fraction < 1:
        raise InputError(f"test fraction = {test_fraction}: must be above 0 and below 1")
    kept = {name: rows for name, rows in parts.items() if len(rows) >= min_rows}
    least, most = (of(map(len, parts.values()), default=0) for of in (min, max))
    if not kept:
        raise InputError(f"min_rows = {min_rows}: no client has as many; the largest has {most}")
    clients, small = {}, []
    for name, rows in kept.items():
        n_train = int((least if alike else len(rows)) * (1 - test_fraction))
        clients[name] = ClientTable(table.iloc[rows[:n_train]], table.iloc[rows[n_train:]])
        small += [name] * (not 0 < n_train < len(rows))
    if small:
        raise InputError(
            f"clients {shown(small, 5)}: cannot be split into training and test rows by test"
            f" fraction = {test_fraction}; make fewer clients of more rows, or leave small ones out"
            " by min_rows",
            "min_rows",
        )
    return clients


def _rows_by(values: np.ndarray) -> dict[Any, np.ndarray]:
    """Return the positions of each value, in the order of the values."""
    positions = pd.Series(np.arange(len(values))).groupby(values)
    return {value: rows.to_numpy() for value, rows in positions}


def write_clients(
    clients: Sequence[ClientTable] | Mapping[str, ClientTable],
    schema: Schema,
    folder: Path,
    *,
    force: bool = False,
) -> list[Path]:
    """Write client_NAME_train.csv and client_NAME_test.csv for each client, and schema.json.

    Args:
        clients: named by their number 0, 1, ..., or by name; other characters of a name than
            letters, digits, ``_``, ``.`` and ``-`` become ``_`` in names of files.
        schema: of all tables.
        folder: to write to.
        force: overwrite files that exist.

    Returns:
        The files written.

    Raises:
        InputError: one exists and force is false, two names give the same file, or the folder
            cannot be written to.
    """
    by_name = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    stems = file_stems(by_name)
    tables = {
        folder / f"{stem}_{role}.csv": table
        for stem, client in zip(stems, by_name.values(), strict=True)
        for role, table in client._asdict().items()
    }
    schema_path = folder / "schema.json"
    require_free(*tables, schema_path, force=force)
    words = schema.missing_values
    for path, table in tables.items():
        # Where "" is no such word, an empty field would be a value.
        write_csv(table, path, missing="" if not words or "" in words else words[0])
    write_text(schema_path, schema.to_json())
    return [*tables, schema_path]


def file_stems(names: Collection[int | str]) -> list[str]:
    """Return the stems of each client's files. Raises InputError where two agree."""
    stems = [
        "client_" + re.sub(r"[^\w.-]+", "_", str(name))[:MAX_NAME_CHARACTERS] for name in names
    ]
    if clashes := repeated(stem.casefold() for stem in stems):  # some file systems ignore case
        raise InputError(f"clients: two would have the files {clashes[0]}_*.csv; rename one")
    return stems
