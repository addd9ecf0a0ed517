"""Texts and plots are compared as readers would: words exactly, numbers nearly."""

import re

import pytest
from comparison import EXAMPLE, same_plot, same_text

from benchmarks.showing import Point, frontier

PRINTED = "SPD +0.21 of 1,234 at 2e-05"


@pytest.mark.parametrize(
    ("claimed", "tolerance", "same"),
    [
        ("SPD  +0.24\n of 1,234 at 2e-05", EXAMPLE, True),
        ("SPD +0.25 of 1,234 at 2e-05", EXAMPLE, False),
        ("SPD -0.21 of 1,234 at 2e-05", EXAMPLE, False),
        ("gap +0.21 of 1,234 at 2e-05", EXAMPLE, False),
        ("SPD +0.21 of 1,234", EXAMPLE, False),
        ("SPD +0.22 of 1,234 at 3e-05", None, True),
        ("SPD +0.23 of 1,234 at 2e-05", None, False),
        ("SPD +0.21 of 1,235 at 2e-05", None, False),
    ],
)
def test_texts_may_differ_in_numbers_a_little_and_not_in_words(claimed, tolerance, same):
    assert same_text(claimed, PRINTED, tolerance=tolerance) is same


def test_plots_may_differ_in_rounding_and_names_and_in_nothing_else():
    def plotted(name="ours", gap=0.05):
        return frontier({name: [Point(gap, 0.9), Point(0.2, 0.95), Point(0.0, 0.8)]})

    once = plotted()
    for other in (
        plotted(gap=0.05 * (1 + 1e-7)),
        re.sub(r'(?<=["#])([mp])(?=[0-9a-f]{10})', r"\1x", once),
    ):
        assert other != once
        assert same_plot(once, other)
    for other in (plotted("theirs"), plotted(gap=0.052), once.replace("#0072b2", "#0073b2")):
        assert not same_plot(once, other)
