"""The accounts of noisy sums over samples."""

import math

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.privacy.accounting import epsilon_of
from synthfair.privacy.sampled import TOLERANCE, SampledSums, common_noise, composed_epsilon


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_the_noise_found_is_enough_and_hardly_more(sampling):
    sums = SampledSums(1000, 50, 40, sampling)
    noise = sums.noise(2.0, 1e-5)
    assert sums.epsilon(noise, 1e-5) <= 2.0
    assert sums.epsilon(noise / (1 + 3 * TOLERANCE), 1e-5) > 2.0


def test_one_poisson_sample_has_the_epsilon_of_its_hockey_stick():
    """Of q N(1, s^2) + (1 - q) N(0, s^2) against N(0, s^2), integrated on a grid, both ways."""
    q, noise, epsilon = 0.1, 0.8, 0.7
    z = np.linspace(-20, 20, 400_001)
    with_, without = _density(z, q, noise), _density(z, 0.0, noise)
    step = z[1] - z[0]
    delta = max(
        np.maximum(p - math.exp(epsilon) * r, 0).sum() * step
        for p, r in ((with_, without), (without, with_))
    )
    found = SampledSums(10, 1, 1).epsilon(noise, float(delta))
    assert found == pytest.approx(epsilon, abs=2e-3)
    assert found >= epsilon - 1e-4


def _density(z, q, noise):
    def normal(mean):
        return np.exp(-((z - mean) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))

    return q * normal(1.0) + (1 - q) * normal(0.0)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_samples_of_all_are_gaussian_mechanisms(sampling):
    assert SampledSums(7, 7, 9, sampling).epsilon(6.0, 1e-5) == epsilon_of(0.5, 1e-5)


def test_smaller_samples_fewer_rounds_and_more_noise_cost_less():
    base = SampledSums(2000, 100, 50).epsilon(1.0, 1e-5)
    assert SampledSums(2000, 50, 50).epsilon(1.0, 1e-5) < base
    assert SampledSums(2000, 100, 25).epsilon(1.0, 1e-5) < base
    assert SampledSums(2000, 100, 50).epsilon(1.5, 1e-5) < base


def test_what_no_noise_can_meet_is_refused():
    with pytest.raises(InputError, match="no noise up to 10000 times the clip"):
        SampledSums(100, 99, 10_000).noise(1e-5, 1e-12)


@pytest.mark.parametrize("sample", [0, 11])
def test_samples_beyond_the_population_are_refused(sample):
    with pytest.raises(InputError, match=f"sample = {sample}: must be 1 to 10"):
        SampledSums(10, sample, 1)


def test_a_relation_goes_with_each_sampling():
    assert SampledSums(10, 1, 1, "poisson").relation == "add_or_remove"
    assert SampledSums(10, 1, 1, "fixed").relation == "replace"


def test_kinds_of_sums_are_composed_as_one_longer_kind_is():
    long, parts = SampledSums(1000, 50, 40), [SampledSums(1000, 50, times) for times in (15, 25)]
    assert composed_epsilon([(part, 1.2) for part in parts], 1e-5) == pytest.approx(
        long.epsilon(1.2, 1e-5), rel=1e-3
    )
    assert common_noise(parts, 2.0, 1e-5) == pytest.approx(long.noise(2.0, 1e-5), rel=2 * TOLERANCE)


def test_composing_costs_less_than_the_epsilons_added():
    parts = [(SampledSums(1000, 50, 40), 1.0), (SampledSums(1000, 20, 100), 2.0)]
    alone = [sums.epsilon(noise, 1e-5) for sums, noise in parts]
    halves = [sums.epsilon(noise, 0.5e-5) for sums, noise in parts]
    assert max(alone) < composed_epsilon(parts, 1e-5) < 0.9 * sum(halves)


def test_samples_of_all_are_composed_with_others():
    """Beside a sampled kind that says almost nothing it is the Gaussian mechanism it is alone."""
    everyone = (SampledSums(7, 7, 9), 6.0)
    found = composed_epsilon([everyone, (SampledSums(7, 1, 1), 1e4)], 1e-5)
    assert found == pytest.approx(epsilon_of(0.5, 1e-5), rel=0.01)
    assert composed_epsilon([everyone, everyone], 1e-5) == epsilon_of(0.5**0.5, 1e-5)


@pytest.mark.parametrize("kinds", [[], [SampledSums(9, 3, 1), SampledSums(9, 3, 1, "fixed")]])
def test_what_cannot_be_composed_is_refused(kinds):
    with pytest.raises(InputError, match="must be at least one, and all of samples drawn alike"):
        composed_epsilon([(sums, 1.0) for sums in kinds], 1e-5)


@pytest.mark.parametrize("sums", [SampledSums(1000, 100, 5), SampledSums(14_000, 20, 1)])
def test_where_few_are_ever_sampled_the_search_ends(sums):
    """With so large a delta any noise would do."""
    noise = sums.noise(2.0, 0.5)
    assert 0 < noise <= 0.11
    assert sums.epsilon(noise, 0.5) <= 2.0
