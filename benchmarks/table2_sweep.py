"""What the paper leaves out, swept once: scaling, Adam's learning rate, and the first features.

    python -m benchmarks.table2 sweep

Faithful recipe, small size, one seed. The setting whose cells come nearest the published ones, by
the mean of |accuracy difference| + |SPD difference|, is the one that table 2 uses.
"""

from __future__ import annotations

import csv
import io
from itertools import product
from pathlib import Path

import numpy as np
from rich.progress import track

from benchmarks.table2 import TASKS, Unit, curve
from benchmarks.table2_show import published
from synthfair.files import write_text

SCALINGS = ("range", "standard", "unscaled")
RATES = (0.01, 0.1)
STARTS = ("normal", "range")
RHOS = (0.0, 10.0, 1000.0)


def distance(scaling: str, rate: float, start: str) -> float:
    """Mean over cells of |accuracy difference| + |SPD difference| from the published ones."""
    cells = {(c.task, c.rho_o): c for c in published() if c.size == "small"}
    found = []
    for task in TASKS:
        unit = Unit("faithful", "single_shot", task, "small", 0)
        for run in curve(unit, RHOS, how=scaling, learning_rate=rate, start=start, judge=False):
            cell = cells[task, run.rho_o]
            found.append(abs(run.accuracy - cell.accuracy) + abs(run.spd - cell.spd))
    return float(np.mean(found))


def sweep(folder: Path) -> None:
    """Writes sweep.csv, the nearest setting first."""
    settings = list(product(SCALINGS, RATES, STARTS))
    rows = [(distance(*setting), *setting) for setting in track(settings, description="sweep")]
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(("distance", "scaling", "learning_rate", "start"))
    writer.writerows([f"{row[0]:.4f}", *row[1:]] for row in sorted(rows))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "sweep.csv", file.getvalue())
