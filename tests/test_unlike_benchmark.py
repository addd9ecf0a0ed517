"""The benchmark of unlike clients: how it cuts tables, what it compares, and what it calls met."""

from itertools import pairwise

import numpy as np
import pytest
from conftest import invented_rows, make_schema, make_table

from benchmarks.runs import Run, Runs
from benchmarks.unlike import clients, pages
from benchmarks.unlike.pages import UNLIKE
from benchmarks.unlike.training import METHODS, UnlikeSetting, UnlikeValues
from synthfair.data.datasets import dataset_schema
from synthfair.data.encode import Encoded
from synthfair.surrogate import WeightedTable

SETTING = UnlikeSetting("dutch", 4, "0.3", "surrogate", "covariance", 10.0)


def some_run(accuracy, spd, seed=0, converged=True, out=(0, 0), **changed):
    values = UnlikeValues(accuracy, spd, *out, 0.1, 0.2, converged)
    return Run(SETTING._replace(**changed), seed, values)


def a_cut(split, n_clients=4, seed=0):
    return clients.Cut("dutch", n_clients, split, seed)


# Clients


@pytest.mark.parametrize("split", ["alike", "0.3"])
def test_a_cut_has_every_row_once_and_a_fifth_for_testing(split):
    table = make_table(400)
    parts = clients.cut_table(table, make_schema(), a_cut(split))
    index = np.concatenate([side.index for part in parts for side in part])
    assert sorted(index) == list(range(400))
    for train, test in parts:
        assert len(train) == pytest.approx(4 * len(test), abs=4)


def test_clients_without_a_test_row_take_no_part():
    parts = clients.cut_table(make_table(60), make_schema(), a_cut("0.05", 20))
    assert 1 <= len(parts) < 20
    assert all(len(train) and len(test) for train, test in parts)


def test_a_seed_gives_its_cut_and_another_another():
    table, schema = make_table(200), make_schema()
    first, again, other = (
        clients.cut_table(table, schema, a_cut("0.3", seed=seed))[0].train.index
        for seed in (0, 0, 1)
    )
    assert list(first) == list(again) != list(other)


def test_every_country_of_the_schema_has_a_region():
    countries = dataset_schema("adult").columns["native_country"].categories
    assert set(clients.REGION_OF) == set(countries)


@pytest.mark.parametrize("split", ["occupation", "region"])
def test_natural_clients_are_as_many_as_the_setting_says(split):
    schema = dataset_schema("adult")
    table = invented_rows(schema, 2000)
    (cut,) = {clients.Cut(*s[:3], 0) for s in UNLIKE.settings if s.split == split}
    found = clients.cut_table(table, schema, cut)
    assert len(found) == cut.clients
    assert list(found[0].train.columns) == list(table.columns)


def test_rows_whose_pair_of_group_and_label_was_not_sent_are_counted():
    s, y = np.array([0, 0, 1, 1, 1]), np.array([-1.0, 1.0, 1.0, 1.0, -1.0])
    sent = WeightedTable(np.zeros((2, 1)), np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2))
    assert clients.rows_without(sent, Encoded(np.zeros((5, 1)), s, y)) == 3


# What is run


def test_a_cut_is_run_at_once_so_that_its_surrogates_are_made_once():
    cuts = [setting[:3] for setting in UNLIKE.settings]
    changes = sum(one != other for one, other in pairwise(cuts))
    assert changes == len(set(cuts)) - 1 == 20


def test_settings_of_surrogates_count_and_those_of_others_do_not(monkeypatch):
    before = {name: UNLIKE.made_with(SETTING._replace(method=name)) for name in METHODS}
    more = clients.CONFIGS["surrogate"].model_copy(update={"k_min": 17})
    monkeypatch.setitem(clients.CONFIGS, "surrogate", more)
    after = {name: UNLIKE.made_with(SETTING._replace(method=name)) for name in METHODS}
    assert [name for name in METHODS if before[name] != after[name]] == ["surrogate"]


# What is shown


def test_differences_are_between_the_same_seeds():
    own = [some_run(0.79, 0.08, 0), some_run(0.81, 0.03, 1), some_run(0.1, 0.9, 2)]
    central = [some_run(0.80, 0.07, 0), some_run(0.80, 0.05, 1), some_run(0.5, 0.5, 7)]
    assert pages.difference(Runs(own), Runs(central)) == pytest.approx((0.01, 0.01, 0.015, 0.02))
    assert pages.difference(Runs(own[2:]), Runs(central)) is None


def test_signs_count():
    off = pages.difference(Runs([some_run(0.8, -0.01)]), Runs([some_run(0.8, 0.01)]))
    assert off.spd == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changed", "goal"),
    [
        ({}, (0.002, 0.005, 0.015)),
        ({"task": "law_school_gender", "clients": 20, "split": "alike"}, (0.002, 0.005, 0.015)),
        ({"penalty": "selection_rate", "rho": 100.0}, (0.003, 0.006, 0.015)),
        ({"task": "adult", "split": "region"}, (0.005, 0.015, 0.03)),
        ({"task": "adult", "penalty": "selection_rate"}, (0.005, 0.015, 0.03)),
        ({"method": "private"}, (0.005, 0.015, np.inf)),
        ({"method": "private", "penalty": "selection_rate"}, (0.01, 0.03, np.inf)),
        ({"method": "private", "task": "adult"}, None),
        ({"method": "fedavg"}, None),
    ],
)
def test_goals(changed, goal):
    assert pages.goal_of(SETTING._replace(**changed)) == goal


@pytest.mark.parametrize(
    ("accuracy", "spds", "met"),
    [
        (0.7985, (0.054, 0.046), True),
        (0.7975, (0.05, 0.05), False),  # accuracy
        (0.8, (0.056, 0.056), False),  # SPD, the mean
        (0.8, (0.05, 0.05, 0.05, 0.05, 0.066), False),  # SPD, one seed
    ],
)
def test_the_page_says_whether_goals_are_met(accuracy, spds, met):
    own = [some_run(accuracy, spd, i, out=(1, 70)) for i, spd in enumerate(spds)]
    central = [some_run(0.8, 0.05, i, method="central") for i in range(len(spds))]
    runs = Runs([*own, *central])
    (one,) = (one for one in pages.compare_all(runs) if one.goal)
    assert one.met is met
    text = pages.show(runs)["unlike.md"]
    assert f"0.002 / 0.005 / 0.015: {'met' if met else 'MISSED'}" in text
    assert f"| {int(met)} of 1 |  | {'met' if met else 'MISSED'} |" in text
    assert "| 1.0, 70 |" in text


def test_a_model_that_learned_nothing_meets_and_misses_no_goal():
    own = [some_run(0.8, 0.05, i) for i in range(3)]
    central = [some_run(0.8, 0.05, i, method="central") for i in range(3)]
    for accuracy, met, counts in ((0.79, True, "1 of 1 |  | met"), (0.8, None, "0 of 0 | 1 | ")):
        constant = [some_run(accuracy, 0.0, i, method="constant") for i in range(3)]
        runs = Runs([*own, *central, *constant])
        assert next(one.met for one in pages.compare_all(runs) if one.goal) is met
        assert counts in pages.show(runs)["unlike.md"]


def test_without_central_training_nothing_is_met_or_missed():
    text = pages.show(Runs([some_run(0.8, 0.05, converged=False)]))["unlike.md"]
    assert "surrogates * |" in text
    assert ": met" not in text
    assert "MISSED" not in text
