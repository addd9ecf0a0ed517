"""Users, the cohorts that are drawn of them, and the rows that they hold."""

import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA, TABLE, make_schema, make_table
from two_group_rows import weights_for

import synthfair as sf
from synthfair.errors import InputError
from synthfair.federated import TrainConfig, assign_users, make_user_data
from synthfair.federated.users import Cohorts, held_out_rows, make_users

# Cohorts


@pytest.mark.parametrize(("sampling", "variance"), [("fixed", 0.0), ("poisson", 4.8)])
def test_cohorts_hold_each_user_with_the_same_chance(sampling, variance):
    """Counts and sizes within 6 standard errors: false alarm below 1e-6."""
    cohorts, rounds = Cohorts(30, 6, sampling), 4000
    drawn = [cohorts.draw(7, t) for t in range(rounds)]
    counts = np.bincount(np.concatenate(drawn), minlength=30)
    assert np.abs(counts - 800).max() < 6 * (800 * 0.8) ** 0.5
    sizes = np.array([len(cohort) for cohort in drawn])
    assert abs(sizes.mean() - 6) <= 6 * (variance / rounds) ** 0.5
    assert abs(sizes.var() - variance) <= 6 * variance * (2 / rounds) ** 0.5
    assert all(len(set(cohort)) == len(cohort) for cohort in drawn)
    assert not np.array_equal(cohorts.draw(7 + 2**100, 0), drawn[0])  # of all bits of the seed


# Users and their rows


def users_of(owner):
    n = len(owner)
    a = np.random.default_rng(0).normal(size=(n, 3))
    return a, make_users(a, np.arange(n) % 2, np.arange(n, dtype=float), np.asarray(owner))


@pytest.mark.parametrize("owner", [[3, -1, 3, 0, 3, 0], ["b", "b", "c", "a", "a", "b"]])
def test_users_have_their_own_rows_and_padding_of_weight_0(owner):
    a, users = users_of(owner)
    rows = users.take(jnp.arange(len(users)), jnp.arange(len(users)) > 0)
    assert not rows.weight[0].any()  # the first user is absent
    for place, name in enumerate(sorted(set(owner))):
        mine, own = np.flatnonzero(np.asarray(owner) == name), users.rows_of(place)
        present = own.weight == 1
        np.testing.assert_array_equal(own.y[present], mine)
        np.testing.assert_array_equal(own.a[present], a[mine])
        np.testing.assert_array_equal(rows.a[place], own.a)
        np.testing.assert_array_equal(rows.weight[place], own.weight * (place > 0))


# Users of a table


def test_users_that_are_clients_test_on_rows_of_their_own():
    _, user, tests = assign_users(make_table(300), clients=3, seed=0)
    assert sorted(tests) == ["client_0", "client_1", "client_2"]
    assert [len(test) for test in tests.values()] == [20, 20, 20]
    assert np.unique(user, return_counts=True)[1].tolist() == [80, 80, 80]


def test_users_that_are_many_hold_out_a_fifth_of_the_rows_or_of_those_named():
    """Named users are tested or trained on, never both."""
    table = make_table(300).assign(who=[f"p{i % 20}" for i in range(300)])
    for rule in ({"rows_per_user": 3.0}, {"user_column": "who"}):
        train, user, tests = assign_users(table, **rule, seed=0)
        assert len(train) == len(user) == 240
        assert list(user) != sorted(user)  # rows that are near say nothing of whose they are
        assert sorted([*train.index, *tests["test"].index]) == list(range(300))
    tested = set(table["who"][tests["test"].index])
    assert (len(tested), set(user)) == (4, set(table["who"]) - tested)
    assert "who" not in train


@pytest.mark.parametrize(("how", "complaint"), [
    ({}, "give one of"), ({"clients": 2, "user_column": "age"}, "give one of"),
    ({"clients": 0}, "clients = 0"), ({"rows_per_user": 0.0}, "rows_per_user = 0"),
    ({"user_column": "nobody"}, "nobody"), ({"user_column": "who"}, "row 2: missing"),
])  # fmt: skip
def test_users_that_cannot_be_assigned_are_refused(how, complaint):
    table = make_table(10).assign(who=["a", None, *"bcdefghi"])
    with pytest.raises(InputError, match=complaint):
        assign_users(table, **how, seed=0)


def test_users_need_as_many_of_each_part():
    for sizes in (*3 - np.eye(4, dtype=int), np.zeros(4, int)):
        with pytest.raises(InputError, match="equally many"):
            make_users(*(np.zeros(size, int) for size in sizes))


# Users with what their rows mean


def test_user_data_needs_a_row_of_each_group_that_is_compared():
    for schema, alike, notion, missing in (
        (make_schema(3), {}, "statistical_parity", "town=c"),
        (SCHEMA, {"paid": "no"}, "equal_opportunity", "town=b with paid=yes"),
        (SCHEMA, {"paid": "yes"}, "equalized_odds", "town=b with paid=no"),
    ):
        table = make_table()
        table.loc[table["town"] == "b", [*alike]] = [*alike.values()]
        rows, user = sf.encode(table, schema), np.arange(120)
        with pytest.raises(InputError, match=missing):
            make_user_data(rows, user, schema, TrainConfig(notion=notion))
        make_user_data(rows, user, schema, TrainConfig(notion=notion), all_groups=False)


@pytest.mark.parametrize(("settings", "more", "complaint"), [
    ({"also": ("town",)}, {"also": 1}, "also"),  # the sensitive attribute
    ({"also": ("home",)}, {}, "also"),  # its groups are not given
    ({"method": "fpfl"}, {"weights": weights_for(SCHEMA)}, "weights: not read by fpfl"),
    ({"method": "fedavg"}, {"weights": weights_for(make_schema(3))}, "weights: schema_hash"),
])  # fmt: skip
def test_user_data_that_does_not_fit_is_refused(settings, more, complaint):
    rows = sf.encode(TABLE, SCHEMA)
    more = more | {"also": [rows.s] * more.get("also", 0)}
    with pytest.raises(InputError, match=complaint):
        make_user_data(rows, np.arange(len(TABLE)), SCHEMA, TrainConfig(**settings), **more)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_held_out_rows_are_a_share_of_each_user_who_keeps_one(share):
    user = np.repeat(["a", "b", "c"], [1, 2, 100])
    out = held_out_rows(user, share, seed=1)
    assert [out[user == name].sum() for name in "abc"] == [0, int(2 * share), int(100 * share)]
    assert not np.array_equal(out, held_out_rows(user, share, seed=2)) or share == 0
