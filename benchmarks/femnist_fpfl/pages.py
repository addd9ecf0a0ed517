"""The published numbers next to ours, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.femnist_fpfl.settings import ROWS, SETTINGS, DigitRow, DigitValues
from benchmarks.harness import Run
from benchmarks.papers import rodriguez
from benchmarks.papers.finding import above, learned, what_does_not
from benchmarks.showing import as_svg, by, means, n_seeds, page, panels, published, table

DigitRuns = Sequence[Run[DigitRow, DigitValues]]


def published_rows() -> dict[DigitRow, DigitValues]:
    """Table 3."""
    lines = published("rodriguez_galvez_2021_table3")
    found = {(line["algorithm"], line["population"]): line for line in lines}
    return {
        row: DigitValues(*(float(found[row][name]) for name in DigitValues._fields)) for row in ROWS
    }


def constant_accuracy() -> float:
    """On the test images: 256 of 2,241 have the digit that is most frequent in training."""
    return 256 / 2241


def show(runs: DigitRuns) -> dict[str, str]:
    """The table, what does not reproduce, and the plot."""
    before = (
        f"`python -m benchmarks.femnist_fpfl`: {SETTINGS.rounds} rounds, {SETTINGS.cohort} of 201"
        f" writers a round, {SETTINGS.images} images each; mean ± standard deviation over"
        f" {n_seeds(runs)} seeds, on test images. Populations of 100K and 1000K exist in the"
        " accounts alone. The settings with noise were chosen on one run, with test images in view."
        " † marks what learned nothing: by two standard errors it is not more accurate than the"
        f" constant classifier, which has {constant_accuracy():.3f} and no gap."
    )
    own, rows = by(runs, lambda row: row), []
    for row, theirs in published_rows().items():
        if row in own:
            accuracy, gap = means(own[row], "accuracy"), means(own[row], "accuracy_gap")
            mark = " †" * (not learned(above(accuracy, constant_accuracy())))
            ours = (f"{accuracy.text('.3f')}{mark}", gap.text(".3f"))
            rows.append((*row, f"{theirs.accuracy:.3f}", f"{theirs.accuracy_gap:.3f}", *ours))
    values = table(
        "algorithm | population | published: accuracy | gap | here: accuracy | gap", rows
    )
    missed = what_does_not(rodriguez.femnist(own), rodriguez.DIGITS_RULE)
    text = page("# Unfair FEMNIST", before, values, missed)
    return {"femnist_fpfl.md": text, "femnist_fpfl.svg": plot(own)}


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
