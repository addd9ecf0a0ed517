"""Wall time and peak memory of ``python -m synthfair.client``, without and with a warm cache.

    python -m benchmarks.cold                   # two minutes; six repeats

One Law School client (8,319 training rows, sensitive: race), 1,000 steps, in a new process each
time: with 800 balanced synthetic rows, and with 8,319 whose groups and labels are copied; cold,
with an empty cache of compiled code, and warm, with what a cold run left there; and the command
line's help. A goal is for the best of the repeats, because a shared machine only ever adds to it;
next to it stands the median.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import synthfair as sf
from benchmarks.harness import ROOT, Experiment, main
from benchmarks.runs import Runs
from benchmarks.showing import page, verdict
from synthfair.data.partition import write_clients

SETTINGS = {
    "N_s = 800": "",
    "N_s = 8319": 'labels = "copy"\nn_synthetic = 8319\n',
}
"""Settings of a release."""

HELP = "python -m synthfair --help"
GOALS = {"N_s = 800, cold": 4.5, "N_s = 800, warm": 3.0, HELP: 0.4}
"""Seconds at most."""


class StartSetting(NamedTuple):
    """What is started."""

    case: str


class Usage(NamedTuple):
    """Of one process: wall time in seconds and peak resident memory in MB."""

    seconds: float
    megabytes: float


def watch(*words: object, cache_folder: Path | None = None) -> Usage:
    """Runs a Python module to its end.

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


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """One client's table and schema; removed when this process ends."""
    folder = tempfile.TemporaryDirectory()
    table, schema = sf.load_dataset("law_school", "race")
    write_clients(sf.partition(table, clients=2, seed=0), schema, Path(folder.name))
    return folder


def run_start(setting: StartSetting, seed: int, *, smoke: bool) -> Usage:
    """One process; a warm one reads what a cold one of the same repeat has compiled."""
    if setting.case == HELP:
        return watch("synthfair", "--help")
    case, kind = setting.case.split(", ")
    folder = Path(_folder().name)
    settings = SETTINGS[case]
    config = folder / "release.toml"
    config.write_text(settings + (ROOT.parent / "configs/law_school/race.toml").read_text())
    words = (
        "synthfair.client", "--force", "--again", "--config", config,
        "--data", folder / "client_0_train.csv", "--schema", folder / "schema.json",
        "--output", folder / "release.parquet", *(["--steps", 5] if smoke else []),
    )  # fmt: skip
    cache_folder = folder / f"{case}-{seed}"
    if kind == "warm" and not cache_folder.exists():
        watch(*words, cache_folder=cache_folder)
    return watch(*words, cache_folder=cache_folder)


def show(runs: Runs) -> dict[str, str]:
    """With the goals."""
    lines = []
    for case, own in runs.by("case").items():
        seconds, peak, most = own.values("seconds"), max(own.values("megabytes")), GOALS.get(case)
        best, median = min(seconds), statistics.median(seconds)
        goal = f"{most:g}: {verdict(best <= most)}" if most else ""
        lines.append(f"{case} | {best:.2f} | {median:.2f} | {peak:.0f} | {goal}")
    return {"cold.md": page("cold/cold", runs, rows=lines)}


CASES = (*(f"{case}, {kind}" for case in SETTINGS for kind in ("cold", "warm")), HELP)

COLD = Experiment(
    name="runs",
    version=3,  # padded rows
    settings=tuple(map(StartSetting, CASES)),
    run=run_start,
    summary=show,
    smoke=(StartSetting("N_s = 800, cold"), StartSetting("N_s = 800, warm"), StartSetting(HELP)),
    seeds=6,
    float64=False,
)

EXPERIMENTS = (COLD,)

if __name__ == "__main__":
    main(__doc__, "cold", *EXPERIMENTS)
