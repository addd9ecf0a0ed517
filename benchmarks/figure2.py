"""Figure 2 of Wu, Curtis and Robinson (2024): rho_o against rho_s, as heat maps.

    python -m benchmarks.figure2

Law School by race, lambda_theta = 1e-4, N_s = N with labels copied, the faithful recipe of table 2.
The paper does not give its grid; ours is that of table 2 in both directions.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track

from benchmarks import use_float64
from benchmarks.table2 import (
    RESULTS,
    RHO_FAITHFUL,
    Run,
    Unit,
    append_runs,
    curve,
    missing,
    read_runs,
)

OUTPUT = RESULTS.parent / "figure2"


def run(output: Path, seeds: int, grid: tuple[float, ...]) -> None:
    """Makes the rows of the grid that are not at hand: one file for each rho_s."""
    todo = [(seed, rho_s) for seed in range(seeds) for rho_s in grid]
    for seed, rho_s in track(todo, description="figure 2"):
        path = output / f"rho_s_{rho_s:g}.csv"
        unit = Unit("faithful", "single_shot", "law_school_race", "train", seed)
        changes: dict[str, Any] = {"rho_s": rho_s, "lambda_theta": 1e-4}
        rhos = missing(unit, grid, read_runs(path), **changes)
        append_runs(path, curve(unit, rhos, judge=False, **changes))


def show(output: Path, grid: tuple[float, ...]) -> None:
    """Heat maps of accuracy, covariance and SPD, means over seeds."""
    runs = {rho_s: read_runs(output / f"rho_s_{rho_s:g}.csv") for rho_s in grid}
    figure = Figure(figsize=(13, 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, 3), ("accuracy", "covariance", "spd"), strict=True):
        values = np.array([[_mean(runs[s], o, name) for o in grid] for s in grid])
        image = axes.imshow(values, cmap="cividis", origin="lower")
        for (i, j), value in np.ndenumerate(values):
            dark = value < (values.min() + values.max()) / 2
            color = "white" if dark else "black"
            axes.text(j, i, f"{value:.3f}", ha="center", va="center", color=color, fontsize=8)
        labels = [f"{rho:g}" for rho in grid]
        axes.set_xticks(range(len(grid)), labels)
        axes.set_yticks(range(len(grid)), labels)
        axes.set(xlabel="rho_o", ylabel="rho_s", title=name if name != "spd" else "SPD")
        figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(output / "figure2.svg", metadata={"Date": None})


def _mean(runs: list[Run], rho_o: float, name: str) -> float:
    return float(np.mean([getattr(run, name) for run in runs if run.rho_o == rho_o]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="Number of seeds. Default: 3.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="Folder of the results.")
    args = parser.parse_args()
    use_float64()
    run(args.output, args.seeds, RHO_FAITHFUL)
    show(args.output, RHO_FAITHFUL)


if __name__ == "__main__":
    main()
