"""The gap over devices: published numbers that are met, what is false in them, and intervals."""

import math

import pytest

from benchmarks.gap import paper
from benchmarks.gap.paper import PUBLISHED, TABLE1, UNIT, corrected, known_error, least_epsilon
from benchmarks.showing import published


@pytest.mark.parametrize("cell", TABLE1.settings)
def test_table_1_has_its_printed_digits_and_guarantees_that_are_too_small(cell):
    found = paper.run_epsilon(cell)
    assert math.isinf(found.published) == math.isinf(cell.printed)
    assert found.published == pytest.approx(cell.printed, rel=0, abs=0.00501)
    assert math.isinf(cell.printed) or found.true > found.published


@pytest.mark.parametrize("name", ["M_R", "M_L"])
def test_corrected_epsilons_are_true_and_reach_the_precision(name):
    make = corrected(name)
    found = least_epsilon(make, 1e6, 0.1)
    assert make(found).epsilon <= found
    assert known_error(make(found), 1e6) <= 0.01 * 0.1**2 < known_error(make(found - 1e-3), 1e6)


def test_bounds_of_table_2_are_those_of_rates_mapped_to_the_range_of_v():
    """A gap of rates in [0, 1] is half of that of v = 2 rate - 1."""
    for line in published("juarez_2022_table2"):
        made = PUBLISHED[line["mechanism"]](float(line["epsilon"]))
        bound = math.sqrt(known_error(made, 1e7) / 0.01)
        assert float(line["chebyshev_alpha"]) == pytest.approx(UNIT * bound, abs=1e-4)
