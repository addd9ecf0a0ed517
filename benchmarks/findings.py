"""A claim of a paper and what became of it; and by which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks.runs import NO_MEAN, Mean, Runs
from benchmarks.showing import table

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

UNDECIDABLE = NO_MEAN
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
    """

    claim: str
    published: str
    ours: str
    verdict: str
    evidence: str
    failed: tuple[str, ...] = ()


def verdict_of(*excesses: Mean) -> str:
    """Whether what should all be below 0 is reproduced, not reproduced, or undecided.

    It is reproduced where all are below by more than two standard errors, and not reproduced where
    one is as far above. An undecidable one leaves the others to fail.
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
    """Return ``excess``, or :data:`UNDECIDABLE` where one of the models learned nothing."""
    sure = all(learned(own.less(constants, "accuracy")) for own in models)
    return excess if sure else UNDECIDABLE


def nothing_learned(runs: Runs, constants: Runs) -> bool:
    """Whether a model learned nothing, where the constant classifier was run."""
    return bool(constants) and not learned(runs.less(constants, "accuracy"))


def compared(
    claim: str, published: str, ours: str, excess: Mean, evidence: str,
    *, ahead: Mapping[str, Mean],
) -> Finding:  # fmt: skip
    """Return a finding about a difference between models; undecided if one of them learned nothing.

    Args:
        claim: in few words.
        published: of the difference.
        ours: of the difference.
        excess: what should be below 0.
        evidence: a results page or plot.
        ahead: by how much each model is more accurate than the constant classifier.
    """
    nothing = [name for name, one in ahead.items() if not learned(one)]
    if nothing:
        ours, excess = f"{ours}; {NOTHING} by {' and '.join(nothing)}", UNDECIDABLE
    return Finding(claim, published, ours, verdict_of(excess), evidence)


def ordering(
    claim: str, published: str, models: Mapping[str, Runs], field: str, constant: Runs | float,
    *, evidence: str, most: float | None = None, form: str = "+.3f",
) -> Finding:  # fmt: skip
    """Return a finding: whether one value is lower in the first of two models than in the second.

    Args:
        claim: in few words.
        published: of the difference.
        models: by name, the lower first.
        field: of the values.
        constant: runs of the constant classifier, or its accuracy.
        evidence: a results page or plot.
        most: for a loss, which may be so large.
        form: of the difference.
    """
    low, high = models.values()
    more = high.less(low, field)
    ahead = {
        name: own.less(constant, "accuracy") if isinstance(constant, Runs)
        else own.mean("accuracy") - constant
        for name, own in models.items()
    }  # fmt: skip
    excess = 0 - more if most is None else more - most
    return compared(claim, published, more.text(form, error=True), excess, evidence, ahead=ahead)


def what_does_not(findings: Iterable[Finding], *notes: str) -> str:
    """Return a section of a results page: what does not reproduce, or only in part."""
    every = [one for one in findings if one.ours and one.verdict != REFUTED]
    shown = [one for one in every if one.verdict != YES]
    parts = ["## What does not reproduce", RULE, *notes]
    if shown:
        parts.append(table("claim | published | here | verdict", [one[:4] for one in shown]))
    else:
        parts.append("All does." if every else "None of the claims was run.")
    parts += [
        f"Of '{one.claim}' these do not hold, or not for sure: {', '.join(one.failed)}."
        for one in shown
        if one.failed
    ]
    return "\n\n".join(parts)
