"""The benchmark of additive models: what its page says of which runs."""

import pytest

from benchmarks import additive
from benchmarks.additive import CENTRAL, EXACT, PRIVATE, AdditiveSetting, AdditiveValues
from benchmarks.runs import Run, Runs


def some_runs(learner, rows, asked, accuracy, spd=0.0):
    setting = AdditiveSetting("dutch", learner, rows, asked)
    values = [AdditiveValues(accuracy + seed / 1e4, spd) for seed in range(2)]
    return [Run(setting, seed, value) for seed, value in enumerate(values)]


def test_every_setting_is_there_once_and_has_a_name():
    settings = [*additive.settings_of_all()]
    assert len(settings) == len(set(settings))
    assert {one.table for one in settings} == set(additive.TABLES)
    places = [(one.table, one.asked, additive.label_of(one)) for one in settings]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("goal", "changed", "words", "met"),
    [
        ("all rows, nothing", ("trees", CENTRAL, "nothing", 0.8279), "-0.0079 ± 0.0000", True),
        ("all rows, nothing", ("trees", CENTRAL, "nothing", 0.8281), "-0.0081 ± 0.0000", False),
        ("surrogates, gap", ("linear", CENTRAL, "gap", 0.789), "+0.0110 ± 0.0000", True),
        ("surrogates, gap", ("linear", CENTRAL, "gap", 0.791), "+0.0090 ± 0.0000", False),
        ("epsilon", ("linear", CENTRAL, "gap", 0.799), "+0.0010 ± 0.0000", True),
        ("epsilon", ("linear", CENTRAL, "gap", 0.801), "-0.0010 ± 0.0000", False),
        ("", ("additive", CENTRAL, "covariance", 0.798, 0.007), "0.0020 / 0.0070", True),
        ("", ("additive", CENTRAL, "covariance", 0.798, 0.009), "0.0020 / 0.0090", False),
        ("", ("additive", CENTRAL, "selection_rate", 0.805, 0.01), "0.0050 / 0.0100", True),
        ("", ("linear", EXACT, "thresholds", 0.776, 0.03), "0.7761", True),
        ("", ("linear", EXACT, "thresholds", 0.776, 0.05), "0.7761", False),
    ],
)
def test_goals_are_met_or_missed(goal, changed, words, met):
    """One other run next to additive ones, so that few goals can be measured."""
    runs = some_runs("additive", CENTRAL, "nothing", 0.82)
    runs += some_runs("additive", EXACT, "gap", 0.8)
    runs += some_runs("additive", EXACT, "covariance", 0.8)
    runs += some_runs("additive", PRIVATE, "selection_rate", 0.8)
    lines = additive.goal_lines(Runs(runs + some_runs(*changed)))
    ((table, _, found, verdict),) = [line for line in lines if goal in line[1]]
    assert (table, words in found, verdict == "met") == ("dutch", True, met)


def test_the_page_has_a_line_for_each_learner_and_marks_what_the_constant_beats():
    runs = some_runs("constant", CENTRAL, "nothing", 0.7)
    runs += some_runs("additive", EXACT, "gap", 0.8, 0.01) + some_runs("trees", CENTRAL, "gap", 0.6)
    files = additive.show(Runs(runs))
    lines = files["additive.md"].splitlines()
    (good,) = [line for line in lines if "additive, surrogates" in line]
    assert "| gap of at most 0.02 | additive, surrogates | 0.8001" in good
    (poor,) = [line for line in lines if "| boosted trees" in line]
    assert "‡" in poor
    assert "dutch" in files["additive.svg"]
