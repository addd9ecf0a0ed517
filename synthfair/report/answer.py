"""Whether a model is fair enough, at what cost, and how sure that is: from its test rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Literal, NamedTuple

from synthfair.fairness.intervals import (
    FEW_ROWS,
    difference,
    missed_gap,
    near_constant,
    rate_interval,
)
from synthfair.fairness.metrics import Metric
from synthfair.report.overview import ACCURACY_GAP, Overview, Summary
from synthfair.run_files import FrontierLine, LabelCounts, MetricsFile

RULE_OF_THUMB = 0.1
"""Gap that counts as fair enough where nobody says another. Documentation of fairness libraries
names it as acceptable (Holistic AI's ``statistical_parity``); it is no law and no theorem."""

Verdict = Literal["yes", "no", "cannot tell", "not measured"]

COMPARED = {
    "spd": "selection rates",
    "equal_opportunity_difference": "true positive rates",
    "equalized_odds_difference": "true or false positive rates",
    ACCURACY_GAP: "accuracies",
}
"""Rates of the groups of which a metric is the difference."""


class Limit(NamedTuple):
    """The gap up to which a model counts as fair enough, and who says so."""

    value: float
    source: str


class Cost(NamedTuple):
    """Accuracy lost by asking for fairness, and what it is compared with."""

    lost: Metric
    than: str


class Answer(NamedTuple):
    """What the report leads with.

    Attributes:
        subject: the runs that are spoken of.
        reference: the same without a penalty, if there are such runs.
        limit: on the gap.
        verdict: whether the whole interval of the gap lies within the limit, or above it, or
            neither; or the gap is undefined.
        gap: its size.
        cost: if it is known.
        sentence: all of it in words.
        notes: what the sentence rests on, and what it leaves open.
    """

    subject: Summary
    reference: Summary | None
    limit: Limit
    verdict: Verdict
    gap: Metric
    cost: Cost | None
    sentence: str
    notes: tuple[str, ...]


def answer(overview: Overview, max_gap: float | None = None) -> Answer:
    """The answer for the first runs of an overview that were asked for fairness, or the first.

    Args:
        overview: runs of one schema and one notion of fairness.
        max_gap: gap that is fair enough; if None, the one that the runs were asked for, and else
            :data:`RULE_OF_THUMB`.
    """
    subject = next((s for s in overview.summaries if s.asked.fairness), overview.summaries[0])
    others = [s for s in overview.summaries if s is not subject]
    reference = next((s for s in others if not s.asked.fairness and s.is_like(subject)), None)
    limit, gap = limit_of(subject, max_gap), subject.gap_size
    found, cost = verdict(gap, limit.value), _cost(subject, reference)
    missed = {
        one.name: missed_gap(one.gap_size, one.wanted)
        for one in overview.summaries
        if one is not subject or one.wanted != limit.value  # which the sentence says
    }
    notes = _notes(subject, overview.gap, limit, cost)
    notes += [f"{name}: {said}." for name, said in missed.items() if said]
    # Where a gap was asked for, the weight that was found may be 0.
    free = subject if all(run.metrics.rho == 0 for run in subject.runs) else reference
    if subject.asked.fairness and free and free.gap_size.value <= limit.value:
        without = interval(free.gap_size)
        notes.append(f"No penalty was needed: without one the gap is {without}.")
    return Answer(
        subject,
        reference,
        limit,
        found,
        gap,
        cost,
        _sentence(subject, overview.gap, limit.value, cost),
        tuple(notes),
    )


def limit_of(subject: Summary, max_gap: float | None) -> Limit:
    """The user's limit, else that of the runs, else the rule of thumb."""
    if max_gap is not None:
        return Limit(max_gap, f"The limit of {max_gap:g} is that of --max-gap.")
    if subject.wanted is not None:
        return Limit(subject.wanted, f"The limit of {subject.wanted:g} is what training aimed at.")
    return Limit(
        RULE_OF_THUMB,
        f"The limit of {RULE_OF_THUMB:g} is a rule of thumb, no law: set your own with --max-gap.",
    )


def verdict(gap: Metric, limit: float) -> Verdict:
    """Whether a gap is within a limit, as far as its interval can tell.

    Example:
        >>> from synthfair.fairness.metrics import Metric
        >>> from synthfair.report.answer import verdict
        >>> verdict(Metric(0.03, 0.0, 0.09), 0.1), verdict(Metric(0.03, 0.0, 0.09), 0.05)
        ('yes', 'cannot tell')
        >>> verdict(Metric(0.2, 0.15, 0.25), 0.1)
        'no'
    """
    if isnan(gap.value) or isnan(gap.low):
        return "not measured"
    if gap.high <= limit:
        return "yes"
    return "no" if gap.low > limit else "cannot tell"


VERDICTS = {
    "yes": "Yes, by this measure.",
    "no": "No.",
    "cannot tell": "Cannot tell from these test rows.",
    "not measured": "Not measured.",
}
"""What the page says of each verdict."""


def without_penalty(lines: Sequence[FrontierLine]) -> FrontierLine | None:
    """The line of a frontier with penalty weight 0, if it was measured on test rows."""
    return next((line for line in lines if line.rho == 0 and not isnan(line.test_accuracy)), None)


def _cost(subject: Summary, reference: Summary | None) -> Cost | None:
    if not subject.asked.fairness:
        return None
    if reference:
        return Cost(difference(reference.accuracy, subject.accuracy), reference.name)
    run = subject.runs[0]
    if len(subject.runs) > 1 or (plain := without_penalty(run.frontier)) is None:
        return None
    accuracy = rate_interval(plain.test_accuracy * run.metrics.n_test, run.metrics.n_test)
    lost = difference(accuracy, subject.accuracy)
    return Cost(lost, "penalty weight 0 in frontier.csv")


def _sentence(subject: Summary, gap: str, limit: float, cost: Cost | None) -> str:
    first, near = subject.runs[0].metrics, near_constant(subject.accuracy, subject.constant)
    end = f". But {near}." if near else "."
    rows = f"{first.n_test:,} test rows"
    if len(subject.runs) > 1:
        rows = f"test rows of {len(subject.runs)} runs"
    accuracy, why = f"accuracy is {interval(subject.accuracy)}", "a group has no row that counts"
    if not subject.labelled:
        accuracy, why = "accuracy is not known without labels", "the rows have no labels"
    if isnan(subject.gap.value):
        return (
            f"On {rows} the difference of the groups' {COMPARED[gap]} is undefined, as {why};"
            f" {accuracy}{_cost_words(subject, cost)}{end}"
        )
    groups = _groups_that_count(first, gap)
    two = len(groups) == 2
    who = f"of {' and '.join(groups)}" if two else f"of {len(groups)} groups"
    upto = "" if two and gap != "equalized_odds_difference" else "up to "
    return (
        f"On {rows} the {COMPARED[gap]} {who} differ by {upto}{interval(subject.gap_size)}, where"
        f" at most {limit:g} is fair enough; {accuracy}{_cost_words(subject, cost)}{end}"
    )


def _cost_words(subject: Summary, cost: Cost | None) -> str:
    if not subject.labelled:
        return ""
    constant = subject.constant
    same = "" if isnan(constant) else f"; one decision for everybody has {constant:.3f}"
    if not subject.asked.fairness:
        return f"; the model was trained without a fairness penalty or constraint{same}"
    if cost is None:
        return f"; what fairness costs is not known{same}"
    lost = cost.lost
    if isnan(lost.low):
        return same
    if abs(lost.value) < 5e-4:  # which would be shown as 0.000
        bounds = f"{lost.low:z.3f} to {lost.high:z.3f}"
        return f", as without a penalty (interval of the difference {bounds}){same}"
    sure = "" if lost.low > 0 or lost.high < 0 else ", so it may be chance"
    value, low, high, word = *lost, "less"
    if value < 0:
        value, low, high, word = -value, -high, -low, "more"
    bounds = f"interval {low:z.3f} to {high:z.3f}{sure}"
    return f", {value:.3f} {word} than without a penalty ({bounds}){same}"


def interval(metric: Metric) -> str:
    """A value and its 95 % interval, in words."""
    if isnan(metric.value):
        return "undefined"
    bounds = (
        "" if isnan(metric.low) else f" (95 % interval {metric.low:z.3f} to {metric.high:z.3f})"
    )
    return f"{metric.value:z.3f}{bounds}"


def _notes(subject: Summary, gap: str, limit: Limit, cost: Cost | None) -> list[str]:
    first = subject.runs[0].metrics
    notes = [limit.source]
    if not subject.labelled:
        notes.append(
            "The test rows have no labels: accuracy, what fairness costs, and differences of true"
            " or false positive rates need them."
        )
    elif subject.asked.fairness and cost is None:
        notes.append(
            "To know the cost, give this report a run without a penalty, too; or let the server"
            " write a --frontier."
        )
    elif cost:
        notes.append(
            f"Without a penalty: {cost.than}. The interval of the difference takes the two as"
            " independent; as they share test rows, it is rather too wide."
        )
    if len(subject.runs) > 1:
        notes.append(
            f"Means over {len(subject.runs)} runs that differ in the seed alone; bounds of"
            " intervals are means of theirs, and hold for one run."
        )
    notes += _small_groups(first, gap)
    notes += _other_views(first, gap)
    if subject.converged is False:
        notes.append("A training did not converge: the numbers may be worse than they could be.")
    notes.append(
        "Intervals say what other test rows from the same source would give, and nothing of other"
        " times or places."
    )
    return notes


def _small_groups(metrics: MetricsFile, gap: str) -> list[str]:
    sizes, notes = _groups_that_count(metrics, gap), []
    if left_out := [name for name in metrics.by_group if name not in sizes]:
        notes.append(
            f"The gap leaves out groups with fewer than {metrics.min_group_rows} test rows that"
            f" count: {', '.join(left_out)}."
        )
    if not sizes:
        return notes
    name = min(sizes, key=lambda group: sizes[group])
    rows = "test rows"
    if metrics.rows is not None and gap not in ("spd", ACCURACY_GAP):
        rows = "test rows that count (of one label)"
    few = f": fewer than {FEW_ROWS} say little" if sizes[name] < FEW_ROWS else ""
    return [*notes, f"The smallest group, {name}, has {sizes[name]:,} {rows}{few}."]


def _groups_that_count(metrics: MetricsFile, gap: str) -> dict[str, int]:
    """Those that a metric compares, and the rows of each among which it does."""
    sizes = {name: int(_counted(metrics, name, gap)) for name in metrics.by_group}
    return {name: n for name, n in sizes.items() if n >= metrics.min_group_rows}


def _counted(metrics: MetricsFile, group: str, gap: str) -> float:
    """Rows of a group among which a metric compares; all where labels were not counted."""
    labels = group_labels(metrics).get(group)
    if labels is None or gap in ("spd", ACCURACY_GAP):
        return metrics.by_group[group].n
    if gap == "equal_opportunity_difference":
        return labels.positive
    return min(labels)


def group_labels(metrics: MetricsFile) -> dict[str, LabelCounts]:
    """Rows of each group by label, over all clients; empty for files that do not have them."""
    if metrics.rows is None:
        return {}
    clients = metrics.rows.values()
    return {
        group: LabelCounts(
            sum(found[group].negative for found in clients),
            sum(found[group].positive for found in clients),
        )
        for group in metrics.by_group
    }


def _other_views(metrics: MetricsFile, gap: str) -> list[str]:
    """The same by other measures, and on single clients' rows."""
    notes, others = [], []
    for name, rates in COMPARED.items():
        if name not in (gap, ACCURACY_GAP) and not isnan(value := getattr(metrics, name).value):
            others.append(f"{rates} by {abs(value):.3f}")
    if others:
        notes.append(f"By other measures the groups differ, too: {'; '.join(others)}.")
    if len(metrics.per_client) > 1 and gap != ACCURACY_GAP:
        sizes = [abs(getattr(part, gap).value) for part in metrics.per_client.values()]
        if known := [one for one in sizes if not isnan(one)]:
            notes.append(
                f"On the test rows of single clients the gap is {min(known):.3f} to"
                f" {max(known):.3f}."
            )
    return notes
