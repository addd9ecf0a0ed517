"""Discrete noise of releases: rounding in the sensitivity, exact sums, its privacy.

Each statistical test fails by chance once in 10^6; each also rejects a wrong sampler.
"""

import itertools
import json
import math

import numpy as np
import pytest
from builders import make_schema, silent
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from scipy import stats

from synthfair.errors import InputError
from synthfair.files import parse_as
from synthfair.privacy.accounting import (
    DISCRETE_EXCESS,
    SampledSums,
    delta_of,
    discrete_delta_of,
    discrete_mu_for,
)
from synthfair.privacy.guarantee import Guarantee, make_guarantee, require_true, training_guarantee
from synthfair.privacy.mechanism import (
    GaussianMechanism,
    NoisySum,
    Terms,
    grid_for,
    rounded_norm,
    sensitivity,
)
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.release.settings import DistillConfig

ALARM = 1e-6
COARSE = 2.0**-4


def mechanism(**changes):
    fields = {"name": "pairs", "sensitivity": 1.0, "noise": 4.0, "grid": 2.0**-34}
    return GaussianMechanism(**fields | changes)


def rows_of_norm(k, n=400, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, k))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def longest_change(sums, relation):
    """Over all neighbours, in steps, of sums [N, k] of single rows."""
    if relation == "replace":
        sums = np.array([a - b for a, b in itertools.combinations(sums, 2)])
    return np.linalg.norm(sums, axis=1).max()


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_rounding_counts_in_the_sensitivity(k, relation):
    """On a grid so coarse that it shows; without the rounding the claim would be wrong."""
    bound = rounded_norm(1.0, k, COARSE)
    rows = np.vstack([rows_of_norm(k, 60), 1e9 * rows_of_norm(k, 20), np.full((1, k), np.inf)])
    rows = np.vstack([rows, -rows])
    change = COARSE * longest_change(Terms(bound, COARSE).whole(rows), relation)
    assert change <= sensitivity(bound, relation)
    if k > 1:
        assert change > sensitivity(1.0, relation)


def test_rows_that_the_bound_allows_are_rounded_and_not_shortened():
    rows, grid = rows_of_norm(5), 2.0**-20
    found = grid * Terms(rounded_norm(1.0, 5, grid), grid).whole(rows)
    assert np.abs(found - rows).max() <= grid / 2
    assert np.abs(grid * Terms(0.9, grid).whole(rows) - rows).max() > grid


@pytest.mark.parametrize("noise", [3e-7, 0.99, 1.0, 4.0, 33.1, 2.0**20])
def test_the_grid_is_a_power_of_four_far_below_the_noise(noise):
    grid = grid_for(noise)
    assert 2**34 <= noise / grid < 2**36
    assert math.log2(grid) % 2 == 0
    mechanism(noise=math.ceil(noise / grid) * grid, grid=grid)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"grid": 2.0**-35}, "power of 4"),
        ({"grid": 3 * 2.0**-36}, "power of 4"),
        ({"grid": 2.0**-30}, "2.34 or more"),
        ({"noise": 4 + 2.0**-35}, "whole number of steps"),
    ],
)
def test_a_grid_that_the_proof_does_not_cover_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        mechanism(**change)


def noise_p_values(steps, deviation):
    """Of chi-squared tests: 20 equally likely cells; and the last four bits, which are uniform."""
    cells = (20 * stats.norm.cdf(steps / deviation)).astype(int)
    counts = np.bincount(cells, minlength=20), np.bincount(steps % 16, minlength=16)
    return [stats.chisquare(count).pvalue for count in counts]


def test_released_sums_have_discrete_gaussian_noise_of_the_stated_deviation():
    stated = mechanism(noise=4.0)
    total = np.full(20_000, 10**17)
    found = NoisySum(stated, "replace", system_entropy).release(total)
    steps = np.array([int(number) for number in found / stated.grid]) - 10**17
    near, low_bits = noise_p_values(steps, 2.0**36)
    assert near > ALARM
    assert noise_p_values(steps, 0.93 * 2.0**36)[0] < ALARM
    # A number of 10^17 has no room for the last four bits; one near 0 has.
    assert low_bits < ALARM
    near_zero = NoisySum(stated, "replace", system_entropy).release(0 * total) / stated.grid
    assert min(noise_p_values(near_zero.astype(int), 2.0**36)) > ALARM
    np.testing.assert_array_equal(near_zero, near_zero.round())


def test_totals_beyond_64_bits_do_not_wrap():
    found = NoisySum(mechanism(), "replace", silent).release(np.array([2**70, -(2**70)], object))
    np.testing.assert_array_equal(found, [2.0**36, -(2.0**36)])


def ratios(s, k):
    """P(k) / R(k) of the proof: discrete over rounded normal noise."""
    p = np.exp(-(k**2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))
    return p / (stats.norm.sf((np.abs(k) - 0.5) / s) - stats.norm.sf((np.abs(k) + 0.5) / s))


@pytest.mark.parametrize("s", [4.0, 20.0])
def test_the_bounds_of_the_proof(s):
    k = np.arange(-int(12 * s), int(12 * s) + 1)
    found = ratios(s, k)
    assert (found <= 1 / (1 - 1 / (24 * s**2)) + 1e-12).all()
    assert (found >= np.exp(-(k**2) / (8 * s**4)) - 1e-12).all()
    assert found.max() > 1 + 1 / (25 * s**2)  # so the first bound is tight


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_the_privacy_of_discrete_noise_is_that_of_normal_noise(epsilon):
    """By dp-accounting's own account of one number, on a grid of 64 steps a deviation."""
    found = from_discrete_gaussian_mechanism(
        64.0, sensitivity=32, value_discretization_interval=1e-3
    ).get_delta_for_epsilon(epsilon)
    assert found == pytest.approx(delta_of(0.5, epsilon), rel=0.03, abs=1e-9)


def test_what_discreteness_costs():
    assert discrete_delta_of(0.3, 1.0) > delta_of(0.3, 1.0)
    assert discrete_delta_of(0.3, 1.0) == pytest.approx(delta_of(0.3, 1.0), rel=1e-8)
    assert discrete_delta_of(discrete_mu_for(1.0, 1e-5), 1.0) <= 1e-5
    n, s = 2.0**32, 2.0**34
    assert n / (23 * s**2) + (math.sqrt(n) + 65) ** 2 / (7 * s**2) < DISCRETE_EXCESS


CONFIG = DistillConfig(epsilon=1.0, delta=1e-5)


def test_a_sensitivity_without_the_rounding_is_refused():
    right = make_guarantee(CONFIG, make_schema())
    first, *others = right.mechanisms
    unrounded = first.model_copy(update={"sensitivity": 3**0.5})
    claimed = right.model_copy(update={"mechanisms": (unrounded, *others)})
    with pytest.raises(ValueError, match="histograms: sensitivity 1.73"):
        require_true(claimed, CONFIG, make_schema())


def test_noise_repeats_only_with_a_seed():
    total = np.zeros(5, int)
    one, again, other = (
        NoisySum(mechanism(), "replace", source).release(total)
        for source in (seeded(3), seeded(3), system_entropy)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).all()


@pytest.mark.parametrize("mechanisms", [[1], ["x"], [None], [[]], [{"name": []}]])
def test_what_is_no_mechanism_is_refused_in_words(mechanisms):
    said = make_guarantee(CONFIG, make_schema()).model_dump(mode="json")
    with pytest.raises(InputError, match=r"guarantee: mechanisms\.0"):
        parse_as(json.dumps(said | {"mechanisms": mechanisms}).encode(), Guarantee, "guarantee")


def test_a_guarantee_is_of_one_kind():
    """Of a release or of a training; and without mechanisms its delta is 0."""
    sums = {"reports": (SampledSums(100, 10, times=5), 1.0)}
    training = training_guarantee(sums, epsilon=2.0, delta=1e-5).model_dump()
    release = make_guarantee(CONFIG, make_schema()).model_dump()
    both = {"mechanisms": (*training["mechanisms"], *release["mechanisms"])}
    with pytest.raises(ValueError, match="not both"):
        Guarantee.model_validate(training | both)
    with pytest.raises(ValueError, match="else 0"):
        Guarantee(epsilon=1.0, delta=1e-310, relation="replace")
