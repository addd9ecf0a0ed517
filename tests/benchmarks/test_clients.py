"""The benchmark of unlike clients: how it cuts tables, what it compares, and what it calls met."""

import numpy as np
import pytest
from builders import make_schema, make_table

from benchmarks.unlike import clients
from synthfair.data.datasets import dataset_schema
from synthfair.data.encode import Encoded
from synthfair.surrogate import WeightedTable


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


def test_rows_whose_pair_of_group_and_label_was_not_sent_are_counted():
    s, y = np.array([0, 0, 1, 1, 1]), np.array([-1.0, 1.0, 1.0, 1.0, -1.0])
    sent = WeightedTable(np.zeros((2, 1)), np.array([0, 1]), np.array([1.0, -1.0]), np.ones(2))
    assert clients.rows_without(sent, Encoded(np.zeros((5, 1)), s, y)) == 3


# What is run


# What is shown
