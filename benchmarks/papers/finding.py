"""A claim of a paper and what became of it; and by which rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import Run
from benchmarks.showing import Mean, paired, table

Runs = Sequence[Run[Any, Any]]

YES, NO, PARTLY, UNDECIDED = "reproduced", "not reproduced", "in part", "undecided"
REFUTED = "refuted"
NOT_RUN, NOT_MEASURED = "not run with the code of today", "not measured"

RULE = (
    "*Reproduced* and *not reproduced* are differences beyond two standard errors over seeds; what"
    " lies within them, or has one seed, is *undecided*. A model whose accuracy is not above that"
    " of the constant classifier, by two standard errors, has learned nothing, and decides nothing:"
    " neither its gap nor a difference of accuracies to it. Numbers are means ± standard errors."
)

NOTHING = "nothing was learned"
"""In place of whether a goal is met."""

UNDECIDABLE = Mean(math.nan, math.nan, 0)
"""In place of a difference to a model that learned nothing: it can neither hold nor fail."""


class Finding(NamedTuple):
    """One claim.

    Attributes:
        claim: in few words.
        published: numbers, or words.
        ours: numbers, or words; empty where it was not run with the code of today.
        verdict: one of those above; refuted is what a test shows to be false.
        evidence: a results page or plot, or a test as file::name.
        failed: what of it does not hold, where there are several things.
        unlearned: what is left to decide a claim about a model that learned nothing: "nothing",
            "failure" (of a level of accuracy), or "others" (other cells); empty if all learned.
    """

    claim: str
    published: str
    ours: str
    verdict: str
    evidence: str
    failed: tuple[str, ...] = ()
    unlearned: str = ""


class Paper(NamedTuple):
    """A paper.

    Attributes:
        name: authors and year.
        page: its main results page.
        findings: all of them, from the committed runs and the tests.
        note: what else a reader of the verdicts should know.
    """

    name: str
    page: str
    findings: Callable[[], Iterator[Finding]]
    note: Callable[[], str] = lambda: ""


def verdict_of(*excesses: Mean) -> str:
    """Of what should all be below 0: reproduced, not reproduced, or undecided.

    Reproduced where all are below by more than two standard errors, not reproduced where one is as
    far above. An undecidable one leaves the others to fail.
    """
    if not excesses:
        return NOT_RUN
    if any(one.n > 1 and one.mean > 2 * one.error for one in excesses):
        return NO
    sure = all(one.n > 1 and one.mean < -2 * one.error for one in excesses)
    return YES if sure else UNDECIDED


def verdict_of_cells(excesses: Iterable[Mean]) -> str:
    """Of a claim about several cells: in part where it holds in some and fails in others.

    Undecidable cells are left out; where none is left, the claim is undecided.
    """
    cells = list(excesses)
    deciding = [one for one in cells if one.n]
    if {YES, NO} <= {verdict_of(one) for one in deciding}:
        return PARTLY
    return verdict_of(*deciding) if deciding or not cells else UNDECIDED


def learned(ahead: Mean) -> bool:
    """Whether a model is more accurate than the constant classifier, by so much over seeds."""
    return ahead.mean > 2 * ahead.error


def of_learned(excess: Mean, constants: Runs, *models: Runs) -> Mean:
    """A difference between models; undecidable where one of them learned nothing."""
    sure = all(learned(paired(constants, own, "accuracy")) for own in models)
    return excess if sure else UNDECIDABLE


def nothing_learned(runs: Runs, constants: Runs) -> bool:
    """Whether a model learned nothing, where the constant classifier was run."""
    return bool(constants) and not learned(paired(constants, runs, "accuracy"))


def compared(
    claim: str, published: str, ours: str, excess: Mean, evidence: str,
    *, ahead: Mapping[str, Mean],
) -> Finding:  # fmt: skip
    """A claim about a difference between models; undecided where one of them learned nothing.

    Args:
        claim: in few words.
        published: of the difference.
        ours: of the difference.
        excess: what should be below 0.
        evidence: a results page or plot.
        ahead: by how much each model is more accurate than the constant classifier.
    """
    nothing = [name for name, one in ahead.items() if not learned(one)]
    words = f"; {NOTHING} by {' and '.join(nothing)}" if nothing else ""
    verdict = verdict_of(UNDECIDABLE if nothing else excess)
    unlearned = "nothing" if nothing else ""
    return Finding(claim, published, ours + words, verdict, evidence, unlearned=unlearned)


def above(mean: Mean, most: float) -> Mean:
    """By how much a mean is above a limit."""
    return Mean(mean.mean - most, mean.spread, mean.n)


def below(mean: Mean, least: float) -> Mean:
    """By how much a mean is below a limit."""
    return Mean(least - mean.mean, mean.spread, mean.n)


def what_does_not(findings: Iterable[Finding], *notes: str) -> str:
    """A section of a results page: what does not reproduce, or only in part."""
    found = [one for one in findings if one.ours and one.verdict != REFUTED]
    shown = [one for one in found if one.verdict != YES]
    rows = [(one.claim, one.published, one.ours, one.verdict) for one in shown]
    lists = [
        f"Of '{one.claim}' these do not hold, or not for sure: {', '.join(one.failed)}."
        for one in shown
        if one.failed
    ]
    parts = ["## What does not reproduce", RULE, *notes]
    none = "All does." if found else "None of the claims was run."
    parts.append(table("claim | published | here | verdict", rows) if rows else none)
    return "\n\n".join([*parts, *lists])
