"""The report's charts: what is drawn of which numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING

from synthfair.fairness.intervals import rate_interval
from synthfair.fairness.metrics import Metric, Rates
from synthfair.report.answer import Answer, interval, without_penalty
from synthfair.report.chart import Chart, Mark, Series, as_svg
from synthfair.report.overview import Overview, Summary
from synthfair.report.scores import AtThreshold, Calibration

if TYPE_CHECKING:
    from synthfair.client.history import History
    from synthfair.run_files import FrontierLine

MOST_GROUPS = 6
"""Groups that are drawn, those with most rows; the tables have all."""

MOST_ALONE = 4
"""Other runs that are drawn each by itself."""

MOST_METHODS = 9
"""Methods that are drawn; the tables have all."""

LEAST_IN_BIN = 10
"""Rows of a bin of which calibration is drawn; the table has all bins."""

RATES = {
    "selection_rate": "selected",
    "true_positive_rate": "true\npositives",
    "false_positive_rate": "false\npositives",
    "error_rate": "errors",
}
"""Rates of a group, and how they are called on a chart."""


def answer_chart(answer: Answer, overview: Overview, gap: str) -> Chart:
    """Accuracy against the size of the gap: the runs spoken of, and all that is known of others."""
    subject, limit = answer.subject, answer.limit.value
    series = [Series(f"this run: {subject.name}", [_mark(subject)], scale=1.6)]
    if answer.reference:
        name = f"no penalty: {answer.reference.name}"
        series.append(Series(name, [_mark(answer.reference)], scale=2.0, hollow=True))
    elif plain := without_penalty(subject.runs[0].frontier):
        mark = _plain_mark(plain, subject.runs[0].metrics.n_test)
        series.append(Series("no penalty", [mark], scale=2.0, hollow=True))
    if not isnan(subject.constant):
        title = f"one decision for everybody: accuracy {subject.constant:.3f}, gap 0"
        series.append(Series("one decision for everybody", [Mark(0.0, subject.constant, title)]))
    series += _others([s for s in overview.summaries if s not in (subject, answer.reference)])
    if lines := subject.runs[0].frontier:
        marks = [_weight_mark(line) for line in lines]
        series.append(Series("other weights of the penalty", marks, line=True, scale=0.5))
    return Chart(
        title=f"Accuracy against the {gap}, on test rows",
        x_label=f"size of the {gap} (smaller is fairer)",
        y_label="accuracy",
        series=series,
        x_range=(0.0, 1.06 * _largest(series, limit)),
        rules=[(limit, f"limit {limit:g}")],
    )


def _largest(series: Sequence[Series], limit: float) -> float:
    marks = [mark for one in series for mark in one.marks]
    ends = [value for m in marks for value in (m.x, *(m.x_interval or ())) if isfinite(value)]
    return max(*ends, 1.2 * limit, 0.01)


def _others(summaries: Sequence[Summary]) -> list[Series]:
    """Few each by itself; many as a curve over the weights for each method."""
    if len(summaries) <= MOST_ALONE:
        return [_curve_of(s.name, [s]) for s in summaries]
    methods = list(dict.fromkeys(s.method for s in summaries))[:MOST_METHODS]
    return [_curve_of(name, [s for s in summaries if s.method == name]) for name in methods]


def _curve_of(name: str, summaries: Sequence[Summary]) -> Series:
    marks = sorted((_mark(s) for s in summaries), key=lambda mark: mark.x)
    return Series(name, marks, line=len(marks) > 1)


def _mark(summary: Summary) -> Mark:
    gap, accuracy = summary.gap_size, summary.accuracy
    title = f"{summary.name}: accuracy {interval(accuracy)}, gap {interval(gap)}"
    return Mark(gap.value, accuracy.value, title, gap[1:], accuracy[1:])


def _weight_mark(line: FrontierLine) -> Mark:
    gap, accuracy, weight = line.test_gap, line.test_accuracy, f"penalty weight {line.rho:g}"
    return Mark(gap, accuracy, f"{weight}: accuracy {accuracy:.3f}, gap {gap:.3f}")


def _plain_mark(line: FrontierLine, n_test: int) -> Mark:
    """With the interval of its accuracy; a frontier says too little for that of the gap."""
    accuracy = rate_interval(line.test_accuracy * n_test, n_test)
    title = f"no penalty: accuracy {interval(accuracy)}, gap {line.test_gap:.3f}"
    return _weight_mark(line)._replace(title=title, y_interval=accuracy[1:])


def frontier_plot(lines: Sequence[FrontierLine]) -> str:
    """Accuracy against the gap over the weights of a server's penalty, on pooled and test rows."""
    weights = [f"penalty weight {line.rho:g}" for line in lines]
    measured = {
        "pooled rows": [(line.gap, line.accuracy) for line in lines],
        "test rows": [(line.test_gap, line.test_accuracy) for line in lines],
    }
    named = {
        name: [
            Mark(*point, f"{weight}, {name}") for point, weight in zip(points, weights, strict=True)
        ]
        for name, points in measured.items()
    }
    chart = Chart(
        title="Accuracy against the gap between groups, for many weights of the penalty",
        x_label="gap between groups (smaller is fairer)",
        y_label="accuracy",
        series=[
            Series(name, marks, line=True, scale=0.7)
            for name, marks in named.items()
            if any(isfinite(mark.x) for mark in marks)
        ],
    )
    return as_svg(chart)


def largest_groups(sizes: Mapping[str, int]) -> list[str]:
    """The groups that are drawn, in their own order."""
    ranked = sorted(sizes, key=lambda group: -sizes[group])[:MOST_GROUPS]
    return [group for group in sizes if group in ranked]


def group_chart(rates: Mapping[str, Rates], bounds: Mapping[str, Mapping[str, Metric]]) -> Chart:
    """Selection and error rates by group, with intervals where they are known."""
    groups = largest_groups({group: int(found.n) for group, found in rates.items()})
    step = 0.6 / max(len(groups), 2)
    series = []
    for i, group in enumerate(groups):
        marks = []
        for place, name in enumerate(RATES):
            found = bounds[group][name]
            x = place + (i - (len(groups) - 1) / 2) * step
            title = f"{group}, {RATES[name]}: {interval(found)}".replace("\n", " ")
            marks.append(Mark(x, found.value, title, y_interval=found[1:]))
        series.append(Series(group, marks))
    return Chart(
        title="Selection and error rates by group, with 95 % intervals",
        x_label="",
        y_label="rate",
        series=series,
        x_range=(-0.5, len(RATES) - 0.5),
        y_range=(0.0, 1.0),
        categories=tuple(RATES.values()),
    )


def threshold_chart(lines: Sequence[AtThreshold], gap: str) -> Chart:
    """Accuracy and gap against the threshold."""
    named = {"accuracy": [line.accuracy for line in lines], gap: [line.gap for line in lines]}
    return _over_thresholds(f"Accuracy and {gap} for other thresholds", "", named, lines)


def selection_chart(lines: Sequence[AtThreshold], sizes: Mapping[str, int]) -> Chart:
    """Selection rates of the groups against the threshold."""
    named = {group: [line.selected[group] for line in lines] for group in largest_groups(sizes)}
    title = "Share of each group selected, for other thresholds"
    return _over_thresholds(title, "share selected", named, lines)


def _over_thresholds(
    title: str, label: str, named: Mapping[str, Sequence[Metric]], lines: Sequence[AtThreshold]
) -> Chart:
    series = [
        Series(
            name,
            [
                Mark(
                    line.threshold,
                    found.value,
                    f"{name} at threshold {line.threshold:g}: {interval(found)}",
                    y_interval=found[1:],
                )
                for line, found in zip(lines, values, strict=True)
            ],
            line=True,
            scale=0.7,
        )
        for name, values in named.items()
    ]
    return Chart(
        title=title,
        x_label="threshold on the predicted probability",
        y_label=label,
        series=series,
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        rules=[(0.5, "0.5")],
    )


def calibration_chart(found: Mapping[str, Calibration], sizes: Mapping[str, int]) -> Chart:
    """What came true against what was predicted; on the diagonal the two agree."""
    series = [
        Series(
            group,
            [
                Mark(
                    one.predicted,
                    one.observed.value,
                    f"{group}: {one.n:,} rows, predicted {one.predicted:.3f}, observed"
                    f" {interval(one.observed)}",
                    y_interval=one.observed[1:],
                )
                for one in found[group].bins
                if one.n >= LEAST_IN_BIN
            ],
        )
        for group in largest_groups(sizes)
    ]
    return Chart(
        title="Share with the positive label against the predicted probability, by group",
        x_label="mean predicted probability",
        y_label="share with the positive label",
        series=series,
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        diagonal=True,
    )


def convergence_charts(histories: Mapping[str, History]) -> dict[str, Chart]:
    """Objective of the distillation and gap on training rows by step, a line for each client."""
    named = {"objective": "objective", "gap": "gap"}
    titles = {"objective": "Objective (loss plus weighted penalty)", "gap": "Gap between groups"}
    return {
        column: Chart(
            title=f"{titles[column]} on each client's training rows, by step of distillation",
            x_label="step",
            y_label=label,
            series=[_curve(name, getattr(found, column)) for name, found in histories.items()],
        )
        for column, label in named.items()
    }


MOST_STEPS = 400
"""Steps of a curve that are drawn; of more, every so many."""


def _curve(name: str, values: Sequence[float]) -> Series:
    every = -(-len(values) // MOST_STEPS)
    marks = [Mark(i, value, "") for i, value in enumerate(values)][::every]
    return Series(name, marks, line=True, scale=0.0)
