"""Figures show their numbers, in colours that can be seen; names are escaped, bytes are stable."""

import re
from xml.etree import ElementTree

import pytest

from synthfair.errors import InputError
from synthfair.fairness.metrics import Metric
from synthfair.report.figures import COLORS, Series, draw, svg_text

NAN = float("nan")


def svg(*series, **looks):
    return svg_text(draw(series, **looks))


def drawn(*points, **looks):
    """The SVG of points (x, y) of one series."""
    series = Series("one", [x for x, _ in points], [y for _, y in points], **looks)
    return ElementTree.fromstring(svg(series, xlim=(0, 1), ylim=(0, 1)))


def marks(root):
    """Places of the marks, without the legend's."""
    uses = root.findall(".//{*}g[@id='axes_1']//{*}g[@clip-path]/{*}use")
    return [(float(use.get("x")), float(use.get("y"))) for use in uses]


def ticks(root, axis):
    """Places of the numbers along an axis, by their texts."""
    lines = root.findall(f".//{{*}}g[@id='matplotlib.axis_{axis}']/{{*}}g")
    found = {}
    for line in lines:
        use, text = line.find(".//{*}use"), line.find(".//{*}text")
        if use is not None and text is not None:
            found[text.text] = float(use.get("x" if axis == 1 else "y"))
    return found


def test_marks_lie_where_the_ticks_say():
    root = drawn((0.2, 0.6))
    ((x, y),) = marks(root)
    assert x == pytest.approx(ticks(root, 1)["0.2"])
    assert y == pytest.approx(ticks(root, 2)["0.6"])


def test_intervals_reach_their_bounds():
    root = drawn((Metric(0.5, 0.2, 0.6), Metric(0.5, 0.4, 1.0)))
    down, across = ticks(root, 2), ticks(root, 1)
    paths = [path.get("d") for path in root.findall(".//{*}g[@id='LineCollection_1']/{*}path")]
    paths += [path.get("d") for path in root.findall(".//{*}g[@id='LineCollection_2']/{*}path")]
    ends = [[float(number) for number in re.findall(r"[\d.]+", path)] for path in paths]
    assert ends[0][::2] == pytest.approx([across["0.2"], across["0.6"]], abs=1e-3)
    assert ends[1][1::2] == pytest.approx([down["0.4"], down["1.0"]], abs=1e-3)


@pytest.mark.parametrize("line", [True, False])
def test_what_is_undefined_is_not_drawn(line):
    nowhere = Metric(1.0, NAN, NAN)
    root = drawn((NAN, 1.0), (1.0, NAN), (0.5, nowhere), (Metric(NAN, NAN, NAN), 0.1), line=line)
    assert len(marks(root)) == 1
    assert "nan" not in ElementTree.tostring(root, encoding="unicode").lower()


@pytest.mark.parametrize(
    ("values", "line"),
    [((0.0,), True), ((3.0, 3.0), False), ((-1e12, 1e12), True), ((1e-9, 2e-9), False), ((), True)],
)
def test_there_are_axes_whatever_their_range(values, line):
    root = ElementTree.fromstring(svg(Series("one", values, values, line=line)))
    assert 2 <= len(ticks(root, 1)) <= 12


NAMES = ["<script>alert(1)</script>", "a & b", '"quoted"', "$\\frac{1}$", "_hidden", "\u6f22\u5b57"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(name):
    text = svg(Series(name, [0.0], [0.0]), xlabel=name, ylabel=name)
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")].count(name) == 3


def test_a_long_name_is_on_several_lines():
    long = "single-shot, surrogates; penalty = selection_rate, gap at most 0.05 wanted, or less"
    root = ElementTree.fromstring(svg(Series(long, [0.0], [0.0])))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert long not in texts
    assert long in " ".join(filter(None, texts))


def test_hollow_marks_lie_above_the_others_and_the_first_above_the_next():
    series = [Series(name, [0.5], [0.5], hollow=name == "b") for name in "abc"]
    axes = ElementTree.fromstring(svg(*series)).find(".//{*}g[@id='axes_1']")
    styles = [use.get("style") for use in axes.findall(".//{*}g[@clip-path]/{*}use")]
    colors = [re.search("stroke: (#[0-9a-f]{6})", style)[1].upper() for style in styles]
    assert colors == [COLORS[2].upper(), COLORS[0].upper(), COLORS[1].upper()]
    assert [("fill: none" in style or "fill-opacity: 0" in style) for style in styles] == [
        False, False, True,
    ]  # fmt: skip


def test_the_same_numbers_give_the_same_bytes():
    """No name in the file is random, or of a count of what was drawn before."""

    series = Series("one", [0.1, 0.2], [0.3, 0.4], line=True), Series("two", [0.1], [0.3])
    once = svg(*series, limit=0.5)
    svg()
    assert svg(*series, limit=0.5) == once
    assert len(once) > 1000
    assert "dc:date" not in once


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("synthfair.errors.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'synthfair\[report\]'"):
        draw([])


def luminance(color):
    """Relative luminance, WCAG 2.2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_seen_on_white():
    assert min(1.05 / (luminance(color) + 0.05) for color in COLORS) >= 3
    assert len(set(COLORS)) == len(COLORS)
