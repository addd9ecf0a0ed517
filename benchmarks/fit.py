"""How near a fair fit comes to its limit, and how long commands take.

    python -m benchmarks.fit                      # ten minutes
    python -m benchmarks.fit commands             # or limits

Times are of whole processes that take turns, on as many cores as there are.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import ROOT, Experiment, main
from benchmarks.runs import Runs
from benchmarks.showing import page
from synthfair.data.partition import write_clients
from synthfair.release.format import read_release

# How near a fit comes to its limit


@cache
def rows_of(table: str, seed: int) -> list[sf.Encoded]:
    """Return 70 % of a table for training, and the rest for testing."""
    rows = sf.encode(*sf.load_dataset(table, "race" if table == "law_school" else None))
    order = np.random.default_rng(seed).permutation(len(rows.y))
    parts = np.split(order, [round(0.7 * len(order))])
    return [sf.Encoded(*(column[part] for column in rows)) for part in parts]


class LimitSetting(NamedTuple):
    """A table, what the model reads, and the gap that is asked for."""

    table: str
    reads_group: str
    max_gap: float


class LimitValues(NamedTuple):
    """Gap on training rows, and accuracy and gap on test rows."""

    gap: float
    accuracy: float
    test_gap: float
    seconds: float


def run_limit(setting: LimitSetting, seed: int, *, smoke: bool) -> LimitValues:
    """Search for a gap, in this process."""
    from synthfair.fairness.penalties import SelectionRatePenalty
    from synthfair.surrogate.fair import GlobalProblem, ridge_of

    def inputs(rows: sf.Encoded) -> np.ndarray:
        groups = [rows.s] if setting.reads_group == "yes" else []
        return np.column_stack([rows.x, *groups, np.ones(len(rows.y))])

    train, test = rows_of(setting.table, seed)
    train = sf.Encoded(*(column[: 2000 if smoke else None] for column in train))
    a, n = inputs(train), len(train.y)
    ridge = ridge_of(1.0, *a.shape, intercept=True)
    begin = time.perf_counter()
    problem = GlobalProblem(a, train.s, train.y, np.ones(n), SelectionRatePenalty(), ridge)
    fit = problem.meet(setting.max_gap)
    seconds = time.perf_counter() - begin
    decided = inputs(test) @ fit.theta > 0
    accuracy = np.mean(decided == (test.y > 0))
    gap = decided[test.s == 1].mean() - decided[test.s == 0].mean()
    return LimitValues(fit.gap, float(accuracy), float(gap), seconds)


def limit_lines(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Yield a line of the page for each setting."""
    for setting, own in runs.by().items():
        gaps = own.values("gap")
        yield (
            setting.table, setting.reads_group, f"{setting.max_gap:g}",
            f"{min(gaps):.4f} to {max(gaps):.4f}", own.mean("accuracy").text(".4f"),
            own.mean("test_gap").text("+.3f"), f"{statistics.median(own.values('seconds')):.1f}",
        )  # fmt: skip


LIMITS = Experiment(
    name="limits",
    settings=tuple(
        LimitSetting(table, reads, gap)
        for table in ("adult", "dutch", "law_school")
        for reads in ("no", "yes")
        for gap in (0.1, 0.05, 0.02)
    ),
    run=run_limit,
    summary=lambda runs: {"limits.md": page("fit/limits", runs, rows=limit_lines(runs))},
    smoke=(LimitSetting("law_school", "no", 0.05),),
    seeds=5,
)


# Commands


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


class Usage(NamedTuple):
    """Of one process: wall time in seconds and peak resident memory in MB."""

    seconds: float
    megabytes: float


def watch(*words: object, cache_folder: Path | None = None) -> Usage:
    """Run a Python module to its end.

    Args:
        words: its name and arguments.
        cache_folder: the user's; if not given, nothing compiled is read or stored.
    """
    command = [sys.executable, "-m", *map(str, words)]
    environment = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    no_cache = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment |= {"XDG_CACHE_HOME": str(cache_folder)} if cache_folder else no_cache
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    # A child's peak begins at its parent's, which must be smaller.
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"failed: {' '.join(command)}")
    return Usage(time.perf_counter() - start, usage.ru_maxrss / 1000)


MANY, OF_EACH = 1000, 400
"""Releases of a large federation, and the records of each."""

COMMANDS = (
    "--help", "client, fair release, cold", "client, fair release, warm", "client, surrogate",
    "server, 3 surrogates", "server, 1,000 surrogates", "evaluate", "predict", "report",
    "demo, cold",
)  # fmt: skip


class CommandSetting(NamedTuple):
    """One of :data:`COMMANDS`."""

    command: str


@cache
def _work() -> Path:
    """Return a folder with tables, surrogates and a model of three clients."""
    _KEPT.append(tempfile.TemporaryDirectory())  # lasts as long as this process
    folder = Path(_KEPT[-1].name) / "work"
    table, schema = sf.load_dataset("law_school", "race")
    write_clients(sf.partition(table, clients=3, seed=0), schema, folder)
    for i in range(3):
        watch("synthfair.client", *_surrogate_words(folder, i))
    watch("synthfair.server", *_server_words(folder))
    return folder


def _surrogate_words(folder: Path, i: int) -> list[object]:
    return ["--data", folder / f"client_{i}_train.csv", "--schema", folder / "schema.json",
            "--release", "surrogate", "--without-epsilon", "--force", "--again",
            "--output", folder / f"client_{i}.parquet"]  # fmt: skip


def _server_words(folder: Path) -> list[object]:
    releases = (folder / f"client_{i}.parquet" for i in range(3))
    return [*releases, "--schema", folder / "schema.json", "--test", folder / "client_0_test.csv",
            "--max-gap", "0.05", "--output", folder / "server", "--force"]  # fmt: skip


@cache
def _many(folder: Path, releases: int) -> list[Path]:
    """Return files of many surrogates, whose records are drawn from one."""
    schema = sf.Schema.model_validate_json((folder / "schema.json").read_text())
    one, paths = read_release(folder / "client_0.parquet", schema), []
    assert one.weight is not None
    for i in range(releases):
        chosen = np.random.default_rng(i).choice(len(one.y), OF_EACH, replace=False)
        part = replace(
            one, x=one.x[chosen], s=one.s[chosen], y=one.y[chosen], weight=one.weight[chosen]
        )
        paths.append(folder / f"many_{i}.parquet")
        sf.write_release(part, paths[-1])
    return paths


def run_command(setting: CommandSetting, seed: int, *, smoke: bool) -> Usage:
    """Run one process; a warm one reads what a cold one of the same repeat has compiled."""
    if setting.command == "--help":  # needs no work before
        return watch("synthfair", "--help")
    folder, many = _work(), 3 if smoke else MANY
    model = "--model", folder / "server" / "model.json"
    schema, test = ("--schema", folder / "schema.json"), folder / "client_0_test.csv"

    def written(name: str) -> tuple[object, ...]:
        return "--output", folder / name, "--force"

    fair = (
        "synthfair.client", "--data", folder / "client_0_train.csv", *schema, "--again",
        *written("fair.parquet"), "--config", ROOT.parent / "configs/law_school/race.toml",
        *(["--steps", 5] if smoke else []),
    )  # fmt: skip
    words = {
        "client, surrogate": ("synthfair.client", *_surrogate_words(folder, 0)),
        "server, 3 surrogates": ("synthfair.server", *_server_words(folder)),
        "evaluate": ("synthfair", "evaluate", *model, "--data", test),
        "predict": ("synthfair", "predict", *model, "--data", test, *written("scored.csv")),
        "report": ("synthfair", "report", folder / "server", *written("report.html")),
        "demo, cold": ("synthfair", "demo", *written(f"demo {seed}")),
    }
    if setting.command in words:
        return watch(*words[setting.command])
    if setting.command.startswith("server"):
        paths, more = _many(folder, many), ("--test", test, "--max-gap", "0.05")
        return watch("synthfair.server", *paths, *schema, *more, *written("many"))
    cache_folder = folder / f"cache {seed}"
    if setting.command.endswith("warm") and not cache_folder.exists():
        watch(*fair, cache_folder=cache_folder)
    return watch(*fair, cache_folder=cache_folder)


def show_commands(runs: Runs) -> dict[str, str]:
    """Return the page of commands by file name."""
    lines = []
    for command, own in runs.by("command").items():
        seconds, peak = own.values("seconds"), max(own.values("megabytes"))
        lines.append(
            f"{command} | {min(seconds):.2f} | {statistics.median(seconds):.2f} | {peak:.0f}"
        )
    return {"commands.md": page("fit/commands", runs, rows=lines)}


COMMANDS_RUN = Experiment(
    name="commands",
    settings=tuple(map(CommandSetting, COMMANDS)),
    run=run_command,
    summary=show_commands,
    smoke=tuple(CommandSetting(name) for name in COMMANDS if not name.startswith("demo")),
    seeds=3,
    float64=False,
)

# In this order: processes that are measured first, as a child's peak begins at its parent's.
EXPERIMENTS = COMMANDS_RUN, LIMITS

if __name__ == "__main__":
    main(__doc__, "fit", *EXPERIMENTS)
