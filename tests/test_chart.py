"""Charts put marks where their numbers say, in colours that can be seen, and escape names."""

import re
from xml.etree import ElementTree

import pytest

from synthfair.report.chart import DARK, LIGHT, Chart, Mark, Series, as_svg
from synthfair.report.page import Picture

NS = "{http://www.w3.org/2000/svg}"


def drawn(chart):
    return ElementTree.fromstring(as_svg(chart))


def chart(*marks, **settings):
    return Chart("A title", "across", "up", [Series("one", marks)], **settings)


def places(root):
    """Of the marks, not of the legend's."""
    paths = root.findall(f".//{NS}g[{NS}title]/{NS}path[@class='mark']")
    return [tuple(map(float, re.findall(r"[\d.]+", p.get("transform"))))[:2] for p in paths]


def test_marks_lie_where_the_ticks_say():
    """The mark of (0.2, 0.6) is level with the ticks of these names."""
    root = drawn(chart(Mark(0.2, 0.6, "here"), x_range=(0.0, 1.0), y_range=(0.0, 1.0)))
    ((x, y),) = places(root)
    ticks = {(t.text, t.get("text-anchor")): t for t in root.iter(f"{NS}text")}
    assert float(ticks["0.2", "middle"].get("x")) == pytest.approx(x)
    assert float(ticks["0.6", "end"].get("y")) == pytest.approx(y + 4)


def test_more_is_further_up_and_to_the_right():
    (a, b) = places(drawn(chart(Mark(1.0, 5.0, "a"), Mark(2.0, 6.0, "b"))))
    assert a[0] < b[0]
    assert a[1] > b[1]


def test_intervals_reach_their_bounds():
    mark = Mark(0.5, 0.5, "m", y_interval=(0.25, 1.0))
    root = drawn(chart(mark, x_range=(0.0, 1.0), y_range=(0.0, 1.0)))
    ends = drawn(chart(Mark(0.5, 0.25, ""), Mark(0.5, 1.0, ""), x_range=(0, 1), y_range=(0, 1)))
    (bar,) = (p.get("d") for p in root.iter(f"{NS}path") if p.get("class") == "bar")
    assert [float(v) for v in re.findall(r"M[\d.]+ ([\d.]+)h6m-3 0V([\d.]+)", bar)[0]] == [
        y for _, y in places(ends)
    ]


def test_hollow_marks_are_outlines_above_the_others():
    same = [Mark(0.5, 0.5, "m")]
    series = [Series("a", same), Series("b", same, hollow=True), Series("c", same)]
    text = as_svg(Chart("A title", "across", "up", series), alone=False)
    marks = ElementTree.fromstring(text).findall(".//{*}g[{*}title]/{*}path")
    assert [mark.get("class") for mark in marks] == ["mark", "mark", "mark hollow"]
    keys = ElementTree.fromstring(text).findall(".//{*}path")[3:]
    assert [key.get("class") for key in keys] == ["mark", "mark hollow", "mark"]


def test_what_is_undefined_is_not_drawn():
    nan = float("nan")
    root = drawn(
        chart(Mark(nan, 1.0, ""), Mark(1.0, nan, ""), Mark(1, 1, "", (nan, nan), (nan, 2)))
    )
    assert len(places(root)) == 1
    assert "nan" not in as_svg(chart(Mark(nan, nan, "")))


@pytest.mark.parametrize("values", [(0.0,), (3.0, 3.0), (-1e12, 1e12), (1e-9, 2e-9), ()])
def test_axes_have_ticks_whatever_their_range(values):
    root = drawn(chart(*(Mark(v, v, "m") for v in values)))
    ticks = [t for t in root.iter(f"{NS}text") if t.get("text-anchor") == "middle"]
    assert 2 <= len(ticks) <= 7


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a & b", '"quoted"', "$\\frac{1}$"])
def test_names_are_escaped(name):
    hostile = Chart(name, name, name, [Series(name, [Mark(0, 0, name)])])
    for text in (as_svg(hostile), str(Picture("n", hostile).svg)):
        assert "<script" not in text
        root = ElementTree.fromstring(text)
        assert root.get("aria-label") == name
        assert name in [found.text for found in root.iter() if found.text]


def test_a_legend_has_whole_names_within_the_chart_and_none_on_another():
    long = "single-shot, surrogates; penalty = selection_rate, gap at most 0.05 wanted, or less"
    names = ["short", long, "brief", "last"]
    root = drawn(Chart("t", "", "", [Series(name, [Mark(0, 0, "")]) for name in names]))
    *_, width, height = map(float, root.get("viewBox").split())
    texts = [t for t in root.iter(f"{NS}text") if t.text and t.text[0].isalpha()]
    assert " ".join(t.text for t in texts) == " ".join(names)
    ends = [float(t.get("x")) + 6.3 * len(t.text) for t in texts]
    assert max(ends) < width
    assert max(float(t.get("y")) for t in texts) < height
    assert len({(t.get("x"), t.get("y")) for t in texts}) == len(texts)


def luminance(color):
    """Relative luminance, WCAG 2.2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_seen_on_light_and_dark_pages():
    for colors, page, text in ((LIGHT, "#ffffff", "#595959"), (DARK, "#16181b", "#b0b0b0")):
        assert min(contrast(color, page) for color in colors) >= 3
        assert contrast(text, page) >= 4.5
        assert len(set(colors)) == len(colors)
