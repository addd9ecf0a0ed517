"""One table and one frontier plot of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from synthfair.report.plots import as_svg

if TYPE_CHECKING:
    from benchmarks.methods.__main__ import Run

COLORS = ("0.4", "#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#CC79A7", "#000000")


def table(runs: Sequence[Run]) -> str:
    """Means over seeds, as Markdown."""
    lines = [
        "# One upload or many rounds",
        "",
        f"`python -m benchmarks.methods`: mean ± standard deviation over"
        f" {len({run.seed for run in runs})} seeds, all clients' test rows. Sent: by all clients"
        " together, as files or plain numbers; what comes back is not counted. A run that is marked"
        " * did not converge, or met its constraint in no round, on some seed.",
        "",
        "| table | method | weight | accuracy | SPD | rounds | sent | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys(run[:3] for run in runs)
    lines += [_line([run for run in runs if run[:3] == key]) for key in keys]
    return "\n".join(lines) + "\n"


def _line(runs: Sequence[Run]) -> str:
    first = runs[0]
    cells = (
        first.table,
        first.method + ("" if all(run.converged for run in runs) else " *"),
        f"{first.weight:g}",
        _mean([run.accuracy for run in runs]),
        _mean([run.spd for run in runs]),
        f"{first.rounds:,}",
        _size(float(np.mean([run.bytes_sent for run in runs]))),
        f"{np.mean([run.seconds for run in runs]):.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def _mean(values: Sequence[float]) -> str:
    mean = f"{np.mean(values):.4f}"
    return f"{mean} ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else mean


def _size(count: float) -> str:
    return f"{count / 1e3:,.1f} kB"


def plot(runs: Sequence[Run]) -> str:
    """Accuracy against |SPD|, a panel for each table and a line for each method."""
    tables = list(dict.fromkeys(run.table for run in runs))
    methods = list(dict.fromkeys(run.method for run in runs))
    figure = Figure(figsize=(4 * len(tables), 3.8), layout="constrained")
    panels = figure.subplots(1, len(tables), squeeze=False)[0]
    for axes, name in zip(panels, tables, strict=True):
        for color, marker, method in zip(COLORS, "osvD^<P*", methods, strict=False):
            points = _points([r for r in runs if (r.table, r.method) == (name, method)])
            axes.plot(*points, color=color, marker=marker, label=method, linewidth=1)
        axes.set(title=name, xlabel="mean size of the SPD", ylabel="accuracy")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return as_svg(figure)


def _points(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Mean sizes of SPDs, whose signs would cancel, and mean accuracies, over the weights."""
    weights = sorted({run.weight for run in runs})
    at = [[run for run in runs if run.weight == weight] for weight in weights]
    return (
        [float(np.mean([abs(run.spd) for run in same])) for same in at],
        [float(np.mean([run.accuracy for run in same])) for same in at],
    )
