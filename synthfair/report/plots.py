"""Plots as SVG text. Colours of Okabe and Ito; markers and dashes differ, too."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from synthfair.client.history import History
    from synthfair.fairness.metrics import Rates
    from synthfair.server.frontier_files import FrontierLine

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", "-.", ":")
_HATCHES = ("", "//", "..", "xx")
_LABEL = 48  # longest label, in characters


class Point(NamedTuple):
    """One point of the frontier.

    Attributes:
        gap: size of the mean gap, which is not the mean of the sizes.
        accuracy: mean.
        gap_error: half the length of its error bar: a standard error or deviation, as the caption
            says; 0 for a single run.
        accuracy_error: the same.
    """

    gap: float
    accuracy: float
    gap_error: float = 0.0
    accuracy_error: float = 0.0


def frontier(curves: Mapping[str, Sequence[Point]], *, gap: str = "SPD") -> str:
    """Accuracy against the size of a gap, a curve for each method; better is up and to the left."""
    figure, (axes,) = _figure(1)
    for i, (name, points) in enumerate(curves.items()):
        ordered = sorted(points)
        axes.errorbar(
            [p.gap for p in ordered],
            [p.accuracy for p in ordered],
            xerr=[p.gap_error for p in ordered],
            yerr=[p.accuracy_error for p in ordered],
            label=_plain(name),
            capsize=2,
            color=_cycle(_COLORS, i),
            marker=_cycle(_MARKERS, i),
            linestyle=_cycle(_DASHES, i),
        )
    axes.set(xlabel=f"|mean {gap}| on test rows (smaller is fairer)", ylabel="accuracy")
    return _with_legend(figure)


def frontier_plot(lines: Sequence[FrontierLine]) -> str:
    """Accuracy against the gap over the weights of a server's penalty, on pooled and test rows."""
    figure, (axes,) = _figure(1)
    curves = {
        "pooled rows": [(line.gap, line.accuracy) for line in lines],
        "test rows": [(line.test_gap, line.test_accuracy) for line in lines],
    }
    for i, (name, points) in enumerate(curves.items()):
        known = [point for point in points if not isnan(point[0])]
        if known:
            gaps, accuracies = zip(*known, strict=True)
            axes.plot(
                gaps,
                accuracies,
                label=name,
                color=_cycle(_COLORS, i),
                marker=_cycle(_MARKERS, i),
                linestyle=_cycle(_DASHES, i),
            )
    axes.set(xlabel="gap between groups (smaller is fairer)", ylabel="accuracy")
    return _with_legend(figure)


def convergence(histories: Mapping[str, History]) -> str:
    """Outer objective and gap on training rows against steps, a line for each client."""
    figure, (above, below) = _figure(2)
    for i, (name, history) in enumerate(histories.items()):
        for axes, values in ((above, history.objective), (below, history.gap)):
            (line,) = axes.plot(values, color=_cycle(_COLORS, i), linestyle=_cycle(_DASHES, i))
            if axes is above:
                line.set_label(_plain(name))
    above.set(ylabel="outer objective P", yscale="log")
    below.set(xlabel="step", ylabel="gap on training rows")
    return _with_legend(figure)


def group_rates(rates: Mapping[str, Rates]) -> str:
    """Selection and error rates by group, as bars."""
    figure, (axes,) = _figure(1)
    shown = {
        "selection_rate": "selected",
        "true_positive_rate": "true\npositives",
        "false_positive_rate": "false\npositives",
        "error_rate": "errors",
    }
    width = 0.8 / len(rates)
    for i, (group, rate) in enumerate(rates.items()):
        heights = [getattr(rate, name) for name in shown]
        places = [x + i * width for x in range(len(shown))]
        axes.bar(
            places,
            [0.0 if isnan(height) else height for height in heights],
            width,
            label=_plain(group),
            edgecolor="white",
            color=_cycle(_COLORS, i),
            hatch=_cycle(_HATCHES, i),
        )
        for place, height in zip(places, heights, strict=True):
            if isnan(height):
                axes.text(place, 0.01, "undefined", rotation=90, ha="center", fontsize=7)
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(shown))], list(shown.values()))
    axes.set(ylabel="rate", ylim=(0, 1))
    return _with_legend(figure)


def _plain(name: str) -> str:
    """As it stands, or its beginning.

    A dollar would start a formula, and a leading underscore hide it.
    """
    shown = name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _cycle(looks: Sequence[str], i: int) -> str:
    return looks[i % len(looks)]


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure of its own: pyplot would keep it, and look for a screen.

    Narrow, so that its text can be read on a phone; panels stand one above the other.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 1.2 + 2.4 * panels), layout="constrained")
    return figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def _with_legend(figure: Figure) -> str:
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return as_svg(figure)


def as_svg(figure: Figure) -> str:
    """SVG text: the same numbers give the same bytes, and text takes the reader's fonts."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "synthfair", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
