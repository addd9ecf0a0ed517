"""Users and their rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.federated.users import poisson_users, make_users


def users_of(owner):
    n = len(owner)
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, 3))
    return a, make_users(a, rng.integers(0, 2, n), np.arange(n, dtype=float), np.asarray(owner))


@given(st.lists(st.integers(-3, 6), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_each_user_has_its_own_rows_and_the_rest_weighs_nothing(owner):
    a, users = users_of(owner)
    everyone = jnp.arange(len(users))
    rows = users.take(everyone, jnp.ones(len(users), bool))
    for place, name in enumerate(sorted(set(owner))):
        mine = np.flatnonzero(np.asarray(owner) == name)
        there = np.asarray(rows.weight[place]) == 1
        assert there.sum() == len(mine)
        np.testing.assert_array_equal(rows.y[place][there], mine)
        np.testing.assert_array_equal(rows.a[place][there], a[mine].astype(rows.a.dtype))


def test_users_who_are_not_present_weigh_nothing():
    _, users = users_of([0, 0, 1])
    rows = users.take(jnp.array([0, 1]), jnp.array([False, True]))
    assert rows.weight.sum() == 1
    assert rows.merged().weight.shape == (4,)


@pytest.mark.parametrize("owner", [[], [0, 1]])
def test_parts_of_unlike_lengths_are_refused(owner):
    n = 0 if not owner else 3
    with pytest.raises(InputError, match="must be equally many, at least one"):
        make_users(np.zeros((n, 2)), np.zeros(n, int), np.zeros(n), np.array(owner))


def test_dealt_rows_are_poisson_without_the_empty_users():
    """Mean and variance of the zero-truncated distribution, within 5 standard errors."""
    owner = poisson_users(40_000, mean=2.0, seed=1)
    sizes = np.unique(owner, return_counts=True)[1]
    mean = 2 / (1 - np.exp(-2))
    variance = mean * (1 + 2 - mean)
    assert abs(sizes.mean() - mean) < 5 * np.sqrt(variance / len(sizes))
    assert abs(sizes.var() - variance) < 0.1
    assert len(owner) == 40_000
    assert not np.array_equal(owner, np.sort(owner))  # dealt at random


def test_the_mean_of_dealt_rows_must_be_positive():
    with pytest.raises(InputError, match="rows_per_user = 0"):
        poisson_users(10, mean=0, seed=0)
