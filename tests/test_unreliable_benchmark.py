"""The benchmark of clients that cannot be trusted: its attacks, and what its page says of runs."""

import pandas as pd
import pytest

import synthfair as sf
from benchmarks import unreliable
from benchmarks.runs import Run, Runs
from benchmarks.unreliable import HONEST, UnreliableSetting, UnreliableValues

TABLE, SCHEMA = sf.load_dataset("loanapp")


def some_runs(attack, bad, defence, accuracy, spd):
    setting = UnreliableSetting("dutch", "surrogates", attack, bad, defence)
    values = [UnreliableValues(accuracy + seed / 1e4, spd, 0.1) for seed in range(2)]
    return [Run(setting, seed, value) for seed, value in enumerate(values)]


def test_every_setting_is_there_once_and_has_its_counterpart():
    settings = {*unreliable.settings_of_all()}
    assert len(settings) == len([*unreliable.settings_of_all()])
    assert {one.table for one in settings} == set(unreliable.TABLES)
    for one in settings:
        if one.defence == "trusted":
            assert one._replace(defence="none") in settings
            alone = "alone" if one.bad else "none"
            assert one._replace(attack=HONEST, defence=alone) in settings


@pytest.mark.parametrize("attack", ["swapped", "reversed", "denied40", "denied80", HONEST])
def test_attacks_change_what_they_say(attack):
    before, false = sf.encode(TABLE, SCHEMA), unreliable.attacked(TABLE, SCHEMA, attack, 0)
    after = sf.encode(false, SCHEMA)
    changed = after.y != before.y
    if attack.startswith("denied"):
        positive = (before.s == 0) & (before.y > 0)
        assert changed[positive].mean() == pytest.approx(int(attack[6:]) / 100, abs=0.1)
        assert not changed[~positive].any()
    else:
        assert changed.all() if attack == "reversed" else not changed.any()
    assert ((after.s != before.s) == (attack == "swapped")).all()
    others = TABLE.columns.drop([SCHEMA.sensitive, SCHEMA.label])
    pd.testing.assert_frame_equal(false[others], TABLE[others])


def test_shuffled_columns_hold_the_same_in_another_order():
    false = unreliable.attacked(TABLE, SCHEMA, "shuffled", 0)
    for name in TABLE:
        assert sorted(map(str, false[name])) == sorted(map(str, TABLE[name]))
        assert list(map(str, false[name])) != list(map(str, TABLE[name]))


@pytest.mark.parametrize(
    ("bad", "accuracy", "spd", "met"),
    [
        (2, 0.769, 0.019, True),
        (2, 0.771, 0.019, False),
        (2, 0.769, 0.021, False),
        (0, 0.7619, 0.0049, True),
        (0, 0.7621, 0.0049, False),
        (0, 0.7619, 0.0051, False),
    ],
)
def test_goals_are_met_or_missed(bad, accuracy, spd, met):
    attack, alone = ("swapped", "alone") if bad else (HONEST, "none")
    runs = some_runs(attack, bad, "trusted", accuracy, spd)
    runs += some_runs(HONEST, bad, alone, 0.76, 0.0)
    ((*_, goal, verdict),) = unreliable.goal_lines(Runs(runs))
    assert goal == ("0.01 / 0.02" if bad else "0.002 / 0.005")
    assert (verdict == "met") == met


def test_the_page_has_each_defence_and_marks_what_the_constant_beats():
    runs = some_runs("swapped", 2, "none", 0.6, 0.2) + some_runs("swapped", 2, "trusted", 0.76, 0.1)
    runs += some_runs(HONEST, 2, "alone", 0.75, 0.01) + some_runs(HONEST, 0, "constant", 0.7, 0.0)
    files = unreliable.show(Runs(runs))
    cells = files["unreliable.md"].partition("| dutch | surrogates ")[2].split(" | ")
    assert cells[0] == "| 2 of 8: groups exchanged"
    assert [cell[:5] for cell in cells[1:4]] == ["0.600", "0.760", "0.750"]
    assert [" ‡ / " in cell for cell in cells[1:4]] == [True, False, False]
    assert "dutch, surrogates" in files["unreliable.svg"]
