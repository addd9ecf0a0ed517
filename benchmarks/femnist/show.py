"""The published numbers beside ours, and a plot."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.femnist.runs import Run
from benchmarks.femnist.settings import ROWS, SETTING, Row
from benchmarks.femnist.train import Measured
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
        f"`python -m benchmarks.femnist`: {SETTING.rounds} rounds, {SETTING.cohort} of 201 writers"
        f" a round, {SETTING.images} images each, {len({run.seed for run in runs})} seed(s). Each"
        " cell: published / ours, on test images. Populations of 100K and 1000K exist in the"
        " accounts alone.",
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


def _orderings(runs: Sequence[Run]) -> list[str]:
    """What table 3 is about, and whether it is so here."""
    means = {row: mean for row in ROWS if (mean := mean_of(runs, row)) is not None}
    if len(means) < len(ROWS):
        return []
    claims = {
        "the constraint narrows the gap: FFL under FL": _gap(means, Row("FFL"), Row("FL")),
        "and under clipping: FFL+Clip under FL+Clip": _gap(means, Row("FFL+Clip"), Row("FL+Clip")),
        "clipping widens the gap: FL under FL+Clip": _gap(means, Row("FL"), Row("FL+Clip")),
        "PFL of K is less accurate than FL": _worse(means, Row("PFL"), Row("FL")),
        "FPFL of 100K is more accurate than of K": _worse(means, Row("FPFL"), Row("FPFL", "100K")),
        "FPFL of 1000K than of 100K": _worse(means, Row("FPFL", "100K"), Row("FPFL", "1000K")),
        "FPFL under PFL in gap, both of 1000K": _gap(
            means, Row("FPFL", "1000K"), Row("PFL", "1000K")
        ),
    }
    lines = [f"| {claim} | {'yes' if holds else 'NO'} |" for claim, holds in claims.items()]
    return ["| ordering in the paper | here |", "|---|---|", *lines]


def _gap(means: dict[Row, Measured], smaller: Row, larger: Row) -> bool:
    return means[smaller].accuracy_gap < means[larger].accuracy_gap


def _worse(means: dict[Row, Measured], worse: Row, better: Row) -> bool:
    return means[worse].accuracy < means[better].accuracy


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
