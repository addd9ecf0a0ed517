"""Seconds of a client with many rows, and of a point of the frontier for many clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment, Run, page, table, verdict
from benchmarks.unlike.clients import CONFIGS, QUICK
from benchmarks.unlike.training import LAMBDA_THETA, PENALTIES
from synthfair.data.batches import in_memory
from synthfair.surrogate import GlobalProblem, WeightedTable, frontier, make_surrogate

CLIENT_GOAL, POINT_GOAL = 5.0, 1.0
"""Seconds at most: of a client, compilation included; of a point of the frontier."""


class ClientSetting(NamedTuple):
    """Rows of Dutch, and the kind of surrogate: of :data:`CONFIGS`."""

    rows: int
    kind: str


class Times(NamedTuple):
    """Seconds of the first time, compilation included, and of one more."""

    first: float
    again: float


def run_client(setting: ClientSetting, _seed: int, *, smoke: bool) -> Times:
    """One client's surrogate, of rows in memory."""
    rows, n_groups = _dutch(setting.rows)
    config = CONFIGS[setting.kind].model_copy(update=QUICK if smoke else {})
    make = partial(make_surrogate, in_memory(rows), config, n_groups=n_groups)
    return Times(_seconds(make), _seconds(make))


def show_client(runs: Sequence[Run[ClientSetting, Times]]) -> dict[str, str]:
    """As Markdown."""
    before = (
        f"Rows of Dutch in memory; reading, encoding and the start of Python are not counted. Goal"
        f" for 60,000 rows, the first time: {CLIENT_GOAL:g} s."
    )
    rows = [
        (*run.setting, f"{run.values.first:.2f}", f"{run.values.again:.2f}",
         verdict(run.values.first <= CLIENT_GOAL))
        for run in runs
    ]  # fmt: skip
    text = table("rows | kind | first, s | again, s |", rows)
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
        points.append(problem.point(rho, points[-1].theta if points else None))
        seconds.append(time.perf_counter() - start)
    converged = all(point.converged for point in points)
    return FrontierTimes(first - again, float(np.mean(seconds)), max(seconds), converged)


def show_frontier(runs: Sequence[Run[FrontierSetting, FrontierTimes]]) -> dict[str, str]:
    """As Markdown."""
    before = (
        f"38 values of rho, each from the solution of the one before. Goal: {POINT_GOAL:g} s a"
        " point, the slowest."
    )
    rows = [
        (
            *run.setting, f"{run.values.compiling:.1f}", f"{run.values.mean:.2f}",
            f"{run.values.most:.2f}", "yes" if run.values.converged else "no",
            verdict(run.values.most <= POINT_GOAL),
        )
        for run in runs
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
    settings=(ClientSetting(60_000, "surrogate"), ClientSetting(60_000, "moments")),
    run=run_client,
    summary=show_client,
    smoke=(ClientSetting(2000, "surrogate"),),
)

FRONTIER = Experiment(
    name="frontier",
    settings=tuple(FrontierSetting(1000, 400, penalty) for penalty in PENALTIES),
    run=run_frontier,
    summary=show_frontier,
    smoke=(FrontierSetting(3, 400, "covariance"),),
)
