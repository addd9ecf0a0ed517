"""Noisy sums on a grid, with rounding in their sensitivity."""

import itertools
import math

import numpy as np
import pytest
from builders import silent
from hypothesis import given
from hypothesis import strategies as st

from synthfair.privacy import mechanism
from synthfair.privacy.mechanism import GaussianMechanism, NoisySum, Terms, sensitivity

COARSE = 2.0**-4


def gaussian(**changes):
    fields = {"name": "pairs", "sensitivity": 1.0, "noise": 4.0, "grid": 2.0**-34}
    return GaussianMechanism(**fields | changes)


def rows_of_norm(k, n=400, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, k))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def longest_change(terms, relation):
    """Over all neighbours, of a sum of terms [N, k]."""
    if relation == "replace":
        terms = np.array([a - b for a, b in itertools.combinations(terms, 2)])
    return np.linalg.norm(terms, axis=1).max()


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_sensitivity_has_the_rounding_in_it(k, relation):
    """On a grid so coarse that it shows; without the rounding the claim would be wrong."""
    bound = mechanism.rounded_norm(1.0, k, COARSE)
    rows = np.vstack(
        [rows_of_norm(k, 60), 1e9 * rows_of_norm(k, 20), np.outer([np.inf, np.nan], np.ones(k))]
    )
    terms = Terms(bound, COARSE).whole(np.vstack([rows, -rows]))
    change = COARSE * longest_change(terms, relation)
    assert change <= sensitivity(bound, relation)
    if k > 1:
        assert change > sensitivity(1.0, relation)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
def test_sensitivity_of_counts_is_that_of_two_that_have_nothing_in_common(relation):
    change = longest_change(np.eye(3) * 5, relation)
    assert sensitivity(5.0, relation, never_opposed=True) == pytest.approx(change)


def test_terms_are_rounded_and_shortened_only_beyond_the_bound():
    rows, grid = rows_of_norm(5), 2.0**-20
    whole = grid * Terms(mechanism.rounded_norm(1.0, 5, grid), grid).whole(rows)
    assert np.abs(whole - rows).max() <= grid / 2
    assert np.abs(grid * Terms(0.9, grid).whole(rows) - rows).max() > grid


@given(noise=st.floats(1e-9, 1e9))
def test_grid_is_a_power_of_four_far_below_the_noise(noise):
    grid = mechanism.grid_for(noise)
    assert 2**34 <= noise / grid < 2**36
    assert math.log2(grid) % 2 == 0
    gaussian(noise=math.ceil(noise / grid) * grid, grid=grid)


@pytest.mark.parametrize(("change", "key"), [
    ({"grid": 2.0**-35}, "grid"), ({"grid": 3 * 2.0**-36}, "grid"),
    ({"grid": 2.0**-30}, "noise"), ({"noise": 4 + 2.0**-35}, "noise"),  # of too few steps
])  # fmt: skip
def test_mechanism_that_the_proof_does_not_cover_is_refused(change, key):
    with pytest.raises(ValueError, match=f"pairs: {key}"):
        gaussian(**change)


def test_released_sum_beyond_64_bits_does_not_wrap():
    total = np.array([2**70, -(2**70)], object)
    released = NoisySum(gaussian(), "replace", silent).release(total)
    np.testing.assert_array_equal(released, [2.0**36, -(2.0**36)])


def test_sum_is_released_once():
    noisy = NoisySum(gaussian(), "replace", silent)
    noisy.release(np.zeros(1, int))
    with pytest.raises(RuntimeError, match="pairs"):
        noisy.release(np.zeros(1, int))
