"""Padala, Damle and Gujar (2021)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import Run
from benchmarks.papers.finding import (
    NOTHING,
    PARTLY,
    REFUTED,
    YES,
    Finding,
    Paper,
    above,
    below,
    of_learned,
    verdict_of,
    verdict_of_cells,
)
from benchmarks.registry import committed
from benchmarks.showing import Mean, by, paired, select

PAGE = "two_phase/two_phase.md"
WIDE_PAGE = "two_phase/wide_two_phase.md"

WIDE = ", networks as wide as published"
"""Behind each claim."""

SIMILAR, HARDLY, RISES = 0.01, 0.005, 0.005
"""Of accuracy: what counts as similar, as hardly anything, and as a rise."""

LEAST, MOST = 0.5, 10.0
"""The epsilons between which accuracy should rise: ours, of those from above 0 to 10 there."""

PhaseRuns = Sequence[Run[Any, Any]]


def two_phase(runs: PhaseRuns, page: str = PAGE, networks: str = "") -> Iterator[Finding]:
    """Where accuracy goes, on all tables and for both notions."""
    tasks = by(runs, lambda one: f"{one.table}, {one.notion.replace('_', ' ')}")
    lost, noise, rise = {}, {}, {}
    for task, own in tasks.items():
        constant, fair, noiseless = (
            select(own, method=name) for name in ("constant", "B2", "noiseless")
        )
        least, most = (select(own, method="two_phase", epsilon=e) for e in (LEAST, MOST))
        if fair and noiseless and least and most:
            pairs = ((lost, most, fair), (noise, most, noiseless), (rise, least, most))
            for found, low, high in pairs:
                found[task] = of_learned(paired(low, high, "accuracy"), constant, low, high)
    what = Comparison(
        f"at epsilon = {MOST:g} accuracy is similar to that of fair training; loss", "similar"
    )
    yield what.finding(lost, lambda mean: above(mean, SIMILAR), page, networks)
    what = Comparison(f"what the noise costs at epsilon = {MOST:g}", "hardly anything")
    yield what.finding(noise, lambda mean: above(mean, HARDLY), page, networks)
    what = Comparison(f"accuracy rises with epsilon, from {LEAST:g} to {MOST:g}", "it does")
    yield what.finding(rise, lambda mean: below(mean, RISES), page, networks)


class Comparison(NamedTuple):
    """A claim about accuracy that should hold for all tables and notions."""

    claim: str
    published: str

    def finding(
        self, found: Mapping[str, Mean], excess: Callable[[Mean], Mean], page: str, networks: str
    ) -> Finding:
        """The range of differences, and those tasks in which it is not so."""
        means = [one.mean for one in found.values() if one.n]
        failed = tuple(
            f"{task} ({mean.text('+.3f', error=True)})"
            for task, mean in found.items()
            if excess(mean).mean > 0
        )
        ours = f"{min(means):+.3f} to {max(means):+.3f} of accuracy" if means else ""
        if nothing := [task for task, one in found.items() if not one.n]:
            ours += f"; {NOTHING} on {' and '.join(nothing)}"
        verdict = verdict_of_cells(map(excess, found.values()))
        if verdict == PARTLY:
            holds = [
                f"{task} ({mean.text('+.4f', error=True)})"
                for task, mean in found.items()
                if verdict_of(excess(mean)) == YES
            ]
            ours += f"; it holds on {' and '.join(holds)}"
        left = ("others" if means else "nothing") if nothing else ""
        return Finding(self.claim + networks, self.published, ours, verdict, page, failed, left)


def whole_wide(runs: PhaseRuns) -> PhaseRuns:
    """Those with networks as wide as published, once all of them are there."""
    from benchmarks.two_phase import phases

    return [] if phases.WIDE.missing(runs, phases.WIDE.settings, None) else runs


def findings() -> Iterator[Finding]:
    """All."""
    yield from two_phase(committed("two_phase"))
    if wide := whole_wide(committed("two_phase", "wide")):
        yield from two_phase(wide, WIDE_PAGE, WIDE)
    yield Finding(
        "the epsilon of phase 2 protects the rows", "epsilon",
        "conditional on a teacher that reads them without noise", REFUTED,
        "tests/test_two_phase.py::test_the_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end",
    )  # fmt: skip


NOTE = (
    "What holds on all three tables and by both notions is reproduced; what holds on some and fails"
    f" on others holds in part. Similar is at most {SIMILAR:g} of accuracy lower, hardly anything"
    f" at most {HARDLY:g}, and a rise more than {RISES:g}: the paper's numbers are lost from its"
    " text. Accuracy is nearly flat because the noise does not cover the teacher: whatever epsilon"
    " is, the student learns the decisions of a network that was trained without noise."
)

PAPER = Paper("Padala, Damle and Gujar (2021)", PAGE, findings, lambda: NOTE)
