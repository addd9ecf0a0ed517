"""What five papers claim, and what of it comes out here: from the committed runs and the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.registry import committed
from benchmarks.showing import by, means, select, table

WU = "Wu et al. (2024)"
RODRIGUEZ = "Rodríguez-Gálvez et al. (2021)"
PADALA = "Padala et al. (2021)"
JUAREZ = "Juarez and Korolova (2022)"
PENTYALA = "Pentyala et al. (2022)"

YES, NO, PARTLY = "reproduced", "not reproduced", "in part"
REFUTED = "refuted"
NOT_RUN = "not run with the code of today"


class Finding(NamedTuple):
    """A claim and what became of it.

    Attributes:
        paper: and year.
        claim: in few words.
        published: numbers, or words.
        ours: numbers, or words; empty where it was not run with the code of today.
        verdict: reproduced, not reproduced, in part; or refuted, which a test shows.
        evidence: a results page, or a test as file::name.
    """

    paper: str
    claim: str
    published: str
    ours: str
    verdict: str
    evidence: str


def reproduction_table() -> str:
    """All findings."""
    rows = [
        finding if finding.ours else finding._replace(verdict=NOT_RUN) for finding in findings()
    ]
    header = "paper | claim | published | here | verdict | evidence"
    return table(header, [(*row[:-1], _linked(row.evidence)) for row in rows])


def _linked(evidence: str) -> str:
    """A results page as a link from docs/, a test as code."""
    if "::" in evidence:
        return f"`{evidence}`"
    return f"[{evidence}](../benchmarks/results/{evidence})"


def findings() -> Iterator[Finding]:
    """Paper by paper."""
    yield from single_shot()
    yield from in_rounds()
    yield from two_phases()
    yield from local_gaps()
    yield from private_counts()


def single_shot() -> Iterator[Finding]:
    """Wu, Curtis and Robinson (2024)."""
    from benchmarks.table2.beaten import beaten

    runs, page = committed("table2", "table2"), "table2/table2.md"
    counts = beaten(runs) if select(runs, recipe="ours") and select(runs, recipe="faithful") else {}
    ours = [f"{count} of 30" for count in counts.values()] or [""] * 5
    yield Finding(
        WU, "table 2: cells that are beaten by a point of our curve", "30 cells", ours[0],
        YES if ours[0] == "30 of 30" else PARTLY, page,
    )  # fmt: skip
    yield Finding(
        WU, "cells beaten by the paper's settings, at the same rho_o", "30 cells", ours[3],
        YES if ours[3] == "30 of 30" else PARTLY, page,
    )  # fmt: skip
    yield Finding(
        WU, "a fair model is worth its accuracy: cells that the constant classifier beats", "-",
        ours[4], "20 Law School cells say nothing" if ours[4] == "20 of 30" else PARTLY, page,
    )  # fmt: skip
    yield Finding(
        WU, "a distance of 0.41 to 1.03 between real and synthetic rows preserves privacy",
        "0.41 to 1.03", "a model of rows drawn at random can tell every member", REFUTED,
        "tests/test_gate.py::test_membership_is_inferred_from_near_copies_and_from_an_overfitted_model",
    )  # fmt: skip


def in_rounds() -> Iterator[Finding]:
    """Rodríguez-Gálvez et al. (2021)."""
    from benchmarks.adult_fpfl.pages import claims
    from benchmarks.femnist_fpfl.pages import CLAIMS, verdict_of

    own = by(committed("adult_fpfl"), lambda row: row)
    for claim in claims(own):
        yield Finding(
            RODRIGUEZ, claim.what, claim.published, claim.found, YES if claim.holds else NO,
            "adult_fpfl/adult_fpfl.md",
        )  # fmt: skip
    if not own:
        yield Finding(
            RODRIGUEZ, "tables 1 and 2, on Adult", "-", "", NO, "adult_fpfl/adult_fpfl.md"
        )
    digits = by(committed("femnist_fpfl"), lambda row: row)
    for what, field, low, high in CLAIMS:
        text, verdict = verdict_of(digits, field, low, high) if digits else ("", "")
        words = {"yes": YES, "undecided": "undecided"}.get(verdict, NO)
        claim = f"unfair FEMNIST, {' '.join(high)} and {' '.join(low)}: {what}"
        yield Finding(RODRIGUEZ, claim, "yes", text, words, "femnist_fpfl/femnist_fpfl.md")
    yield Finding(
        RODRIGUEZ, "noise of C times sigma gives epsilon for cohorts of fixed size",
        "sensitivity C", "2 C: one user replaced by another", REFUTED,
        "tests/test_composition.py::test_a_guarantee_holds_and_its_noise_is_that_of_the_relation",
    )  # fmt: skip


def two_phases() -> Iterator[Finding]:
    """Padala, Damle and Gujar (2021)."""
    runs, page = committed("two_phase"), "two_phase/two_phase.md"
    lost, trend, noise = [], [], []
    for own in by(runs, lambda one: (one.table, one.notion)).values():
        fair = select(own, method="B2")
        at = {e: select(own, method="two_phase", epsilon=e) for e in (1.0, 10.0)}
        if fair and all(at.values()):
            lost.append(means(fair, "accuracy").mean - means(at[10.0], "accuracy").mean)
            trend.append(means(at[10.0], "accuracy").mean - means(at[1.0], "accuracy").mean)
        if (noiseless := select(own, method="noiseless")) and at[10.0]:
            noise.append(means(noiseless, "accuracy").mean - means(at[10.0], "accuracy").mean)
    found = f"{max(lost):.3f} of accuracy below, at most" if lost else ""
    near = bool(lost) and max(lost) <= 0.01
    yield Finding(
        PADALA, "at epsilon = 10 accuracy is similar to fair training without privacy", "similar",
        found, YES if near else NO, page,
    )  # fmt: skip
    found = f"{min(noise):+.3f} to {max(noise):+.3f} of accuracy" if noise else ""
    near = bool(noise) and max(noise) <= 0.005
    yield Finding(
        PADALA, "what its noise costs at epsilon = 10", "hardly anything",
        found, YES if near else NO, page,
    )  # fmt: skip
    found = f"{min(trend):+.3f} to {max(trend):+.3f} from epsilon = 1 to 10" if trend else ""
    rises = bool(trend) and min(trend) > 0.005
    yield Finding(
        PADALA, "accuracy rises with epsilon", "it does", found, YES if rises else NO, page
    )
    yield Finding(
        PADALA, "the epsilon of phase 2 protects the rows", "epsilon",
        "conditional on a teacher that reads them without noise", REFUTED,
        "tests/test_two_phase.py::test_the_accounts_are_of_the_smallest_user_and_of_both_phases_end_to_end",
    )  # fmt: skip


def local_gaps() -> Iterator[Finding]:
    """Juarez and Korolova (2022)."""
    cells = committed("gap", "table1")
    printed = [run for run in cells if np.isfinite(run.setting.printed)]
    same = sum(f"{r.values.published:.2f}" == f"{r.setting.printed:.2f}" for r in printed)
    yield Finding(
        JUAREZ, "table 1, by its own accounting", f"{len(printed)} cells" if printed else "-",
        f"{same} of {len(printed)} to the last digit" if printed else "",
        YES if same == len(printed) else PARTLY, "gap/table1.md",
    )  # fmt: skip
    yield Finding(
        JUAREZ, "theorem 4.1: M_R with epsilon_1 = epsilon_2 = 1 has epsilon 1", "1", "1.38",
        REFUTED, "tests/test_gap_mechanisms.py::test_theorem_4_1_is_caught",
    )  # fmt: skip
    yield Finding(
        JUAREZ, "theorem 4.3: M_L has a finite epsilon whatever k", "finite",
        "infinite but for k = 2", REFUTED,
        "tests/test_gap_mechanisms.py::test_theorem_4_3_is_caught",
    )  # fmt: skip


def private_counts() -> Iterator[Finding]:
    """Pentyala et al. (2022)."""
    from benchmarks.privfairfl.pages import THRESHOLDS, goals

    runs: list[Any] = committed("privfairfl")
    page, found = "privfairfl/privfairfl.md", list(goals(runs))
    for goal in found:
        yield Finding(PENTYALA, goal.what, "yes", goal.found, YES if goal.met else NO, page)
    if not found:
        yield Finding(PENTYALA, "Post lowers gaps; MPC + DP beats local DP", "yes", "", NO, page)
    yield Finding(
        PENTYALA, "Post has the epsilon that is printed", "epsilon",
        f"{THRESHOLDS:,} times epsilon", REFUTED,
        "tests/test_privfairfl.py::test_published_noise_costs_what_its_privacy_loss_says",
    )  # fmt: skip
