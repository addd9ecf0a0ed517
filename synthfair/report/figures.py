"""The report's figures: what is drawn of which numbers, by matplotlib, as SVG text.

matplotlib is imported only where a figure is drawn: ``pip install "synthfair[report]"`` brings it.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from synthfair.errors import InputError, require
from synthfair.fairness.intervals import rate_interval, size
from synthfair.fairness.metrics import NOTION_METRICS, Metric, Rates
from synthfair.report.answer import RATES_OF, Headline
from synthfair.report.results import Overview, Summary
from synthfair.settings import notion_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from synthfair.fairness.intervals import LabelCounts
    from synthfair.metrics_file import Evaluation

MAX_DRAWN_GROUPS, MAX_DRAWN_METHODS = 6, 9
"""Groups, and other methods, that are drawn; the tables have all."""

RATE_NAMES = {
    "selection_rate": "selected",
    "true_positive_rate": "true positives",
    "false_positive_rate": "false positives",
    "error_rate": "errors",
}
"""Rates of a group, and their names."""

COLORS = ("#0072B2", "#B84A00", "#00775A", "#A0467E", "#6B5600", "#444444")
"""The palette of Okabe and Ito, each colour with a contrast of 3 or more to white (WCAG 1.4.11)."""

MARKERS, DASHES = "osD^vPX", ("-", "--", ":", "-.")
"""Colour is never all that distinguishes two series."""

PLOT_STYLE = {
    "svg.hashsalt": "synthfair",  # the same numbers give the same bytes
    "svg.fonttype": "none",  # text takes the reader's fonts
    "text.parse_math": False,  # a name with dollars is no formula
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "errorbar.capsize": 2,
}


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def styled() -> Iterator[None]:
    """Let matplotlib draw in the report's style.

    Raises:
        InputError: it is not installed.
    """
    require("matplotlib", "figures", "report")
    import matplotlib.style

    with matplotlib.style.context(["default", PLOT_STYLE]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the reader's fonts have
        yield


class Series(NamedTuple):
    """A series of points; what is not-a-number is not drawn.

    Attributes:
        name: in the legend.
        x: values, or values with intervals.
        y: the same.
        line: whether a line joins the points.
        size: of the marks.
        hollow: outlines, drawn above marks that are filled, so that both are seen.
        names: of the points, where they have some of their own.
    """

    name: str
    x: Sequence[float | Metric]
    y: Sequence[float | Metric]
    line: bool = False
    size: float = 6.0
    hollow: bool = False
    names: Sequence[str] = ()


def draw(series: Sequence[Series], limit: float | None = None, **looks: Any) -> Figure:
    """Return a figure of some series. Raises as :func:`styled`.

    Args:
        series: in the legend's order; the first is drawn on top, but below hollow ones.
        limit: where a vertical line stands, with its value.
        looks: of matplotlib's axes, such as ``xlabel``.
    """
    names = [textwrap.fill(each.name, 60) for each in series]
    rows = sum(name.count("\n") + 1 for name in names)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.8, 3.0 + 0.17 * rows), layout="constrained")
        axes = figure.subplots()
        lines = [_draw_series(axes, each, i) for i, each in enumerate(series)]
        figure.legend(lines, names, loc="outside lower left")
        axes.set(**looks)
        if limit is not None:
            axes.axvline(limit, color="black", linestyle=":", linewidth=1)
            place = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
            axes.annotate(f"limit {limit:g}", (limit, 1), **place)
    return figure


def _draw_series(axes: Axes, series: Series, i: int) -> Line2D:
    """Draw the series of an index with its intervals; return its line, for the legend."""
    x, y = _with_bounds(series.x), _with_bounds(series.y)
    color = COLORS[i % len(COLORS)]
    line, *_ = axes.errorbar(
        x[0],
        y[0],
        xerr=np.abs(x[1:] - x[0]),
        yerr=np.abs(y[1:] - y[0]),
        color=color,
        linestyle=DASHES[i % len(DASHES)] if series.line else "none",
        marker=MARKERS[i % len(MARKERS)],
        markersize=series.size,
        markerfacecolor="none" if series.hollow else color,
        zorder=20 if series.hollow else 10 - i / 100,
    )
    return line


def svg_text(figure: Figure) -> str:
    """Return a figure of matplotlib as SVG text."""
    file = io.StringIO()
    with styled():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def draw_columns(columns: Mapping[str, np.ndarray]) -> Figure:
    """Return a figure of columns: shares of real rows as bars, of records as points.

    Args:
        columns: by name, [2, k] shares, see :class:`synthfair.client.quality.Quality`.
    """
    with styled():
        from matplotlib.figure import Figure

        across = min(4, len(columns))
        down = -(-len(columns) // across)
        figure = Figure(figsize=(2.2 * across, 1.6 * down + 0.4), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).flat
        for (name, (real, records)), axes in zip(columns.items(), panels, strict=False):
            place = np.arange(len(real))
            axes.bar(place, real, color=COLORS[0], alpha=0.4, label="rows")
            axes.plot(place, records, MARKERS[0], color=COLORS[1], markersize=3, label="records")
            axes.set_title(textwrap.shorten(name, 30), fontsize=8)
            axes.set_xticks([])
        for axes in panels:
            axes.remove()
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2
        )
    return figure


def _with_bounds(values: Sequence[float | Metric]) -> np.ndarray:
    """Return [3, N] values and their bounds; not-a-number where there are none."""
    rows = [v if isinstance(v, Metric) else (v, np.nan, np.nan) for v in values]
    return np.array(rows, dtype=float).reshape(-1, 3).T


def answer_series(answer: Headline, overview: Overview) -> list[Series]:
    """Return accuracy against the size of the gap, of the runs spoken of and of all others."""
    subject = answer.subject

    def series_of(name: str, *summaries: Summary, **looks: Any) -> Series:
        points = sorted(summaries, key=lambda s: s.gap_size.value)
        names = [name] if len(points) < 2 else [s.name for s in points]
        gaps, accuracies = [s.gap_size for s in points], [s.accuracy for s in points]
        return Series(name, gaps, accuracies, names=names, **looks)

    series = [series_of(f"this model: {subject.name}", subject, size=9)]
    if plain := answer.plain:
        name = f"no penalty: {answer.reference.name}" if answer.reference else "no penalty"
        series.append(Series(name, [plain.gap], [plain.accuracy], size=11, hollow=True))
    series.append(Series("one decision for everybody", [0.0], [subject.constant]))
    # Of the others, a curve over the weights for each method.
    methods: dict[str, list[Summary]] = {}
    for summary in overview.summaries:
        if summary not in (subject, answer.reference):
            methods.setdefault(summary.method, []).append(summary)
    for method, group in [*methods.items()][:MAX_DRAWN_METHODS]:
        name = method if group[1:] else group[0].name
        series.append(series_of(name, *group, line=len(group) > 1))
    if lines := subject.runs[0].frontier:
        gaps, accuracies = [line.test_gap for line in lines], [line.test_accuracy for line in lines]
        names = [f"penalty weight {line.rho:g}" for line in lines]
        name = "other weights of the penalty"
        series.append(Series(name, gaps, accuracies, line=True, size=3, names=names))
    return series


def group_metrics(
    rates: Mapping[str, Rates], rows: Mapping[str, Mapping[str, LabelCounts]] | None
) -> dict[str, list[Metric]]:
    """Return the :data:`RATE_NAMES` of each group, with intervals where their rows are counted.

    Args:
        rates: of each group.
        rows: by label, of each client and group.
    """
    metrics = {}
    for group, of in rates.items():
        labels = [counts[group] for counts in (rows or {}).values()]
        n: dict[str, int] = {"selection_rate": of.n, "error_rate": of.n}
        if labels:
            n["true_positive_rate"] = sum(label.positive for label in labels)
            n["false_positive_rate"] = sum(label.negative for label in labels)
        shares = {name: getattr(of, name) for name in RATE_NAMES}
        metrics[group] = [
            rate_interval(p * n[name], n[name]) if name in n else Metric(p, np.nan, np.nan)
            for name, p in shares.items()
        ]
    return metrics


def plot_groups(evaluation: Evaluation) -> Figure:
    """Draw the selection rate, true and false positive rate, and error rate of each group.

    Args:
        evaluation: of a model, with 95 % intervals of its rates.

    Returns:
        A figure of matplotlib, of the six largest groups at most.

    Raises:
        InputError: matplotlib is not installed.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> release = sf.distill_table(table, schema, sf.SurrogateConfig())
        >>> model = sf.pool_and_train([release], schema)
        >>> sf.plot_groups(sf.evaluate(model, table)).axes[0].get_ylabel()
        'rate'
    """
    places = np.arange(len(RATE_NAMES))
    by_group = evaluation.by_group
    ranked = sorted(by_group, key=lambda group: -by_group[group].n)[:MAX_DRAWN_GROUPS]
    rates = {group: of for group, of in by_group.items() if group in ranked}
    series = []
    for i, (group, metrics) in enumerate(group_metrics(rates, evaluation.rows).items()):
        shift = (i - (len(rates) - 1) / 2) * 0.6 / max(len(rates), 2)
        series.append(Series(group, (places + shift).tolist(), metrics))
    labels = [name.replace(" ", "\n") for name in RATE_NAMES.values()]
    figure = draw(series, ylabel="rate", xticks=places, xticklabels=labels)
    figure.axes[0].set_ylim(*np.clip(figure.axes[0].get_ylim(), -0.02, 1.02))
    return figure


def plot_tradeoff(
    evaluations: Mapping[str, Evaluation],
    notion: str = "statistical_parity",
    *,
    max_gap: float | None = None,
) -> Figure:
    """Draw accuracy against the size of the gap, a point with 95 % intervals for each model.

    Args:
        evaluations: by the name of the model, such as its weight of the penalty; on the same rows.
        notion: of fairness, by which the gap is measured.
        max_gap: where a line stands: a gap that is fair enough.

    Returns:
        A figure of matplotlib. One decision for everybody has no gap, and the accuracy of the more
        frequent label.

    Raises:
        InputError: there are no evaluations, no such notion, or matplotlib is not installed.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> sent = [sf.distill_table(table, schema, sf.SurrogateConfig())]
        >>> evaluations = {}
        >>> for rho in (0.0, 10.0):
        ...     model = sf.pool_and_train(sent, schema, sf.ServerConfig(rho=rho))
        ...     evaluations[f"rho = {rho:g}"] = sf.evaluate(model, table)
        >>> sf.plot_tradeoff(evaluations, max_gap=0.05).axes[0].get_ylabel()
        'accuracy'
    """
    metric = NOTION_METRICS[notion_of(notion)]
    if not evaluations:
        raise InputError("evaluations: there are none")
    series = [
        Series(name, [size(evaluation.overall[metric])], [evaluation.overall["accuracy"]])
        for name, evaluation in evaluations.items()
    ]
    first = next(iter(evaluations.values()))
    series.append(Series("one decision for everybody", [0.0], [first.constant_accuracy]))
    gap = f"difference of {RATES_OF[metric]}"
    return draw(series, max_gap, xlabel=gap, ylabel="accuracy")
