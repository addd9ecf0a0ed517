"""Figures show their numbers; names are escaped, bytes are stable."""

import re
from xml.etree import ElementTree

import pytest

from synthfair.fairness.metrics import Metric
from synthfair.report.figures import Series, draw, svg_text

NAN = float("nan")


def drawn(*points, **looks):
    """The SVG of points (x, y) of one series."""
    series = Series("one", [x for x, _ in points], [y for _, y in points], **looks)
    return ElementTree.fromstring(svg_text(draw([series], xlim=(0, 1), ylim=(0, 1))))


def marks(root):
    """Places of the marks, without the legend's."""
    uses = root.findall(".//{*}g[@id='axes_1']//{*}g[@clip-path]/{*}use")
    return [(float(use.get("x")), float(use.get("y"))) for use in uses]


def ticks(root, axis):
    """Places of the numbers along an axis, by their texts."""
    found = {}
    for line in root.findall(f".//{{*}}g[@id='matplotlib.axis_{axis}']/{{*}}g"):
        use, text = line.find(".//{*}use"), line.find(".//{*}text")
        if use is not None and text is not None:
            found[text.text] = float(use.get("x" if axis == 1 else "y"))
    return found


def test_figure_has_its_marks_and_intervals_where_the_ticks_say():
    root = drawn((0.2, 0.6))
    assert marks(root) == [pytest.approx((ticks(root, 1)["0.2"], ticks(root, 2)["0.6"]))]
    root = drawn((Metric(0.5, 0.2, 0.6), Metric(0.5, 0.4, 1.0)))
    across, down = ticks(root, 1), ticks(root, 2)
    lines = [root.find(f".//{{*}}g[@id='LineCollection_{i}']/{{*}}path") for i in (1, 2)]
    ends = [[float(number) for number in re.findall(r"[\d.]+", line.get("d"))] for line in lines]
    assert ends[0][::2] == pytest.approx([across["0.2"], across["0.6"]], abs=1e-3)
    assert ends[1][1::2] == pytest.approx([down["0.4"], down["1.0"]], abs=1e-3)


@pytest.mark.parametrize("line", [True, False])
def test_figure_leaves_out_what_is_undefined(line):
    nowhere = Metric(1.0, NAN, NAN)
    root = drawn((NAN, 1.0), (1.0, NAN), (0.5, nowhere), (Metric(NAN, NAN, NAN), 0.1), line=line)
    assert len(marks(root)) == 1
    assert "nan" not in ElementTree.tostring(root, encoding="unicode").lower()


def test_figure_of_the_same_numbers_has_the_same_bytes():
    """No name in the file is random, or of a count of what was drawn before."""
    series = Series("one", [0.1, 0.2], [0.3, 0.4], line=True), Series("two", [0.1], [0.3])
    once = svg_text(draw(series, limit=0.5))
    svg_text(draw([]))
    assert svg_text(draw(series, limit=0.5)) == once
