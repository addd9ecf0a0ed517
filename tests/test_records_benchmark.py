"""The benchmark of surrogates that are records: its schemas, its goals, and what its page says."""

import numpy as np
import pandas as pd
import pytest

import synthfair as sf
from benchmarks import records
from benchmarks.records import CENTRAL, EXACT, PRIVATE, RecordSetting, RecordValues
from benchmarks.runs import Run, Runs
from benchmarks.unlike.pages import Goal
from synthfair.compare import federate
from synthfair.data.partition import ClientTable
from synthfair.data.schema import Categorical, Numeric

SETTING = RecordSetting("dutch", "linear", EXACT, "covariance")


def some_runs(setting, accuracy, spd=0.0, seeds=2):
    found = [RecordValues(accuracy + seed / 1e4, spd, client_seconds=1.0) for seed in range(seeds)]
    return Runs(Run(setting, seed, values) for seed, values in enumerate(found))


@pytest.fixture
def schema():
    return sf.Schema(
        name="t", label="y", positive=1, sensitive="s",
        columns={
            "code": Numeric(lower=110, upper=900),
            "share": Numeric(lower=0, upper=1),
            "many": Numeric(lower=0, upper=99),
            "s": Categorical(categories=(0, 1)),
            "y": Categorical(categories=(0, 1)),
        },
    )  # fmt: skip


@pytest.fixture
def rows():
    i = np.arange(200)
    return pd.DataFrame(
        {"code": (110 + 100 * (i % 8)).astype(str), "share": i % 3 / 2, "many": i % 100,
         "s": i % 2, "y": i // 2 % 2}
    )  # fmt: skip


def test_codes_are_categories_and_other_numbers_stay(rows, schema):
    found = records.one_hot(rows, schema)
    kinds = {name: column.kind for name, column in found.features.items()}
    assert kinds == {"code": "categorical", "share": "numeric", "many": "numeric"}
    assert found.categorical("code").categories == tuple(range(110, 811, 100))
    assert sf.encode(rows, found).x.shape == (200, 8 + 2)


@pytest.mark.parametrize(
    ("changed", "goal"),
    [
        ({}, "0.003 / 0.006"),
        ({"encoding": "one-hot", "table": "adult"}, "0.003 / 0.006"),
        ({"rows": PRIVATE, "table": "adult"}, "0.01 / 0.015"),
        ({"rows": PRIVATE, "table": "adult", "encoding": "one-hot"}, "None"),
        ({"learner": "trees"}, "0.005"),
        ({"learner": "trees", "rows": PRIVATE}, "None"),
        ({"learner": "reductions"}, "None"),
    ],
)
def test_goals(changed, goal):
    assert str(records.goal_of(SETTING._replace(**changed))) == goal


def test_the_page_compares_with_all_rows_with_goals_and_with_earlier_runs(monkeypatch):
    central = SETTING._replace(rows=CENTRAL)
    other = SETTING._replace(learner="selection_rate")
    constant = some_runs(central._replace(learner="constant"), 0.5)
    earlier = [*some_runs(central, 0.8), *some_runs(SETTING, 0.79, 0.03)]
    monkeypatch.setattr(records, "earlier_runs", lambda: Runs(earlier))
    runs = [*constant, *some_runs(central, 0.8), *some_runs(SETTING, 0.798, 0.005)]
    runs += [*some_runs(central._replace(learner="selection_rate"), 0.8), *some_runs(other, 0.8, 1)]
    text = records.show(Runs(runs))["records.md"]
    (good,) = [line for line in text.splitlines() if "| linear, covariance |" in line]
    assert "-0.0020 (0.0020) / 0.0050 (0.0050) | 0.003 / 0.006: met" in good
    assert "-0.0100 (0.0100) / 0.0300 (0.0300) | 1.0 |" in good
    assert "| 0.003 / 0.006: MISSED |" in text


def test_a_mean_that_hides_differences_of_both_signs_meets_no_goal():
    central = some_runs(SETTING._replace(rows=CENTRAL), 0.8)
    own = Runs(
        Run(SETTING, seed, RecordValues(0.8 + sign, 0.0)) for seed, sign in ((0, 0.1), (1, -0.1))
    )
    off = records.off_of(SETTING, {SETTING: own, SETTING._replace(rows=CENTRAL): central})
    assert off is not None
    assert off.accuracy == pytest.approx(0.1, abs=1e-3)
    assert not off.meets(Goal(0.003, 0.006))


def test_private_trees_are_compared_with_the_linear_model_on_all_rows():
    trees = SETTING._replace(table="adult", rows=PRIVATE, learner="trees")
    linear = trees._replace(rows=CENTRAL, learner="linear")
    text = records.above_linear(Runs([*some_runs(trees, 0.85), *some_runs(linear, 0.84)]))
    assert "By +0.0100" in text
    assert text.endswith(": met.")
    assert not records.above_linear(some_runs(trees, 0.85))


@pytest.mark.parametrize("learn", [records.trees, records.reductions])
def test_weights_of_records_count(rows, schema, learn):
    """Of two records with the same inputs that with nearly all of the weight decides."""
    clients = federate([ClientTable(rows, rows)], schema)
    both = pd.concat([rows.assign(y=0), rows.assign(y=1)])
    for label in (0, 1):
        weight = np.where(both["y"] == label, 10.0, 0.01)
        chance = learn(clients, records.Upload({}, both, weight, 0.0), smoke=True)
        assert abs(chance - label).max() < 0.5


def test_the_constant_decides_the_more_frequent_label(rows, schema):
    clients = federate([ClientTable(rows.assign(y=1), rows)], schema)
    assert (records.constant(clients, None, smoke=True) == 1).all()


def test_earlier_runs_are_of_all_tables_and_have_all_rows_to_compare_with():
    settings = {run.setting for run in records.earlier_runs()}
    assert {one.table for one in settings} == set(records.TABLES)
    assert {one._replace(rows=CENTRAL) for one in settings} <= settings
