"""Charts as SVG text: points with intervals, lines, a legend; for light and dark pages and print.

A chart scales with its page, and its text stays legible on a phone. Each mark has a title, which
browsers show where the mouse rests. Colour is never all that distinguishes two series: their shapes
or dashes differ, too.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

LIGHT = ("#0072B2", "#B84A00", "#00775A", "#A0467E", "#6B5600", "#444444")
DARK = ("#56B4E9", "#F0903C", "#2FC79A", "#E39CC8", "#E8D84A", "#CCCCCC")
"""Colours after Okabe and Ito, each with a contrast of 3 or more to its page (WCAG 1.4.11)."""

STYLE = f"""
.chart {{ color: #1a1a1a; font: 12px system-ui, sans-serif; width: 100%; height: auto;
  {" ".join(f"--c{i}: {color};" for i, color in enumerate(LIGHT))} }}
.chart text {{ fill: currentColor; }}
.chart .grid {{ stroke: currentColor; opacity: .15; }}
.chart .axis {{ stroke: currentColor; fill: none; }}
.chart .rule {{ stroke: currentColor; stroke-dasharray: 2 3; }}
.chart .mark {{ fill: currentColor; stroke: none; }}
.chart .hollow {{ fill: none; stroke: currentColor; stroke-width: 1.6;
  vector-effect: non-scaling-stroke; }}
.chart .bar {{ stroke: currentColor; stroke-width: 1.3; fill: none; }}
.chart .line {{ stroke: currentColor; stroke-width: 1.6; fill: none; }}
{"".join(f".chart .s{i} {{ color: var(--c{i}); }} " for i in range(len(LIGHT)))}
@media screen and (prefers-color-scheme: dark) {{ .chart {{ color: #e6e6e6;
  {" ".join(f"--c{i}: {color};" for i, color in enumerate(DARK))} }} }}
"""
"""Rules for charts: a page has them once, and a chart in a file of its own, too."""

_SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",  # circle
    "M-3.7-3.7h7.4v7.4h-7.4Z",  # square
    "M0-5.2L5.2 0L0 5.2L-5.2 0Z",  # diamond
    "M0-5L5 4H-5Z",  # triangle
    "M0 5L5-4H-5Z",
    "M-5-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5Z",  # cross
)
_DASHES = ("", "7 3", "2 2", "7 3 2 3")
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 400, 46, 14, 30, 220
_ROW, _LETTER = 17, 6.3  # of the legend: height of a row, width of a letter
_LONGEST = 56  # letters of a line of the legend


class Mark(NamedTuple):
    """A point, and intervals of its coordinates where they are known.

    Attributes:
        x: not-a-number for a mark that is not drawn.
        y: the same.
        title: what it is and says, in words.
        x_interval: lower and upper bound.
        y_interval: the same.
    """

    x: float
    y: float
    title: str
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None


class Series(NamedTuple):
    """Marks that belong together.

    Attributes:
        name: in the legend.
        marks: in the order in which a line joins them.
        line: whether one does.
        scale: of the marks' size; 0 for a line alone.
        hollow: outlines, drawn above those that are filled, so that both are seen.
    """

    name: str
    marks: Sequence[Mark]
    line: bool = False
    scale: float = 1.0
    hollow: bool = False


class Chart(NamedTuple):
    """What is drawn.

    Attributes:
        title: in words, read aloud where the chart cannot be seen.
        x_label: of the axis.
        y_label: of the axis.
        series: in the legend's order; the first is drawn on top, but below hollow ones.
        x_range: ends of the axis; if None, those that the marks need.
        y_range: the same.
        categories: names of x = 0, 1, 2, ... in place of numbers; a newline starts a line.
        rules: vertical lines, each with its name.
        diagonal: whether the line y = x is drawn.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    categories: Sequence[str] = ()
    rules: Sequence[tuple[float, str]] = ()
    diagonal: bool = False


class _Axis(NamedTuple):
    """From numbers to places: ``low`` is drawn at ``start``, ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Multiples of 1, 2 or 5 times a power of ten, at most six."""
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / 6))
        step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= 6)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1):
            value = i * step
            yield value, f"{value:z.{digits}f}" if abs(value) < 1e5 else f"{value:.3g}"


def as_svg(chart: Chart, *, alone: bool = True) -> str:
    """The chart; ``alone`` as a file, which brings its style, or inside a page that has it.

    The same numbers give the same text. Names are escaped.
    """
    return ElementTree.tostring(_drawn(chart, alone=alone), encoding="unicode")


def _drawn(chart: Chart, *, alone: bool) -> ElementTree.Element:
    bottom = _TOP + _HEIGHT
    x = _axis(chart, "x", _LEFT, _WIDTH - _RIGHT)
    y = _axis(chart, "y", bottom, _TOP)
    lines = max((name.count("\n") + 1 for name in chart.categories), default=1)
    legend = bottom + 14 * lines + (24 if chart.x_label else 8)
    names = [textwrap.wrap(series.name, _LONGEST) or [""] for series in chart.series]
    *rows, (_, last) = _legend_places(names)
    height = legend + _ROW * last
    box = f"0 0 {_WIDTH} {height}"
    look = {"class": "chart", "role": "img", "viewBox": box, "aria-label": chart.title}
    root = ElementTree.Element("svg", look)
    if alone:
        root.set("xmlns", "http://www.w3.org/2000/svg")
        _add(root, "style", STYLE)
    _draw_axes(root, chart, x, y)
    for i, series in sorted(enumerate(chart.series), key=lambda item: (item[1].hollow, -item[0])):
        group = _add(root, "g", **{"class": f"s{i % len(LIGHT)}"})
        _draw_series(group, series, i, x, y)
    for i, (series, name, (column, row)) in enumerate(zip(chart.series, names, rows, strict=True)):
        _draw_key(root, series, name, i, (8 + column, legend + _ROW * row))
    return root


def _axis(chart: Chart, name: str, start: float, end: float) -> _Axis:
    given = chart.x_range if name == "x" else chart.y_range
    if given is None:
        values = [
            value for series in chart.series for m in series.marks for value in _ends(m, name)
        ]
        values += [place for place, _ in chart.rules] if name == "x" else []
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
        # Room is not needed beyond 0, where a gap ends.
        given = (low if low == 0 else low - room, high + room)
    return _Axis(*given, start, end)


def _ends(mark: Mark, name: str) -> list[float]:
    value, bounds = getattr(mark, name), getattr(mark, f"{name}_interval")
    return [v for v in (value, *(bounds or ())) if math.isfinite(v)]


def _draw_axes(root: ElementTree.Element, chart: Chart, x: _Axis, y: _Axis) -> None:
    for value, text in y.ticks():
        place = y.place(value)
        _line(root, "grid", (x.start, place), (x.end, place))
        _add(root, "text", text, x=x.start - 6, y=place + 4, anchor="end")
    ticks = [(i, name) for i, name in enumerate(chart.categories)] or x.ticks()
    for value, text in ticks:
        if not chart.categories:
            _line(root, "grid", (x.place(value), y.start), (x.place(value), y.end))
        for row, line in enumerate(text.split("\n")):
            _add(root, "text", line, x=x.place(value), y=y.start + 15 + 13 * row, anchor="middle")
    for value, name in chart.rules:
        place = x.place(value)
        _line(root, "rule", (place, y.start), (place, y.end))
        anchor = "start" if place < (x.start + x.end) / 2 else "end"
        _add(root, "text", name, x=place, y=y.end - 4, anchor=anchor)
    if chart.diagonal:
        ends = ((v, v) for v in (max(x.low, y.low), min(x.high, y.high)))
        _line(root, "rule", *((x.place(a), y.place(b)) for a, b in ends))
    _line(root, "axis", (x.start, y.end), (x.start, y.start), (x.end, y.start))
    _add(root, "text", chart.y_label, x=4, y=y.end - 17)
    _add(root, "text", chart.x_label, x=x.end, y=y.start + 31, anchor="end")


def _draw_series(group: ElementTree.Element, series: Series, i: int, x: _Axis, y: _Axis) -> None:
    known = [mark for mark in series.marks if math.isfinite(mark.x) and math.isfinite(mark.y)]
    places = [(x.place(mark.x), y.place(mark.y)) for mark in known]
    if series.line and len(known) > 1:
        line = _line(group, "line", *places)
        line.set("stroke-dasharray", _DASHES[i % len(_DASHES)])
    for mark, (across, up) in zip(known, places, strict=True):
        if not series.scale:
            continue
        one = _add(group, "g")
        _add(one, "title", mark.title)
        if mark.x_interval and all(map(math.isfinite, mark.x_interval)):
            low, high = map(x.place, mark.x_interval)
            _bar(one, f"M{low} {up - 3}v6m0-3H{high}m0-3v6")
        if mark.y_interval and all(map(math.isfinite, mark.y_interval)):
            low, high = map(y.place, mark.y_interval)
            _bar(one, f"M{across - 3} {low}h6m-3 0V{high}m-3 0h6")
        _shape(one, i, across, up, series.scale, hollow=series.hollow)


def _legend_places(names: Sequence[Sequence[str]]) -> Iterator[tuple[float, int]]:
    """Of each name, in lines: its place from the left, and its first row; last, the end of all."""
    left, row, lines = 0.0, 0, 0
    for name in names:
        width = 34 + _LETTER * max(map(len, name))
        if left and (left + width > _WIDTH or len(name) > 1):
            left, row, lines = 0.0, row + lines, 0
        yield left, row
        left, lines = left + width, max(lines, len(name))
    yield 0.0, row + lines


def _draw_key(
    root: ElementTree.Element,
    series: Series,
    name: Sequence[str],
    i: int,
    place: tuple[float, float],
) -> None:
    left, top = place
    key = _add(root, "g", **{"class": f"s{i % len(LIGHT)}"})
    if series.line:
        line = _line(key, "line", (left - 4, top + 8), (left + 16, top + 8))
        line.set("stroke-dasharray", _DASHES[i % len(_DASHES)])
    if series.scale:
        _shape(key, i, left + 6, top + 8, 1.0, hollow=series.hollow)
    for row, line in enumerate(name):
        _add(root, "text", line, x=left + 20, y=top + 12 + _ROW * row)


def _shape(
    parent: ElementTree.Element, i: int, x: float, y: float, scale: float, *, hollow: bool
) -> None:
    place = f"translate({x:g} {y:g})" + (f" scale({scale:g})" if scale != 1 else "")
    # The colours begin again after six series, and the shapes then are others.
    shape = _SHAPES[(i + i // len(LIGHT)) % len(_SHAPES)]
    _add(parent, "path", d=shape, transform=place, **{"class": "mark hollow" if hollow else "mark"})


def _bar(parent: ElementTree.Element, path: str) -> None:
    _add(parent, "path", d=path, **{"class": "bar"})


def _line(
    parent: ElementTree.Element, kind: str, *places: tuple[float, float]
) -> ElementTree.Element:
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    return _add(parent, "polyline", points=points, **{"class": kind})


def _add(
    parent: ElementTree.Element, tag: str, text: str = "", *, anchor: str = "", **attributes: object
) -> ElementTree.Element:
    found = ElementTree.SubElement(parent, tag, {k: f"{v}" for k, v in attributes.items()})
    if anchor:
        found.set("text-anchor", anchor)
    found.text = text
    return found
