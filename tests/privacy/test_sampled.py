"""The accounts of noisy sums over samples. At low noise the accountant takes minutes: none here."""

import math

import numpy as np
import pytest

from synthfair.errors import InputError
from synthfair.privacy.accounting import (
    MAX_NOISE_MULTIPLIER,
    MIN_NOISE_MULTIPLIER,
    NOISE_TOLERANCE,
    Composition,
    SampledSums,
    common_noise,
    epsilon_of,
    least_noise,
)

POISSON, FIXED = SampledSums(1000, 20, 20), SampledSums(1000, 20, 20, "fixed")


def together(*parts):
    return Composition.of(parts).epsilon(1e-5)


# The search, with cheap functions in place of the accountant


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("too_large", [1.0, 1.3, 3.0])
def test_the_noise_found_is_enough_and_hardly_more(epsilon, too_large):
    def spent(noise):
        return 1 / noise + 2 / noise**2

    noise = least_noise(spent, epsilon, guess=lambda noise: too_large * spent(noise))
    assert spent(noise) <= epsilon < spent(noise / (1 + 2 * NOISE_TOLERANCE))


def test_a_guess_that_is_too_low_is_mended():
    noise = least_noise(lambda noise: 5 / noise, 2.0, guess=lambda noise: 1 / noise)
    assert noise == pytest.approx(2.5, rel=2 * NOISE_TOLERANCE)
    assert noise >= 2.5


def test_the_slow_account_is_asked_for_few_times():
    asked = []
    least_noise(lambda n: asked.append(n) or 7 / n, 0.5, guess=lambda n: 8 / n)
    assert len(asked) < 12


@pytest.mark.parametrize("exact", [0.0, 1e-3])
def test_where_hardly_any_noise_is_needed_the_search_ends(exact):
    """With a large delta epsilon may be 0 at any noise: its logarithm is not asked for."""
    assert (
        least_noise(lambda n: exact / n, 2.0, guess=lambda n: exact / n)
        <= MIN_NOISE_MULTIPLIER * 1.01
    )


def test_what_no_noise_can_meet_is_refused():
    with pytest.raises(OverflowError):
        least_noise(lambda noise: 1 + 1 / noise, 1.0, guess=lambda noise: 1 / noise)
    with pytest.raises(InputError, match=f"no noise up to {MAX_NOISE_MULTIPLIER:g} times the clip"):
        SampledSums(99, 99, 10_000).noise(1e-5, 1e-12)


# The accounts


@pytest.mark.parametrize("sums", [POISSON, pytest.param(FIXED, marks=pytest.mark.slow)])
def test_the_noise_of_sampled_sums_is_the_least(sums):
    noise = sums.noise(0.6, 1e-5)
    assert sums.epsilon(noise, 1e-5) <= 0.6 < sums.epsilon(noise / (1 + 3 * NOISE_TOLERANCE), 1e-5)


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
    assert epsilon - 1e-4 <= found <= epsilon + 2e-3


def _density(z, q, noise):
    def normal(mean):
        return np.exp(-((z - mean) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))

    return q * normal(1.0) + (1 - q) * normal(0.0)


def test_smaller_samples_fewer_rounds_and_more_noise_cost_less():
    base = POISSON.epsilon(2.0, 1e-5)
    assert SampledSums(1000, 10, 20).epsilon(2.0, 1e-5) < base
    assert SampledSums(1000, 20, 10).epsilon(2.0, 1e-5) < base
    assert POISSON.epsilon(3.0, 1e-5) < base < FIXED.epsilon(2.0, 1e-5)


@pytest.mark.parametrize("sample", [0, 11])
def test_samples_beyond_the_population_are_refused(sample):
    with pytest.raises(InputError, match=f"sample = {sample}: must be 1 to 10"):
        SampledSums(10, sample, 1)


def test_a_relation_goes_with_each_sampling():
    assert (POISSON.relation, FIXED.relation) == ("add_or_remove", "replace")


# Together


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_samples_of_all_are_gaussian_mechanisms(sampling):
    everyone = SampledSums(7, 7, 9, sampling)
    assert everyone.epsilon(6.0, 1e-5) == epsilon_of(0.5, 1e-5)
    assert Composition.of([(everyone, 6.0)] * 2) == Composition(0.5**0.5)
    assert everyone.noise(epsilon_of(0.5, 1e-5), 1e-5) == pytest.approx(6.0)


def test_samples_of_all_are_composed_with_others():
    """With a sampled kind that costs almost nothing it is the Gaussian mechanism it is alone."""
    found = together((SampledSums(7, 7, 9), 6.0), (SampledSums(7, 1, 1), 1e4))
    assert found == pytest.approx(epsilon_of(0.5, 1e-5), rel=0.01)


def test_kinds_of_sums_are_composed_as_one_longer_kind_is():
    parts = [SampledSums(1000, 20, times) for times in (8, 12)]
    assert together(*((part, 2.0) for part in parts)) == pytest.approx(
        POISSON.epsilon(2.0, 1e-5), rel=1e-3
    )
    halves, whole = (SampledSums(9, 9, 2),) * 2, SampledSums(9, 9, 4)
    assert common_noise(halves, 1.0, 1e-5) == pytest.approx(whole.noise(1.0, 1e-5))


def test_composing_costs_less_than_the_epsilons_added():
    parts = [(POISSON, 2.0), (SampledSums(1000, 50, 20), 4.0)]
    alone = [sums.epsilon(noise, 1e-5) for sums, noise in parts]
    halves = [sums.epsilon(noise, 0.5e-5) for sums, noise in parts]
    assert max(alone) < together(*parts) < 0.9 * sum(halves)
    assert together(*parts) < Composition(0.3, tuple(parts)).epsilon(1e-5)


@pytest.mark.parametrize("sums", [POISSON, FIXED])
def test_delta_and_epsilon_are_inverse(sums):
    composition = Composition.of([(sums, 2.0)])
    assert composition.delta(composition.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-2)


@pytest.mark.parametrize("kinds", [[], [POISSON, FIXED]])
def test_what_cannot_be_composed_is_refused(kinds):
    with pytest.raises(InputError, match="give some, of samples drawn alike"):
        Composition.of((sums, 1.0) for sums in kinds)
