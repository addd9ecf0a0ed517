"""Splits of a table into clients: every row once, and how unlike they are."""

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table
from hypothesis import given
from hypothesis import strategies as st

from synthfair.data.partition import Split, partition, partition_by, write_clients
from synthfair.data.tables import read_table
from synthfair.errors import InputError

NUMBERED = SCHEMA.model_copy(update={"ignored": ("i",)})


def numbered(n):
    """Rows that fit the schema and know their number."""
    return make_table(n=n).assign(i=range(n))


def ids(part):
    return [*part.train["i"], *part.test["i"]]


@given(n=st.integers(20, 200), clients=st.integers(1, 5), seed=st.integers(0, 9))
def test_alike_clients_have_every_row_once_and_are_of_one_size(n, clients, seed):
    parts = partition(pd.DataFrame({"i": range(n)}), clients=clients, seed=seed)
    assert sorted(i for part in parts for i in ids(part)) == list(range(n))
    again, other = (partition(numbered(n), clients=clients, seed=s) for s in (seed, seed + 1))
    assert ids(again[0]) == ids(parts[0]) != ids(other[0])
    assert {len(part.train) for part in parts} == {int(n // clients * 0.8)}
    assert max(len(part.test) for part in parts) - min(len(part.test) for part in parts) <= 1


UNLIKE = {"clients": st.integers(1, 4), "skew": st.sampled_from([0.2, 1.0, 1e6])}


@given(n=st.integers(50, 200), seed=st.integers(0, 9), settings=st.fixed_dictionaries(UNLIKE))
def test_unlike_clients_have_every_row_of_large_ones_once(n, seed, settings):
    parts = partition(numbered(n), seed=seed, schema=NUMBERED, min_rows=2, **settings)
    clients = settings["clients"]
    rows = [i for part in parts for i in ids(part)]
    assert len(set(rows)) == len(rows) >= n - (clients - len(parts))  # 0 or 1 of one left out
    for part in parts:
        assert len(part.train) == int(0.8 * (len(part.train) + len(part.test))) > 0


def test_rows_stay_as_they_are_and_those_without_label_are_left_out():
    table = make_table(200).set_index(pd.Index([f"p{i}" for i in range(200)]))
    table = table.astype({"home": "category"})
    table.loc[["p3", "p7"], "paid"] = ""
    (client,) = partition(table, clients=1, seed=0, schema=SCHEMA)
    for rows in client:
        pd.testing.assert_frame_equal(rows, table.loc[rows.index])
    assert sorted(pd.concat(client).index) == sorted({*table.index} - {"p3", "p7"})


def shares_of_the_first(alpha, clients, seeds):
    """[seeds, 4] the first client's share of the rows of each group and label."""
    table, cell = make_table(n=4_000), ["town", "paid"]
    whole = table.groupby(cell).size()
    shares = []
    for seed in range(seeds):
        first = partition(table, clients=clients, seed=seed, skew=alpha, schema=SCHEMA)[0]
        sizes = pd.concat(first).groupby(cell).size()
        shares.append((sizes.reindex(whole.index, fill_value=0) / whole).to_numpy())
    return np.array(shares)


def test_shares_have_the_moments_of_dirichlet():
    """A share is Beta(alpha, (K - 1) alpha); those of two cells are independent."""
    shares, mean = shares_of_the_first(0.5, 3, seeds=200), 1 / 3
    variance = mean * (1 - mean) / (3 * 0.5 + 1)
    assert shares.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / shares.size))
    assert shares.var() == pytest.approx(variance, rel=0.15)  # alpha 0.35 or 0.7: 20 % or more off
    assert np.abs(np.corrcoef(shares.T)[np.triu_indices(4, 1)]).max() < 5.5 / np.sqrt(200)
    assert np.abs(shares_of_the_first(1e6, 4, seeds=1) - 1 / 4).max() < 0.005


def test_skew_deals_rows_in_random_order():
    """Else the first client had the table's first rows, numbered 500 on average; and its test rows
    were those of the last group and label."""
    first = partition(numbered(2_000), clients=2, seed=0, skew=1e6, schema=NUMBERED)[0]
    assert np.mean(ids(first)) == pytest.approx(1_000, abs=80)  # 6 standard errors
    assert len(first.test.groupby(["town", "paid"])) == 4


@pytest.mark.parametrize(("settings", "match"), [
    ({"clients": 0}, "clients = 0"), ({"seed": -1}, "seed = -1"),
    ({"skew": 0.0}, "skew = 0.0"), ({"skew": 1.1e6}, "skew = 1100000.0"),
    ({"clients": 30, "skew": None}, "cannot be split"), ({"clients": 40}, "cannot be split"),
    ({"test_fraction": 1.0}, "fraction = 1"), ({"test_fraction": np.nan}, "fraction = nan"),
    ({"schema": None}, "needs the schema"), ({"min_rows": 51}, "min_rows = 51"),
])  # fmt: skip
def test_split_that_is_impossible_is_refused(settings, match):
    plain = {"clients": 2, "seed": 0, "skew": 1.0, "schema": SCHEMA}
    with pytest.raises(InputError, match=match):
        partition(make_table(n=50), **(plain | settings))


NAMES = ["south"] * 10 + ["north"] * 20 + [None] * 5 + ["tiny"]
HOSPITALS = pd.DataFrame({"hospital": NAMES, "i": range(36)}).sample(frac=1, random_state=0)


def test_column_gives_one_client_for_each_value():
    seeded = [partition_by(HOSPITALS, "hospital", seed=seed, min_rows=2) for seed in (0, 0, 1)]
    sizes = [(name, len(part.train), len(part.test)) for name, part in seeded[0].items()]
    assert sizes == [("missing", 4, 1), ("north", 16, 4), ("south", 8, 2)]
    north, again, other = (ids(parts["north"]) for parts in seeded)
    assert sorted(north) == list(range(10, 30))
    assert north == again != other


@pytest.mark.parametrize(("column", "min_rows", "match"), [
    ("hospital", 0, "clients tiny: cannot be split"), ("ward", 0, "column 'ward'"),
    ("hospital", 21, "min_rows = 21: .* 20$"), ("i", 0, "clients 0, 1, .* .36 in all"),
])  # fmt: skip
def test_column_that_cannot_split_is_refused(column, min_rows, match):
    with pytest.raises(InputError, match=match):
        partition_by(HOSPITALS, column, seed=0, min_rows=min_rows)


def test_split_gives_the_clients_of_its_settings():
    more, table = {"min_rows": 13, "test_fraction": 0.4}, numbered(50)
    unlike = {"clients": 3, "skew": 9.0} | more
    expected = partition(table, seed=3, schema=NUMBERED, **unlike)
    by = partition_by(table, "town", seed=3, **more)
    for settings, clients in ((unlike, dict(enumerate(expected))), ({"by": "town"} | more, by)):
        found = Split(**settings).apply(table, NUMBERED, seed=3)
        assert Split(**settings).arguments == settings
        for name, client in clients.items():
            pd.testing.assert_frame_equal(found[str(name)].train, client.train)


def test_small_clients_are_left_out_and_said():
    split, table = Split(clients=4, min_rows=13), numbered(50)
    clients = split.apply(table, NUMBERED, seed=0)
    assert [len(ids(part)) for part in clients.values()] == [13, 13]
    assert "24 rows" in str(split.left_out_warning(table, clients))
    with pytest.raises(InputError, match="by"):
        Split(by="i", clients=2)


@pytest.mark.parametrize("names", [None, ["St. Mary/North", "../x"]])
def test_files_of_clients_have_their_names(tmp_path, table, schema, names):
    parts = partition(table, clients=2, seed=0)
    clients = dict(zip(names, parts, strict=True)) if names else parts
    stems = ["client_.._x", "client_St._Mary_North"] if names else ["client_0", "client_1"]
    paths = write_clients(clients, schema, tmp_path)
    files = [f"{stem}_{role}.csv" for stem in stems for role in ("test", "train")]
    assert sorted(str(path.relative_to(tmp_path)) for path in paths) == [*files, "schema.json"]
    paths[-1].unlink()  # a table is enough
    with pytest.raises(InputError, match="exists"):
        write_clients(clients, schema, tmp_path)
    with pytest.raises(InputError, match="client_a_b_"):
        write_clients(dict.fromkeys(["a/b", "A_B"], parts[0]), schema, tmp_path / "more")


def test_files_have_missing_values_where_an_empty_field_is_none(tmp_path, schema):
    """As with a Parquet file's nulls, or a schema that lists "?" alone."""
    schema = schema.model_copy(update={"missing_values": ("?",)})
    table = make_table().assign(age=np.where(np.arange(120) % 2, 30.5, np.nan))
    paths = write_clients(partition(table, clients=1, seed=0), schema, tmp_path)
    ages = pd.concat([read_table(path, schema)["age"] for path in paths[:2]])
    assert (list(ages.dropna()), ages.isna().sum()) == (["30.5"] * 60, 60)
