"""The accounts of noisy sums over samples."""

import math

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.privacy.accounting import epsilon_of
from synthfair.privacy.sampled import TOLERANCE, SampledSums


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
