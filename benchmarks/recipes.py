"""Chooses the temperature of our recipe for table 2, on training rows only.

    python -m benchmarks.recipes

Central training with the selection-rate penalty on the training rows of seed 0; for each
temperature the mean over rho_o of accuracy minus |SPD|, both on those same training rows. The
highest is chosen. No test row is read.
"""

from __future__ import annotations

import numpy as np

from benchmarks import use_float64
from benchmarks.table2 import RHO_OURS, TASKS, Unit, federation, settings
from synthfair.compare.methods import central
from synthfair.fairness.metrics import Scored, metrics

TEMPERATURES = (2.0, 4.0, 8.0, 16.0)


def worth(unit: Unit, temperature: float) -> float:
    """Mean over rho_o of accuracy minus |SPD| on training rows."""
    clients = federation(unit)
    training = clients._replace(test=clients.train)
    found = []
    for rho_o in RHO_OURS[1:]:
        config = settings(unit, rho_o, temperature=temperature)
        scores = central(training, config).scores
        y, s = (np.concatenate([getattr(p, k) for p in training.train]) for k in ("y", "s"))
        reached = metrics(Scored(y, np.concatenate(scores), s))
        found.append(reached["accuracy"] - abs(reached["spd"]))
    return float(np.mean(found))


def main() -> None:
    """Prints a Markdown table."""
    use_float64()
    print("| task |" + "".join(f" {t:g} |" for t in TEMPERATURES) + " chosen |")
    print("|---" * (2 + len(TEMPERATURES)) + "|")
    for task in TASKS:
        unit = Unit("ours", "central", task, "small", 0)
        values = [worth(unit, temperature) for temperature in TEMPERATURES]
        shown = "".join(f" {value:.4f} |" for value in values)
        print(f"| {task} |{shown} {TEMPERATURES[int(np.argmax(values))]:g} |")


if __name__ == "__main__":
    main()
