"""What it gains, and costs, to estimate the records of a pair of group and label with few rows.

    python -m benchmarks.small_cells                # 5 seeds; goes on where it stopped

One client, in whose table a small group has fewer than k_min rows with the rarer label: this cell
is left out of its surrogate. The package estimates its records. Next to this are the same without
the estimate, a surrogate that keeps the cell, as its k_min is smaller, and training on the real
rows. Test rows are others of the same table. Labels go with groups as at the client, and weights
make each group as large as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.special import logit

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import Runs
from benchmarks.showing import page
from benchmarks.unlike.clients import TASKS, weighted
from synthfair.data.datasets import SOURCES
from synthfair.server import pooling
from synthfair.surrogate import WeightedTable

TABLES = {**TASKS, "adult_race": ("adult", "race")}
"""Table and sensitive attribute."""

SHARE = 0.08
"""The small group's share of the rows where its cell is truly empty; else it follows from odds."""

K_MIN = {"left out": 50, "estimated": 50, "kept": 5}
"""The client's setting, by what becomes of the small cell."""

WAYS = (*K_MIN, "real rows", "constant classifier")
"""What is trained on, and what needs no training."""

ASKED = {
    "nothing": sf.ServerConfig(rho=0.0), "gap": sf.ServerConfig(max_gap=0.02),
    "weight": sf.ServerConfig(penalty="selection_rate", rho=10.0),
}  # fmt: skip
"""Settings of the server: no penalty; the least that a gap needs; one of a fixed weight."""


class Case(NamedTuple):
    """One client.

    Attributes:
        table: of :data:`TABLES`.
        group: the small one; if empty, all groups but the largest are small.
        odds: of the rarer label in a small group, divided by the odds in the other groups.
        cell_rows: number of the client's rows in a small cell.
        rows: number of all of them.
    """

    table: str
    group: str | int
    odds: float
    cell_rows: int = 30
    rows: int = 3520


CASES = {
    "odds as the others', Adult, men": Case("adult", "Male", 1.0),
    "odds as the others', Adult, women": Case("adult", "Female", 1.0),
    "odds as the others', Dutch, men": Case("dutch", "male", 1.0),
    "odds as the others', Dutch, men, 45 rows": Case("dutch", "male", 1.0, 45),
    "odds as the others', Law School, women": Case("law_school_gender", 0, 1.0),
    "odds as the others', Law School, non-white": Case("law_school_race", "Non-White", 1.0, 22),
    "odds a third, Adult, women": Case("adult", "Female", 1 / 3),
    "odds a third, Dutch, men": Case("dutch", "male", 1 / 3),
    "odds a third, Dutch, women": Case("dutch", "female", 1 / 3),
    "odds three times, Law School, non-white": Case("law_school_race", "Non-White", 3.0),
    "truly empty, Adult, men": Case("adult", "Male", 0.0, 0),
    "truly empty, Dutch, men": Case("dutch", "male", 0.0, 0),
    "truly empty, Law School, non-white": Case("law_school_race", "Non-White", 0.0, 0),
    "odds as the others', Adult, women; 30,000 rows": Case("adult", "Female", 1.0, 30, 30_000),
    "odds a 25th, Adult, women; 30,000 rows": Case("adult", "Female", 1 / 25, 40, 30_000),
    "odds as the others', Bank, not 25 to 60; 30,000 rows": Case("bank", "no", 1.0, 30, 30_000),
    "odds a half, Adult, four groups by race": Case("adult_race", "", 1 / 2),
}


class CellSetting(NamedTuple):
    """One of :data:`CASES`, one of :data:`WAYS`, and one of :data:`ASKED`."""

    case: str
    way: str
    asked: str


class CellValues(NamedTuple):
    """How good a model is on test rows.

    Attributes:
        group_rows: number of the client's rows in small groups.
        accuracy: over all test rows.
        group_accuracy: over those of small groups.
        group_loss: mean logistic loss of these.
        gap: largest difference between the selection rates of two groups.
    """

    group_rows: int
    accuracy: float
    group_accuracy: float
    group_loss: float
    gap: float


class Client(NamedTuple):
    """What a client has and sends, and test rows.

    Attributes:
        schema: of the table.
        real: the client's rows.
        releases: its surrogates by k_min.
        test: rows that it does not have; by weight each group has as many as at the client.
        small: indices of the small groups.
    """

    schema: sf.Schema
    real: sf.Encoded
    releases: dict[int, sf.Release]
    test: WeightedTable
    small: list[int]


@lru_cache(maxsize=1)
def client_of(case: Case, seed: int) -> Client:
    """Return the client of a case, with rows drawn at random."""
    table, schema = sf.load_dataset(*TABLES[case.table])
    every = sf.encode(table, schema)
    small = [i for i, name in enumerate(schema.groups) if name == case.group]
    small = small or np.argsort(np.bincount(every.s))[:-1].tolist()
    rng, is_other = np.random.default_rng(seed), ~np.isin(every.s, small)
    label = 1.0 if every.y[is_other].mean() < 0 else -1.0
    odds = case.odds * np.sum(every.y[is_other] == label) / np.sum(every.y[is_other] != label)
    n, n_usual = case.cell_rows, round(case.cell_rows / odds if odds else SHARE * case.rows)
    rest, n_rest = np.flatnonzero(is_other), case.rows - len(small) * (n + n_usual)
    train, test = ([part] for part in np.split(rng.permutation(rest), [n_rest]))
    for group in small:
        cells = (np.flatnonzero((every.s == group) & (every.y == y)) for y in (label, -label))
        rare, usual = map(rng.permutation, cells)
        train.append(np.append(rare[:n], usual[:n_usual]))
        rare, usual = rare[n:], usual[n_usual:]
        most = min(len(usual), len(rare) / odds if odds else np.inf)
        test.append(np.append(rare[: round(most * odds)], usual[: round(most)]))
    each = [np.full(len(b), len(a) / len(b)) for a, b in zip(train, test, strict=True)]
    own, others = np.concatenate(train), np.concatenate(test)
    real, tests = (sf.Encoded(*(part[rows] for part in every)) for rows in (own, others))
    configs = (sf.SurrogateConfig(k_min=k_min, seed=seed) for k_min in {*K_MIN.values()})
    sent = {c.k_min: sf.distill_table(table.iloc[own], schema, c).release for c in configs}
    return Client(schema, real, sent, WeightedTable(*tests, np.concatenate(each)), small)


def run_cell(setting: CellSetting, seed: int, *, smoke: bool) -> CellValues:
    """Train on one client in one way, and return how good the model is."""
    client, way = client_of(CASES[setting.case], seed), setting.way
    release = client.releases[K_MIN.get(way, 5)]
    # Pooling has no setting for it. "Kept" is without estimates, too: of what the client has alone.
    estimate = pooling.filled if way == "estimated" else lambda one, _: (one, ())
    with patch.object(pooling, "filled", estimate):
        pool = pooling.make_pool([release], client.schema, ASKED[setting.asked])
    if way not in K_MIN:  # the same problem of a blind model, over other rows
        pool = pool._replace(rows=weighted(client.real).rows(n_groups=1))
    x, s, y, weight = client.test
    scores = np.full(len(y), logit(np.mean(client.real.y > 0)))
    if way != "constant classifier":
        scores = np.asarray(pooling.train_pool(pool, client.schema)[0].scores(x, s))
    small, rates = np.isin(s, client.small), [np.mean(scores[s == i] > 0) for i in np.unique(s)]
    is_right, loss = (scores > 0) == (y > 0), np.logaddexp(0, -y * scores)
    in_small = (np.average(one[small], weights=weight[small]) for one in (is_right, loss))
    numbers = np.average(is_right, weights=weight), *in_small, max(rates) - min(rates)
    return CellValues(round(weight[small].sum()), *(round(float(one), 4) for one in numbers))


def lines_of(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Return a line of the page for each case and way."""
    for (case, way), own in runs.by("case", "way").items():
        rows = f"{CASES[case].cell_rows} / {own.mean('group_rows').mean:.0f}"
        yield case, rows, way, *(own.mean(name).text(".3f") for name in CellValues._fields[1:])


def show(runs: Runs) -> dict[str, str]:
    """Return the page, with a table for each of :data:`ASKED`."""
    tables: dict[str, Any] = {asked: lines_of(runs.select(asked=asked)) for asked in ASKED}
    return {"small_cells.md": page("small_cells/small_cells", runs, **tables)}


def behind(setting: CellSetting) -> tuple[object, ...]:
    """Return the settings of the client, the estimate and the server."""
    case, server = tuple(CASES[setting.case]), ASKED[setting.asked]
    return surrogates_version(None), case, SHARE, K_MIN, pooling.MAX_ESTIMATE_RATIO, server


EXPERIMENTS = (Experiment(
    name="runs", run=run_cell, summary=show, seeds=5, behind=behind, parallel=True,
    # Of tables with more columns, the search for the weight that a gap needs may take minutes.
    settings=[CellSetting(*one) for one in product(CASES, WAYS, ASKED)
              if one[2] != "gap" or not CASES[one[0]].table.startswith(("adult", "bank"))],
    smoke=tuple(CellSetting([*CASES][4], way, "nothing") for way in WAYS),
    sources=lambda setting: SOURCES[TABLES[CASES[setting.case].table][0]],
),)  # fmt: skip

if __name__ == "__main__":
    main(__doc__, "small_cells", *EXPERIMENTS)
