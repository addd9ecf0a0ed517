"""What was measured, as SVG: told apart by hatches and labels as well as by colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.speed.limits import Ceilings, least_seconds
from benchmarks.speed.measure import Measured, Timed
from benchmarks.speed.show import works

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442")
HATCHES = ("", "//", "..", "xx", "||")
MEASURED = "#BBBBBB"


def seconds(results: Sequence[Measured]) -> str:
    """Time of all steps by package and size, on a log axis."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    names = [package.name for package in results[0].packages]
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        places = [place + (i - (len(names) - 1) / 2) * width for place in range(len(results))]
        heights = [size.packages[i].median for size in results]
        look = {"color": COLORS[i], "hatch": HATCHES[i], "edgecolor": "black", "linewidth": 0.6}
        bars = axes.bar(places, heights, width, label=name, **look)
        axes.bar_label(bars, [_short(height) for height in heights], padding=2, fontsize="small")
    axes.set_xticks(range(len(results)), [f"N_s = {size.n_synthetic:,}" for size in results])
    axes.set(yscale="log", ylabel=f"seconds for {results[0].steps:,} outer steps")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.margins(y=0.15)
    axes.set_ylim(bottom=10 ** math.floor(math.log10(min(p.median for p in _all(results)))))
    _bare(axes)
    figure.legend(loc="outside lower center", ncols=len(names), frameon=False)
    return as_svg(figure)


def _all(results: Sequence[Measured]) -> list[Timed]:
    return [package for size in results for package in size.packages]


def limits(results: Sequence[Measured], ceilings: Ceilings) -> str:
    """The phases of the least work stacked, above the measured step; a panel for each size."""
    figure = Figure(figsize=(7, 1 + 1.7 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), 1, squeeze=False)[:, 0]
    for axes, size in zip(panels, results, strict=True):
        _limit_panel(axes, size, ceilings)
    panels[-1].set_xlabel("milliseconds for one outer step")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return as_svg(figure)


def _limit_panel(axes: Axes, size: Measured, ceilings: Ceilings) -> None:
    step = 1e3 * size.fastest_step
    axes.barh(0, step, color=MEASURED, edgecolor="black", linewidth=0.6)
    _beside(axes, step, 0, _short(step))
    end = _stack(axes, size, ceilings)
    _beside(axes, end, 1, f"{_short(end)} (our fastest run takes {step / end:.1f} times that)")
    axes.set_yticks(range(2), ["fastest run", "limit"])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(f"N_s = {size.n_synthetic:,}", fontsize="medium", loc="left")
    _bare(axes)


def _stack(axes: Axes, size: Measured, ceilings: Ceilings) -> float:
    """Phase after phase; returns where the last one ends."""
    end = 0.0
    for i, phase in enumerate(works(size)):
        length = 1e3 * least_seconds(phase, ceilings.flops, ceilings.memory)
        look = {"color": COLORS[i], "hatch": HATCHES[i], "edgecolor": "black", "linewidth": 0.6}
        axes.barh(1, length, left=end, label=phase.phase, **look)
        end += length
    return end


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    """Right of the end of a bar."""
    axes.annotate(
        text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize="small"
    )


def _short(value: float) -> str:
    return f"{value:.3g}"


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
