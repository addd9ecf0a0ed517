"""Figure 3 of Wu, Curtis and Robinson (2024): trends in rho_o for both sizes.

python -m benchmarks.figure3        # from the runs that benchmarks.table2 has made
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.table2 import RESULTS, TASKS, Run, read_runs
from benchmarks.table2_show import means, published, select

LOOKS = {
    ("faithful", "single_shot", "train"): ("#0072B2", "o-"),
    ("faithful", "single_shot", "small"): ("#0072B2", "o--"),
    ("ours", "single_shot", "train"): ("#D55E00", "s-"),
    ("ours", "single_shot", "small"): ("#D55E00", "s--"),
    ("ours", "central", ""): ("#000000", "x:"),
}
PUBLISHED = {"train": "^-", "small": "^--"}


def draw(axes: Axes, runs: list[Run], task: str, value: str) -> None:
    """Means and standard errors of one metric of one task against rho_o."""
    for (recipe, method, size), (color, line) in LOOKS.items():
        curve = means(select(runs, recipe=recipe, method=method, task=task, size=size))
        if curve:
            axes.errorbar(
                [mean.rho_o for mean in curve],
                [getattr(mean, value) for mean in curve],
                [getattr(mean, f"{value}_error") for mean in curve],
                fmt=line,
                color=color,
                label=f"{recipe}, {size}" if size else f"{method} ({recipe})",
            )
    for size, line in PUBLISHED.items():
        cells = [cell for cell in published() if (cell.task, cell.size) == (task, size)]
        xs, ys = [cell.rho_o for cell in cells], [getattr(cell, value) for cell in cells]
        axes.plot(xs, ys, line, color="#009E73", label=f"published, {size}")
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel="rho_o", ylabel="SPD" if value == "spd" else value)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of table 2's runs.")
    output = parser.parse_args().output
    runs = [run for recipe in ("faithful", "ours") for run in read_runs(output / f"{recipe}.csv")]
    if not runs:
        raise SystemExit(f"{output}: no runs; make some with benchmarks.table2")
    figure = Figure(figsize=(13, 7), layout="constrained")
    grid = figure.subplots(2, len(TASKS), squeeze=False)
    for column, task in enumerate(TASKS):
        for row, value in enumerate(("accuracy", "spd")):
            draw(grid[row][column], runs, task, value)
        grid[0][column].set_title(task.replace("_", " "))
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    figure.savefig(output / "figure3.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
