"""Figure 3 of Wu, Curtis and Robinson (2024): trends in rho_o for both sizes.

python -m benchmarks.figure3        # from the runs that benchmarks.table2 has made
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.table2 import RESULTS, TASKS, Run, read_runs
from benchmarks.table2_show import means, select

LOOKS = {
    ("faithful", "train"): ("#0072B2", "o-"),
    ("faithful", "small"): ("#0072B2", "o--"),
    ("ours", "train"): ("#D55E00", "s-"),
    ("ours", "small"): ("#D55E00", "s--"),
}


def draw(axes: Axes, runs: list[Run], value: str) -> None:
    """Means and standard errors of one metric of one task against rho_o."""
    for (recipe, size), (color, line) in LOOKS.items():
        curve = means(select(runs, recipe=recipe, size=size, method="single_shot"))
        if curve:
            axes.errorbar(
                [mean.rho_o for mean in curve],
                [getattr(mean, value) for mean in curve],
                [getattr(mean, f"{value}_error") for mean in curve],
                fmt=line,
                color=color,
                label=f"{recipe}, {size}",
            )
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
    figure = Figure(figsize=(13, 7), layout="constrained")
    grid = figure.subplots(2, len(TASKS), squeeze=False)
    for column, task in enumerate(TASKS):
        for row, value in enumerate(("accuracy", "spd")):
            draw(grid[row][column], select(runs, task=task), value)
        grid[0][column].set_title(task.replace("_", " "))
    grid[0][0].legend(frameon=False)
    figure.savefig(output / "figure3.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
