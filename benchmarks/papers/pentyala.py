"""Pentyala et al. (2022): its claims about table 3, at epsilon = 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness import Run
from benchmarks.papers.finding import NO, REFUTED, Finding, Paper, above, below, verdict_of
from benchmarks.registry import committed
from benchmarks.showing import Mean, by, paired, published, select

PAGE = "privfairfl/privfairfl.md"
LITTLE = 0.01
"""Of accuracy: what counts as little cost."""

FairRuns = Sequence[Run[Any, Any]]

NOTE = (
    "As in the paper's table 3, training is FL-DP-SGD and epsilon = 1; local DP is noise on each"
    " client's counts. Differences are over the seeds that both have. The paper's are of ADS16 and"
    f" MovieLens 1M. Little cost is at most {LITTLE:g} of accuracy."
)


def comparison(runs: FairRuns) -> Iterator[Finding]:
    """Post against no mitigation, and Pre by secure sums against local privacy, table by table."""
    for name, own in by(runs, lambda one: one.table).items():
        trained = select(own, training="FL-DP-SGD")
        plain = select(trained, fairness="none")
        post = select(trained, fairness="thresholds", privacy="MPC+DP", epsilon=1.0)
        weighted = select(trained, fairness="published", epsilon=1.0)
        pre, local = (select(weighted, privacy=one) for one in ("MPC+DP", "local noise"))
        place = name.replace("_", " ")
        if plain and post:
            lower = paired(post, plain, "eodd")
            yield _finding(f"{place}: Post lowers ΔEODD", "Post", "delta_eodd", lower)
            lost = paired(post, plain, "accuracy")
            yield _finding(f"{place}: Post costs little accuracy", "Post", "accuracy", lost, LITTLE)
        if pre and local:
            lower = paired(pre, local, "eodd")
            yield _finding(
                f"{place}: Pre has a lower ΔEODD by MPC+DP than by local DP", "Pre", "delta_eodd",
                lower,
            )  # fmt: skip
            lost = paired(pre, local, "accuracy")
            yield _finding(
                f"{place}: Pre is more accurate by MPC+DP than by local DP; accuracy lost", "Pre",
                "accuracy", lost, 0.0,
            )  # fmt: skip


def _finding(claim: str, kind: str, column: str, less: Mean, most: float | None = None) -> Finding:
    """By how much ours is less: more than 0 or, where that is a loss, at most a limit."""
    verdict = verdict_of(below(less, 0.0) if most is None else above(less, most))
    theirs = ", ".join(f"{one:+.4f}" for one in _printed(kind, column))
    return Finding(claim, theirs, less.text("+.4f", error=True), verdict, PAGE)


def _printed(kind: str, column: str) -> list[float]:
    """By how much it is less in table 3, in both its tables."""
    lines = {
        (line["dataset"], line["method"], line["fairness"]): float(line[column])
        for line in published("pentyala_2022_table3")
    }
    other = {"Post": "-", "Pre": "Pre"}[kind]
    return [
        lines[name, "FL-DP-SGD", other] - lines[name, "PrivFairFL", kind]
        for name in ("ADS", "ML-1M")
    ]


def findings() -> Iterator[Finding]:
    """All."""
    from benchmarks.privfairfl.pages import THRESHOLDS

    found = list(comparison(committed("privfairfl")))
    yield from found or [Finding("table 3, at epsilon = 1", "-", "", NO, PAGE)]
    yield Finding(
        "Post has the epsilon that is printed", "epsilon",
        f"{THRESHOLDS:,} times epsilon", REFUTED,
        "tests/test_privfairfl.py::test_published_noise_costs_what_its_privacy_loss_says",
    )  # fmt: skip


PAPER = Paper("Pentyala et al. (2022)", PAGE, findings, lambda: NOTE)
