"""Tables about results: models, methods, pools, decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from rich.console import Group

from synthfair.errors import named
from synthfair.fairness.intervals import UNDEFINED, rate_interval, size, verdict
from synthfair.fairness.metrics import Metric
from synthfair.measure.estimate import MIN_NORMAL_REPORTS
from synthfair.metrics_file import Metrics
from synthfair.report.answer import compared_rates, one_label
from synthfair.report.figures import RATE_NAMES, group_metrics
from synthfair.report.privacy_words import claim, guarantee_facts, origin_facts, release_facts
from synthfair.report.text_table import Table
from synthfair.report.words import render
from synthfair.task.federation_file import CODES, FederationFile

if TYPE_CHECKING:
    from synthfair.compare import Outcome
    from synthfair.fairness.intervals import LabelCounts
    from synthfair.fairness.metrics import Rates
    from synthfair.federated import Training
    from synthfair.measure.aggregate import ReportSums
    from synthfair.measure.collection import Collection
    from synthfair.measure.gaps_file import GapsFile
    from synthfair.metrics_file import Evaluation, Influences, MetricsFile
    from synthfair.postprocess import DecisionChoice, ScoreHistogram
    from synthfair.report.results import Overview
    from synthfair.surrogate.fair import FrontierPoint
    from synthfair.trained import TrainedModel

MAX_SHOWN_RELEASES = 20
"""Releases whose influence is shown on a terminal; metrics.json has all."""

MAX_SHOWN_GAPS = 300
"""Gaps that are shown on a terminal: those of every two of 25 groups."""

MAX_COMPARED = 10
"""Groups in the table below a page's verdict; the run's own table has all."""

METRIC_NAMES = {
    "accuracy": "accuracy",
    "spd": "SPD",
    "selection_ratio": "selection ratio",
    "equal_opportunity_difference": "equal opportunity",
    "equalized_odds_difference": "equalized odds",
    "covariance": "covariance",
    "accuracy_difference": "accuracy difference",
}
"""Names of metrics for people."""


def evaluation_tables(evaluation: Evaluation) -> Group:
    """Return metrics with intervals over all test rows, then their values for each client.

    Of rows without labels, what needs none, and the groups' selection rates.
    """
    unlabelled = ["spd", "selection_ratio", "covariance"]
    names = list(evaluation.overall) if evaluation.labelled else unlabelled
    metrics = {METRIC_NAMES[name]: evaluation.overall[name] for name in names}
    caption = f"{evaluation.n_test} rows; 95 % intervals"
    if not evaluation.labelled:
        caption += "; without labels: accuracy, equal opportunity and equalized odds need them"
        for group, rates in evaluation.by_group.items():
            rate = rate_interval(rates.selection_rate * rates.n, rates.n)
            metrics[f"selection rate, {group}"] = rate
    overall = Table(("all test rows", "value"), list(metrics.items()), caption=caption)
    gaps = [name for name in names if name != "accuracy"]
    groupings = metrics_table("groups by", evaluation.groupings.items(), gaps)
    of_client = [name for name in names if name != "covariance"]  # five columns fit a terminal
    clients = metrics_table("test rows of", evaluation.per_client.items(), of_client, bounds=False)
    return Group(overall, *([groupings] if evaluation.groupings else []), clients)


def metrics_table(
    title: str,
    parts: Iterable[tuple[str, Metrics]],
    names: Iterable[str] = Metrics.model_fields,
    *,
    bounds: bool = True,
) -> Table:
    """Return a table of some metrics, a row for each subset, with intervals if wanted."""
    names = [*names]
    rows = []
    for subset, metrics in parts:
        values = (getattr(metrics, name) for name in names)
        rows.append((subset, *(m if bounds else m.value for m in values)))
    return Table((title, *(METRIC_NAMES[name] for name in names)), rows)


def rates_table(
    rows: Mapping[str, Mapping[str, LabelCounts]] | None, *rates: Mapping[str, Rates]
) -> Table:
    """Return a table of the groups' rates, with intervals where their rows are counted."""
    lines = [
        (group, int(of[group].n), *metrics)
        for of in rates
        for group, metrics in group_metrics(of, rows).items()
    ]
    return Table(("group", "rows", *RATE_NAMES.values()), lines)


def groups_table(run: Evaluation) -> Table:
    """Return a table of how the groups that are compared are treated, in persons per 100.

    Wrongly refused are rows with the positive label that are not selected, of 100 such rows;
    wrongly selected those with the other label that are. Of many groups, those that are selected
    the least and the most.
    """
    of = {name: rates for part in compared_rates(run) for name, rates in part.items()}
    names = sorted(of, key=lambda name: of[name].selection_rate)
    kept = {*names[: MAX_COMPARED // 2], *names[-MAX_COMPARED // 2 :]}
    records = []
    for name, rates in of.items():
        if name in kept:
            shares = {"with the label": rates.label_share, "selected": rates.selection_rate}
            shares["wrongly refused"] = 1 - rates.true_positive_rate
            shares["wrongly selected"] = rates.false_positive_rate
            per_100 = {k: None if math.isnan(p) else 100 * p for k, p in shares.items()}
            records.append({"group": name, "rows": rates.n} | per_100)
    caption = f"The least and the most selected of {len(of)} groups." * (len(kept) < len(of))
    few = max((of[name].selection_rate for name in names), default=0) < 0.1
    return Table.of(records, caption=caption, form=".1f" if few else ".0f")


def parts_table(run: Evaluation, gap: str, of_all: Metric, limit: float) -> Table:
    """Return a table of accuracy and gap over all test rows and at each client, or in each part.

    The intervals of the parts' gaps hold together; a part with too few rows has none.

    Args:
        run: an evaluation.
        gap: the name of the metric.
        of_all: its value over all rows.
        limit: the largest gap that is fair enough.
    """
    gaps = run.client_gaps.get(gap, {})
    rows = [("all together", run.accuracy, of_all, verdict(size(of_all), limit))]
    for part, metrics in run.per_client.items():
        value = getattr(metrics, gap, UNDEFINED).value
        of_part = gaps.get(part, Metric(value, math.nan, math.nan))
        rows.append((part, metrics.accuracy, of_part, verdict(size(of_part), limit)))
    return Table(("test rows of", "accuracy", METRIC_NAMES[gap], f"at most {limit:g}?"), rows)


def guarantees_table(run: MetricsFile) -> Table | None:
    """Return a table of what releases, or a training, guarantee and disclose; None if nothing."""
    facts: dict[str, dict[str, Any]] = {}
    if run.guarantee:
        facts["all users"] = guarantee_facts(run.guarantee)
    elif run.guarantees or (run.method == "single_shot" and not run.counts):
        for name, config in run.config.items():
            facts[name] = release_facts(config, run.guarantees.get(name), name in run.hides_pairs)
    if run.counts:
        facts["counts over all clients"] = origin_facts(run.counts)
    alike: dict[str, list[str]] = {}
    for name, values in facts.items():
        alike.setdefault(str(values), []).append(name)
    rows = [
        (named(names), *row)
        for names in alike.values()
        for row in Table.of_facts(facts[names[0]]).rows
    ]
    return Table(("of", "what", "in words"), rows) if rows else None


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    """Return accuracy and SPD of methods on the same test rows, by weight of the penalty."""
    rows: list[tuple[object, ...]] = []
    for weight, group in groupby(outcomes, key=lambda outcome: outcome.rho_o):
        penalty = f"weight {weight:g}" if weight else "none"
        for outcome in group:
            model = outcome.method + (", NOT CONVERGED" if outcome.converged is False else "")
            overall = outcome.evaluation.overall
            rows.append((model, penalty, overall["accuracy"], overall["spd"]))
        rows.append(())
    evaluation = outcomes[0].evaluation
    rows.append(("majority label for all", "", evaluation.constant_accuracy, 0.0))
    caption = f"{evaluation.n_test} test rows; 95 % intervals."
    return Table(("model", "penalty", "accuracy", "SPD"), rows, caption=caption, form="z.2f")


def overview_records(overview: Overview, limit: float | None = None) -> list[dict[str, object]]:
    """Return records of the runs compared, with their costs, and whether a gap is in the limit."""
    records = []
    for s in overview.summaries:
        record: dict[str, object] = {"method": s.method}
        for name in ("accuracy", overview.gap):
            values = [metric.value for metric in s.metrics(name)]
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            mean = fmean(values)
            record[METRIC_NAMES[name]] = mean if math.isnan(mean) else f"{mean:z.3f}{spread}"
        if limit is not None:
            record[f"at most {limit:g}?"] = (
                "not usable" if one_label(s.runs[0].metrics) else verdict(s.gap_size, limit)
            )
        records.append(record | {"fairness setting": s.setting, "runs": len(s.runs)} | s.effort)
    return records


def overview_tables(overview: Overview) -> Group:
    """Return means over seeds of accuracy and gap of several methods, and what they cost."""
    gap, first = METRIC_NAMES[overview.gap], ("method", "fairness setting")
    captions = {
        ("runs", "accuracy", gap, "converged"): "On test rows; mean and deviation over seeds.",
        ("rounds", "bytes sent", "seconds", "epsilon"): "Sent: by all clients, in all rounds.",
    }
    records, tables = overview_records(overview), []
    for titles, caption in captions.items():
        columns = [{title: record[title] for title in (*first, *titles)} for record in records]
        tables.append(Table.of(columns, caption=caption))
    return Group(*tables)


def influence_table(influences: Influences, signed_by: Mapping[str, str] | None = None) -> Table:
    """Return a table of how far each release moves the model, the furthest first.

    Args:
        influences: by release.
        signed_by: names of clients by release; without them, there is no such column.
    """
    ranked = sorted(influences.releases.items(), key=lambda item: -item[1].scores)
    records = []
    for name, influence in ranked:
        remarks = ["OUTLIER"] * influence.outlier
        remarks += ["alone with a group and label"] * influence.alone
        record = {
            "release": name,
            "signed by": signed_by.get(name, "nobody") if signed_by else None,
            "weight": None if math.isnan(influence.weight) else influence.weight,
            "scores": influence.scores,
            "relative": influence.relative,
            "SPD": influence.spd,
            "remarks": tuple(remarks),
        }
        records.append(record)
    is_weighed = not all(math.isnan(influence.weight) for _, influence in ranked)
    caption = render("influence_caption.txt.j2", is_weighed=is_weighed)
    return Table.of(records, caption=caption, max_rows=MAX_SHOWN_RELEASES)


def influence_summary(influences: Influences) -> Table | str:
    """Return one line where nothing is wrong with any release; else the table."""
    from synthfair.server.trust import MIN_TRUST  # SciPy takes a while

    moved = influences.releases.values()
    if any(each.outlier or each.alone or each.weight < MIN_TRUST for each in moved):
        return influence_table(influences)
    return render("influence.txt.j2", influences=influences)


def outlier_warning(influences: Influences) -> str | None:
    """Return a warning of releases that move the model much further than the others."""
    outliers = [name for name, influence in influences.releases.items() if influence.outlier]
    return render("outliers.txt.j2", outliers=outliers, named=named) or None


def pooled_summary(point: FrontierPoint) -> str:
    """Return one line on the model of surrogates on the pooled rows."""
    return render("pooled.txt.j2", point=point)


def training_table(training: Training, *, private: bool) -> Table:
    """Return a table of a training's cost and guarantee; nothing unless it is private."""
    cost = training.cost
    facts: dict[str, object] = {"users": cost.users, "rounds": cost.rounds}
    facts["sent"] = f"{cost.bytes_sent:,} bytes by all users together"
    if private and training.counts and (origin := training.counts.origin):
        facts["counts"] = [f"by themselves {claim(g)}" for g in origin.guarantees if g]
    if private and training.guarantee:
        return Table.of_facts(facts | guarantee_facts(training.guarantee))
    return Table.of_facts(facts | {"privacy": "none: no epsilon is guaranteed"})


def federation_table(federation: FederationFile) -> Table:
    """Return a table of the sites' answers, with the meanings of their codes."""
    records = [{"site": name, **site.model_dump()} for name, site in federation.sites.items()]
    codes = {site.code for site in federation.sites.values()}
    caption = "\n".join(f"{code}: {words}" for code, words in CODES.items() if code in codes)
    return Table.of(records, title=f"job {federation.job}", caption=caption)


def decision_tables(choice: DecisionChoice, histogram: ScoreHistogram) -> Group:
    """Return tables of the choice for each group, and of its estimated effect."""
    decision, rules = choice.decision, []
    for group, steps in zip(histogram.groups, decision.steps, strict=True):
        # Scores as probabilities sigma(z), at whose edges bins begin.
        rule = (f"{chance:.4g} from {bin_ / decision.n_bins:.4g}" for bin_, chance in steps)
        rules.append((group, ", ".join(rule) or "0 everywhere"))
    estimates = {
        "accuracy": choice.accuracy,
        "gap": choice.gap,
        "accuracy of one decision for everybody": choice.constant_accuracy,
    }
    caption = (
        "± noise: standard error by the counts' noise. The best on this histogram was chosen:"
        " expect a little less of new rows, and less again if the model was trained on the rows"
        " counted."
    )
    title = f"{decision.notion}, alpha = {decision.alpha:g}"
    return Group(
        Table(("group", "probability of the decision +1"), rules, title=title),
        Table(
            ("estimated on the histogram", "value", "± noise"),
            [(name, share.value, share.error) for name, share in estimates.items()],
            caption=caption,
            form=".4f",
        ),
    )


def untrained_warning(model: TrainedModel) -> str | None:
    """Return a warning of a model whose training missed its tolerance."""
    if model.converged is not False:
        return None
    norm = "" if model.gradient_norm is None else f"; gradient norm {model.gradient_norm:.1e}"
    return f"the model's training did not converge{norm}"


def alpha_warning(choice: DecisionChoice) -> str | None:
    """Return a warning where the estimated gap is above alpha by more than noise explains."""
    return render("alpha.txt.j2", choice=choice) or None


def gap_table(document: GapsFile) -> Table:
    """Return a table of the gaps of a gaps.json."""
    rows = []
    for gap in document.gaps:
        rate = f"{gap.rate.replace('_', ' ')}s: " if gap.rate else ""
        rows.append((f"{rate}{gap.second} - {gap.first}", Metric(gap.value, gap.low, gap.high)))
    count = f"{len(document.sites)} sites" if document.sites else f"{document.reports:,} reports"
    caption = (
        f"{count}, epsilon = {document.epsilon:.4g} each; second minus first;"
        f" {100 * document.confidence:g} % intervals, each by itself"
    )
    columns = ("gap", "value")
    return Table(columns, rows, caption=caption, form="z.4f", max_rows=MAX_SHOWN_GAPS)


def estimate_tables(document: GapsFile) -> Group:
    """Return a table of the groups, then of the gaps, of the result of ``gap aggregate``."""
    groups = [
        (group.name, group.share, group.error, Metric(group.mean, group.low, group.high))
        for group in document.groups
    ]
    n_rejected, titles = sum(document.rejected.values()), ("group", "share", "± error", "mean")
    caption = f"{document.reports:,} reports accepted; {n_rejected:,} rejected"
    return Group(Table(titles, groups, caption=caption, form="z.4f"), gap_table(document))


def rejected_warnings(sums: ReportSums, collection: Collection) -> list[str]:
    """Return warnings about rejected reports, small groups, and reports counted twice."""
    values = {"sums": sums, "collection": collection, "enough": MIN_NORMAL_REPORTS}
    return render("rejected_reports.txt.j2", **values).splitlines()
