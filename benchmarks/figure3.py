"""Figure 3 of Wu, Curtis and Robinson (2024): trends in rho_o for both sizes.

python -m benchmarks.figure3        # from the runs that benchmarks.table2 has made
"""

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes

from benchmarks.harness import main
from benchmarks.runs import Runs
from benchmarks.showing import as_svg, legend, panels
from benchmarks.table2.beaten import curve, published_cells
from benchmarks.table2.cells import TASKS
from benchmarks.table2.pages import TABLE2

LOOKS = {
    ("faithful", "single_shot", "train"): ("#0072B2", "o-"),
    ("faithful", "single_shot", "small"): ("#0072B2", "o--"),
    ("ours", "single_shot", "train"): ("#D55E00", "s-"),
    ("ours", "single_shot", "small"): ("#D55E00", "s--"),
    ("ours", "central", ""): ("#000000", "x:"),
}
"""Colour and line of each recipe, method and size."""


def draw_panel(axes: Axes, runs: Runs, task: str, value: str) -> None:
    """Means and standard errors of one metric of one task against rho_o; and the constant's."""
    for (recipe, method, size), (color, line) in LOOKS.items():
        points = curve(runs.select(recipe=recipe, method=method, task=task, size=size))
        if points:
            label = f"{recipe}, {size}" if size else f"{method} ({recipe})"
            means, rhos = [getattr(point, value) for point in points], [p.rho_o for p in points]
            heights, errors = [mean.mean for mean in means], [mean.error for mean in means]
            axes.errorbar(rhos, heights, errors, fmt=line, color=color, label=label)
    for size, line in {"train": "^-", "small": "^--"}.items():
        cells = published_cells().items()
        theirs = {c.rho_o: values for c, values in cells if (c.task, c.size) == (task, size)}
        heights = [values[value == "spd"] for values in theirs.values()]
        axes.plot([*theirs], heights, line, color="#009E73", label=f"published, {size}")
    constant = runs.select(method="constant", task=task)
    if constant and value == "accuracy":
        height = constant.mean("accuracy").mean
        axes.axhline(height, color="0.4", linestyle="-.", label="constant classifier")
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel="rho_o", ylabel="SPD" if value == "spd" else value)


def draw(runs: Runs) -> dict[str, str]:
    """Return the plot by file name: a column for each task, rows for accuracy and SPD."""
    figure, grid = panels(2, len(TASKS), 13, 7)
    places = [(value, task) for value in ("accuracy", "spd") for task in TASKS]
    for axes, (value, task) in zip(grid, places, strict=True):
        draw_panel(axes, runs, task, value)
        axes.set_title(task.replace("_", " ") if value == "accuracy" else "")
    legend(figure, 7)
    return {"figure3.svg": as_svg(figure)}


FIGURE3 = replace(TABLE2, name="figure3", summary=draw)

EXPERIMENTS = (FIGURE3,)

if __name__ == "__main__":
    main(__doc__, "table2", FIGURE3, show=True)
