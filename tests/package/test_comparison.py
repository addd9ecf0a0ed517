import re
from functools import cache

import pytest
from comparison import EXAMPLE, same_plot, same_text

from benchmarks.showing import Point, frontier


@pytest.mark.parametrize(
    ("claimed", "same"),
    [
        ("SPD 0.21,\n  12 rows", True),
        ("SPD 0.24, 12 rows", True),
        ("SPD 0.25, 12 rows", False),
        ("SPD -0.21, 12 rows", False),
        ("SPD 0.21, 13 rows", False),
        ("gap 0.21, 12 rows", False),
    ],
)
def test_texts_may_differ_in_numbers_a_little_and_not_in_words(claimed, same):
    assert same_text(claimed, "SPD 0.21, 12 rows\n", tolerance=EXAMPLE) is same


def test_texts_of_a_page_may_differ_by_one_in_the_last_written_digit():
    printed = "+0.127 of 1,234 at 2e-05"
    assert same_text("+0.128 of 1,234 at 3e-05", printed)
    for other in (
        "+0.129 of 1,234 at 2e-05",
        "+0.127 of 1,235 at 2e-05",
        "-0.127 of 1,234 at 2e-05",
    ):
        assert not same_text(other, printed)
    assert same_text("+0.000", "-0.000")


@cache
def plotted(name="ours", gap=0.0500, accuracy=0.9):
    return frontier({name: [Point(gap, accuracy), Point(0.2, 0.95), Point(0.0, 0.8)]})


def test_plot_is_the_same_whatever_rounding_makes_of_it():
    once = plotted()
    for other in (
        plotted(gap=0.05 * (1 + 1e-7)),
        re.sub(r'(?<=["#])([mp])(?=[0-9a-f]{10})', r"\1x", once),
    ):
        assert other != once
        assert same_plot(once, other)


@pytest.mark.parametrize(
    "other",
    [
        lambda: plotted("theirs"),
        lambda: plotted(gap=0.052),
        lambda: plotted().replace("#0072b2", "#0073b2"),
        lambda: frontier({"ours": [Point(0.05, 0.9), Point(0.2, 0.95)]}),
    ],
    ids=["name", "gap", "colour", "points"],
)
def test_plot_of_other_numbers_or_words_is_another(other):
    assert not same_plot(plotted(), other())
