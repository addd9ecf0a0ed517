"""Users and their rows."""

import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.federated.users import draw_users, make_users


def users_of(owner):
    n = len(owner)
    a = np.random.default_rng(0).normal(size=(n, 3))
    return a, make_users(a, np.arange(n) % 2, np.arange(n, dtype=float), np.asarray(owner))


@pytest.mark.parametrize("owner", [[3, -1, 3, 0, 3, 0], ["b", "b", "c", "a", "a", "b"]])
def test_each_user_has_its_own_rows_and_the_padding_weighs_nothing(owner):
    a, users = users_of(owner)
    rows = users.take(jnp.arange(len(users)), jnp.ones(len(users), bool))
    for place, name in enumerate(sorted(set(owner))):
        mine = np.flatnonzero(np.asarray(owner) == name)
        present = np.asarray(rows.weight[place]) == 1
        assert present.sum() == len(mine)
        np.testing.assert_array_equal(rows.y[place][present], mine)
        np.testing.assert_array_equal(rows.a[place][present], a[mine].astype(rows.a.dtype))
        np.testing.assert_array_equal(users.rows_of(place).y, rows.y[place])


def test_users_who_are_not_present_weigh_nothing():
    _, users = users_of([0, 0, 1])
    rows = users.take(jnp.array([0, 1]), jnp.array([False, True]))
    assert rows.weight.sum() == 1


def test_steps_follow_from_the_smallest_users_rows():
    _, users = users_of([0] * 40 + [1] * 20)
    assert users.smallest == 20
    assert users.steps(batch=2, epochs=5) == 50
    assert users.steps(batch=100, epochs=1) == 1


@pytest.mark.parametrize("owner", [[], [0, 1]])
def test_parts_of_unlike_lengths_are_refused(owner):
    n = 0 if not owner else 3
    with pytest.raises(InputError, match="must be equally many, at least one"):
        make_users(np.zeros((n, 2)), np.zeros(n, int), np.zeros(n), np.array(owner))


def test_poisson_users_are_poisson_without_the_empty_ones():
    """Mean and variance of the zero-truncated distribution, within 5 standard errors: a false
    alarm in 1e-6 of seeds."""
    owner = draw_users(40_000, rows_per_user=2.0, seed=1)
    sizes = np.unique(owner, return_counts=True)[1]
    mean = 2 / (1 - np.exp(-2))
    variance = mean * (1 + 2 - mean)
    assert abs(sizes.mean() - mean) < 5 * np.sqrt(variance / len(sizes))
    assert abs(sizes.var() - variance) < 0.1
    assert len(owner) == 40_000
    assert not np.array_equal(owner, np.sort(owner))  # at random


def test_the_mean_of_poisson_users_must_be_positive():
    with pytest.raises(InputError, match="rows_per_user = 0"):
        draw_users(10, rows_per_user=0, seed=0)
