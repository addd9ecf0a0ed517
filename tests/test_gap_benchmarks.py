"""The published numbers: those that can be computed are met, and what is false in them is shown."""

import math
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.findings import NO
from benchmarks.gap import paper
from benchmarks.gap.paper import (
    EPSILONS,
    PUBLISHED,
    TABLE1,
    UNIT,
    corrected,
    known_error,
    least_epsilon,
)
from benchmarks.runs import Run, Runs
from benchmarks.showing import published


@pytest.fixture(scope="module")
def cells():
    return [(cell, paper.run_epsilon(cell)) for cell in TABLE1.settings]


def test_table_1_has_its_printed_digits(cells):
    assert len(cells) == 30
    for cell, found in cells:
        assert math.isinf(found.published) == math.isinf(cell.printed)
        assert found.published == pytest.approx(cell.printed, rel=0, abs=0.00501)


def test_its_guarantees_are_too_small(cells):
    for cell, found in cells:
        if math.isfinite(cell.printed):
            assert found.true > found.published
        if cell.mechanism == "M_R":
            assert found.corrected >= found.published


def test_corrected_epsilons_are_true_and_reach_the_precision():
    for name in ("M_R", "M_L"):
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


def test_errors_cross_where_the_lines_through_them_do():
    """On lines of logs: MSE 1 / epsilon^2 and 1 / epsilon are equal at 1."""
    runs = Runs(
        Run(paper.ErrorPoint("published", name, epsilon), 0, paper.ErrorBounds(0, error))
        for epsilon in (0.1, 0.7, 2.0, 10.0)
        for name, error in (("M_R", epsilon**-2), ("M_L", 1 / epsilon))
    )
    assert paper.crossings(runs) == pytest.approx([1.0])
    assert next(paper.figure1(runs)).verdict == NO  # the paper has two


def test_errors_fall_with_epsilon():
    for name in ("M_R", "M_L"):
        errors = [known_error(corrected(name)(epsilon), 1e7) for epsilon in EPSILONS]
        assert all(low < high for high, low in pairwise(errors))


def test_errors_of_table_2_are_as_expected_in_units_of_the_rate(monkeypatch):
    """Mean |error| of 40 runs over its closed form: 1 with a standard deviation of 0.12. False
    alarms: 1 in 10,000; errors in units of v, twice as large, or half, would be found."""
    rng = np.random.default_rng(0)
    group = np.arange(20_000) % 2
    rate = np.where(group == 1, 0.9 * (rng.random(20_000) < 0.234), 0.002)
    monkeypatch.setattr(paper, "sensor_clients", lambda: (group, rate))
    setting = paper.ErrorSetting("true", "M_R", 1.0)
    runs = Runs(Run(setting, i, paper.run_errors(setting, i, smoke=False)) for i in range(40))
    ratio = runs.mean("known").mean / runs[0].values.expected
    assert abs(ratio - 1) < 0.47
    assert "| true | M_R | 1 | 1.000 |" in paper.show_errors(runs)["table2.md"]
