"""Rodríguez-Gálvez et al. (2021)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import Run
from benchmarks.papers.finding import (
    NO,
    NOTHING,
    REFUTED,
    UNDECIDABLE,
    Finding,
    Paper,
    above,
    below,
    compared,
    learned,
    verdict_of,
)
from benchmarks.registry import committed
from benchmarks.showing import Mean, by, means, paired

ADULT, FEMNIST = "adult_fpfl/adult_fpfl.md", "femnist_fpfl/femnist_fpfl.md"

WITHIN, GAP_WITHIN, COST = 0.01, 0.02, 0.005
"""Of accuracy and gap with a constraint; of the gap without one; of what MMDM loses in accuracy."""

NEAR = 0.0025
"""Of accuracy without a constraint: as near as figure 2 of Wu, Curtis and Robinson must be."""

Groups = Mapping[Any, Sequence[Run[Any, Any]]]

ADULT_RULE = (
    f"With the published settings. With a constraint, accuracy may be {WITHIN:g} lower than"
    f" published and the gap {WITHIN:g} larger; without one accuracy must be within {NEAR:g} and"
    f" the gap within {GAP_WITHIN:g}, on either side."
)


def adult(own: Groups) -> Iterator[Finding]:
    """Tables 1 and 2, of those rows whose runs are there."""
    from benchmarks.adult_fpfl.pages import COLORS, constant_accuracy, published_rows

    theirs = published_rows()
    for row, values in theirs.items():
        if row in own:
            yield _level(row, values, own[row], constant_accuracy())

    def pairs(low: str, high: str) -> Iterator[tuple[str, Any, Any, dict[str, Mean]]]:
        for model in COLORS:
            at = {row.algorithm: row for row in theirs if row.model == model and row.cohort != 1000}
            both = at[low], at[high]
            if all(row in own for row in both):
                ahead = {
                    row.algorithm: above(means(own[row], "accuracy"), constant_accuracy())
                    for row in both
                }
                yield model, *both, ahead

    for model, low, high, ahead in pairs("MMDM", "SGD"):
        lost = paired(own[low], own[high], "accuracy")
        printed = theirs[high].accuracy - theirs[low].accuracy
        yield compared(
            f"MMDM, {model}: accuracy lost, at most {COST:g}", f"{printed:.3f}",
            lost.text(".3f", error=True), above(lost, COST), ADULT, ahead=ahead,
        )  # fmt: skip
    wider = {"FL+Clip": "clipping makes FL less fair", "PFL": "private FL accentuates unfairness"}
    for name, what in wider.items():
        for model, low, high, ahead in pairs("FL", name):
            more = paired(own[low], own[high], "fnr_gap")
            printed = theirs[high].fnr_gap - theirs[low].fnr_gap
            yield compared(
                f"{what}, {model}: difference of FNR gaps", f"{printed:+.3f}",
                more.text("+.3f", error=True), below(more, 0.0), ADULT, ahead=ahead,
            )  # fmt: skip


def _level(row: Any, theirs: Any, runs: Sequence[Run[Any, Any]], constant: float) -> Finding:
    """Accuracy and gap together; of a model that learned nothing accuracy alone can fail."""
    accuracy, gap = means(runs, "accuracy"), means(runs, "fnr_gap")
    if row.fair:
        right = below(accuracy, theirs.accuracy - WITHIN)
        fair = above(gap, theirs.fnr_gap + WITHIN)
    else:
        right = _off(accuracy, theirs.accuracy, NEAR)
        fair = _off(gap, theirs.fnr_gap, GAP_WITHIN)
    ours = f"{accuracy.text('.4f', error=True)} / {gap.text('.3f', error=True)}"
    if nothing := not learned(above(accuracy, constant)):
        fair, ours = UNDECIDABLE, f"{ours}; {NOTHING}"
    elif not row.fair and accuracy.error and verdict_of(right) == NO:
        off = accuracy.mean - theirs.accuracy
        side = "above" if off > 0 else "below"
        ours += f"; accuracy is {abs(off) / accuracy.error:.0f} standard errors {side}"
    return Finding(
        f"{_name(row)}: accuracy / FNR gap", f"{theirs.accuracy:.3f} / {theirs.fnr_gap:.3f}",
        ours, verdict_of(right, fair), ADULT, unlearned="failure" * nothing,
    )  # fmt: skip


def _off(mean: Mean, printed: float, within: float) -> Mean:
    """By how much a mean is further from a printed number than it may be, on either side."""
    return above(Mean(abs(mean.mean - printed), mean.spread, mean.n), within)


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
    ("private FL accentuates unfairness", "accuracy_gap", ("FL", "K"), ("PFL", "K")),
    ("private FL accentuates unfairness", "accuracy_gap", ("FL", "K"), ("PFL", "100K")),
    ("private FL accentuates unfairness", "accuracy_gap", ("FL", "K"), ("PFL", "1000K")),
    ("noise costs less in a larger population", "accuracy", ("PFL", "K"), ("PFL", "1000K")),
    ("noise costs less there with a constraint, too", "accuracy", ("FPFL", "K"),
     ("FPFL", "1000K")),
    ("the constraint narrows the gap there", "accuracy_gap", ("FPFL", "1000K"),
     ("PFL", "1000K")),
)  # fmt: skip
"""Of table 3: what is lower in the first row than in the second."""

DIGITS_RULE = (
    f"On FEMNIST accuracy may be {WITHIN:g} lower than published; of a model that learned nothing"
    " it can only fail."
)


def femnist(own: Groups) -> Iterator[Finding]:
    """Table 3: orderings, and accuracies."""
    from benchmarks.femnist_fpfl.pages import constant_accuracy, published_rows

    theirs = published_rows()
    ahead = {row: above(means(runs, "accuracy"), constant_accuracy()) for row, runs in own.items()}
    for what, field, *pair in ORDERINGS:
        low, high = (row for key in pair for row in theirs if row == key)
        if low in own and high in own:
            more = paired(own[low], own[high], field)
            printed = getattr(theirs[high], field) - getattr(theirs[low], field)
            yield compared(
                f"unfair FEMNIST: {what} ({' '.join(high)} less {' '.join(low)})",
                f"{printed:+.3f}", more.text("+.3f", error=True), below(more, 0.0), FEMNIST,
                ahead={" ".join(row): ahead[row] for row in (low, high)},
            )  # fmt: skip
    for row, runs in own.items():
        accuracy, printed = means(runs, "accuracy"), theirs[row].accuracy
        lower, nothing = below(accuracy, printed - WITHIN), not learned(ahead[row])
        yield Finding(
            f"unfair FEMNIST: accuracy of {' '.join(row)}", f"{printed:.3f}",
            accuracy.text(".3f", error=True) + f"; {NOTHING}" * nothing,
            verdict_of(lower, *[UNDECIDABLE] * nothing), FEMNIST, unlearned="failure" * nothing,
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
    lambda: f"{ADULT_RULE} {DIGITS_RULE} There are 201 writers here, and 3,383 in the paper.",
)
