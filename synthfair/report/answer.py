"""Whether a model is fair enough, at what cost, and how sure that is: from its test rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from synthfair.config import ServerConfig
from synthfair.config.target import RULE_OF_THUMB
from synthfair.evaluation import Evaluation
from synthfair.fairness.intervals import (
    FEW_ROWS,
    Verdict,
    difference,
    missed_gap,
    near_constant,
    size,
    unfair_clients,
    verdict,
)
from synthfair.fairness.metrics import METRIC_OF, Metric
from synthfair.report.overview import ACCURACY_GAP, Overview, Summary, overviews
from synthfair.report.results import METRICS, Result, read_metrics

COMPARED = {
    "spd": "selection rates",
    "equal_opportunity_difference": "true positive rates",
    "equalized_odds_difference": "true or false positive rates",
    ACCURACY_GAP: "accuracies",
}
"""Rates of the groups of which a metric is the difference."""


class Plain(NamedTuple):
    """The same model without a penalty: its accuracy, and the size of its gap."""

    accuracy: Metric
    gap: Metric


def sentence(
    metric: str,
    gap: Metric,
    accuracy: Metric,
    *,
    groups: Sequence[str],
    by: Sequence[str] = (),
    limit: float | None = None,
    other_limit: str | None = None,
    plain: Plain | None = None,
    is_plain: bool = False,
    constant: float = nan,
) -> str:
    """Whether a model is fair enough and at what cost, in a sentence for terminal and page.

    What is not known is not said.

    Args:
        metric: one of :data:`COMPARED`.
        gap: its size, with the interval.
        accuracy: not-a-number where the test rows have no labels.
        groups: names of those that are compared.
        by: sensitive attributes, where there are several.
        limit: the largest gap that was asked for; None where none was.
        other_limit: what was asked for in its place, in words.
        plain: what the same model has without a penalty, where that is known.
        is_plain: whether the model itself was trained without a penalty.
        constant: accuracy of the more frequent label for everybody.

    Example:
        >>> from synthfair.fairness.metrics import Metric
        >>> from synthfair.report.answer import sentence
        >>> gap, accuracy = Metric(0.03, 0.0, 0.07), Metric(0.91, 0.89, 0.93)
        >>> sentence("spd", gap, accuracy, groups=["women", "men"], limit=0.05)[:63]
        'Selection rates of women and men differ by 0.03 (95 %: 0.00 to '
    """
    two = len(groups) == 2 and len(by) < 2
    names = f"groups by {', and by '.join(by)}" if by else f"{len(groups)} groups"
    names = "the groups" if len(groups) < 2 else names
    rates = COMPARED[metric].capitalize()
    compared = f"{rates} of {' and '.join(groups) if two else names}"
    if isnan(gap.value):
        no_labels = isnan(accuracy.value) and metric != "spd"
        cause = "there are no labels" if no_labels else "too few groups have rows that count"
        asked = "" if limit is None else f"; at most {limit:g} was asked"
        parts = [f"{compared} cannot be compared: {cause}{asked}."]
    else:
        most = limit if limit is not None else RULE_OF_THUMB
        # As few digits as tell the gap from the limit.
        enough = (n for n in (2, 3) if round(most, n) == most and round(gap.value, n) != most)
        digits = next(enough, 3)
        bounds = "" if isnan(gap.low) else f" (95 %: {gap.low:.{digits}f} to {gap.high:.{digits}f})"
        up_to = "" if two and metric != "equalized_odds_difference" else "up to "
        is_sure = verdict(gap, most) in ("yes", "no")
        met = ("" if is_sure else "probably ") + ("met" if gap.value <= most else "missed")
        asked = f"; at most {most:g} was asked: {met}"
        if limit is None:
            said = other_limit or "no limit was asked"
            asked = f"; {said}, and the rule of thumb of at most {most:g} is {met}"
        parts = [f"{compared} differ by {up_to}{gap.value:.{digits}f}{bounds}{asked}."]
        if is_plain:
            needless = limit is not None and gap.value <= limit
            trained = "The model was trained without a penalty."
            parts.append("No penalty was needed." if needless else trained)
        elif plain and not isnan(plain.gap.value):
            parts.append(f"Without a penalty {plain.gap.value:.{digits}f}.")
    if isnan(accuracy.value):
        return " ".join([*parts, "Accuracy is not known without labels."])
    without = f", {plain.accuracy.value:.2f} without" if plain and not is_plain else ""
    majority = "" if isnan(constant) else f"; the majority label for all has {constant:.2f}"
    return " ".join([*parts, f"Accuracy {accuracy.value:.2f}{without}{majority}."])


def run_sentence(folder: Path) -> str:
    """The :func:`sentence` on the run whose metrics.json is in a folder."""
    (overview,) = overviews([Result(folder, folder.name, read_metrics(folder / METRICS), {})])
    return answer(overview).sentence


def evaluation_sentence(evaluation: Evaluation, config: ServerConfig) -> str:
    """The :func:`sentence` on a model of which nothing but an evaluation is known."""
    parts, metric = evaluation.groupings, METRIC_OF[config.notion]
    by = tuple(config.groups_by or [*parts][-1:]) if parts else ()
    least = max(config.min_group_rows, FEW_ROWS if by else 0)
    rates = dict(zip(evaluation.group_names, evaluation.by_group, strict=True))
    rates = parts[by[0]].rates if by else rates
    return sentence(
        metric,
        size(evaluation.overall[metric]),
        evaluation.overall["accuracy"],
        groups=[name for name, of in rates.items() if of.n >= least],
        by=by,
        limit=config.max_gap,
        other_limit=config.asked.other_limit,
        constant=evaluation.constant_accuracy,
    )


class Headline(NamedTuple):
    """The first lines of the report.

    Attributes:
        subject: the runs that are spoken of.
        reference: the same without a penalty, if there are such runs.
        plain: what it has, or what the server's own model without a penalty has, if that is known.
        limit: the gap up to which a model counts as fair enough.
        verdict: whether the whole interval of the gap lies within the limit, or above it, or
            neither; or the gap is undefined.
        cost: accuracy lost by asking for fairness, if it is known.
        sentence: all of it in words, see :func:`sentence`; the subject's name first, of several.
        notes: what the sentence rests on, and what it leaves open.
    """

    subject: Summary
    reference: Summary | None
    plain: Plain | None
    limit: float
    verdict: Verdict
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

    cost, plain = None, _plain(subject, reference, overview.gap)
    if subject.asked.fairness and plain and not isnan(plain.accuracy.value):
        cost = difference(plain.accuracy, subject.accuracy)
        chance = ", so it may be chance" if cost.low <= 0 <= cost.high else ""
        source = reference.name if reference else "the server's other model of the same releases"
        notes.append(
            f"Fairness costs {in_words(cost)} of accuracy{chance}. Without a penalty: {source}. The"
            " interval takes the two as independent; as they share test rows, it is rather too"
            " wide."
        )
    elif subject.asked.fairness:
        notes.append("To know what fairness costs, give this report a run without a penalty, too.")
    if near := near_constant(subject.accuracy, subject.constant):
        notes.append(f"{near[0].upper()}{near[1:]}.")
    notes += _notes(subject, overview.gap)
    of_client = subject.asked.client_limit if max_gap is None else max_gap
    notes += _client_notes(subject, overview.gap, of_client)
    for one in overview.summaries:
        excess = missed_gap(one.gap_size, one.wanted)
        if excess and (one is not subject or one.wanted != limit):  # which the sentence says
            notes.append(f"{one.name}: {excess}.")
    # Where a gap was asked for, the weight at the end of the search may be 0.
    is_free = all(run.metrics.rho == 0 for run in subject.runs)
    first = subject.runs[0].metrics
    by, least = first.groups_by, max(first.min_group_rows, FEW_ROWS if first.groups_by else 0)
    rates = first.groupings[by[0]].rates if by else first.by_group
    said = sentence(
        overview.gap,
        subject.gap_size,
        subject.accuracy,
        groups=[name for name, of in rates.items() if of.n >= least],
        by=by,
        limit=subject.wanted if max_gap is None else max_gap,
        other_limit=subject.asked.other_limit,
        plain=plain if subject.asked.fairness else None,
        is_plain=is_free or not subject.asked.fairness,
        constant=subject.constant,
    )
    return Headline(
        subject,
        reference,
        plain,
        limit,
        verdict(subject.gap_size, limit),
        cost,
        f"{subject.name}: {said}" if others else said,
        tuple(notes),
    )


def _plain(subject: Summary, reference: Summary | None, gap: str) -> Plain | None:
    """What runs without a penalty have, or what the server's own models without one have."""
    if reference:
        return Plain(reference.accuracy, reference.gap_size)
    parts = [p for run in subject.runs if (p := run.metrics.without_penalty)]
    if not parts or not subject.asked.fairness:
        return None
    metrics = ([getattr(part, name) for part in parts] for name in ("accuracy", gap))
    accuracy, mean = (Metric(*map(fmean, zip(*of, strict=True))) for of in metrics)
    return Plain(accuracy, size(mean))


def _notes(subject: Summary, gap: str) -> list[str]:
    """Notes on what the numbers rest on, and on what they leave open."""
    first, runs, notes = subject.runs[0].metrics, len(subject.runs), []
    if isnan(subject.accuracy.value):
        notes.append(
            "The test rows have no labels: accuracy, what fairness costs, and differences of true"
            " or false positive rates need them."
        )
    if runs == 1:
        notes.append(f"Measured on {first.n_test:,} test rows.")
    else:
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


def in_words(metric: Metric) -> str:
    """A value and its 95 % interval, in words."""
    if isnan(metric.value):
        return "undefined"
    bounds = f" (95 % interval {metric.low:z.3f} to {metric.high:z.3f})"
    return f"{metric.value:z.3f}{'' if isnan(metric.low) else bounds}"
