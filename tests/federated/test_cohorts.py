"""Which users take part."""

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.federated.users import Cohorts


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("at_once", [3, 8, 60])
def test_blocks_hold_the_users_of_the_round(sampling, at_once):
    cohorts = Cohorts(50, 8, sampling)
    blocks = cohorts.blocks(3, 4, at_once)
    assert all(len(users) == at_once for users, _ in blocks)
    users = np.concatenate([users[present] for users, present in blocks])
    assert list(users) == list(cohorts.draw(3, 4))


def test_cohorts_of_fixed_size_have_no_user_twice():
    assert all(len(set(Cohorts(20, 15, "fixed").draw(0, t))) == 15 for t in range(50))


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_each_user_is_as_likely_as_every_other(sampling):
    """Counts over 4000 rounds lie within 5 standard deviations: a false alarm in 2e-5 of seeds."""
    cohorts = Cohorts(30, 6, sampling)
    drawn = np.concatenate([cohorts.draw(7, t) for t in range(4000)])
    counts = np.bincount(drawn, minlength=30)
    assert np.abs(counts - 800).max() < 5 * np.sqrt(800 * 0.8)


def test_poisson_cohorts_vary_in_size_as_a_binomial():
    cohorts = Cohorts(1000, 50, "poisson")
    sizes = np.array([len(cohorts.draw(1, t)) for t in range(3000)])
    assert abs(sizes.mean() - 50) < 5 * np.sqrt(47.5 / 3000)
    assert abs(sizes.var() - 47.5) < 5 * 47.5 * np.sqrt(2 / 3000)


def test_all_users_are_all_users():
    assert list(Cohorts(5, 5).draw(0, 0)) == [0, 1, 2, 3, 4]


def test_seeds_of_many_bits_count_in_full():
    cohorts = Cohorts(1000, 20)
    low, high = (cohorts.draw(seed, 0) for seed in (5, 5 + 2**100))
    assert not np.array_equal(low, high)


@pytest.mark.parametrize("size", [0, 11])
def test_cohorts_larger_than_the_population_are_refused(size):
    with pytest.raises(InputError, match=f"cohort = {size}: must be 1 to 10"):
        Cohorts(10, size)
