"""Seconds of a client with many rows, of a stream of them, and of a point of the frontier."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.cold import Usage, watch
from benchmarks.harness import Experiment, Run
from benchmarks.showing import page, table, verdict
from benchmarks.unlike.training import LAMBDA_THETA, PENALTIES
from synthfair.data.schema import Categorical, Numeric
from synthfair.data.tables import write_csv
from synthfair.surrogate import GlobalProblem, WeightedTable, frontier

CLIENT_GOAL, STREAM_GOAL, STREAM_MEMORY, POINT_GOAL = 5.0, 120.0, 2000.0, 1.0
"""Seconds at most of a client; of a stream, and MB; of a point of the frontier."""


class ClientSetting(NamedTuple):
    """Rows, and where they lie: ``dutch``, a CSV file, or ``stream``, a folder of Parquet files."""

    table: str
    rows: int


def run_client(setting: ClientSetting, _seed: int, *, smoke: bool) -> Usage:
    """A whole process, without a cache of compiled code."""
    del smoke
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write = write_dutch if setting.table == "dutch" else write_stream
        return watch(
            [
                *(sys.executable, "-m", "synthfair.client", "--release", "surrogate"),
                *("--data", str(write(folder, setting.rows))),
                *("--schema", str(folder / "schema.json")),
                *("--output", str(folder / "release.parquet")),
            ]
        )


def write_dutch(folder: Path, n: int) -> Path:
    """The first n rows, and the schema."""
    rows, schema = sf.load_dataset("dutch")
    (folder / "schema.json").write_text(schema.to_json())
    write_csv(rows.head(n), folder / "table.csv")
    return folder / "table.csv"


NUMBERS, PART = 19, 100_000
"""Numeric features of a stream, with the group 20 inputs; rows of each of its files."""


def write_stream(folder: Path, n: int) -> Path:
    """Files of random rows, and the schema; one file at a time, as this process must stay small."""
    names = [f"number_{i}" for i in range(NUMBERS)]
    columns: dict[str, Numeric | Categorical] = {
        **{name: Numeric(lower=0.0, upper=1.0) for name in names},
        "town": Categorical(categories=("a", "b")),
        "paid": Categorical(categories=("no", "yes")),
    }
    schema = sf.Schema(
        name="stream", label="paid", positive="yes", sensitive="town", columns=columns,
        ignored=(), missing_values=(),
    )  # fmt: skip
    (folder / "schema.json").write_text(schema.to_json())
    (folder / "rows").mkdir()
    rng = np.random.default_rng(0)
    weights = rng.normal(size=NUMBERS)
    for begin in range(0, n, PART):
        x = rng.random((min(PART, n - begin), NUMBERS)).round(4)
        town = rng.integers(2, size=len(x))
        z = 2 * (x - 0.5) @ weights + town - 0.5 + rng.logistic(size=len(x))
        part = pd.DataFrame(x, columns=names)
        part = part.assign(town=np.where(town, "b", "a"), paid=np.where(z > 0, "yes", "no"))
        part.to_parquet(folder / "rows" / f"part_{begin:08}.parquet", index=False)
    return folder / "rows"


def show_client(runs: Sequence[Run[ClientSetting, Usage]]) -> dict[str, str]:
    """As Markdown."""
    before = (
        "A client's whole process, `--release surrogate` with the default settings: start, reading,"
        " compilation and checks included. dutch: a CSV file of 11 features; stream: a folder of"
        f" Parquet files, {NUMBERS} features, read three times. Goals: 60,000 rows of Dutch"
        f" {CLIENT_GOAL:g} s; a stream of 10,000,000 rows {STREAM_GOAL:g} s and"
        f" {STREAM_MEMORY / 1000:g} GB."
    )
    rows = []
    for (name, n), _, (seconds, megabytes), _ in runs:
        met = {
            ("dutch", 60_000): seconds <= CLIENT_GOAL,
            ("stream", 10_000_000): seconds <= STREAM_GOAL and megabytes <= STREAM_MEMORY,
        }.get((name, n))
        said = "" if met is None else verdict(met)
        rows.append((name, f"{n:,}", f"{seconds:.1f}", f"{megabytes:.0f}", said))
    text = table("table | rows | s | peak MB |", rows)
    return {"client.md": page("# A client with many rows", before, text)}


class FrontierSetting(NamedTuple):
    """Clients, weighted rows of each, and the penalty."""

    clients: int
    rows: int
    penalty: str


class FrontierTimes(NamedTuple):
    """Of a frontier.

    Attributes:
        compiling: seconds of the first two points more than of the same again.
        mean: seconds of a point.
        most: seconds of the slowest point.
        converged: whether every point met its tolerance.
    """

    compiling: float
    mean: float
    most: float
    converged: bool


def run_frontier(setting: FrontierSetting, _seed: int, *, smoke: bool) -> FrontierTimes:
    """Rows of Dutch drawn with replacement, of random weights."""
    rng, n = np.random.default_rng(0), setting.clients * setting.rows
    real, n_groups = _dutch(60_000)
    drawn = rng.integers(len(real.y), size=n)
    x, s, y = (part[drawn] for part in real)
    weights = np.repeat(rng.uniform(1, 100, setting.clients), setting.rows)
    weighted = WeightedTable(x, s, y, weights)
    problem = GlobalProblem(
        weighted.rows(n_groups=n_groups), PENALTIES[setting.penalty], "statistical_parity",
        n_groups, LAMBDA_THETA,
    )  # fmt: skip
    rhos = (0.0, *np.geomspace(0.1, 1e5, 4 if smoke else 37))
    first, again = (_seconds(lambda: frontier(problem, rhos[:2])) for _ in range(2))
    seconds, points = [], []
    for rho in rhos:  # as frontier has it, with a clock
        start = time.perf_counter()
        points.append(problem.point(rho))
        seconds.append(time.perf_counter() - start)
    converged = all(point.converged for point in points)
    return FrontierTimes(first - again, float(np.mean(seconds)), max(seconds), converged)


def show_frontier(runs: Sequence[Run[FrontierSetting, FrontierTimes]]) -> dict[str, str]:
    """As Markdown."""
    before = (
        f"38 values of rho, each the best of several starts. Goal: {POINT_GOAL:g} s a point, the"
        " slowest."
    )
    rows = [
        (
            *setting, f"{compiling:.1f}", f"{mean:.2f}", f"{most:.2f}",
            "yes" if converged else "no", verdict(most <= POINT_GOAL),
        )
        for setting, _, (compiling, mean, most, converged), _ in runs
    ]  # fmt: skip
    header = "clients | rows | penalty | compiling, s | a point, s | slowest, s | converged |"
    return {"frontier.md": page("# The frontier of many clients", before, table(header, rows))}


def _dutch(n: int) -> tuple[sf.Encoded, int]:
    """Some of its rows, and the number of groups."""
    rows, schema = sf.load_dataset("dutch")
    everything, order = sf.encode(rows, schema), np.random.default_rng(0).permutation(len(rows))
    return sf.Encoded(*(part[order[:n]] for part in everything)), len(schema.groups)


def _seconds(action) -> float:  # noqa: ANN001
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


CLIENT = Experiment(
    name="client",
    settings=(
        ClientSetting("dutch", 60_000),
        *(ClientSetting("stream", n) for n in (1_000_000, 3_000_000, 10_000_000)),
    ),
    run=run_client,
    summary=show_client,
    smoke=(ClientSetting("dutch", 2000), ClientSetting("stream", 2000)),
    float64=False,
)

FRONTIER = Experiment(
    name="frontier",
    settings=tuple(FrontierSetting(1000, 400, penalty) for penalty in PENALTIES),
    run=run_frontier,
    summary=show_frontier,
    smoke=(FrontierSetting(3, 400, "covariance"),),
)
