"""A claim of a paper and what became of it; and by which rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from benchmarks.showing import Mean, table

YES, NO, PARTLY, UNDECIDED = "reproduced", "not reproduced", "in part", "undecided"
REFUTED = "refuted"
NOT_RUN = "not run with the code of today"

RULE = (
    "*Reproduced* and *not reproduced* are differences beyond two standard errors over seeds; what"
    " lies within them, or has one seed, is *undecided*. Numbers are means ± standard errors."
)


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
    far above.
    """
    if not excesses:
        return NOT_RUN
    if any(one.n > 1 and one.mean > 2 * one.error for one in excesses):
        return NO
    sure = all(one.n > 1 and one.mean < -2 * one.error for one in excesses)
    return YES if sure else UNDECIDED


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
