"""The verdict: is a model fair enough, at what cost, how surely; from its test rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

from synthfair.fairness.intervals import (
    MIN_GAIN_SHARE,
    MIN_RATE_ROWS,
    UNDEFINED,
    Verdict,
    difference,
    near_constant,
    ratio_verdict,
    rows_to_settle,
    size,
    verdict,
)
from synthfair.fairness.metrics import Metric, Rates
from synthfair.fairness.target import DEFAULT_FAIR_GAP, Target
from synthfair.metrics_file import METRICS, Evaluation, read_metrics
from synthfair.report.results import ACCURACY_GAP, Overview, Result, Summary, mean_metric, overviews
from synthfair.report.words import render

RATES_OF = {
    "spd": "selection rates",
    "equal_opportunity_difference": "true positive rates",
    "equalized_odds_difference": "true or false positive rates",
    ACCURACY_GAP: "accuracies",
}
"""Rates of the groups of which a metric is the difference."""

_FIELDS = {
    "spd": ("selection_rate",),
    "equal_opportunity_difference": ("true_positive_rate",),
    "equalized_odds_difference": ("true_positive_rate", "false_positive_rate"),
    ACCURACY_GAP: ("error_rate",),
}

Answer = Verdict | Literal["no better", "not usable"]
"""A verdict on the gap; or that the model is no better than one label for all, or no other."""

WORST_FIRST: tuple[Verdict, ...] = "no", "probably not", "not measured", "probably", "yes"
"""Verdicts, of several of which the first counts."""

REFERENCE_METHODS = ("central", "exponentiated_gradient", "local", "constant")
"""Methods that need all rows in one place, or that give no model of all clients."""

MIN_DECIDED_SHARE = 0.01
"""The share of rows below which, or below one minus which, a model decides for hardly anybody
otherwise than for all others."""

MIN_LABEL_ROWS = 3
"""Rows with a label without which a model that never decides so is not blamed for it."""


class Plain(NamedTuple):
    """The same model without a penalty: its accuracy, and the size of its gap."""

    accuracy: Metric
    gap: Metric


def one_label(run: Evaluation) -> str | None:
    """Return how a model decides like one label for everybody, in words; None where it does not.

    It does where it selects fewer than :data:`MIN_DECIDED_SHARE` of the rows, or all but so few, in
    all or in a group of :data:`synthfair.fairness.intervals.MIN_RATE_ROWS` rows or more, and the
    labels themselves are not so.
    """
    groups = {name: rates for name, rates in run.by_group.items() if rates.n}
    for where, names in {"": [*groups], **{f" in {name}": [name] for name in groups}}.items():
        n = sum(groups[name].n for name in names)
        selected = sum(groups[name].n * groups[name].selection_rate for name in names)
        labels = [rows[name] for rows in (run.rows or {}).values() for name in names]
        positive = sum(label.positive for label in labels) if labels else nan
        least = MIN_DECIDED_SHARE * n
        for hits, labelled in ((selected, positive), (n - selected, n - positive)):
            few = hits < least and not labelled < max(least, MIN_LABEL_ROWS)
            if n >= MIN_RATE_ROWS and few:
                counts = f"(selects {selected:.0f} of {n:,})"
                return f"Not usable: it decides like one label for everybody{where} {counts}."
    return None


def sentence(
    metric: str,
    run: Evaluation,
    *,
    means: tuple[Metric, Metric, float, Metric] | None = None,
    target: Target | None = None,
    limit: float | None = None,
    plain: Plain | None = None,
    is_plain: bool = False,
    reads: bool = False,
) -> str:
    """Return whether a model is fair enough and at what cost, in a sentence for terminal and page.

    What is not known is not said. Before all else stands that a model decides like one label for
    everybody; and beside the gap, that it is not clearly more accurate than that.

    Args:
        metric: one of :data:`RATES_OF`.
        run: the evaluation of the model.
        means: size of the gap, accuracy, accuracy of the more frequent label for everybody, and
            ratio of selection rates, over several runs; those of ``run`` by default.
        target: the fairness that was asked for, if any.
        limit: the largest gap that was asked for; None where none was.
        plain: what the same model has without a penalty, where that is known.
        is_plain: whether the model itself was trained without a penalty.
        reads: whether a decision takes the group.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.report.answer import sentence
        >>> table, schema = sf.load_dataset("loanapp")
        >>> surrogate = sf.distill_table(table, schema, sf.SurrogateConfig())
        >>> model = sf.pool_and_train([surrogate], schema)
        >>> sentence("spd", sf.evaluate(model, table), limit=0.05)[:64]
        'Selection rates of other applicants and white applicants differ '
    """
    majority = run.constant_accuracy
    of_run = size(run.overall[metric]), run.accuracy, majority, run.selection_ratio
    gap, accuracy, constant, ratio = means or of_run
    most = DEFAULT_FAIR_GAP if limit is None else limit
    # As few digits as tell the gap from the limit.
    enough = (n for n in (2, 3) if round(most, n) == most and round(gap.value, n) != most)
    values: dict[str, Any] = {"metric": metric, "run": run, "groups": [*compared_rates(run)[0]]}
    values["pair"] = furthest(metric, run)
    values |= {"gap": gap, "accuracy": accuracy, "constant": constant}
    values |= {"target": target, "limit": limit, "most": most, "digits": next(enough, 3)}
    values |= {"plain": plain, "is_plain": is_plain, "reads": reads, "unusable": one_label(run)}
    values |= {"near": near_constant(accuracy, constant), "rates": RATES_OF[metric].capitalize()}
    least = target.min_ratio if target else None
    values |= {"ratio": ratio, "least": least, "ratio_verdict": ratio_verdict(ratio, least or 0.0)}
    at_clients = clients_verdict(run, metric, target.client_gap) if target else None
    values |= {"at_clients": at_clients, "is_sure": verdict(gap, most) in ("yes", "no")}
    values["left_out"] = getattr(run, "left_out", ())
    return " ".join(render("sentence.txt.j2", **values).splitlines())


def run_sentence(folder: Path) -> str:
    """Return the :func:`sentence` on the run whose metrics.json is in a folder."""
    (overview,) = overviews([Result(folder, folder.name, read_metrics(folder / METRICS))])
    return answer(overview).sentence


def compared_rates(run: Evaluation) -> list[dict[str, Rates]]:
    """Return the rates of the groups with enough rows, by each grouping that is compared."""
    least = max(run.min_group_rows, MIN_RATE_ROWS if run.groups_by else 0)
    groupings = [run.groupings[by].rates for by in run.groups_by] or [run.by_group]
    return [{name: of for name, of in rates.items() if of.n >= least} for rates in groupings]


def furthest(metric: str, run: Evaluation) -> tuple[str, ...]:
    """Return the two groups that differ most, the lower rate first; none if that is not known.

    Args:
        metric: one of :data:`RATES_OF`.
        run: the evaluation of a model; of several groupings, groups are those of any.
    """
    first, *rest = groupings = compared_rates(run)
    if len(first) == 2 and not rest:
        return tuple(first)
    found = {}
    for rates, field in ((rates, field) for rates in groupings for field in _FIELDS[metric]):
        of = {name: getattr(each, field) for name, each in rates.items()}
        ranked = sorted((name for name in of if not isnan(of[name])), key=lambda name: of[name])
        if len(ranked) > 1:
            found[ranked[0], ranked[-1]] = of[ranked[-1]] - of[ranked[0]]
    pair = max(found, key=lambda pair: found[pair], default=())
    gap = abs(run.overall[metric].value) if metric in run.overall else found.get(pair)
    return pair if pair and abs(found[pair] - gap) < 1e-6 else ()  # else a label has too few rows


class Advice(NamedTuple):
    """The next step with a model.

    Attributes:
        what: ``use`` it; ask for a smaller ``gap``, one ``at each client``, or a larger ``ratio``;
            collect ``rows``; or ``refuse`` it.
        group: of which rows are needed most, if any are.
        rows: how many more test rows of it are needed; 0 if that is not known.
        of_all: how many of all groups.
        limit: gap or ratio that could be asked for; 0 if that is not known.
    """

    what: Literal["use", "gap", "at each client", "ratio", "rows", "refuse"]
    group: str = ""
    rows: int = 0
    of_all: int = 0
    limit: float = 0.0


def advice(lead: Headline, metric: str, unfair: str | None) -> Advice:
    """Return what to do next, by the verdict of a report.

    Where the gap is above the limit, a gap is proposed that is smaller than what was asked for, and
    than that on the pooled rows, by the same factor. Where test rows cannot tell, up to 100 times
    as many are asked for, or more where the gap is below half of the limit.

    Args:
        lead: the report's answer.
        metric: of the gap.
        unfair: a warning of clients whose gap is above the limit, if any.
    """
    subject, run = lead.subject, lead.subject.runs[0].metrics
    groups = {name: of.n for rates in compared_rates(run) for name, of in rates.items() if of.n}
    few = min(furthest(metric, run) or groups, key=lambda name: groups.get(name, inf), default="")
    if lead.verdict == "not measured":
        small = {name: of.n for name, of in run.by_group.items()}
        few = min(small, key=lambda name: small[name])
        return Advice("rows", few, max(run.min_group_rows, MIN_RATE_ROWS, small[few]) - small[few])
    near = near_constant(subject.accuracy, subject.constant)
    enough = subject.constant + MIN_GAIN_SHARE * (1 - subject.constant)
    if lead.verdict == "not usable" or (
        near and (lead.verdict == "no" or subject.accuracy.high < enough)
    ):
        return Advice("refuse")
    missing = max(MIN_RATE_ROWS - groups.get(few, MIN_RATE_ROWS), 0)
    if near or (missing and lead.verdict in ("probably", "probably not")):
        return Advice("rows", few, missing)
    if lead.verdict == "yes":
        return Advice("at each client" if unfair else "use")
    return _remedy(lead, metric, few, groups.get(few, 0))


def _remedy(lead: Headline, metric: str, few: str, n_few: int) -> Advice:
    """Return what to do about that which was asked for, and is missed or cannot be told."""
    subject, limit = lead.subject, lead.limit
    run, asked = subject.runs[0].metrics, subject.asked
    at_clients = clients_verdict(run, metric, asked.client_gap)
    of_ratio = asked.min_ratio and ratio_verdict(subject.ratio, asked.min_ratio)
    if lead.verdict == "probably" and lead.verdict in (at_clients, of_ratio):
        return Advice("rows", few)
    if lead.verdict == at_clients:
        return Advice("at each client")
    if lead.verdict == of_ratio:
        most = 1 - (asked.min_ratio or 0.0)
        smaller = most * min(most / (1 - subject.ratio.value), 0.8)
        return Advice("ratio", limit=round(1 - float(f"{smaller:.2g}"), 6))
    more, gap = rows_to_settle(subject.gap, limit, run.n_test), subject.gap_size.value
    is_far = gap < limit / 2  # a smaller gap would hardly help
    if lead.verdict == "probably" and more and (is_far or more <= 100 * run.n_test):
        n = more * n_few / run.n_test
        return Advice("rows", few, int(float(f"{n:.1e}")), more)
    least = min(each for each in (limit, asked.max_gap, run.pooled_gap) if each)
    return Advice("gap", limit=float(f"{least * min(limit / gap, 0.8):.2g}"))


class Headline(NamedTuple):
    """The first lines of the report.

    Attributes:
        subject: the runs that are spoken of.
        reference: the same without a penalty, if there are such runs.
        plain: what it has, or what the server's own model without a penalty has, if that is known.
        limit: the gap up to which a model counts as fair enough.
        verdict: whether the gap is within the limit, see :func:`verdict`; or that the model is no
            better than one label for everybody, or not usable.
        cost: accuracy lost by asking for fairness; not-a-number where it is not known.
        sentence: all of it in words, see :func:`sentence`; the subject's name first, of several.
        why: the reason why the subject is the best of several.
    """

    subject: Summary
    reference: Summary | None
    plain: Plain | None
    limit: float
    verdict: Answer
    cost: Metric
    sentence: str
    why: str


def answer(overview: Overview, max_gap: float | None = None) -> Headline:
    """Return the answer for the best runs of an overview.

    Runs that decide like one label for everybody are the last choice. Best are the most accurate of
    those whose gap is surely within the limit (where one was asked for, the ratio of selection
    rates, too); where there are none, of those for which that is probable; else those with the
    smallest gap. :data:`REFERENCE_METHODS` are only compared with.

    Args:
        overview: runs of one schema and one notion of fairness.
        max_gap: gap that is fair enough; if None, the smallest that the runs were asked for, and
            else :data:`DEFAULT_FAIR_GAP`.
    """
    runs = overview.summaries
    rivals = [s for s in runs if s.runs[0].metrics.method not in REFERENCE_METHODS] or runs
    rivals = [s for s in rivals if not one_label(s.runs[0].metrics)] or rivals
    wanted = (s.asked.max_gap for s in rivals if s.asked.max_gap)
    target = min(wanted, default=None) if max_gap is None else max_gap
    limit = DEFAULT_FAIR_GAP if target is None else target
    subject, why = _best(rivals, target)
    first = subject.runs[0].metrics
    rest = [s for s in runs if s is not subject]
    plain = reference = None
    if subject.asked.fairness:
        likes = (s for s in rest if not s.asked.fairness and s.is_like(subject))
        reference = next(likes, None)
        plain = _plain(subject, reference, overview.gap)

    # All of it in a sentence. Where a gap was asked for, the search may end with the weight 0.
    is_free = all(run.metrics.rho == 0 for run in subject.runs)
    near = near_constant(subject.accuracy, subject.constant)
    judgement = judged(subject, target)
    said = sentence(
        overview.gap,
        first,
        means=(subject.gap_size, subject.accuracy, subject.constant, subject.ratio),
        target=subject.asked,
        limit=target,
        plain=plain,
        is_plain=is_free or not subject.asked.fairness,
        reads=subject.runs[0].reads_groups,
    )
    name = f"{subject.name} (best of {len(rivals)})" if len(rivals) > 1 else subject.name
    return Headline(
        subject,
        reference,
        plain,
        limit,
        "no better" if near and judgement in ("yes", "probably") else judgement,
        difference(plain.accuracy, subject.accuracy) if plain else UNDEFINED,
        f"{name}: {said}" if rest else said,
        why if len(rivals) > 1 else "",
    )


def _best(rivals: Sequence[Summary], limit: float | None) -> tuple[Summary, str]:
    """Return the best runs, and why they are."""

    def merit(summary: Summary) -> tuple[float, float, float]:
        """Return how sure it is that the limits are met, and what decides then."""
        sure = {"yes": 2, "probably": 1}.get(judged(summary, limit), 0)
        merits = summary.accuracy.value, -summary.gap_size.value
        accuracy, gap = (-inf if isnan(value) else value for value in merits)
        return sure, accuracy if sure else gap, gap

    best = max(rivals, key=merit)
    sure = merit(best)[0]
    return best, render(
        "best.txt.j2",
        best=best,
        rivals=rivals,
        verdict=judged(best, limit),
        alike=[each for each in rivals if sure and merit(each)[0] == sure],
        others=any(s.asked.min_ratio or s.asked.client_gap for s in rivals),
        limit=limit or DEFAULT_FAIR_GAP,
        differ=len({run.epsilon for s in rivals for run in s.runs}) > 1,
    )


def judged(subject: Summary, limit: float | None) -> Answer:
    """Return whether runs meet a limit of the gap and all else that was asked of them.

    Or that their model is not usable. The worst verdict counts. With no limit at all, the gap is
    judged by :data:`DEFAULT_FAIR_GAP`.
    """
    run, asked = subject.runs[0].metrics, subject.asked
    if one_label(run):
        return "not usable"
    verdicts: list[Verdict] = []
    if asked.min_ratio:
        verdicts.append(ratio_verdict(subject.ratio, asked.min_ratio))
    if at_clients := clients_verdict(run, subject.metric, asked.client_gap):
        verdicts.append(at_clients)
    if limit or not verdicts:
        verdicts.append(verdict(subject.gap_size, limit or DEFAULT_FAIR_GAP))
    return min(verdicts, key=WORST_FIRST.index)


def clients_verdict(run: Evaluation, metric: str, limit: float | None) -> Verdict | None:
    """Return the worst verdict on a client's gap; None without a limit of it."""
    if limit is None:
        return None
    gaps = run.client_gaps.get(metric, {}).values()
    verdicts: list[Verdict] = [verdict(size(gap), limit) for gap in gaps] or ["not measured"]
    return min(verdicts, key=WORST_FIRST.index)


def _plain(subject: Summary, reference: Summary | None, gap: str) -> Plain | None:
    """Return what runs, or the server's own models, have without a penalty."""
    if reference:
        return Plain(reference.accuracy, reference.gap_size)
    parts = [p for run in subject.runs if (p := run.metrics.without_penalty)]
    if not parts:
        return None
    accuracy, mean = (mean_metric(getattr(p, name) for p in parts) for name in ("accuracy", gap))
    return Plain(accuracy, size(mean))
