"""What five papers claim, and what of it comes out here: from the committed runs and the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from benchmarks import adult_fpfl, femnist_fpfl, figure2, two_phase
from benchmarks import findings as rules
from benchmarks.findings import REFUTED, Finding
from benchmarks.gap import paper as gap
from benchmarks.harness import committed
from benchmarks.privfairfl import pages as privfairfl
from benchmarks.privfairfl import peer, times
from benchmarks.runs import Runs
from benchmarks.showing import published, table
from benchmarks.table2 import covariance
from benchmarks.table2 import pages as table2
from benchmarks.table2.beaten import beaten, published_next_to


class Paper(NamedTuple):
    """A paper.

    Attributes:
        name: authors and year.
        page: its main results page.
        claims: functions of runs, of which benchmark and experiment these are, and what to say
            of without them.
        note: what else a reader of the verdicts should know.
    """

    name: str
    page: str
    claims: Sequence[tuple[Callable[[Runs], Iterable[Finding]], str, str]]
    note: str | Callable[[], str]

    @property
    def refuted(self) -> list[dict[str, str]]:
        """Claims: what is published, what is true, and the test that shows it."""
        return [line for line in published("refuted") if line["paper"] == self.name]


def _note_of_table2() -> str:
    """How much table 2 can say at all, and the limits of the figures."""
    cells = published_next_to(committed("table2", "table2"))
    law_school, dutch = beaten(cells)["by the constant classifier"]
    return (
        f"Of the 30 published cells the constant classifier beats {law_school} of 20 on Law"
        f" School and {dutch} of 10 on Dutch: it is more accurate there, and has no gap."
        " So only those of Dutch are compared. The loss in figure 2 must be"
        f" within {figure2.NEAR:g} of the printed one; {figure2.WORSE:g} of accuracy is much."
    )


PAPERS = (
    Paper(
        "Wu, Curtis and Robinson (2024)", table2.PAGE,
        (
            (table2.cells_beaten, "table2 table2", ""), (covariance.claim, "table2 covariance", ""),
            (figure2.claims, "figure2", ""), (table2.figure3, "table2 table2", ""),
        ),
        _note_of_table2,
    ),
    Paper(
        "Rodríguez-Gálvez, Granqvist, van Dalen and Seigel (2021)", adult_fpfl.PAGE,
        (
            (adult_fpfl.claims, "adult_fpfl", "tables 1 and 2, on Adult"),
            (femnist_fpfl.claims, "femnist_fpfl", "table 3, unfair FEMNIST"),
        ),
        f"{adult_fpfl.RULE} {femnist_fpfl.RULE} There are 201 writers here, and 3,383 in the"
        " paper.",
    ),
    Paper(
        "Padala, Damle and Gujar (2021)", two_phase.PAGE,
        ((two_phase.claims, "two_phase", ""), (two_phase.wide_claims, "two_phase wide", "")),
        two_phase.NOTE,
    ),
    Paper(
        "Juarez and Korolova (2022)", gap.PAGE1,
        (
            (gap.table1, "gap table1", ""), (gap.table2, "gap table2", ""),
            (gap.figure1, "gap mse", ""), (gap.figure2, "gap unbalanced", ""),
        ),
        "Crossings must be within a tenth of the printed ones; more than 100 times is rapid, and"
        " less than a tenth more insignificant. Figure 3, contours over both budgets, and figure 4,"
        " errors over many runs of ten clients, are not drawn here.",
    ),
    Paper(
        "Pentyala et al. (2022)", privfairfl.PAGE,
        (
            (privfairfl.claims, "privfairfl", "table 3, at epsilon = 1"),
            (times.claims, "privfairfl seconds", ""), (peer.claims, "privfairfl peer", ""),
        ),
        f"{privfairfl.NOTE} {times.NOTE}",
    ),
)  # fmt: skip

VERDICTS = (
    rules.YES, rules.PARTLY, rules.UNDECIDED, rules.NO, REFUTED, rules.NOT_MEASURED, rules.NOT_RUN,
)  # fmt: skip
"""In the order of the columns."""


def findings_of(paper: Paper) -> list[Finding]:
    """All of a paper; one that was not run with the code of today says so."""
    every = []
    for claims, experiment, otherwise in paper.claims:
        some = list(claims(committed(*experiment.split())))
        if otherwise and not some:
            some = [Finding(otherwise, "-", "", rules.NOT_RUN, paper.page)]
        every += [one if one.ours else one._replace(verdict=rules.NOT_RUN) for one in some]
    return every + [
        Finding(one["claim"], one["published"], one["truth"], REFUTED, one["test"])
        for one in paper.refuted
    ]


def findings() -> Iterator[Finding]:
    """Paper by paper."""
    for paper in PAPERS:
        yield from findings_of(paper)


def reproduction_pages() -> str:
    """Return the text of the page: counts of verdicts, and a section for each paper."""
    of_paper = {paper.name: findings_of(paper) for paper in PAPERS}
    counts = {name: Counter(one.verdict for one in own) for name, own in of_paper.items()}
    counts["all"] = Counter(one.verdict for own in of_paper.values() for one in own)
    shown = [verdict for verdict in VERDICTS if counts["all"][verdict]]
    lines = [(name, *(count[one] or "" for one in shown)) for name, count in counts.items()]
    summary = table(" | ".join(["paper", *shown]), lines)
    parts, results = [summary, rules.RULE], "../benchmarks/results"  # from docs/
    for paper in PAPERS:
        # What its main page shows, then what others show, then what a test refutes.
        parts.append(f"## [{paper.name}]({results}/{paper.page})")
        measured = [one for one in of_paper[paper.name] if one.verdict != REFUTED]
        for evidence in dict.fromkeys([paper.page, *(one.evidence for one in measured)]):
            if evidence != paper.page:
                parts.append(f"From [{evidence}]({results}/{evidence}):")
            own = [one[:4] for one in measured if one.evidence == evidence]
            parts.append(table("claim | published | here | verdict", own))
        form = "- {claim}. Published: {published}. In truth: {truth} (`{test}`)."
        items = [form.format(**one) for one in paper.refuted]
        parts.append("Refuted, each by a test:\n\n" + "\n".join(items))
        parts.append(paper.note if isinstance(paper.note, str) else paper.note())
    return "\n\n".join(parts)
