"""The published numbers next to ours, and a plot."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.femnist_fpfl.settings import ROWS, SETTINGS, DigitRow, DigitValues
from benchmarks.harness import Run
from benchmarks.showing import as_svg, by, means, n_seeds, page, panels, published, table

LEARNED = 0.5
"""Accuracy below which a small gap says nothing: all groups' answers are guesses."""

CLAIMS = (
    ("the constraint narrows the gap", "accuracy_gap", DigitRow("FFL"), DigitRow("FL")),
    ("and under clipping", "accuracy_gap", DigitRow("FFL+Clip"), DigitRow("FL+Clip")),
    ("clipping widens the gap", "accuracy_gap", DigitRow("FL"), DigitRow("FL+Clip")),
    ("noise costs accuracy", "accuracy", DigitRow("PFL"), DigitRow("FL")),
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


def show(runs: Sequence[Run[DigitRow, DigitValues]]) -> dict[str, str]:
    """The table and the orderings, and the plot."""
    before = (
        f"`python -m benchmarks.femnist_fpfl`: {SETTINGS.rounds} rounds, {SETTINGS.cohort} of 201"
        f" writers a round, {SETTINGS.images} images each, {n_seeds(runs)} seed(s). Each cell:"
        " published / ours, on test images. Populations of 100K and 1000K exist in the accounts"
        " alone."
    )
    ours = {
        row: DigitValues(means(own, "accuracy").mean, means(own, "accuracy_gap").mean)
        for row, own in by(runs, lambda row: row).items()
    }
    rows = [
        (*row, *(f"{a:.3f} / {b:.3f}" for a, b in zip(theirs, ours[row], strict=True)))
        for row, theirs in published_rows().items()
        if row in ours
    ]
    values = table("algorithm | population | accuracy | accuracy gap", rows)
    text = page("# Unfair FEMNIST", before, values, orderings(ours))
    return {"femnist_fpfl.md": text, "femnist_fpfl.svg": plot(ours)}


def orderings(ours: dict[DigitRow, DigitValues]) -> str:
    """Which claims hold here."""
    rows = []
    for claim, field, low, high in CLAIMS:
        if low in ours and high in ours:
            holds = "yes" if getattr(ours[low], field) < getattr(ours[high], field) else "NO"
            if field == "accuracy_gap" and min(ours[low][0], ours[high][0]) < LEARNED:
                holds = "NO: nothing was learned"
            rows.append((claim, f"{field} of {' '.join(low)}", " ".join(high), holds))
    return table("in the paper | lower | than in | here", rows)


def plot(ours: dict[DigitRow, DigitValues]) -> str:
    """Accuracy over its gap: published as crosses, ours as dots."""
    figure, (axes,) = panels(1, 1, 5, 3.6)
    for row, theirs in published_rows().items():
        if row in ours:
            color = "#D55E00" if row.fair else "#0072B2"
            axes.plot(*theirs[::-1], "x", color=color)
            axes.plot(*ours[row][::-1], "o", color=color)
            gap, accuracy = ours[row].accuracy_gap, ours[row].accuracy
            axes.annotate(f"{row.algorithm} {row.population}", (gap, accuracy), fontsize=6)
    axes.set(xlabel="accuracy gap", ylabel="accuracy (x published, o ours)")
    return as_svg(figure)
