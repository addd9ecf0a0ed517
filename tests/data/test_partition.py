import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from hypothesis import given
from hypothesis import strategies as st

from synthfair.data.partition import partition, partition_by, write_clients
from synthfair.data.tables import read_table
from synthfair.errors import InputError

SCHEMA = make_schema()
IGNORING_I = SCHEMA.model_copy(update={"ignored": ("i",)})


def numbered(n):
    """Rows that fit the schema and know their number."""
    return make_table(n=n).assign(i=range(n))


def ids(part):
    return [*part.train["i"], *part.test["i"]]


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
    with pytest.raises(InputError, match="cannot be split|must be at least [01]|test fraction"):
        partition(pd.DataFrame({"i": range(50)}), **({"clients": 2, "seed": 0} | settings))


@given(n=st.integers(50, 200), clients=st.integers(1, 4), alpha=st.sampled_from([0.2, 1.0, 1e6]), seed=st.integers(0, 9))  # fmt: skip
def test_skew_gives_every_row_of_large_clients_to_one_place(n, clients, alpha, seed):
    table = numbered(n)
    parts = partition(table, clients=clients, seed=seed, skew=alpha, schema=IGNORING_I, min_rows=2)
    rows = [i for part in parts for i in ids(part)]
    assert len(set(rows)) == len(rows) >= n - (clients - len(parts))  # 0 or 1 of one left out
    for part in parts:
        assert len(part.train) == int(0.8 * (len(part.train) + len(part.test))) > 0


def shares_of_the_first(alpha, clients, seeds):
    """[seeds, 4] the first client's share of the rows of each group and label."""
    table = make_table(n=4_000)
    whole = table.groupby(["town", "paid"]).size()
    shares = []
    for seed in range(seeds):
        first = partition(table, clients=clients, seed=seed, skew=alpha, schema=SCHEMA)[0]
        sizes = pd.concat(first).groupby(["town", "paid"]).size()
        shares.append((sizes.reindex(whole.index, fill_value=0) / whole).to_numpy())
    return np.array(shares)


def test_shares_have_the_moments_of_dirichlet():
    """A share is Beta(alpha, (K - 1) alpha); those of two cells are independent."""
    alpha, clients, draws = 0.5, 3, 200
    shares = shares_of_the_first(alpha, clients, seeds=draws)
    mean = 1 / clients
    variance = mean * (1 - mean) / (clients * alpha + 1)
    assert shares.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / shares.size))
    assert shares.var() == pytest.approx(variance, rel=0.15)  # alpha 0.35 or 0.7: 20 % or more off
    correlations = np.corrcoef(shares.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(draws)


def test_clients_of_a_large_parameter_are_alike():
    assert np.abs(shares_of_the_first(1e6, 4, seeds=1) - 1 / 4).max() < 0.005


def test_skew_deals_a_group_and_label_in_random_order():
    """Else the first client would get the table's first rows, whose numbers are 500 on average."""
    first = partition(numbered(2_000), clients=2, seed=0, skew=1e6, schema=IGNORING_I)[0]
    assert np.mean(ids(first)) == pytest.approx(1_000, abs=80)  # 6 standard errors


def test_skew_gives_training_rows_in_random_order():
    """Else a client's test rows would be those of the last group and label."""
    (part,) = partition(numbered(400), clients=1, seed=0, skew=1.0, schema=IGNORING_I)
    assert len(part.test.groupby(["town", "paid"])) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"skew": 0.0}, "skew = 0.0: must be above 0 and at most 1e"),
        ({"skew": float("nan")}, "skew = nan"),
        ({"skew": float("inf")}, "skew = inf"),
        ({"schema": None}, "needs the schema"),
        ({"clients": 0}, "clients = 0: must be at least 1"),
        ({"test_fraction": 1.0}, "test fraction = 1.0: must be above 0 and below 1"),
        ({"test_fraction": float("nan")}, "test fraction = nan"),
        (
            {"clients": 40, "skew": 0.01},
            r"clients .* in all.: cannot .*make fewer clients of more rows",
        ),
        ({"min_rows": 51}, "min_rows = 51: no client has as many; the largest has"),
    ],
)
def test_impossible_skew(settings, said):
    plain = {"clients": 2, "seed": 0, "skew": 1.0, "schema": SCHEMA}
    with pytest.raises(InputError, match=said):
        partition(make_table(n=50), **(plain | settings))


def test_alike_clients_that_are_too_small_are_left_out():
    sizes = [len(ids(part)) for part in partition(numbered(50), clients=4, seed=0, min_rows=13)]
    assert sizes == [13, 13]


def hospitals():
    names = ["south"] * 10 + ["north"] * 20 + [None] * 5 + ["tiny"]
    return pd.DataFrame({"hospital": names, "i": range(36)}).sample(frac=1, random_state=0)


def test_one_client_for_each_value():
    parts = partition_by(hospitals(), "hospital", seed=0, min_rows=2)
    sizes = {name: (len(part.train), len(part.test)) for name, part in parts.items()}
    assert sizes == {"missing": (4, 1), "north": (16, 4), "south": (8, 2)}
    assert list(parts) == sorted(parts)
    assert sorted(ids(parts["north"])) == list(range(10, 30))
    again, other = (partition_by(hospitals(), "hospital", seed=s, min_rows=2) for s in (0, 1))
    assert ids(again["north"]) == ids(parts["north"]) != ids(other["north"])


@pytest.mark.parametrize(
    ("column", "settings", "said"),
    [
        ("hospital", {}, "clients tiny: cannot be split into training and test rows"),
        ("i", {}, r"clients 0, 1, 10, 11, 12, ... .36 in all\): cannot .*; make fewer .*min_rows"),
        ("ward", {}, "column 'ward': must be one of hospital, i"),
        ("hospital", {"min_rows": 21}, "no client has as many; the largest has 20"),
        ("hospital", {"min_rows": 2, "test_fraction": 0.9}, "clients missing, south: cannot"),
        ("hospital", {"seed": -1}, "seed = -1: must be at least 0"),
    ],
)
def test_impossible_columns(column, settings, said):
    with pytest.raises(InputError, match=said):
        partition_by(hospitals(), column, **({"seed": 0} | settings))


def test_no_rows_no_clients():
    with pytest.raises(InputError, match="the largest has 0"):
        partition_by(hospitals().iloc[:0], "hospital", seed=0)


def test_files_of_clients(tmp_path, table, schema):
    paths = write_clients(partition(table, clients=2, seed=0), schema, tmp_path)
    assert sorted(path.name for path in paths) == [
        "client_0_test.csv", "client_0_train.csv", "client_1_test.csv", "client_1_train.csv", "schema.json",
    ]  # fmt: skip
    with pytest.raises(InputError, match="exists"):
        write_clients(partition(table, clients=2, seed=0), schema, tmp_path)


def test_files_of_named_clients(tmp_path, table, schema):
    (part,) = partition(table, clients=1, seed=0)
    paths = write_clients({"St. Mary/North": part, "../x": part}, schema, tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in paths) == [
        "client_.._x_test.csv", "client_.._x_train.csv",
        "client_St._Mary_North_test.csv", "client_St._Mary_North_train.csv", "schema.json",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"two would have the files client_a_b_\*"):
        write_clients({"a/b": part, "c": part, "A_B": part}, schema, tmp_path / "more")


def test_missing_values_are_read_back_where_an_empty_field_is_none(tmp_path, schema):
    """As with a Parquet file's nulls, or a schema that lists "?" alone."""
    schema = schema.model_copy(update={"missing_values": ("?",)})
    table = make_table().assign(age=np.where(np.arange(120) % 2, 30.5, np.nan))
    paths = write_clients(partition(table, clients=1, seed=0), schema, tmp_path)
    ages = [age for path in paths[:2] for age in read_table(path, schema)["age"]]
    assert [age for age in ages if isinstance(age, str)] == ["30.5"] * 60
    assert sum(pd.isna(age) for age in ages) == 60
