"""The published numbers next to ours, what privacy needs, and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.adult_fpfl.problem import AdultValues
from benchmarks.adult_fpfl.settings import DELTA, EPSILON, ROWS, SETTINGS, AdultRow
from benchmarks.harness import Run
from benchmarks.showing import as_svg, by, means, n_seeds, page, panels, published, table
from synthfair.privacy.sampled import SampledSums

USERS = 14_000
"""About as many users as there are, for the accounts that are shown."""

COLORS = {"shallow": "#0072B2", "deep": "#D55E00"}

AdultRuns = Sequence[Run[AdultRow, AdultValues]]


def published_rows() -> dict[AdultRow, AdultValues]:
    """Both tables."""
    found = {}
    for name in ("table1", "table2"):
        for line in published(f"rodriguez_galvez_2021_{name}"):
            key = (int(line.get("cohort", 400)), line["model"], line["algorithm"])
            row = next(row for row in ROWS if row == key)
            found[row] = AdultValues(*(float(line[field]) for field in AdultValues._fields))
    return found


def means_of(runs: AdultRuns) -> dict[AdultRow, AdultValues]:
    """Over seeds, row by row."""
    return {
        row: AdultValues(*(means(own, name).mean for name in AdultValues._fields))
        for row, own in by(runs, lambda row: row).items()
    }


def show(runs: AdultRuns) -> dict[str, str]:
    """The page and the plot."""
    before = (
        f"`python -m benchmarks.adult_fpfl`: test rows, {n_seeds(runs)} seeds. Each cell: published"
        " / ours ± standard deviation over seeds. Gaps are the largest difference between a group's"
        " value and that of all rows, by sex; the constraint is on the FNR gap, alpha = 0.02."
    )
    own, rows = by(runs, lambda row: row), []
    for row, theirs in published_rows().items():
        if row in own:
            pairs = zip(theirs, AdultValues._fields, strict=True)
            cells = (f"{cell:.3f} / {means(own[row], name).text('.3f')}" for cell, name in pairs)
            rows.append((*row, *cells))
    header = "cohort | model | algorithm | accuracy | FNR gap | EO gap | DemP gap | PP gap"
    title = "# Fairness constraints in rounds on Adult"
    text = page(title, before, table(header, rows), goals(means_of(runs)), accounts(own))
    return {"adult_fpfl.md": text, "adult_fpfl.svg": plot(means_of(runs))}


def goals(found: dict[AdultRow, AdultValues]) -> str:
    """What was to be reached, and which rows miss it."""
    theirs, clipped = published_rows(), [row for row in found if row.algorithm == "FL+Clip"]
    missed = {
        "accuracy at most 0.01 below the published": [
            row for row in found if found[row].accuracy < theirs[row].accuracy - 0.01
        ],
        "FNR gap at most 0.03 where constrained": [
            row for row in found if row.fair and found[row].fnr_gap > 0.03
        ],
        "clipping alone makes FL less fair": [
            row
            for row in clipped
            if (free := found.get(row._replace(algorithm="FL")))
            and found[row].fnr_gap <= free.fnr_gap
        ],
    }
    rows = [
        (goal, ", ".join(f"{row.cohort} {row.model} {row.algorithm}" for row in some) or "none")
        for goal, some in missed.items()
    ]
    return table("goal | rows that miss it", rows)


def accounts(found: Iterable[AdultRow]) -> str:
    """The noise of both neighbouring relations, for the private ones of these rows."""
    before = (
        "Standard deviation of the noise in the sum, in units of the clip C, for epsilon ="
        f" {EPSILON:g} and delta = {DELTA:g} of {USERS:,} users. *Added*: cohorts drawn user by"
        " user, neighbours that differ by one user more or less, as trained here. *Replaced*:"
        " cohorts of fixed size, neighbours in which one user is another: its report changes by up"
        " to 2 C. The paper samples cohorts of fixed size and takes C itself for the sensitivity,"
        " which is half of what that relation needs."
    )
    rows = []
    for cohort, rounds in sorted(
        {(row.cohort, SETTINGS[row].rounds) for row in found if row.private}
    ):
        added, half = (
            SampledSums(USERS, cohort, rounds, sampling).noise(EPSILON, DELTA)
            for sampling in ("poisson", "fixed")
        )
        rows.append((cohort, rounds, f"{added:.3f}", f"{2 * half:.3f}", f"{half:.3f}"))
    header = "cohort | rounds | added | replaced | C taken for the sensitivity"
    return f"{before}\n\n{table(header, rows)}"


def plot(found: dict[AdultRow, AdultValues]) -> str:
    """Accuracy over FNR gap: published as crosses, ours as dots with lines between them."""
    figure, both = panels(1, 2, 8, 3.6)
    for axes, fair in zip(both, (False, True), strict=True):
        for row, theirs in published_rows().items():
            if row.fair == fair and row in found:
                ours, color = found[row], COLORS[row.model]
                x, y = (theirs.fnr_gap, ours.fnr_gap), (theirs.accuracy, ours.accuracy)
                axes.plot(x, y, color=color, linewidth=0.5, alpha=0.5)
                axes.plot(*theirs[1::-1], "x", color=color)
                axes.plot(*ours[1::-1], "o", color=color)
                axes.annotate(f"{row.algorithm} {row.cohort}", (x[1], y[1]), fontsize=6)
        axes.set(xlabel="FNR gap", title="constrained" if fair else "not constrained")
        axes.sharex(both[0])
        axes.sharey(both[0])
    both[0].set_ylabel("accuracy (x published, o ours)")
    return as_svg(figure)
