"""The published numbers next to ours, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.femnist_fpfl.settings import ROWS, SETTINGS, DigitRow, DigitValues
from benchmarks.harness import Run
from benchmarks.showing import (
    as_svg,
    by,
    mean_of,
    means,
    n_seeds,
    page,
    panels,
    published,
    table,
)

DigitRuns = Sequence[Run[DigitRow, DigitValues]]

LEARNED = 0.5
"""Accuracy below which a small gap says nothing: all groups' answers are guesses."""

CLAIMS = (
    ("the constraint narrows the gap", "accuracy_gap", DigitRow("FFL"), DigitRow("FL")),
    ("and under clipping", "accuracy_gap", DigitRow("FFL+Clip"), DigitRow("FL+Clip")),
    ("clipping widens the gap", "accuracy_gap", DigitRow("FL"), DigitRow("FL+Clip")),
    ("noise costs accuracy", "accuracy", DigitRow("PFL"), DigitRow("FL")),
    ("and widens the gap", "accuracy_gap", DigitRow("FL"), DigitRow("PFL")),
    ("less in a larger population", "accuracy", DigitRow("PFL"), DigitRow("PFL", "1000K")),
    ("also with a constraint", "accuracy", DigitRow("FPFL"), DigitRow("FPFL", "1000K")),
    (
        "which narrows the gap there",
        "accuracy_gap",
        DigitRow("FPFL", "1000K"),
        DigitRow("PFL", "1000K"),
    ),
)
"""Of table 3: what is lower in the first row than in the second."""


def published_rows() -> dict[DigitRow, DigitValues]:
    """Table 3."""
    lines = published("rodriguez_galvez_2021_table3")
    found = {(line["algorithm"], line["population"]): line for line in lines}
    return {
        row: DigitValues(*(float(found[row][name]) for name in DigitValues._fields)) for row in ROWS
    }


def show(runs: DigitRuns) -> dict[str, str]:
    """The table and the orderings, and the plot."""
    before = (
        f"`python -m benchmarks.femnist_fpfl`: {SETTINGS.rounds} rounds, {SETTINGS.cohort} of 201"
        f" writers a round, {SETTINGS.images} images each; mean ± standard deviation over"
        f" {n_seeds(runs)} seeds, on test images. Populations of 100K and 1000K exist in the"
        " accounts alone. The settings with noise were chosen on one run, with test images in view."
        f" An accuracy below {LEARNED:g} is marked: guessing one digit has 0.1."
    )
    own, rows = by(runs, lambda row: row), []
    for row, theirs in published_rows().items():
        if row in own:
            accuracy, gap = means(own[row], "accuracy"), means(own[row], "accuracy_gap")
            mark = " ‡" * (accuracy.mean < LEARNED)
            ours = (f"{accuracy.text('.3f')}{mark}", gap.text(".3f"))
            rows.append((*row, f"{theirs.accuracy:.3f}", f"{theirs.accuracy_gap:.3f}", *ours))
    values = table(
        "algorithm | population | published: accuracy | gap | here: accuracy | gap", rows
    )
    text = page("# Unfair FEMNIST", before, values, orderings(own))
    return {"femnist_fpfl.md": text, "femnist_fpfl.svg": plot(own)}


def orderings(own: Mapping[DigitRow, DigitRuns]) -> str:
    """Which claims hold here, over seeds."""
    rows = [
        (claim, f"{field} of {' '.join(low)}", " ".join(high), *verdict_of(own, field, low, high))
        for claim, field, low, high in CLAIMS
        if low in own and high in own
    ]
    before = (
        "## What reproduces\n\nOrderings: yes where the mean difference is more than two standard"
        " errors, NO where it is as much the other way, or where one of the two has learned"
        " nothing, so that its gap says nothing."
    )
    header = "in the paper | lower | than in | difference here | reproduced"
    return f"{before}\n\n{table(header, rows)}"


def verdict_of(
    own: Mapping[DigitRow, DigitRuns], field: str, low: DigitRow, high: DigitRow
) -> tuple[str, str]:
    """The difference over the seeds that both have, and whether it is as claimed."""
    lower = {run.seed: getattr(run.values, field) for run in own[low]}
    more = mean_of(
        getattr(run.values, field) - lower[run.seed] for run in own[high] if run.seed in lower
    )
    text = more.text("+.3f", error=True)
    learned = min(means(own[row], "accuracy").mean for row in (low, high)) >= LEARNED
    if field == "accuracy_gap" and not learned:
        return text, "NO: nothing was learned"
    if more.n < 2 or abs(more.mean) <= 2 * more.error:
        return text, "undecided"
    return text, "yes" if more.mean > 0 else "NO"


def plot(own: Mapping[DigitRow, DigitRuns]) -> str:
    """Accuracy over its gap: published as crosses, ours as dots."""
    figure, (axes,) = panels(1, 1, 5, 3.6)
    for row, theirs in published_rows().items():
        if row in own:
            color = "#D55E00" if row.fair else "#0072B2"
            axes.plot(*theirs[::-1], "x", color=color)
            gap, accuracy = (means(own[row], name).mean for name in ("accuracy_gap", "accuracy"))
            axes.plot(gap, accuracy, "o", color=color)
            axes.annotate(f"{row.algorithm} {row.population}", (gap, accuracy), fontsize=6)
    axes.set(xlabel="accuracy gap", ylabel="accuracy (x published, o ours)")
    return as_svg(figure)
