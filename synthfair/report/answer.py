"""Whether a model is fair enough, at what cost, and how sure that is: from its test rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

from synthfair.config.target import RULE_OF_THUMB
from synthfair.fairness.intervals import (
    FEW_ROWS,
    Verdict,
    difference,
    missed_gap,
    near_constant,
    rate_interval,
    unfair_clients,
    verdict,
)
from synthfair.fairness.metrics import Metric
from synthfair.report.overview import ACCURACY_GAP, Overview, Summary
from synthfair.run_files import FrontierLine

COMPARED = {
    "spd": "selection rates",
    "equal_opportunity_difference": "true positive rates",
    "equalized_odds_difference": "true or false positive rates",
    ACCURACY_GAP: "accuracies",
}
"""Rates of the groups of which a metric is the difference."""


class Headline(NamedTuple):
    """The first lines of the report.

    Attributes:
        subject: the runs that are spoken of.
        reference: the same without a penalty, if there are such runs.
        limit: the gap up to which a model counts as fair enough.
        verdict: whether the whole interval of the gap lies within the limit, or above it, or
            neither; or the gap is undefined.
        gap: its size.
        cost: accuracy lost by asking for fairness, if it is known.
        sentence: all of it in words.
        notes: what the sentence rests on, and what it leaves open.
    """

    subject: Summary
    reference: Summary | None
    limit: float
    verdict: Verdict
    gap: Metric
    cost: Metric | None
    sentence: str
    notes: tuple[str, ...]


def answer(overview: Overview, max_gap: float | None = None) -> Headline:
    """The answer for the first runs of an overview that were asked for fairness, or the first.

    Args:
        overview: runs of one schema and one notion of fairness.
        max_gap: gap that is fair enough; if None, the one that the runs were asked for, and else
            :data:`RULE_OF_THUMB`.
    """
    subject = next((s for s in overview.summaries if s.asked.fairness), overview.summaries[0])
    others = [s for s in overview.summaries if s is not subject]
    reference = next((s for s in others if not s.asked.fairness and s.is_like(subject)), None)
    if max_gap is not None:
        limit, source = max_gap, "is that of --max-gap"
    elif subject.wanted is not None:
        limit, source = subject.wanted, "is what training aimed at"
    else:
        limit, source = RULE_OF_THUMB, "is a rule of thumb, no law: set your own with --max-gap"
    notes = [f"The limit of {limit:g} {source}."]

    # What fairness costs is known from runs without a penalty, or from a frontier with weight 0.
    first, baseline = subject.runs[0], None
    plain = without_penalty(first.frontier) if len(subject.runs) == 1 else None
    if reference:
        baseline = reference.accuracy, reference.name
    elif plain:
        rows = first.metrics.n_test
        accuracy = rate_interval(plain.test_accuracy * rows, rows)
        baseline = accuracy, "penalty weight 0 in frontier.csv"
    cost = None
    if subject.asked.fairness and baseline:
        cost = difference(baseline[0], subject.accuracy)
        notes.append(
            f"Without a penalty: {baseline[1]}. The interval of the difference takes the two as"
            " independent; as they share test rows, it is rather too wide."
        )
    elif subject.asked.fairness:
        notes.append(
            "To know the cost, give this report a run without a penalty, too; or let the server"
            " write a --frontier."
        )
    notes += _notes(subject, overview.gap)
    of_client = subject.asked.client_limit if max_gap is None else max_gap
    notes += _client_notes(subject, overview.gap, of_client)
    for one in overview.summaries:
        excess = missed_gap(one.gap_size, one.wanted)
        if excess and (one is not subject or one.wanted != limit):  # which the sentence says
            notes.append(f"{one.name}: {excess}.")
    # Where a gap was asked for, the weight at the end of the search may be 0.
    free = subject if all(run.metrics.rho == 0 for run in subject.runs) else reference
    if subject.asked.fairness and free and free.gap_size.value <= limit:
        without = in_words(free.gap_size)
        notes.append(f"No penalty was needed: without one the gap is {without}.")
    return Headline(
        subject,
        reference,
        limit,
        verdict(subject.gap_size, limit),
        subject.gap_size,
        cost,
        _sentence(subject, overview.gap, limit, cost),
        tuple(notes),
    )


def _notes(subject: Summary, gap: str) -> list[str]:
    """Notes on what the numbers rest on, and on what they leave open."""
    first, runs, notes = subject.runs[0].metrics, len(subject.runs), []
    if isnan(subject.accuracy.value):
        notes.append(
            "The test rows have no labels: accuracy, what fairness costs, and differences of true"
            " or false positive rates need them."
        )
    if runs > 1:
        notes.append(
            f"Means over {runs} runs that differ in the seed alone; bounds of intervals are means"
            " of theirs, and hold for one run."
        )
    if first.small_groups:
        sizes = (f"{name} ({n.n} rows)" for name, n in first.small_groups.items())
        notes.append(f"Groups with few test rows, in all or of a label: {', '.join(sizes)}.")
    if least := first.min_group_rows:
        notes.append(f"The gap leaves out groups with fewer than {least} test rows that count.")
    others = (name for name in COMPARED if name not in (gap, ACCURACY_GAP))
    gaps = {COMPARED[name]: abs(getattr(first, name).value) for name in others}
    if views := [f"{rates} by {value:.3f}" for rates, value in gaps.items() if not isnan(value)]:
        notes.append(f"By other measures the groups differ, too: {'; '.join(views)}.")
    if subject.converged is False:
        notes.append("A training did not converge: the numbers may be worse than they could be.")
    notes.append(
        "Intervals say what other test rows from the same source would give, and nothing of other"
        " times or places."
    )
    return notes


def _client_notes(subject: Summary, gap: str, limit: float) -> list[str]:
    """A note on the gap at each client of a single run."""
    gaps = subject.runs[0].metrics.client_gaps.get(gap, {})
    if len(gaps) < 2 or len(subject.runs) > 1:
        return []
    if unfair := unfair_clients(subject.gap, gaps, limit):
        return [f"{unfair[0].upper()}{unfair[1:]}."]
    return [
        f"At none of {len(gaps)} clients with enough test rows is the gap above {limit:g}, by"
        " intervals that hold together."
    ]


def without_penalty(lines: Sequence[FrontierLine]) -> FrontierLine | None:
    """The line of a frontier with penalty weight 0, if it was measured on test rows."""
    return next((line for line in lines if line.rho == 0 and not isnan(line.test_accuracy)), None)


def in_words(metric: Metric) -> str:
    """A value and its 95 % interval, in words."""
    if isnan(metric.value):
        return "undefined"
    bounds = f" (95 % interval {metric.low:z.3f} to {metric.high:z.3f})"
    return f"{metric.value:z.3f}{'' if isnan(metric.low) else bounds}"


def _sentence(subject: Summary, gap: str, limit: float, cost: Metric | None) -> str:
    """A sentence on the gap, the accuracy, and what fairness costs."""
    first, runs = subject.runs[0].metrics, len(subject.runs)
    rows = f"On test rows of {runs} runs" if runs > 1 else f"On {first.n_test:,} test rows"
    parts = [first.groupings[name].rates for name in first.groups_by] or [first.by_group]
    least = max(first.min_group_rows, FEW_ROWS if first.groups_by else 0)
    groups = [name for name, rates in parts[0].items() if rates.n >= least]
    two = len(groups) == 2 and len(parts) == 1
    names = " and ".join(groups) if two else f"{len(groups)} groups"
    if first.groups_by:
        names = names if two else f"groups by {', and by '.join(first.groups_by)}"
    most = "" if two and gap != "equalized_odds_difference" else "up to "
    what = (
        f"the {COMPARED[gap]} of {names} differ by {most}{in_words(subject.gap_size)}, where at"
        f" most {limit:g} is fair enough"
    )
    labelled = not isnan(subject.accuracy.value)
    if isnan(subject.gap.value):
        cause = "a group has no row that counts" if labelled else "the rows have no labels"
        what = f"the difference of the groups' {COMPARED[gap]} is undefined, as {cause}"
    if not labelled:
        return f"{rows} {what}; accuracy is not known without labels."
    if not subject.asked.fairness:
        price = "the model was trained without a fairness penalty or constraint"
    elif cost is None:
        price = "what fairness costs is not known"
    else:
        chance = ", so it may be chance" if cost.low <= 0 <= cost.high else ""
        price = f"fairness costs {in_words(cost)}{chance}"
    constant = subject.constant
    same = "" if isnan(constant) else f"; one decision for everybody has {constant:.3f}"
    near = near_constant(subject.accuracy, constant)
    accuracy = f"accuracy is {in_words(subject.accuracy)}; {price}{same}."
    return f"{rows} {what}; {accuracy}" + (f" But {near}." if near else "")
