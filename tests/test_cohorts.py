"""Which users take part."""

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.federated.cohorts import Cohorts


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_round_is_the_same_in_whichever_chunk_it_is_drawn(sampling):
    cohorts = Cohorts(50, 8, sampling)
    whole, part = cohorts.draw(3, 0, 10), cohorts.draw(3, 4, 3)
    for t in range(3):
        assert set(whole.users[4 + t][whole.present[4 + t]]) == set(part.users[t][part.present[t]])


def test_cohorts_of_fixed_size_have_no_user_twice():
    drawn = Cohorts(20, 15, "fixed").draw(0, 0, 50)
    assert drawn.present.all()
    assert all(len(set(cohort)) == 15 for cohort in drawn.users)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_each_user_is_as_likely_as_every_other(sampling):
    """Counts over 4000 rounds lie within 5 standard deviations: a false alarm in 2e-5 of seeds."""
    drawn = Cohorts(30, 6, sampling).draw(7, 0, 4000)
    counts = np.bincount(drawn.users[drawn.present], minlength=30)
    assert np.abs(counts - 800).max() < 5 * np.sqrt(800 * 0.8)


def test_poisson_cohorts_vary_in_size_as_a_binomial():
    sizes = Cohorts(1000, 50, "poisson").draw(1, 0, 3000).present.sum(axis=1)
    assert abs(sizes.mean() - 50) < 5 * np.sqrt(47.5 / 3000)
    assert abs(sizes.var() - 47.5) < 5 * 47.5 * np.sqrt(2 / 3000)


def test_all_users_are_all_users():
    assert list(Cohorts(5, 5).draw(0, 0, 1).users[0]) == [0, 1, 2, 3, 4]


def test_seeds_of_many_bits_count_in_full():
    cohorts = Cohorts(1000, 20)
    low, high = (cohorts.draw(seed, 0, 1).users for seed in (5, 5 + 2**100))
    assert not np.array_equal(low, high)


@pytest.mark.parametrize("size", [0, 11])
def test_cohorts_larger_than_the_population_are_refused(size):
    with pytest.raises(InputError, match=f"cohort = {size}: must be 1 to 10"):
        Cohorts(10, size)
