"""Juarez and Korolova (2022)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.harness import Run
from benchmarks.papers.finding import (
    NO,
    PARTLY,
    REFUTED,
    YES,
    Finding,
    Paper,
)
from benchmarks.registry import committed
from benchmarks.showing import by, means, published, select

TABLE1, TABLE2 = "gap/table1.md", "gap/table2.md"
FIGURE1, FIGURE2 = "gap/mse.svg", "gap/unbalanced.svg"

CROSSINGS = (0.31, 2.6)
"""Between these epsilons the paper has the smaller error for M_R."""

GapRuns = Sequence[Run[Any, Any]]


def table1(cells: GapRuns) -> Iterator[Finding]:
    """By the paper's own accounting."""
    printed = [run for run in cells if np.isfinite(run.setting.printed)]
    if printed:
        same = sum(f"{r.values.published:.2f}" == f"{r.setting.printed:.2f}" for r in printed)
        ours = f"{same} of {len(printed)} to the last digit"
        yield Finding(
            "table 1, by its own accounting", f"{len(printed)} cells", ours,
            YES if same == len(printed) else PARTLY, TABLE1,
        )  # fmt: skip


def table2(runs: GapRuns) -> Iterator[Finding]:
    """Bounds and errors, by the paper's own accounting."""
    from benchmarks.gap.tables import chebyshev_bound

    own, bounds, errors = by(select(runs, accounting="published"), lambda one: one), [], []
    lines = {
        (line["mechanism"], float(line["epsilon"])): line
        for line in published("juarez_2022_table2")
    }
    for setting, some in own.items():
        line, name = lines[setting[1:]], f"{setting.mechanism} at epsilon = {setting.epsilon:g}"
        off = abs(chebyshev_bound(setting) - float(line["chebyshev_alpha"]))
        bounds.append((name, off < 1.5e-4))
        here, their_error = means(some, "known"), float(line["error_sd"]) / 10**0.5
        error = np.sqrt(here.error**2 + their_error**2) + 1e-4  # the last digit
        errors.append((name, abs(here.mean - float(line["mean_error"])) <= 2 * error))
    if own:
        yield _of_cells("table 2: bounds, to one in the last digit", bounds)
        yield _of_cells("table 2: mean errors, within two standard errors of both", errors)


def _of_cells(claim: str, cells: Sequence[tuple[str, bool]]) -> Finding:
    failed = tuple(name for name, holds in cells if not holds)
    ours = f"{len(cells) - len(failed)} of {len(cells)}"
    verdict = PARTLY if failed else YES
    return Finding(claim, f"{len(cells)} cells", ours, verdict, TABLE2, failed)


def figure1(runs: GapRuns) -> Iterator[Finding]:
    """Where M_R has the smaller error."""
    own = [run for run in runs if run.setting.accounting.startswith("published")]
    if not own:
        return
    found = crossings(own)
    near = len(found) == 2 and np.allclose(found, CROSSINGS, rtol=0.1)
    yield Finding(
        "figure 1: M_R has the smaller largest error from one epsilon to another, M_L outside",
        " to ".join(f"{one:g}" for one in CROSSINGS), " to ".join(f"{one:.2f}" for one in found),
        YES if near else PARTLY if len(found) == 2 else NO, FIGURE1,
    )  # fmt: skip


def crossings(runs: GapRuns) -> list[float]:
    """The epsilons at which the largest errors of the two are equal, on straight lines of logs."""
    randomized, laplace = (
        {run.setting.epsilon: np.log(run.values.largest) for run in select(runs, mechanism=name)}
        for name in ("M_R", "M_L")
    )
    points = [(np.log(one), randomized[one] - laplace[one]) for one in sorted(randomized)]
    return [
        float(np.exp(x - ahead * (then - x) / (later - ahead)))
        for (x, ahead), (then, later) in pairwise(points)
        if ahead * later < 0
    ]


def figure2(runs: GapRuns) -> Iterator[Finding]:
    """Small groups, and groups whose sizes are not known."""
    if not runs:
        return
    at = {tuple(run.setting): run.values for run in runs}
    times = [
        at[name, 2.0, 0.01].known_sizes / at[name, 2.0, 0.5].known_sizes for name in ("M_R", "M_L")
    ]
    yield Finding(
        "figure 2: the error grows rapidly for small groups; 1 % against 50 %, epsilon = 2",
        "rapidly", f"{times[0]:.0f} and {times[1]:.0f} times (M_R, M_L)",
        YES if min(times) > 100 else NO, FIGURE2,
    )  # fmt: skip
    more = [
        values.estimated_sizes / values.known_sizes
        for (_, _, share), values in at.items()
        if share == 0.5
    ]
    yield Finding(
        "figure 2: not to know the sizes of equal groups is insignificant", "insignificant",
        f"{min(more):.1f} to {max(more):.1f} times the error", YES if max(more) < 1.1 else NO,
        FIGURE2,
    )  # fmt: skip


def findings() -> Iterator[Finding]:
    """All."""
    from benchmarks.gap.published import published_randomized

    for find, name in ((table1, "table1"), (table2, "table2"), (figure1, "mse"),
                       (figure2, "unbalanced")):  # fmt: skip
        yield from find(committed("gap", name))
    yield Finding(
        "theorem 4.1: M_R with epsilon_1 = epsilon_2 = 1 has epsilon 1", "1",
        f"{published_randomized(1.0).epsilon:.2f}", REFUTED,
        "tests/test_gap_mechanisms.py::test_theorem_4_1_is_caught",
    )  # fmt: skip
    yield Finding(
        "theorem 4.3: M_L has a finite epsilon whatever k", "finite",
        "infinite but for k = 2", REFUTED,
        "tests/test_gap_mechanisms.py::test_theorem_4_3_is_caught",
    )  # fmt: skip


PAPER = Paper(
    "Juarez and Korolova (2022)",
    TABLE1,
    findings,
    lambda: (
        "Crossings must be within a tenth of the printed ones; more than 100 times is rapid, and"
        " less than a tenth more insignificant. Figure 3, contours over both budgets, and figure 4,"
        " errors over many runs of ten clients, are not drawn here."
    ),
)
