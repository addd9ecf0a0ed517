"""How runs are shown: Markdown, plots, and the numbers that papers print."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import ROOT, Summary
from benchmarks.runs import NO_RUNS, Mean, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "0.4", "#000000")
"""The colours of Okabe and Ito."""


def published(name: str) -> list[dict[str, str]]:
    """Lines of a table in ``benchmarks/published``."""
    with (ROOT / "published" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# Markdown

WORSE = " ‡"
"""Marks what the constant classifier beats."""


def mark(accuracy: Mean | float | None, constant: Mean | float | None) -> str:
    """Return a sign if the constant classifier is as accurate, and therefore better; else "".

    Args:
        accuracy: of a method, or its mean; None where it is not known.
        constant: that of the more frequent label for everybody.
    """
    first, other = (one.mean if isinstance(one, Mean) else one for one in (accuracy, constant))
    return WORSE if first is not None and other is not None and first <= other else ""


def accuracy_text(
    runs: Runs, constants: Runs = NO_RUNS, form: str = ".4f", *, error: bool = False
) -> str:
    """Mean accuracy, with a mark where the runs of the constant classifier beat it."""
    accuracy = runs.mean("accuracy")
    itself = not constants or runs[0].setting == constants[0].setting
    worse = "" if itself else mark(accuracy, constants.mean("accuracy"))
    return accuracy.text(form, error=error) + worse


def pair_text(
    runs: Runs, gap: str = "spd", *, constants: Runs = NO_RUNS, form: str = ".3f",
    error: bool = False,
) -> str:  # fmt: skip
    """Mean accuracy / mean gap with standard deviations or errors, marked; empty without runs."""
    if not runs:
        return ""
    accuracy = accuracy_text(runs, constants, form, error=error)
    return f"{accuracy} / {runs.mean(gap).text(form, error=error)}"


def rows(lines: Iterable[Sequence[object] | str]) -> str:
    """Rows of a Markdown table.

    Args:
        lines: each with its cells between bars, or a sequence of cells, of which floats are as they
            are shortest.
    """
    texts = []
    for line in lines:
        cells = [line] if isinstance(line, str) else line
        plain = (f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in cells)
        texts.append(f"| {' | '.join(plain)} |")
    return "\n".join(texts)


def table(header: str, lines: Iterable[Sequence[object] | str]) -> str:
    """Return a Markdown table; the header is its cells between bars."""
    return "\n".join(
        [f"| {header} |", "|---" * (header.count("|") + 1) + "|", rows(lines)]
    ).rstrip()


More = Callable[[Any, Any], Mapping[str, object]]
"""Of a run's setting and values: what else its lines show, by name."""


def page(name: str, runs: Runs = NO_RUNS, more: More = lambda _s, _v: {}, **parts: object) -> str:
    """Return a page of results: a template of ``benchmarks/pages``, filled with tables and numbers.

    A line of the template that shows an entry of s or v is written for each run, s its setting and
    v its values. Blank lines around a part that is empty become one.

    Args:
        name: of the template.
        runs: what is shown; {seeds} is how many seeds they have.
        more: what such a line shows besides.
        parts: by name; a list or an iterator holds rows of a table, see :func:`rows`.
    """
    texts: dict[str, Any] = {"seeds": runs.n_seeds} | parts
    for key, part in parts.items():
        if isinstance(part, list | Iterator):
            texts[key] = rows(part)
    lines = []
    for line in (ROOT / "pages" / f"{name}.md").read_text(encoding="utf-8").splitlines():
        if re.search(r"\{[sv]\.", line):
            lines += [line.format(s=s, v=v, **texts, **more(s, v)) for s, _, v, _ in runs]
        else:
            lines.append(line.format(**texts))
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def page_of(name: str, more: More = lambda _s, _v: {}, **parts: object) -> Summary:
    """Return a summary of one page, all of whose tables stand in its template: see :func:`page`."""
    return lambda runs: {f"{name.rpartition('/')[2]}.md": page(name, runs, more, **parts)}


# Plots


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every


def legend(figure: Figure, columns: int) -> None:
    """Add a legend below the panels, of what the first of them shows."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place: Any = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles, labels, frameon=False, fontsize=8, **place)


def over_epsilon(
    axes: Axes, runs: Runs, field: str, looks: Mapping[str, tuple[str, str, str]],
    *, error: bool = False,
) -> None:  # fmt: skip
    """Draws a value of methods over epsilon; of those without an epsilon, a band.

    Args:
        axes: to draw into.
        runs: their settings have a method and an epsilon, which may be infinite.
        field: of the values.
        looks: label, colour and marker of each method.
        error: whether bars show standard errors, not standard deviations.
    """
    for method, (label, color, marker) in looks.items():
        own = runs.select(method=method).by("epsilon")
        means = {epsilon: some.mean(field) for epsilon, some in own.items()}
        heights = [mean.mean for mean in means.values()]
        spreads = [mean.error if error else mean.spread for mean in means.values()]
        if marker:
            look: Any = {"color": color, "marker": marker, "capsize": 2, "label": label}
            axes.errorbar([*means], heights, yerr=spreads, **look)
            continue
        for height, spread in zip(heights, spreads, strict=True):
            axes.axhline(height, color=color, linestyle="--", label=label)
            low, high = height - spread, height + spread
            axes.axhspan(low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(xscale="log", xlabel="epsilon", ylabel=field.replace("spd", "SPD"))


class Point(NamedTuple):
    """One point of a frontier.

    Attributes:
        gap: size of the mean SPD, which is not the mean of the sizes.
        accuracy: mean.
        gap_error: half the length of its error bar, 0 for none.
        accuracy_error: the same.
    """

    gap: float
    accuracy: float
    gap_error: float = 0.0
    accuracy_error: float = 0.0


def frontier(curves: Mapping[str, Sequence[Point]]) -> str:
    """Accuracy against |SPD|, a curve for each method; better is up and to the left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    colors, dashes = (*COLORS[:6], "#000000", "#F0E442"), ("-", "--", "-.", ":")
    looks = zip(cycle(colors), cycle("osD^vPX*"), cycle(dashes), curves.items(), strict=False)
    for color, marker, dash, (name, points) in looks:
        x, y, x_error, y_error = zip(*sorted(points), strict=True)
        look: Any = {"color": color, "marker": marker, "linestyle": dash, "capsize": 2}
        axes.errorbar(x, y, xerr=x_error, yerr=y_error, label=name, **look)
    axes.set(xlabel="|mean SPD| on test rows (smaller is fairer)", ylabel="accuracy")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return as_svg(figure)


def as_svg(figure: Figure) -> str:
    """SVG text: the same numbers give the same bytes, and text takes the reader's fonts."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "synthfair", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
