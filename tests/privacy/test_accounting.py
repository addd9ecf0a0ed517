"""Accounts of noisy sums, against closed forms and dp-accounting.

At low noise dp-accounting takes minutes: none here.
"""

import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from synthfair.errors import InputError
from synthfair.privacy import accounting
from synthfair.privacy.accounting import Composition, SampledSums, delta_of, epsilon_of

discrete_delta_of = accounting.discrete_delta_of
POISSON, FIXED = SampledSums(1000, 20, 20), SampledSums(1000, 20, 20, "fixed")


# Gaussian mechanisms


@given(mu=st.floats(0.01, 5), epsilon=st.floats(0.01, 50))
def test_delta_is_the_closed_form_by_scipy(mu, epsilon):
    far, near = norm.logcdf([-epsilon / mu - mu / 2, -epsilon / mu + mu / 2])
    assert delta_of(mu, epsilon) == pytest.approx(np.exp(near) - np.exp(epsilon + far), abs=1e-12)


@given(epsilon=st.floats(0.05, 20), delta=st.floats(1e-9, 0.1))
def test_budget_is_used_up_and_never_exceeded(epsilon, delta):
    mu, discrete = accounting.mu_for(epsilon, delta), accounting.discrete_mu_for(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta < delta_of(1.001 * mu, epsilon)
    assert discrete_delta_of(discrete, epsilon) <= delta < delta_of(1.001 * discrete, epsilon)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-3)


def test_composition_is_that_of_the_privacy_loss_distribution():
    noises, accountant = [3.0, 5.0, 8.0], PLDAccountant()
    for noise in noises:
        accountant.compose(GaussianDpEvent(noise), count=4)
    composed = Composition.of((SampledSums(7, 7, 4), noise) for noise in noises)
    assert composed.epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert composed.delta(1.0) == pytest.approx(accountant.get_delta(1.0), rel=1e-2)


def test_composition_of_samples_sums_and_choices_is_one_account():
    """Against dp-accounting's, of the same events; pure epsilons add to the others'."""
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(0.02, GaussianDpEvent(1.5)), count=20)
    accountant.compose(GaussianDpEvent(1 / 0.4))
    composed = Composition(0.4, ((POISSON, 1.5),), pure=0.25)
    epsilon = accountant.get_epsilon(1e-5)
    assert composed.epsilon(1e-5) == pytest.approx(epsilon + 0.25, rel=1e-3)
    assert composed.delta(1.25) == pytest.approx(accountant.get_delta(1.0), rel=1e-2)
    assert composed.delta(0.24) == 1.0
    assert Composition(0.4, pure=0.25).delta(1.25) == pytest.approx(delta_of(0.4, 1.0))
    fixed = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    fixed.compose(SampledWithoutReplacementDpEvent(1000, 20, GaussianDpEvent(2.0)), count=20)
    assert FIXED.epsilon(2.0, 1e-5) == pytest.approx(fixed.get_epsilon(1e-5))


def test_discrete_noise_costs_what_the_proof_says():
    assert 0 < discrete_delta_of(0.3, 1.0) / delta_of(0.3, 1.0) - 1 < 1e-8
    n, s = 2.0**32, 2.0**34
    assert n / (23 * s**2) + (math.sqrt(n) + 65) ** 2 / (7 * s**2) < accounting.DISCRETE_EXCESS


# The least noise, with cheap functions in place of the accountant


@given(epsilon=st.floats(0.01, 30), guessed=st.floats(0.3, 3))
def test_noise_is_enough_and_hardly_more(epsilon, guessed):
    def cost(noise):
        return 1 / noise + 2 / noise**2

    noise = accounting.least_noise(cost, epsilon, guess=lambda noise: guessed * cost(noise))
    assert cost(noise) <= epsilon < cost(noise / (1 + 2 * accounting.NOISE_TOLERANCE))


def test_noise_that_cannot_be_enough_is_refused_and_that_is_hardly_needed_is_small():
    least = accounting.least_noise(lambda _: 0.0, 2.0, guess=lambda _: 0.0)  # with a large delta
    assert least <= accounting.MIN_NOISE_MULTIPLIER * 1.01
    with pytest.raises(OverflowError):
        accounting.least_noise(lambda noise: 1 + 1 / noise, 1.0, guess=lambda noise: 1 / noise)
    with pytest.raises(InputError, match="epsilon = 1e-05 at delta = 1e-12"):
        SampledSums(99, 99, 10_000).noise(1e-5, 1e-12)


# Sums over samples


@pytest.mark.parametrize("sums", [POISSON, pytest.param(FIXED, marks=pytest.mark.slow)])
def test_noise_of_sampled_sums_is_the_least(sums):
    noise = sums.noise(0.6, 1e-5)
    less = noise / (1 + 3 * accounting.NOISE_TOLERANCE)
    assert sums.epsilon(noise, 1e-5) <= 0.6 < sums.epsilon(less, 1e-5)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_sums_over_everyone_are_gaussian_mechanisms(sampling):
    everyone = SampledSums(7, 7, 9, sampling)
    assert everyone.epsilon(6.0, 1e-5) == epsilon_of(0.5, 1e-5)
    assert Composition.of([(everyone, 6.0)] * 2) == Composition(0.5**0.5)
    assert everyone.noise(epsilon_of(0.5, 1e-5), 1e-5) == pytest.approx(6.0)


def together(*parts):
    return Composition.of(parts).epsilon(1e-5)


def test_sums_of_several_kinds_are_composed(monkeypatch):
    everyone, parts = (SampledSums(7, 7, 9), 6.0), [SampledSums(1000, 20, n) for n in (8, 12)]
    hardly = SampledSums(7, 1, 1), 1e4
    assert together(everyone, hardly) == pytest.approx(epsilon_of(0.5, 1e-5), rel=0.01)
    whole = POISSON.epsilon(2.0, 1e-5)
    assert together(*((part, 2.0) for part in parts)) == pytest.approx(whole, rel=1e-3)
    halves, whole = (SampledSums(9, 9, 2),) * 2, SampledSums(9, 9, 4)
    assert accounting.common_noise(halves, 1.0, 1e-5) == pytest.approx(whole.noise(1.0, 1e-5))
    monkeypatch.setattr(accounting, "least_noise", lambda cost, _, **__: cost(6.0))
    found = accounting.common_noise((everyone[0], *hardly[:1]), 1.0, 1e-5)  # not the first's alone
    assert found == together(everyone, (hardly[0], 6.0))


@pytest.mark.parametrize(("sample", "times"), [(0, 1), (11, 1), (5, 0)])
def test_sums_that_cannot_be_are_refused(sample, times):
    with pytest.raises(InputError, match=f"sample = {sample}|rounds = {times}"):
        SampledSums(10, sample, times)


@pytest.mark.parametrize("kinds", [[], [POISSON, FIXED]])
def test_sums_of_unlike_relations_are_not_composed(kinds):
    assert (POISSON.relation, FIXED.relation) == ("add_or_remove", "replace")
    with pytest.raises(InputError, match=f"{len(kinds)} kinds"):
        Composition.of((sums, 1.0) for sums in kinds)
