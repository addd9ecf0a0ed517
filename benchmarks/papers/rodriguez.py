"""Rodríguez-Gálvez et al. (2021)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import Run
from benchmarks.papers.finding import (
    NO,
    REFUTED,
    Finding,
    Paper,
    above,
    below,
    verdict_of,
)
from benchmarks.registry import committed
from benchmarks.showing import Mean, by, means, paired

ADULT, FEMNIST = "adult_fpfl/adult_fpfl.md", "femnist_fpfl/femnist_fpfl.md"

WITHIN, GAP_WITHIN, COST = 0.01, 0.02, 0.005
"""Of accuracy and gap with a constraint; of the gap without one; of what MMDM loses in accuracy."""

LEARNED = 0.5
"""Accuracy on digits below which a small gap says nothing: all groups' answers are guesses."""

Groups = Mapping[Any, Sequence[Run[Any, Any]]]

ADULT_RULE = (
    f"With the published settings. With a constraint, accuracy may be {WITHIN:g} lower than"
    f" published and the gap {WITHIN:g} larger; without one the gap must be within {GAP_WITHIN:g}."
)


def adult(own: Groups) -> Iterator[Finding]:
    """Tables 1 and 2, of those rows whose runs are there."""
    from benchmarks.adult_fpfl.pages import COLORS, published_rows

    theirs = published_rows()
    for row, values in theirs.items():
        if row in own and row.fair:
            yield _with_constraint(row, values, own[row])
        elif row in own and row.algorithm in ("SGD", "PFL"):
            gap = means(own[row], "fnr_gap")
            off = Mean(abs(gap.mean - values.fnr_gap) - GAP_WITHIN, gap.spread, gap.n)
            yield Finding(
                f"{_name(row)}: FNR gap", f"{values.fnr_gap:.3f}", gap.text(".3f", error=True),
                verdict_of(off), ADULT,
            )  # fmt: skip
    for model in COLORS:
        at = {row.algorithm: row for row in theirs if row.model == model and row.cohort != 1000}
        if at["MMDM"] in own and at["SGD"] in own:
            lost = paired(own[at["MMDM"]], own[at["SGD"]], "accuracy")
            printed = theirs[at["SGD"]].accuracy - theirs[at["MMDM"]].accuracy
            yield Finding(
                f"MMDM, {model}: accuracy lost, at most {COST:g}", f"{printed:.3f}",
                lost.text(".3f", error=True), verdict_of(above(lost, COST)), ADULT,
            )  # fmt: skip
    for model in COLORS:
        at = {row.algorithm: row for row in theirs if row.model == model and row.cohort != 1000}
        if at["FL"] in own and at["FL+Clip"] in own:
            more = paired(own[at["FL"]], own[at["FL+Clip"]], "fnr_gap")
            printed = theirs[at["FL+Clip"]].fnr_gap - theirs[at["FL"]].fnr_gap
            yield Finding(
                f"clipping makes FL less fair, {model}: difference of FNR gaps", f"{printed:+.3f}",
                more.text("+.3f", error=True), verdict_of(below(more, 0.0)), ADULT,
            )  # fmt: skip


def _with_constraint(row: Any, theirs: Any, runs: Sequence[Run[Any, Any]]) -> Finding:
    """Accuracy and gap together."""
    accuracy, gap = means(runs, "accuracy"), means(runs, "fnr_gap")
    found = verdict_of(
        below(accuracy, theirs.accuracy - WITHIN), above(gap, theirs.fnr_gap + WITHIN)
    )
    return Finding(
        f"{_name(row)}: accuracy / FNR gap", f"{theirs.accuracy:.3f} / {theirs.fnr_gap:.3f}",
        " / ".join(one.text(".3f", error=True) for one in (accuracy, gap)), found, ADULT,
    )  # fmt: skip


def _name(row: Any) -> str:
    return f"{row.algorithm}, {row.model}, " + (
        "central" if row.central else f"{row.cohort:,} users"
    )


ORDERINGS = (
    ("the constraint narrows the gap", "accuracy_gap", ("FFL", "K"), ("FL", "K")),
    ("the constraint narrows the gap under clipping", "accuracy_gap", ("FFL+Clip", "K"),
     ("FL+Clip", "K")),
    ("clipping widens the gap", "accuracy_gap", ("FL", "K"), ("FL+Clip", "K")),
    ("noise costs accuracy", "accuracy", ("PFL", "K"), ("FL", "K")),
    ("noise widens the gap", "accuracy_gap", ("FL", "K"), ("PFL", "K")),
    ("noise costs less in a larger population", "accuracy", ("PFL", "K"), ("PFL", "1000K")),
    ("noise costs less there with a constraint, too", "accuracy", ("FPFL", "K"),
     ("FPFL", "1000K")),
    ("the constraint narrows the gap there", "accuracy_gap", ("FPFL", "1000K"),
     ("PFL", "1000K")),
)  # fmt: skip
"""Of table 3: what is lower in the first row than in the second."""

DIGITS_RULE = (
    "Where one of two models has learned nothing, its gap says nothing, and the ordering of gaps"
    " does not reproduce."
)


def femnist(own: Groups) -> Iterator[Finding]:
    """Table 3: orderings, and FPFL in the larger populations."""
    from benchmarks.femnist_fpfl.pages import published_rows

    theirs = published_rows()
    for what, field, *pair in ORDERINGS:
        low, high = (row for key in pair for row in theirs if row == key)
        if low in own and high in own:
            more = paired(own[low], own[high], field)
            printed = getattr(theirs[high], field) - getattr(theirs[low], field)
            weakest = min(means(own[row], "accuracy").mean for row in (low, high))
            nothing = field == "accuracy_gap" and weakest < LEARNED
            yield Finding(
                f"unfair FEMNIST: {what} ({' '.join(high)} less {' '.join(low)})",
                f"{printed:+.3f}",
                more.text("+.3f", error=True) + "; nothing was learned" * nothing,
                NO if nothing else verdict_of(below(more, 0.0)), FEMNIST,
            )  # fmt: skip
    for row in theirs:
        if row in own and row.algorithm == "FPFL" and row.population != "K":
            accuracy = means(own[row], "accuracy")
            yield Finding(
                f"unfair FEMNIST: accuracy of {' '.join(row)}", f"{theirs[row].accuracy:.3f}",
                accuracy.text(".3f", error=True),
                verdict_of(below(accuracy, theirs[row].accuracy - WITHIN)), FEMNIST,
            )  # fmt: skip


def findings() -> Iterator[Finding]:
    """All."""
    on_adult, digits = (
        by(committed(name), lambda row: row) for name in ("adult_fpfl", "femnist_fpfl")
    )
    yield from adult(on_adult)
    yield from femnist(digits)
    if not on_adult:
        yield Finding("tables 1 and 2, on Adult", "-", "", NO, ADULT)
    if not digits:
        yield Finding("table 3, unfair FEMNIST", "-", "", NO, FEMNIST)
    yield Finding(
        "noise of C times sigma gives epsilon for cohorts of fixed size",
        "sensitivity C", "2 C: one user replaced by another", REFUTED,
        "tests/test_composition.py::test_a_guarantee_holds_and_its_noise_is_that_of_the_relation",
    )  # fmt: skip


PAPER = Paper(
    "Rodríguez-Gálvez, Granqvist, van Dalen and Seigel (2021)",
    ADULT,
    findings,
    lambda: f"{ADULT_RULE} {DIGITS_RULE} FEMNIST has 201 writers here, and 3,383 in the paper.",
)
