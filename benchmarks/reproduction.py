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
from benchmarks.showing import table
from benchmarks.table2 import choices
from benchmarks.table2 import pages as table2
from benchmarks.table2.beaten import beaten, published_next_to


class Paper(NamedTuple):
    """A paper.

    Attributes:
        name: authors and year.
        page: its main results page.
        claims: functions of runs, of which benchmark and experiment these are, and what to say
            of without them.
        refuted: claim, what is published, what is true, and the test that shows it.
        note: what else a reader of the verdicts should know.
    """

    name: str
    page: str
    claims: Sequence[tuple[Callable[[Runs], Iterable[Finding]], str, str]]
    refuted: Sequence[tuple[str, str, str, str]]
    note: str | Callable[[], str]


def _note_of_table2() -> str:
    """How much table 2 can say at all, and the limits of the figures."""
    cells = published_next_to(committed("table2", "table2"))
    law_school, dutch = beaten(cells)["by the constant classifier"]
    return (
        f"Of the 30 published cells the constant classifier beats {law_school} of 20 on Law"
        f" School and {dutch} of 10 on Dutch: it is more accurate there, and has no gap."
        " Those decide nothing, so that Dutch alone does. The loss in figure 2 must be"
        f" within {figure2.NEAR:g} of the printed one; {figure2.WORSE:g} of accuracy is much."
    )


PAPERS = (
    Paper(
        "Wu, Curtis and Robinson (2024)", table2.PAGE,
        (
            (table2.cells_beaten, "table2 table2", ""), (choices.claim, "table2 covariance", ""),
            (figure2.claims, "figure2", ""), (table2.figure3, "table2 table2", ""),
        ),
        (
            (
                "a distance of 0.41 to 1.03 between real and synthetic rows preserves privacy",
                "0.41 to 1.03",
                "rows drawn at random are as far away, whatever the model knows of the real ones",
                "tests/test_gate.py::test_membership_is_inferred_from_near_copies_and_from_an_overfitted_model",
            ),
        ),
        _note_of_table2,
    ),
    Paper(
        "Rodríguez-Gálvez, Granqvist, van Dalen and Seigel (2021)", adult_fpfl.PAGE,
        (
            (adult_fpfl.claims, "adult_fpfl", "tables 1 and 2, on Adult"),
            (femnist_fpfl.claims, "femnist_fpfl", "table 3, unfair FEMNIST"),
        ),
        (
            (
                "noise of C times sigma gives epsilon for cohorts of fixed size", "sensitivity C",
                "2 C: one user replaced by another",
                "tests/test_composition.py::test_a_guarantee_holds_and_its_noise_is_that_of_the_relation",
            ),
        ),
        f"{adult_fpfl.RULE} {femnist_fpfl.RULE} There are 201 writers here, and 3,383 in the"
        " paper.",
    ),
    Paper(
        "Padala, Damle and Gujar (2021)", two_phase.PAGE,
        ((two_phase.claims, "two_phase", ""), (two_phase.wide_claims, "two_phase wide", "")),
        (
            (
                "the epsilon of phase 2 protects the rows", "epsilon",
                "conditional on a teacher that reads them without noise",
                "tests/test_two_phase.py::test_the_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end",
            ),
        ),
        two_phase.NOTE,
    ),
    Paper(
        "Juarez and Korolova (2022)", gap.PAGE1,
        (
            (gap.table1, "gap table1", ""), (gap.table2, "gap table2", ""),
            (gap.figure1, "gap mse", ""), (gap.figure2, "gap unbalanced", ""),
        ),
        (
            (
                "theorem 4.1: M_R with epsilon_1 = epsilon_2 = 1 has epsilon 1", "1",
                f"{gap.published_randomized(1.0).epsilon:.2f}",
                "tests/test_gap_mechanisms.py::test_theorem_4_1_is_caught",
            ),
            (
                "theorem 4.3: M_L has a finite epsilon whatever k", "finite",
                "infinite but for k = 2",
                "tests/test_gap_mechanisms.py::test_theorem_4_3_is_caught",
            ),
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
        (
            (
                "Post has the epsilon that is printed", "epsilon",
                f"{privfairfl.THRESHOLDS:,} times epsilon",
                "tests/test_privfairfl.py::test_published_noise_costs_what_its_privacy_loss_says",
            ),
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
    return every + [Finding(*one[:3], REFUTED, one[3]) for one in paper.refuted]


def findings() -> Iterator[Finding]:
    """Paper by paper."""
    for paper in PAPERS:
        yield from findings_of(paper)


def reproduction_pages() -> str:
    """Counts of verdicts, and a section for each paper."""
    of_paper = {paper.name: findings_of(paper) for paper in PAPERS}
    counts = {name: Counter(one.verdict for one in own) for name, own in of_paper.items()}
    counts["all"] = Counter(one.verdict for own in of_paper.values() for one in own)
    shown = [verdict for verdict in VERDICTS if counts["all"][verdict]]
    lines = [(name, *(count[one] or "" for one in shown)) for name, count in counts.items()]
    summary = table(" | ".join(["paper", *shown]), lines)
    sections = (_section(paper, of_paper[paper.name]) for paper in PAPERS)
    return "\n\n".join([summary, rules.RULE, *sections])


def _section(paper: Paper, own: Sequence[Finding]) -> str:
    """What the paper's main page shows first, then what others show, then what a test refutes."""
    results = "../benchmarks/results"  # from docs/
    parts = [f"## [{paper.name}]({results}/{paper.page})"]
    measured = [one for one in own if one.verdict != REFUTED]
    for evidence in dict.fromkeys([paper.page, *(one.evidence for one in measured)]):
        lines = [one[:4] for one in measured if one.evidence == evidence]
        if evidence != paper.page:
            parts.append(f"From [{evidence}]({results}/{evidence}):")
        parts.append(table("claim | published | here | verdict", lines))
    items = [
        f"- {claim}. Published: {published}. In truth: {truth} (`{test}`)."
        for claim, published, truth, test in paper.refuted
    ]
    parts.append("Refuted, each by a test:\n\n" + "\n".join(items))
    return "\n\n".join([*parts, paper.note if isinstance(paper.note, str) else paper.note()])
