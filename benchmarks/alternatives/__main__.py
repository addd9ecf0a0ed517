"""What people would use instead: accuracy and gap next to seconds.

    python -m benchmarks.alternatives               # 3 seeds; goes on where it stopped
    python -m benchmarks.alternatives --only table=adult method=FairLogisticRegression

Adult and Dutch by sex, Law School by race: all methods have the same encoded rows, those over
clients half of them at each of two. A gap of 0.02 is asked for. Each method is a new process. Of
what JAX compiles there are two: *cold* has no compiled code, *warm* that of an earlier process,
which JAX stores where JAX_COMPILATION_CACHE_DIR says. The second fit is in the same process, of
80 % of the rows. error-parity needs NumPy 1: name an interpreter that has it by the environment
variable ERROR_PARITY_PYTHON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.alternatives import training
from benchmarks.alternatives.training import CENTRAL, CLIENTS, GAP, WEIGHT
from benchmarks.harness import Experiment, main
from benchmarks.runs import Runs
from benchmarks.showing import COLORS, as_svg, legend, page, panels
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import Encoded

TABLES = {"adult": "sex", "dutch": "sex", "law_school": "race"}

COMPILED = "fair releases", "FedAvg", "FPFL"
"""What JAX compiles."""


INTERPRETER = "ERROR_PARITY_PYTHON"
"""Environment variable: an interpreter that has NumPy 1 and error-parity."""


class AlternativeSetting(NamedTuple):
    """A table, and what is trained on it."""

    table: str
    method: str


class AlternativeValues(NamedTuple):
    """On test rows, and seconds.

    Attributes:
        accuracy: share of right decisions.
        spd: statistical parity difference.
        cold: seconds of a process without compiled code; not-a-number where nothing is compiled.
        warm: seconds of a process.
        again: seconds of a second fit in that process.
        constant: accuracy of the more frequent label for everybody.
    """

    accuracy: float
    spd: float
    cold: float
    warm: float
    again: float
    constant: float


@cache
def _rows(table: str, seed: int, most: float) -> tuple[Path, float]:
    """Return a file of training and test rows, and the constant classifier's test accuracy."""
    rows, schema = sf.load_dataset(table, TABLES[table])
    if len(rows) > most:
        rows = rows.head(int(most))
    clients = sf.partition(rows, clients=2, seed=seed)
    arrays: dict[str, np.ndarray] = {}
    for part in ("train", "test"):
        own = [sf.encode(getattr(client, part), schema) for client in clients]
        x, s, y = Encoded(*map(np.concatenate, zip(*own, strict=True)))
        client = np.repeat(np.arange(2), [len(each.y) for each in own])
        shuffled = np.random.default_rng(seed).permutation(len(y))
        named = {"x": x, "s": s, "y": (y > 0).astype(int), "client": client}
        arrays |= {f"{part}_{name}": column[shuffled] for name, column in named.items()}
    path = Path(_folder().name) / f"{table}_{seed}_{most}.npz"
    np.savez(path, allow_pickle=False, **arrays)
    share = float(arrays["test_y"].mean())
    return path, max(share, 1 - share)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def run_alternative(setting: AlternativeSetting, seed: int, *, smoke: bool) -> AlternativeValues:
    """One method, in one process, or, where it compiles, in two."""
    rows, constant = _rows(setting.table, seed, 2000 if smoke else math.inf)
    interpreter = sys.executable
    if setting.method == "error-parity":
        interpreter = os.environ[INTERPRETER]
    with tempfile.TemporaryDirectory() as folder:
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TF_CPP_"))}
        environment = ours | {"JAX_COMPILATION_CACHE_DIR": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}

        def fit() -> list[float]:
            words = [training.__file__, setting.method, str(rows), str(seed), str(time.time())]
            done = subprocess.run(
                [interpreter, *words], env=environment, stdout=subprocess.PIPE, check=True
            )
            return json.loads(done.stdout.splitlines()[-1])

        cold = fit()[2] if setting.method in COMPILED else math.nan
        accuracy, spd, warm, again = fit()
    return AlternativeValues(accuracy, spd, cold, warm, again, constant)


def show(runs: Runs) -> dict[str, str]:
    """Return the page with its table, and the plot, by file name."""
    lines = []
    for setting, own in runs.by().items():
        gap = float(np.mean(np.abs(own.values("spd"))))
        seconds = (own.mean(name).mean for name in ("cold", "warm", "again"))
        cold, warm, again = ("" if math.isnan(s) else f"{s:.1f}" for s in seconds)
        learned = own.mean("accuracy").mean > own.mean("constant").mean
        lines.append(
            f"{setting.table} | {setting.method} | {own.mean('accuracy').text()}"
            f"{'' if learned else ' ‡'} | {own.mean('spd').text()} | {gap:.4f}"
            f" | {cold} | {warm} | {again}"
        )
    constants = {name: own.mean("constant").text() for name, own in runs.by("table").items()}
    text = page(
        "alternatives/alternatives", runs, rows=lines, gap=GAP, weight=WEIGHT,
        constants=", ".join(f"{name} {accuracy}" for name, accuracy in constants.items()),
    )  # fmt: skip
    return {"alternatives.md": text, "alternatives.svg": plot(runs)}


def plot(runs: Runs) -> str:
    """Accuracy against |SPD|, a panel for each table; the larger, the more seconds."""
    tables = runs.by("table")
    figure, across = panels(1, len(tables), 4 * len(tables), 4.2)
    methods = [*CENTRAL, *CLIENTS]
    for axes, (name, here) in zip(across, tables.items(), strict=True):
        for method, own in here.by("method").items():
            i = methods.index(method)
            gap, seconds = float(np.mean(np.abs(own.values("spd")))), own.mean("warm").mean
            look: Any = {
                "color": COLORS[i % len(COLORS)], "marker": "o" if method in CENTRAL else "s",
                "s": 12 * seconds + 8, "alpha": 0.7, "linewidths": 0,
            }  # fmt: skip
            axes.scatter(gap, own.mean("accuracy").mean, label=method, **look)
        axes.axvline(GAP, color="0.7", linewidth=1, zorder=0)
        axes.set(title=name, xlabel="mean size of the SPD", ylabel="accuracy")
    legend(figure, 5)
    return as_svg(figure)


ALTERNATIVES = Experiment(
    name="runs",
    settings=tuple(
        AlternativeSetting(*one) for one in product(TABLES, (*CENTRAL, *CLIENTS))
    ),
    run=run_alternative, summary=show,
    smoke=(
        AlternativeSetting("law_school", "ExponentiatedGradient"),
        AlternativeSetting("law_school", "FairLogisticRegression"),
    ),
    seeds=3, sources=lambda setting: SOURCES[setting.table], float64=False,
)  # fmt: skip

EXPERIMENTS = (ALTERNATIVES,)

if __name__ == "__main__":
    if not os.environ.get(INTERPRETER) and not {"--show", "--smoke", "--help", "-h"} & {*sys.argv}:
        raise SystemExit(f"error-parity needs NumPy 1: set {INTERPRETER}, see --help")
    main(__doc__, "alternatives", *EXPERIMENTS)
