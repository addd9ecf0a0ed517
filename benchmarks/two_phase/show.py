"""Tables and plots of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from synthfair.report.plots import as_svg

if TYPE_CHECKING:
    from benchmarks.two_phase.__main__ import Run

NAMES = {
    "B1": "B1: accuracy alone, not private",
    "B2": "B2: Fair-SGD, not private",
    "two_phase": "two-phase (phase 1 is not covered)",
    "end_to_end": "end to end",
}
COLORS = {"B1": "0.6", "B2": "0.2", "two_phase": "#D55E00", "end_to_end": "#0072B2"}


class Summary(NamedTuple):
    """Mean and standard deviation over seeds, of accuracy and gap."""

    accuracy: float
    accuracy_spread: float
    gap: float
    gap_spread: float


def summary(runs: Sequence[Run]) -> Summary:
    """Of runs that differ in the seed alone."""
    values = np.array([(run.accuracy, run.gap) for run in runs])
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(2)
    return Summary(mean[0], spread[0], mean[1], spread[1])


def table(runs: Sequence[Run]) -> str:
    """All means, as Markdown."""
    seeds = len({run.seed for run in runs})
    lines = [
        "# Two-phase: accuracy and gap against epsilon",
        "",
        f"`python -m benchmarks.two_phase`: mean ± standard deviation (seeds: {seeds}), all"
        " clients' test rows; delta = 1e-4. The gap is |SPD| for statistical parity, and the larger"
        " difference of true or false positive rates for equalized odds. The epsilon of"
        " **two-phase is conditional on the teacher**, which reads the same rows without noise.",
        "",
        "| table | notion | method | epsilon | noise | accuracy | gap |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in sorted(dict.fromkeys(run[:4] for run in runs), key=_place):
        own = [run for run in runs if run[:4] == key]
        lines.append(_line(own))
    return "\n".join(lines) + "\n"


def _place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*key[:2], list(NAMES).index(key[2]), key[3])


def _line(runs: Sequence[Run]) -> str:
    first, found = runs[0], summary(runs)
    budget = ("-", "-") if np.isinf(first.epsilon) else (f"{first.epsilon:g}", f"{first.noise:.2f}")
    cells = (
        first.table,
        first.notion,
        NAMES[first.method],
        *budget,
        _text(found.accuracy, found.accuracy_spread, len(runs)),
        _text(found.gap, found.gap_spread, len(runs)),
    )
    return "| " + " | ".join(cells) + " |"


def _text(mean: float, spread: float, seeds: int) -> str:
    """One seed has no spread."""
    return f"{mean:.4f} ± {spread:.4f}" if seeds > 1 else f"{mean:.4f}"


def plot(runs: Sequence[Run]) -> str:
    """Of one notion: accuracy above, the gap below, a column a table."""
    tables = list(dict.fromkeys(run.table for run in runs))
    figure = Figure(figsize=(3.4 * len(tables), 5.2), layout="constrained")
    grid = figure.subplots(2, len(tables), squeeze=False)
    for column, name in enumerate(tables):
        own = [run for run in runs if run.table == name]
        for axes, field in zip(grid[:, column], ("accuracy", "gap"), strict=True):
            _draw(axes, own, field)
            axes.set(xscale="log", xlabel="epsilon", ylabel=field)
            axes.spines[["top", "right"]].set_visible(False)
        grid[0, column].set_title(name)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return as_svg(figure)


def _draw(axes: Any, runs: Sequence[Run], field: str) -> None:
    """The lines of one field: baselines as bands, the rest over epsilon."""
    for method, name in NAMES.items():
        own = [run for run in runs if run.method == method]
        epsilons = sorted({run.epsilon for run in own})
        found = [summary([run for run in own if run.epsilon == e]) for e in epsilons]
        values = [getattr(one, field) for one in found]
        spreads = [getattr(one, f"{field}_spread") for one in found]
        if method in ("B1", "B2"):
            for value, spread in zip(values, spreads, strict=True):
                axes.axhline(value, color=COLORS[method], linestyle="--", label=name)
                axes.axhspan(value - spread, value + spread, color=COLORS[method], alpha=0.15)
        else:
            axes.errorbar(
                epsilons, values, yerr=spreads, color=COLORS[method], marker="o", capsize=2,
                label=name,
            )  # fmt: skip
