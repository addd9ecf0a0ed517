"""The published numbers beside ours, and a plot."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.femnist_fpfl.settings import ROWS, SETTING, Row
from benchmarks.femnist_fpfl.train import Measured
from benchmarks.row_runs import Run
from synthfair.report.plots import as_svg

PUBLISHED = Path(__file__).parent.parent / "published" / "rodriguez_galvez_2021_table3.csv"


def published() -> dict[Row, Measured]:
    """Table 3."""
    with PUBLISHED.open(newline="") as file:
        lines = {(line["algorithm"], line["population"]): line for line in csv.DictReader(file)}
    return {
        row: Measured(float(lines[row]["accuracy"]), float(lines[row]["accuracy_gap"]))
        for row in ROWS
    }


def mean_of(runs: Sequence[Run], row: Row) -> Measured | None:
    """Over seeds; None if there is no run."""
    found = [run.found for run in runs if run.row == row]
    return Measured(*map(float, np.mean(found, axis=0))) if found else None


def page(runs: Sequence[Run]) -> str:
    """The table and the orderings, as Markdown."""
    lines = [
        "# Unfair FEMNIST",
        "",
        f"`python -m benchmarks.femnist_fpfl`: {SETTING.rounds} rounds, {SETTING.cohort} of 201"
        f" writers a round, {SETTING.images} images each, {len({run.seed for run in runs})}"
        " seed(s). Each cell: published / ours, on test images. Populations of 100K and 1000K exist"
        " in the accounts alone.",
        "",
        "| algorithm | population | accuracy | accuracy gap |",
        "|---|---|---|---|",
    ]
    for row, theirs in published().items():
        ours = mean_of(runs, row)
        if ours is not None:
            cells = [f"{a:.3f} / {b:.3f}" for a, b in zip(theirs, ours, strict=True)]
            lines.append(f"| {row.algorithm} | {row.population} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_orderings(runs)]) + "\n"


LEARNED = 0.5
"""Accuracy below which a small gap says nothing: all groups' answers are guesses."""

CLAIMS = (
    ("the constraint narrows the gap", "accuracy_gap", Row("FFL"), Row("FL")),
    ("and under clipping", "accuracy_gap", Row("FFL+Clip"), Row("FL+Clip")),
    ("clipping widens the gap", "accuracy_gap", Row("FL"), Row("FL+Clip")),
    ("noise costs accuracy", "accuracy", Row("PFL"), Row("FL")),
    ("less in a larger population", "accuracy", Row("PFL"), Row("PFL", "1000K")),
    ("also with a constraint", "accuracy", Row("FPFL"), Row("FPFL", "1000K")),
    ("which narrows the gap there", "accuracy_gap", Row("FPFL", "1000K"), Row("PFL", "1000K")),
)
"""Of table 3: what is lower in the first row than in the second."""


def _orderings(runs: Sequence[Run]) -> list[str]:
    """Which claims hold here."""
    lines = ["| in the paper | lower | than in | here |", "|---|---|---|---|"]
    for claim, field, low, high in CLAIMS:
        pair = mean_of(runs, low), mean_of(runs, high)
        if pair[0] is not None and pair[1] is not None:
            holds = "yes" if getattr(pair[0], field) < getattr(pair[1], field) else "NO"
            if field == "accuracy_gap" and min(one.accuracy for one in pair if one) < LEARNED:
                holds = "NO: nothing was learned"
            cells = (claim, f"{field} of {' '.join(low)}", " ".join(high), holds)
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def plot(runs: Sequence[Run]) -> str:
    """Accuracy over its gap: published as crosses, ours as dots."""
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for row, theirs in published().items():
        ours, color = mean_of(runs, row), "#D55E00" if row.fair else "#0072B2"
        if ours is not None:
            axes.plot(theirs.accuracy_gap, theirs.accuracy, "x", color=color)
            axes.plot(ours.accuracy_gap, ours.accuracy, "o", color=color)
            axes.annotate(
                f"{row.algorithm} {row.population}", (ours.accuracy_gap, ours.accuracy), fontsize=6
            )
    axes.set(xlabel="accuracy gap", ylabel="accuracy (x published, o ours)")
    axes.spines[["top", "right"]].set_visible(False)
    return as_svg(figure)
