"""Results as tables and warnings on a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, Group, RenderableType

from synthfair.fairness.intervals import rate_interval
from synthfair.report.releases import statement_lines
from synthfair.report.result_table import ResultTable

if TYPE_CHECKING:
    from synthfair.client import Distillation, Receipt, SurrogateRelease
    from synthfair.compare import Outcome
    from synthfair.data.schema import Schema
    from synthfair.evaluation import Evaluation
    from synthfair.fairness.metrics import Metric
    from synthfair.federated import Training
    from synthfair.federation_file import FederationFile
    from synthfair.report.overview import Effort, Overview
    from synthfair.run_files import Influences
    from synthfair.surrogate.frontier import FrontierPoint
    from synthfair.trained import TrainedModel

SLACK = 0.005
"""By which a gap may rise, or an accuracy fall, without a warning."""

MOST_RELEASES = 20
"""Releases whose influence is shown; metrics.json has all."""

MOST_GROUPS = 6
"""Whose rates are shown there."""

_SHORT_TITLES = {
    "accuracy": "accuracy",
    "spd": "SPD",
    "equal_opportunity_difference": "equal opportunity",
    "equalized_odds_difference": "equalized odds",
    "covariance": "covariance",
    "accuracy_difference": "accuracy difference",
}

_WITHOUT_LABELS = ("spd", "covariance")
"""Metrics that compare decisions of groups with each other alone."""


def evaluation_tables(evaluation: Evaluation, schema: Schema) -> Group:
    """Metrics with intervals over all test rows, then their values for each client.

    Of rows without labels, what needs none, and the groups' selection rates.
    """
    names = [name for name in evaluation.overall if evaluation.labelled or name in _WITHOUT_LABELS]
    overall = ResultTable("all test rows", "value", "95 % interval")
    for name in names:
        metric = evaluation.overall[name]
        overall.add_row(_SHORT_TITLES[name], _value(metric), _bounds(metric))
    overall.caption = f"{evaluation.n_test} rows"
    if not evaluation.labelled:
        overall.caption += (
            f", without labels: accuracy, equal opportunity and equalized odds need the column"
            f" {schema.label!r}"
        )
        for group, rates in zip(schema.groups, evaluation.by_group, strict=True):
            metric = rate_interval(rates.selection_rate * rates.n, rates.n)
            title = f"selection rate, {schema.sensitive}={group}"
            overall.add_row(title, _value(metric), _bounds(metric))
    clients = ResultTable("test rows of", *(_SHORT_TITLES[name] for name in names))
    for client, part in evaluation.per_client.items():
        clients.add_row(client, *(_value(part[name]) for name in names))
    return Group(overall, clients)


def influence_table(influences: Influences) -> ResultTable:
    """How far each release moves the model; of many, the furthest."""
    ranked = sorted(influences.releases.items(), key=lambda item: -item[1].scores)
    remarks = any(not one.converged or one.outlier or one.alone for _, one in ranked)
    titles = "release", "scores", "relative", "accuracy", "SPD", "rates"
    table = ResultTable(*titles, *["remarks"] * remarks, text=("rates", "remarks"))
    for name, moved in ranked[:MOST_RELEASES]:
        numbers = f"{moved.scores:.3f}", f"{moved.relative:.3f}"
        spd = "undefined" if np.isnan(moved.spd) else f"{moved.spd:+.4f}"
        marks = [] if moved.converged else ["first step only"]
        marks += ["OUTLIER"] if moved.outlier else []
        marks += ["alone with a group and label"] if moved.alone else []
        rates = " ".join(f"{rate:+.3f}" for rate in moved.rates[:MOST_GROUPS])
        accuracy = f"{moved.accuracy:+.4f}"
        table.add_row(name, *numbers, accuracy, spd, rates, *[", ".join(marks)] * remarks)
    table.caption = (
        "How far each release moves the model; scores in logits, root mean square, and relative to"
        " those without it. Rates: each group's selection rate, in the schema's order."
    )
    if len(ranked) > MOST_RELEASES:
        table.caption += f" The {MOST_RELEASES} furthest of {len(ranked)}."
    return table


def outlier_warning(influences: Influences) -> str | None:
    """What to say of releases that move the model much further than the others."""
    outliers = [
        f"{name} ({', '.join(moved.by[:3])})"
        for name, moved in influences.releases.items()
        if moved.outlier
    ]
    if not outliers:
        return None
    more = f" and {len(outliers) - 5} more" if len(outliers) > 5 else ""
    return (
        f"{', '.join(outliers[:5])}{more}: moves the model much further than the other releases do,"
        " turns, doubles or halves SPD, or its rows are scored as no others. Is the client unlike"
        " the others, or are its groups, labels or units wrong? See what it holds with python -m"
        " synthfair inspect, ask its site, and run again without its file"
    )


def outcomes_table(outcomes: Sequence[Outcome]) -> ResultTable:
    """Accuracy and SPD of several methods on the same test rows, by weight of the penalty."""
    table = ResultTable("model", "penalty", "accuracy", "SPD")
    for weight, group in groupby(outcomes, key=lambda outcome: outcome.rho_o):
        penalty = f"weight {weight:g}" if weight else "none"
        for outcome in group:
            overall = outcome.evaluation.overall
            model = outcome.method + (", NOT CONVERGED" if outcome.converged is False else "")
            cells = (_interval(overall[name], digits=2) for name in ("accuracy", "spd"))
            table.add_row(model, penalty, *cells)
        table.add_section()
    evaluation = outcomes[0].evaluation
    table.add_row("majority label for all", "", f"{evaluation.constant_accuracy:.2f}", "0.00")
    table.caption = f"{evaluation.n_test} test rows; 95 % intervals."
    return table


def overview_tables(overview: Overview) -> Group:
    """Means over seeds of accuracy and gap of several methods, and what they cost."""
    first, gap = ("method", "fairness setting"), _SHORT_TITLES[overview.gap]
    table = ResultTable(*first, "runs", "accuracy", gap, text=first)
    costs = ResultTable(*first, "rounds", "sent", "seconds", "epsilon", text=first)
    for s in overview.summaries:
        method = s.method + (", NOT CONVERGED" if s.converged is False else "")
        values = ((s.accuracy.value, s.accuracy_spread), (s.gap.value, s.gap_spread))
        cells = [_mean(*pair, several=len(s.runs) > 1) for pair in values]
        table.add_row(method, s.setting, str(len(s.runs)), *cells)
        epsilon = "none" if s.epsilon is None else f"{s.epsilon:g}"
        costs.add_row(s.method, s.setting, *effort(s.cost), epsilon)
    table.caption = "On test rows; mean and standard deviation over seeds."
    costs.caption = "Sent: by all clients together, in all rounds."
    return Group(table, costs)


def effort(cost: Effort) -> tuple[str, str, str]:
    """Rounds, bytes and seconds, in words; empty where they are not known."""
    rounds = "" if np.isnan(cost.rounds) else f"{cost.rounds:,.0f}"
    seconds = "" if np.isnan(cost.seconds) else f"{cost.seconds:.1f}"
    return rounds, byte_size(cost.bytes_sent), seconds


def byte_size(count: float) -> str:
    """A number of bytes by its magnitude; empty where it is not known.

    Example:
        >>> from synthfair.report.terminal import byte_size
        >>> byte_size(512), byte_size(283_000), byte_size(1.25e7)
        ('512 B', '283 kB', '12.5 MB')
    """
    if np.isnan(count):
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _mean(mean: float, spread: float, *, several: bool) -> str:
    if np.isnan(mean):
        return "undefined"
    return f"{mean:.3f} ± {spread:.3f}" if several else f"{mean:.3f}"


def federation_table(federation: FederationFile) -> ResultTable:
    """How each site of a federation has answered, and what its code means."""
    titles, title = (
        ("site", "answer", "rounds", "seconds", "sent", "version"),
        f"job {federation.job}",
    )
    table = ResultTable(*titles, text=("answer", "version"), title=title, caption_justify="left")
    for name, booked in federation.sites.items():
        sent = byte_size(booked.carried_bytes)
        cells = name, booked.code, str(booked.rounds), f"{booked.seconds:.1f}", sent
        table.add_row(*cells, booked.version or "unknown")
    table.caption = "\n".join(f"{code}: {words}" for code, words in federation.meanings.items())
    return table


def training_table(training: Training, *, private: bool) -> ResultTable:
    """What a training cost, and what it guarantees."""
    cost, guarantee = training.cost, training.guarantee
    table = ResultTable.of_facts()
    table.add_row("users", f"{cost.users:,}")
    table.add_row("rounds", f"{cost.rounds:,}")
    table.add_row("sent", f"{cost.bytes_sent:,} bytes by all users together")
    if private and training.counts and (said := training.counts.statement):
        table.add_row("counts", f"epsilon = {said['epsilon']:g} for {said['unit']}, by themselves")
    if guarantee is None or not private:
        table.add_row("privacy", "none: no epsilon is guaranteed")
        return table
    table.add_row(
        "privacy",
        f"epsilon = {guarantee.epsilon:g} at delta = {guarantee.delta:g} for {guarantee.unit}, to"
        f" {guarantee.relation.replace('_', ' ')} one",
    )
    for mechanism in guarantee.mechanisms:
        by = f", by each of {mechanism.shares.aggregators} aggregators" if mechanism.shares else ""
        table.add_row(
            "noise",
            f"{mechanism.noise:.3g} on sums of {mechanism.name}, each of norm at most"
            f" {mechanism.clip:g}{by}",
        )
    table.add_row("holds against", guarantee.holds_against)
    if guarantee.condition:
        table.add_row("", guarantee.condition)
    return table


def release_table(made: Distillation | SurrogateRelease, receipt: Receipt) -> ResultTable:
    """What a client has computed and written."""
    from synthfair.client import Distillation

    table, release = ResultTable.of_facts(), made.release
    rows = f"{release.x.shape[0]} x {release.x.shape[1]} features, s, y"
    if isinstance(made, Distillation):
        _add_distillation(table, made)
    if release.weight is not None:
        rows += f", weight; for {release.weight.sum():,.0f} real rows"
    table.add_row("rows", rows)
    if not isinstance(made, Distillation):
        read = "real" if release.header.config.epsilon is None else "noisy"
        table.add_row("smooth rates", f"within {made.rate_error:.4f} of the {read} ones")
    table.add_row("file", f"{receipt.path} ({receipt.size:,} bytes)")
    table.add_row("sha256", receipt.sha256)
    for title, line in statement_lines(release.header.privacy):
        table.add_row(title, line)
    return table


def _add_distillation(table: ResultTable, distillation: Distillation) -> None:
    history, reached = distillation.history, distillation.reached
    table.add_row("objective", f"{history.objective[0]:.6f} -> {reached.objective:.6f}")
    table.add_row("covariance", f"{history.covariance[0]:+.5f} -> {reached.covariance:+.5f}")
    if not np.isnan(reached.gap):  # known only where real rows are read in every step
        table.add_row("gap", _gap(distillation))
    inner = "converged" if distillation.inner_converged else "NOT CONVERGED"
    table.add_row("inner problem", f"{inner}; gradient norm {reached.gradient_norm:.1e}")
    outer = "converged" if distillation.outer_converged else "NOT CONVERGED"
    table.add_row("outer problem", f"{outer}; above its optimum by {distillation.outer_excess:.1e}")
    if compared := distillation.baseline:
        accuracy = f"{compared.accuracy:.4f} on training rows; the majority {compared.majority:.4f}"
        table.add_row("accuracy", accuracy)
    taken, config = len(history.objective) - 1, distillation.config
    stopped = taken < config.steps and config.max_gap is None
    table.add_row("steps", f"{taken} of {config.steps}: stopped early" if stopped else f"{taken}")


def _gap(distillation: Distillation) -> str:
    line = f"{distillation.history.gap[0]:.4f} -> {distillation.reached.gap:.4f} on training rows"
    wanted = distillation.config.max_gap
    if wanted is None:
        return line
    met = "met" if distillation.gap_met else "NOT MET"
    line += f"; at most {wanted:g} wanted: {met}, with penalty weight {distillation.rho_o:.3g}"
    if distillation.baseline and distillation.baseline.plain_gap <= wanted:
        line += f"; no penalty was needed: without one it is {distillation.baseline.plain_gap:.4f}"
    return line if distillation.search_ended else f"{line}; the steps ended before the search"


def gap_warning(distillation: Distillation) -> str | None:
    """What to say on exit if the wanted gap was not reached."""
    if distillation.gap_met is not False:
        return None
    config, tried = distillation.config, distillation.tried
    wanted = config.max_gap
    reached = f"{distillation.reached.gap:.4f}, and the release has that"
    if not distillation.search_ended:
        return (
            f"the steps ended before a gap of {wanted:g} on the training rows was found; the"
            f" smallest so far is {reached}. Raise --steps: each weight of the penalty takes 50"
        )
    smooth = config.penalty == "selection_rate"
    return (
        f"none of the {len(tried)} weights tried, from {min(tried):g} to {max(tried):g}, brought"
        f" the gap on the training rows to {wanted:g}; the smallest reached is {reached}. Try "
        + ("another --temperature" if smooth else "--penalty selection_rate")
    )


def unconverged_warning(distillation: Distillation) -> str | None:
    """What to say on exit if the inner or the outer problem did not converge."""
    if distillation.converged:
        return None
    if not distillation.inner_converged:
        return (
            "the inner problem did not converge: the hypergradient is not exact, and the release"
            " may be worse than it could be. Raise --inner-max-iterations or --lambda-theta, or"
            " lower --learning-rate"
        )
    far = distillation.outer_excess
    above = f"by about {far:.1%} of the untrained model's objective" if far < 1 else "by far"
    config = distillation.config
    steps = "" if config.max_gap else " Raise --steps."
    return f"the outer problem did not converge: it ends above the optimum {above}.{steps}"


def pooled_table(point: FrontierPoint, max_gap: float | None = None) -> ResultTable:
    """What the model of surrogates reaches on the pooled rows, and the gap that was wanted."""
    table = ResultTable.of_facts()
    unneeded = max_gap is not None and point.rho == 0 and point.gap <= max_gap
    table.add_row("penalty weight", "0: no penalty was needed" if unneeded else f"{point.rho:.4g}")
    table.add_row("accuracy", f"{point.accuracy:.3f} on the pooled rows, by their weights")
    table.add_row("gap", f"{point.gap:.3f} on the pooled rows")
    return table


def fit_warnings(made: Distillation | SurrogateRelease) -> list[str]:
    """What to say on exit of a release that is less than its client may expect."""
    from synthfair.client import Distillation
    from synthfair.data.schema import shown
    from synthfair.surrogate.make import REMEDIES

    if isinstance(made, Distillation):
        found = (unconverged_warning(made), gap_warning(made), *baseline_warnings(made))
        return [warning for warning in found if warning]
    if not made.left_out:
        return []
    least = f"{made.release.header.config.k_min} rows (k_min)"  # type: ignore[union-attr]
    if made.release.header.privacy.guarantee:
        least += " and three standard deviations of the noise of their number"
    return [
        f"left out, so that a model will not know of them: {shown(made.left_out)}; each needs"
        f" {least}. {REMEDIES}"
    ]


def baseline_warnings(distillation: Distillation) -> list[str]:
    """What to say of a release whose model is worse than one without a penalty, or than none."""
    found, remedy = distillation.baseline, "Try --penalty selection_rate, or --release surrogate"
    if found is None:
        return []
    warnings = []
    if found.gap > found.plain_gap + SLACK:
        warnings.append(
            f"the gap on the training rows is {found.gap:.3f}, and without a penalty it would be"
            f" {found.plain_gap:.3f}: the penalty does not follow the gap here. {remedy}"
        )
    if found.accuracy <= found.majority:
        warnings.append(
            f"the accuracy on the training rows is {found.accuracy:.3f}, not above the"
            f" {found.majority:.3f} of the more frequent label for everybody. Lower --rho-o, or"
            " try --release surrogate"
        )
    return warnings


def untrained_warning(model: TrainedModel) -> str | None:
    """What to say of a model whose training missed its tolerance."""
    if model.converged is not False:
        return None
    norm = "" if model.gradient_norm is None else f"; gradient norm {model.gradient_norm:.1e}"
    return f"the model's training did not converge{norm}"


def plain_text(table: RenderableType, width: int = 100) -> str:
    """A table as text, for files and tests."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(table)
    return file.getvalue()


def _value(metric: Metric, digits: int = 3) -> str:
    return "undefined" if np.isnan(metric.value) else _rounded(metric.value, digits)


def _bounds(metric: Metric, digits: int = 3) -> str:
    if np.isnan(metric.low):
        return ""
    return f"[{_rounded(metric.low, digits)}, {_rounded(metric.high, digits)}]"


def _rounded(value: float, digits: int) -> str:
    return f"{value:z.{digits}f}"


def _interval(metric: Metric, digits: int) -> str:
    return f"{_value(metric, digits)} {_bounds(metric, digits)}".rstrip()
