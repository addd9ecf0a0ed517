import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.data.partition import partition, write_clients
from synthfair.errors import InputError


@given(n=st.integers(20, 200), clients=st.integers(1, 5), seed=st.integers(0, 9))
def test_every_row_goes_to_one_place(n, clients, seed):
    parts = partition(pd.DataFrame({"i": range(n)}), clients=clients, seed=seed)
    rows = pd.concat([table for part in parts for table in part])
    assert sorted(rows["i"]) == list(range(n))
    assert len({len(part.train) for part in parts}) == 1
    assert max(len(part.test) for part in parts) - min(len(part.test) for part in parts) <= 1


@pytest.mark.parametrize(
    ("n", "clients", "train", "test"), [(20_798, 2, 8_319, 2_080), (60_420, 4, 12_084, 3_021)]
)
def test_sizes_are_those_of_wu_et_al_table_1(n, clients, train, test):
    for part in partition(pd.DataFrame({"i": range(n)}), clients=clients, seed=0):
        assert (len(part.train), len(part.test)) == (train, test)


def test_the_seed_decides():
    table = pd.DataFrame({"i": range(50)})
    one, again, other = (partition(table, clients=2, seed=seed)[0].train for seed in (0, 0, 1))
    assert one.equals(again)
    assert not one.equals(other)


@pytest.mark.parametrize("settings", [{"clients": 0}, {"clients": 30}, {"test_fraction": 1.0}, {"test_fraction": 0.0}, {"test_fraction": float("nan")}, {"seed": -1}])  # fmt: skip
def test_impossible_splits(settings):
    with pytest.raises(InputError, match="cannot be split|must be at least 0"):
        partition(pd.DataFrame({"i": range(50)}), **({"clients": 2, "seed": 0} | settings))


def test_files_of_clients(tmp_path, table, schema):
    paths = write_clients(partition(table, clients=2, seed=0), schema, tmp_path)
    assert sorted(path.name for path in paths) == [
        "client_0_test.csv", "client_0_train.csv", "client_1_test.csv", "client_1_train.csv", "schema.json",
    ]  # fmt: skip
    with pytest.raises(InputError, match="exists"):
        write_clients(partition(table, clients=2, seed=0), schema, tmp_path)
