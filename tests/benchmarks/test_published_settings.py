"""The settings of benchmarks in rounds: those that were chosen on training rows."""

import numpy as np
import pytest

from benchmarks import adult_fpfl, two_phase
from benchmarks.harness import committed
from benchmarks.runs import Run, Runs
from synthfair.data.encode import Encoded

OF_WHOM = ("published", "ours")


def test_gaps_of_a_table_by_hand():
    y = np.array([1.0, 1, -1, -1, 1, 1, -1, -1])
    rows = Encoded(np.zeros((8, 1)), np.repeat([0, 1], 4), y)
    found = adult_fpfl.measured(np.array([1.0, 1, 1, -1, 1, -1, -1, -1]), rows)
    assert found.accuracy == 6 / 8
    assert found.fnr_gap == pytest.approx(0.25)  # overall 1/4, groups 0 and 1/2
    assert found.eo_gap == pytest.approx(0.25)
    assert found.demp_gap == pytest.approx(0.25)  # 1/2; 3/4 and 1/4
    assert found.pp_gap == pytest.approx(0.25)  # 3/4; 2/3 and 1


def test_a_gap_without_a_decision_in_a_group_is_undefined():
    assert np.isnan(adult_fpfl.gap(np.ones(2, bool), np.array([True, False]), np.array([0, 1])))


def test_all_published_rows_have_a_setting():
    both = {row._replace(settings=name) for row in adult_fpfl.published_rows() for name in OF_WHOM}
    assert both == set(adult_fpfl.SETTINGS) == set(adult_fpfl.ROWS)


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
def test_the_constant_classifier_is_that_of_the_test_rows():
    rows = adult_fpfl.load()[1]
    assert np.mean(rows.y < 0) == adult_fpfl.CONSTANT
    assert np.abs(rows.x).max() == 2.0


def test_our_settings_are_those_that_were_chosen():
    chosen = adult_fpfl.chosen(committed("adult_fpfl", "choices"))
    assert {row: one[2:] for row, one in chosen.items()} == adult_fpfl.CHOSEN


def test_the_most_accurate_candidate_that_keeps_the_gap_is_chosen():
    def run(cohort, rate, accuracy, gap):
        setting = adult_fpfl.Candidate(cohort, "FPFL", 0.01, rate)
        return Run(setting, 0, adult_fpfl.AdultValues(accuracy, gap, 0, 0, 0))

    runs = [run(200, 1.0, 0.85, 0.03), run(200, 2.0, 0.84, 0.02), run(200, 3.0, 0.83, 0.01)]
    runs += [run(1000, 1.0, 0.85, 0.05), run(1000, 2.0, 0.84, 0.04)]
    assert [one.rate_scale for one in adult_fpfl.chosen(Runs(runs)).values()] == [2.0, 2.0]


def test_kappas_are_those_that_were_chosen():
    assert two_phase.chosen(committed("two_phase", "choices")) == two_phase.KAPPAS


def test_a_constant_decision_is_never_the_chosen_kappa():
    def run(kappa, accuracy, gap):
        setting = two_phase.Teachers("bank", "statistical_parity", False, *kappa)
        return Run(setting, 0, two_phase.TeacherValues(accuracy, gap, 0.8))

    free, near, fair, *_, constant = two_phase.STEPS
    runs = [run(free, 0.9, 0.3), run(near, 0.89, 0.1), run(fair, 0.881, 0.05)]
    others = [run(kappa, 0.879, 0.01) for kappa in two_phase.STEPS[3:-1]]
    (found,) = two_phase.chosen(Runs([*runs, *others, run(constant, 0.8, 0.0)])).values()
    assert found == fair
    few = [run(free, 0.9, 0.3), *others, run(near, 0.86, 0.2), run(fair, 0.85, 0.1)]
    (found,) = two_phase.chosen(Runs([*few, run(constant, 0.8, 0.0)])).values()
    assert found in two_phase.STEPS[3:-1]
