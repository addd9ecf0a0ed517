"""Tables cut into clients, and the surrogates that these send."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.showing import published
from synthfair.compare import Federation, federate
from synthfair.data.batches import in_memory
from synthfair.data.encode import encode_records
from synthfair.data.partition import ClientTable, partition_by
from synthfair.server.pooling import concatenated
from synthfair.surrogate import WeightedTable

TASKS = {
    "dutch": ("dutch", "sex"),
    "law_school_race": ("law_school", "race"),
    "law_school_gender": ("law_school", "male"),
    "bank": ("bank", "age_25_to_60"),
    "adult": ("adult", "sex"),
}
"""Table and sensitive attribute."""

FEWEST = 5
"""Rows of a client; with fewer it would have no test row, and takes no part in any method."""

REGION_OF = {line["country"]: line["region"] for line in published("adult_regions")}
"""Of each country of birth in Adult."""


class Cut(NamedTuple):
    """A table cut into clients.

    Attributes:
        task: of :data:`TASKS`.
        clients: how many there may be.
        split: ``alike``; a number, the concentration of a Dirichlet distribution; or what makes
            the clients of Adult: ``occupation`` or ``region``.
        seed: of the split.
    """

    task: str
    clients: int
    split: str
    seed: int


def cut_table(table: pd.DataFrame, schema: sf.Schema, cut: Cut) -> list[ClientTable]:
    """Return the rows of each client; unlike ones have at least :data:`FEWEST`."""
    if cut.split == "alike":
        return sf.partition(table, clients=cut.clients, seed=cut.seed)
    if cut.split in ("occupation", "region"):
        named = table.assign(region=table.get("native_country", pd.Series()).map(REGION_OF))
        parts = partition_by(named, cut.split, seed=cut.seed, min_rows=FEWEST).values()
        return [ClientTable(*(part.drop(columns="region") for part in one)) for one in parts]
    return sf.partition(
        table, clients=cut.clients, seed=cut.seed, skew=float(cut.split), schema=schema,
        min_rows=FEWEST,
    )  # fmt: skip


@lru_cache(maxsize=1)
def federation(cut: Cut) -> Federation:
    """Return the clients of a cut table, encoded."""
    # Each number of rows is compiled for; a process ends where too much compiled code is in memory.
    jax.clear_caches()
    table, schema = sf.load_dataset(*TASKS[cut.task])
    return federate(cut_table(table, schema, cut), schema)


def weighted(rows: sf.Encoded) -> WeightedTable:
    """Rows that each stand for themselves."""
    return WeightedTable(*rows, np.ones(len(rows.y)))


def accuracy_and_spd(clients: Federation, chance: np.ndarray) -> tuple[float, float]:
    """Of chances [N] of the decision +1 over all clients' test rows; the SPD is signed."""
    test = concatenated(clients.test)
    right = np.where(test.y > 0, chance, 1.0 - chance).mean()
    spd = chance[test.s == 1].mean() - chance[test.s == 0].mean()
    return float(right), float(spd)


DELTA = 1e-6


def surrogate_config(epsilon: float | None) -> sf.SurrogateConfig:
    """Return the defaults, with this epsilon."""
    return sf.SurrogateConfig(epsilon=epsilon, delta=epsilon and DELTA)


CONFIGS = {"surrogate": surrogate_config(None), "private": surrogate_config(1.0)}
"""Settings of each kind of surrogate: the defaults, and these."""


class Surrogates(NamedTuple):
    """What the clients of a federation send.

    Attributes:
        table: their surrogates, together.
        clients_out: clients that send nothing, because none of their pairs of group and label has
            enough rows.
        rows_out: training rows that no surrogate stands for; those of the clients above, too.
        seconds: of a client, the mean.
    """

    table: WeightedTable
    clients_out: int
    rows_out: int
    seconds: float


@lru_cache(maxsize=3)
def surrogates(cut: Cut, epsilon: float | None) -> Surrogates:
    """Return what the clients send, once for all penalties; they have the split's seed."""
    clients = federation(cut)
    config = surrogate_config(epsilon).model_copy(update={"seed": cut.seed})
    parts, rows_out, start = [], 0, time.perf_counter()
    for real in clients.plain:
        try:
            release = sf.distill_table(in_memory(real), clients.schema, config).release
        except sf.InputError:
            rows_out += len(real.y)
            continue
        assert release.weight is not None
        x = encode_records(release.x, clients.schema)
        parts.append(WeightedTable(x, release.s, release.y, release.weight))
        rows_out += rows_without(parts[-1], real)
    seconds = (time.perf_counter() - start) / len(clients.train)
    pooled = WeightedTable(*map(np.concatenate, zip(*parts, strict=True)))
    return Surrogates(pooled, len(clients.train) - len(parts), rows_out, seconds)


def rows_without(table: WeightedTable, real: sf.Encoded) -> int:
    """Return the number of real rows whose pair of group and label has no row in a surrogate."""
    pairs, there = (2 * rows.s + (rows.y > 0) for rows in (real, table))
    return int(np.isin(pairs, there, invert=True).sum())
