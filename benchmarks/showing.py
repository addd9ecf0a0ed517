"""How runs are shown: means over seeds, Markdown, and plots."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from benchmarks.harness import ROOT, Run, Setting, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = TypeVar("Key")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "0.4", "#000000")
"""Of Okabe and Ito."""

PUBLISHED = ROOT / "published"


class Mean(NamedTuple):
    """Of numbers over seeds: mean, standard deviation (0 of one number), and how many."""

    mean: float
    spread: float
    n: int

    @property
    def error(self) -> float:
        """Standard error of the mean; of no number, none."""
        return self.spread / self.n**0.5 if self.n else math.nan

    def text(self, form: str = ".4f", *, error: bool = False) -> str:
        """Mean ± standard deviation, or error; one number, or an infinite one, claims neither."""
        uncertain = self.error if error else self.spread
        more = (
            f" ± {uncertain:{form.lstrip('+')}}" if self.n > 1 and not math.isnan(uncertain) else ""
        )
        return f"{self.mean:{form}}{more}"


def mean_of(numbers: Iterable[float]) -> Mean:
    """Of at least one number."""
    found = list(map(float, numbers))
    if not all(map(math.isfinite, found)):
        return Mean(statistics.fmean(found), math.nan, len(found))
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    return Mean(statistics.fmean(found), spread, len(found))


def means(runs: Sequence[Run[Any, Any]], name: str) -> Mean:
    """Of one value of runs."""
    return mean_of(getattr(run.values, name) for run in runs)


def select(runs: Iterable[Run[Setting, Values]], **wanted: object) -> list[Run[Setting, Values]]:
    """The runs whose setting has these entries."""
    return [r for r in runs if all(getattr(r.setting, k) == v for k, v in wanted.items())]


def by(
    runs: Iterable[Run[Setting, Values]], key: Callable[[Setting], Key]
) -> dict[Key, list[Run[Setting, Values]]]:
    """The runs by something of their setting, in the order in which they come."""
    groups: dict[Key, list[Run[Setting, Values]]] = {}
    for run in runs:
        groups.setdefault(key(run.setting), []).append(run)
    return groups


def n_seeds(runs: Iterable[Run[Any, Any]]) -> int:
    """How many there are."""
    return len({run.seed for run in runs})


def paired(low: Iterable[Run[Any, Any]], high: Iterable[Run[Any, Any]], field: str) -> Mean:
    """What the second has more than the first, over the seeds in which both have a number."""
    lower = {run.seed: getattr(run.values, field) for run in low}
    found = [getattr(run.values, field) - lower[run.seed] for run in high if run.seed in lower]
    known = [one for one in found if not math.isnan(one)]
    return mean_of(known) if known else Mean(math.nan, math.nan, 0)


# Markdown and plots

WORSE = " ‡"
"""Marks what the constant classifier beats."""

WORSE_NOTE = "‡ marks what is no more accurate than the constant classifier, which has no gap."


def mark(accuracy: Mean | float | None, constant: Mean | float | None) -> str:
    """A sign where the constant classifier is as accurate, and therefore better.

    Args:
        accuracy: of a method, or its mean; None where it is not known.
        constant: that of the more frequent label for everybody.
    """
    first, other = (one.mean if isinstance(one, Mean) else one for one in (accuracy, constant))
    return WORSE if first is not None and other is not None and first <= other else ""


def verdict(met: bool) -> str:
    """Of a goal."""
    return "met" if met else "MISSED"


def table(header: str, rows: Iterable[Sequence[object]]) -> str:
    """Markdown: the header's cells between bars; floats as they are shortest."""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|"]
    for row in rows:
        cells = (f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(*parts: str) -> str:
    """Markdown of some paragraphs and tables."""
    return "\n\n".join(parts) + "\n"


def marked(
    runs: Sequence[Run[Any, Any]],
    constants: Sequence[Run[Any, Any]],
    form: str = ".4f",
    *,
    error: bool = False,
) -> str:
    """Mean accuracy, with the mark of what the runs of the constant classifier beat."""
    found = means(runs, "accuracy")
    itself = not constants or runs[0].setting == constants[0].setting
    worse = "" if itself else mark(found, means(constants, "accuracy"))
    return found.text(form, error=error) + worse


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, found


def legend(figure: Figure, columns: int) -> None:
    """Below the panels, of what the first of them shows."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place: Any = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles, labels, frameon=False, fontsize=8, **place)


def over_epsilon(
    axes: Axes,
    runs: Sequence[Run[Any, Any]],
    field: str,
    looks: Mapping[str, tuple[str, str, str]],
    *,
    error: bool = False,
) -> None:
    """A value of methods over epsilon; of those without an epsilon, a band.

    Args:
        axes: to draw into.
        runs: their settings have a method and an epsilon, which may be infinite.
        field: of the values.
        looks: label, colour and marker of each method.
        error: whether bars show standard errors, not standard deviations.
    """
    for method, (label, color, marker) in looks.items():
        own = by(select(runs, method=method), lambda setting: setting.epsilon)
        found = {epsilon: means(some, field) for epsilon, some in own.items()}
        heights = [mean.mean for mean in found.values()]
        spreads = [mean.error if error else mean.spread for mean in found.values()]
        if marker:
            look: Any = {"color": color, "marker": marker, "capsize": 2, "label": label}
            axes.errorbar([*found], heights, yerr=spreads, **look)
            continue
        for height, spread in zip(heights, spreads, strict=True):
            axes.axhline(height, color=color, linestyle="--", label=label)
            low, high = height - spread, height + spread
            axes.axhspan(low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(xscale="log", xlabel="epsilon", ylabel=field.replace("spd", "SPD"))


def as_svg(figure: Figure) -> str:
    """SVG text: the same numbers give the same bytes, and text takes the reader's fonts."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "synthfair", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", "-.", ":")
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
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
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return as_svg(figure)


def _plain(name: str) -> str:
    """As it stands, or its beginning.

    A dollar would start a formula, and a leading underscore hide it.
    """
    shown = name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _cycle(looks: Sequence[str], i: int) -> str:
    return looks[i % len(looks)]


def published(name: str) -> list[dict[str, str]]:
    """Lines of a table in ``benchmarks/published``."""
    with (PUBLISHED / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))
