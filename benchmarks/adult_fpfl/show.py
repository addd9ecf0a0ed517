"""The published numbers beside ours, what privacy needs, and a plot."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.adult_fpfl.problem import Measured
from benchmarks.adult_fpfl.settings import DELTA, EPSILON, ROWS, SETTINGS, Row
from benchmarks.adult_fpfl.train import relative_noise
from benchmarks.row_runs import Run
from synthfair.report.plots import as_svg

PUBLISHED = Path(__file__).parent.parent / "published"
USERS = 14_000
"""About as many users as there are, for the accounts that are shown."""

COLORS = {"shallow": "#0072B2", "deep": "#D55E00"}


def published() -> dict[Row, Measured]:
    """Both tables."""
    found = {}
    for name in ("table1", "table2"):
        with (PUBLISHED / f"rodriguez_galvez_2021_{name}.csv").open(newline="") as file:
            for line in csv.DictReader(file):
                key = (int(line.get("cohort", 400)), line["model"], line["algorithm"])
                row = next(row for row in ROWS if row == key)
                found[row] = Measured(*(float(line[field]) for field in Measured._fields))
    return found


def of_row(runs: Iterable[Run], row: Row) -> np.ndarray:
    """[seeds, 5] what was measured."""
    return np.array([run.found for run in runs if run.row == row])


def page(runs: Sequence[Run]) -> str:
    """All of it, as Markdown."""
    parts = [
        "# Fairness constraints in rounds on Adult",
        "",
        f"`python -m benchmarks.adult_fpfl`: test rows, {len({run.seed for run in runs})} seeds."
        " Each cell: published / ours ± standard deviation over seeds. Gaps are the largest"
        " difference between a group's value and that of all rows, by sex; the constraint is on"
        " the FNR gap, alpha = 0.02.",
        "",
        *_table(runs),
        "",
        *_goals(runs),
        "",
        *_accounts(),
    ]
    return "\n".join(parts) + "\n"


def _table(runs: Sequence[Run]) -> list[str]:
    """Published beside ours."""
    lines = [
        "| cohort | model | algorithm | accuracy | FNR gap | EO gap | DemP gap | PP gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, theirs in published().items():
        found = of_row(runs, row)
        if len(found):
            pairs = zip(theirs, found.mean(axis=0), found.std(axis=0), strict=True)
            cells = [f"{cell:.3f} / {mean:.3f} ± {spread:.3f}" for cell, mean, spread in pairs]
            lines.append(f"| {row.cohort} | {row.model} | {row.algorithm} | {' | '.join(cells)} |")
    return lines


def _goals(runs: Sequence[Run]) -> list[str]:
    """What was to be reached, and whether it was."""
    lines = ["| goal | rows that miss it |", "|---|---|"]
    means = {row: Measured(*of_row(runs, row).mean(axis=0)) for row in {run.row for run in runs}}
    for goal, missed in (
        ("accuracy at most 0.01 below the published", _less_accurate(means)),
        ("FNR gap at most 0.03 where constrained", _unfair(means)),
        ("clipping alone makes FL less fair", _not_worse_clipped(means)),
    ):
        names = [f"{row.cohort} {row.model} {row.algorithm}" for row in missed]
        lines.append(f"| {goal} | {', '.join(names) or 'none'} |")
    return lines


def _less_accurate(means: dict[Row, Measured]) -> list[Row]:
    theirs = published()
    return [row for row in ROWS if row in means and _below(means[row], theirs[row])]


def _below(ours: Measured, theirs: Measured) -> bool:
    return ours.accuracy < theirs.accuracy - 0.01


def _unfair(means: dict[Row, Measured]) -> list[Row]:
    return [row for row in ROWS if row in means and row.fair and means[row].fnr_gap > 0.03]


def _not_worse_clipped(means: dict[Row, Measured]) -> list[Row]:
    clipped = [row for row in ROWS if row in means and row.algorithm == "FL+Clip"]
    pairs = {row: row._replace(algorithm="FL") for row in clipped}
    return [row for row, free in pairs.items() if means[row].fnr_gap <= means[free].fnr_gap]


def _accounts() -> list[str]:
    """The noise of both neighbouring relations."""
    lines = [
        f"Standard deviation of the noise in the sum, in units of the clip C, for epsilon ="
        f" {EPSILON:g} and delta = {DELTA:g} of {USERS:,} users. *Added*: cohorts drawn user by"
        " user, neighbours that differ by one user more or less, as trained here. *Replaced*:"
        " cohorts of fixed size, neighbours in which one user is another: its report changes by"
        " up to 2 C. The paper samples cohorts of fixed size and takes C itself for the"
        " sensitivity, which is half of what that relation needs.",
        "",
        "| cohort | rounds | added | replaced | C taken for the sensitivity |",
        "|---|---|---|---|---|",
    ]
    private = {(row.cohort, SETTINGS[row].rounds): row for row in ROWS if row.private}
    for (cohort, rounds), row in sorted(private.items()):
        added = relative_noise(row, SETTINGS[row], USERS, "poisson")
        half = relative_noise(row, SETTINGS[row], USERS, "fixed")
        lines.append(f"| {cohort} | {rounds} | {added:.3f} | {2 * half:.3f} | {half:.3f} |")
    return lines


def plot(runs: Sequence[Run]) -> str:
    """Accuracy over FNR gap: published as crosses, ours as dots with lines between them."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, fair in zip(panels, (False, True), strict=True):
        for row, theirs in published().items():
            found = of_row(runs, row)
            if row.fair == fair and len(found):
                ours, color = Measured(*found.mean(axis=0)), COLORS[row.model]
                x, y = (theirs.fnr_gap, ours.fnr_gap), (theirs.accuracy, ours.accuracy)
                axes.plot(x, y, color=color, linewidth=0.5, alpha=0.5)
                axes.plot(*theirs[1::-1], "x", color=color)
                axes.plot(*ours[1::-1], "o", color=color)
                axes.annotate(f"{row.algorithm} {row.cohort}", ours[1::-1], fontsize=6)
        axes.set(xlabel="FNR gap", title="constrained" if fair else "not constrained")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("accuracy (x published, o ours)")
    return as_svg(figure)
