"""Seconds of a client with many rows, of a stream of them, and of a point of the frontier."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.cold import Usage, watch
from benchmarks.harness import Experiment
from benchmarks.scale import random_parts, random_schema
from benchmarks.showing import page_of, verdict
from benchmarks.unlike.training import LAMBDA_THETA, PENALTIES
from synthfair.data.tables import write_csv
from synthfair.surrogate import GlobalProblem, WeightedTable, frontier

# A client with many rows

GOALS = {("dutch", 60_000): (5.0, np.inf), ("stream", 10_000_000): (120.0, 2000.0)}
"""Seconds and MB at most; the template of the page has the same."""

NUMBERS = 19
"""Numeric features of a stream, with the group 20 inputs."""


class ClientSetting(NamedTuple):
    """Rows, and where they lie: ``dutch``, a CSV file, or ``stream``, a folder of Parquet files."""

    table: str
    rows: int


def run_client(setting: ClientSetting, _seed: int, *, smoke: bool) -> Usage:
    """A whole process, without a cache of compiled code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if setting.table == "dutch":
            table, schema = sf.load_dataset("dutch")
            data = folder / "table.csv"
            write_csv(table.head(setting.rows), data)
        else:
            schema, data = random_schema("stream", NUMBERS, 0), folder / "rows"
            data.mkdir()
            for i, part in enumerate(random_parts(setting.rows, NUMBERS, 0, size=100_000)):
                part.to_parquet(data / f"part_{i:04}.parquet", index=False)
        (folder / "schema.json").write_text(schema.to_json())
        return watch(
            "synthfair.client", "--release", "surrogate", "--data", data,
            "--schema", folder / "schema.json", "--output", folder / "release.parquet",
            "--without-epsilon",
        )  # fmt: skip


def goal_of_client(setting: ClientSetting, usage: Usage) -> dict[str, str]:
    """Whether it is met, if there is one."""
    most = GOALS.get(setting)
    return {"met": verdict(all(np.less_equal(usage, most))) if most else ""}


CLIENT = Experiment(
    name="client",
    settings=(
        ClientSetting("dutch", 60_000),
        *(ClientSetting("stream", n) for n in (1_000_000, 3_000_000, 10_000_000)),
    ),
    run=run_client,
    summary=page_of("unlike/client", goal_of_client, numbers=NUMBERS),
    smoke=(ClientSetting("dutch", 2000), ClientSetting("stream", 2000)), float64=False,
)  # fmt: skip

# The frontier of many clients

POINT_GOAL = 1.0
"""Seconds at most of a point."""


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
    table, schema = sf.load_dataset("dutch")
    everything, n_groups = sf.encode(table, schema), len(schema.groups)
    chosen = np.random.default_rng(0).permutation(len(table))[:60_000]
    rng, n = np.random.default_rng(0), setting.clients * setting.rows
    drawn = chosen[rng.integers(len(chosen), size=n)]
    weights = np.repeat(rng.uniform(1, 100, setting.clients), setting.rows)
    weighted = WeightedTable(*sf.Encoded(*(part[drawn] for part in everything)), weights)
    problem = GlobalProblem(
        weighted.rows(n_groups=n_groups), PENALTIES[setting.penalty], "statistical_parity",
        n_groups, LAMBDA_THETA,
    )  # fmt: skip
    rhos, clock = (0.0, *np.geomspace(0.1, 1e5, 4 if smoke else 37)), [time.perf_counter()]
    for _ in range(2):  # the first time compiles
        frontier(replace(problem), rhos[:2])
        clock.append(time.perf_counter())
    (first, again), seconds, converged = np.diff(clock).tolist(), [], True
    for rho in rhos:  # as frontier has it, with a clock
        start = time.perf_counter()
        converged &= bool(problem.point(rho).converged)
        seconds.append(time.perf_counter() - start)
    return FrontierTimes(first - again, float(np.mean(seconds)), max(seconds), converged)


FRONTIER = Experiment(
    name="frontier",
    version=2,  # points share a path
    settings=tuple(FrontierSetting(1000, 400, penalty) for penalty in PENALTIES),
    run=run_frontier,
    summary=page_of(
        "unlike/frontier",
        lambda _, v: {
            "converged": "yes" if v.converged else "no",
            "met": verdict(v.most <= POINT_GOAL),
        },
        goal=POINT_GOAL,
    ),
    smoke=(FrontierSetting(3, 400, "covariance"),),
)  # fmt: skip
