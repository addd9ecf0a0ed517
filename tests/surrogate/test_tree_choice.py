"""Choices by the exponential mechanism: what they cost, alone and with sums, and what they are."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from synthfair.privacy import mechanism
from synthfair.privacy.accounting import delta_of, epsilon_of_choice, mu_of_choice
from synthfair.privacy.mechanism import SCORE_GRID, ExponentialMechanism, PrivateChoice
from synthfair.privacy.noise import seeded


def choices(**changes):
    fields = {"name": "tree", "sensitivity": 1 + SCORE_GRID, "epsilon": 0.75, "times": 3}
    return ExponentialMechanism(**fields | changes)


@pytest.mark.parametrize("epsilon", [2.0**-20, 0.3, 1.0, 12.0])
def test_choice_costs_what_the_worst_pair_does(epsilon):
    """By the hockey-stick divergence of pairs of outcomes, from very rare to very likely."""
    mu, u = mu_of_choice(epsilon), np.linspace(-20, 20, 4001)
    p, q = expit(u + epsilon / 2), expit(u - epsilon / 2)
    for ratio in np.linspace(-14, 14, 141):
        delta = sum(np.maximum(a - np.exp(ratio) * b, 0) for a, b in ((p, q), (1 - p, 1 - q)))
        assert delta.max() <= delta_of(mu, ratio) + 1e-12
    assert delta_of(mu, 0.0) == pytest.approx(np.tanh(epsilon / 4), rel=1e-6)
    middle = abs(u) < 5  # where 1 - p is exact enough
    assert (norm.ppf(p) - norm.ppf(q))[middle].max() == pytest.approx(mu, rel=1e-6)


@given(mu=st.floats(1e-5, 10))
def test_epsilon_of_a_choice_uses_up_its_mu(mu):
    epsilon = epsilon_of_choice(mu)
    assert epsilon * 2**20 == int(epsilon * 2**20)
    assert mu_of_choice(epsilon) <= mu * (1 + 1e-9)
    assert mu_of_choice(epsilon + 2.0**-20) > mu * (1 - 1e-9)


@pytest.mark.parametrize("u", [-3.0, 0.0, 1.0])
@pytest.mark.parametrize(
    ("epsilon", "times", "mu", "claimed"), [(0.5, 9, 0.3, 1.0), (2.0, 4, 0.5, 3.0)]
)
def test_choices_and_sums_together_cost_no_more_than_claimed(u, epsilon, times, mu, claimed):
    """By dp-accounting's composition of privacy losses."""
    p, q = expit(u + epsilon / 2), expit(u - epsilon / 2)
    upper, lower = ({0: np.log(one), 1: np.log1p(-one)} for one in (p, q))
    grid = {"value_discretization_interval": 1e-4}
    loss = pld.from_two_probability_mass_functions(lower, upper, pessimistic_estimate=True, **grid)
    loss = loss.self_compose(times).compose(pld.from_gaussian_mechanism(1 / mu, **grid))
    delta, stated = loss.get_delta_for_epsilon(claimed), choices(epsilon=epsilon, times=times)
    assert delta <= delta_of(math.hypot(mu, stated.mu), claimed)
    if u == 0:  # a quarter of the cost of choices would be too little
        assert delta > delta_of(math.hypot(mu, stated.mu / 2), claimed)


def test_choice_weighs_rounded_scores_by_epsilon_and_sensitivity(monkeypatch):
    """Rounding and errors of floating point move a score by the step that the sensitivity has."""
    seen, rng, stated = [], np.random.default_rng(2), choices(times=2)
    monkeypatch.setattr(mechanism, "exponential_choice", lambda *args: seen.append(args) or 0)
    scores = np.append(1e6 * rng.random(10_000), (np.arange(100) + 0.5) * SCORE_GRID)
    error, chooser = rng.uniform(-0.49, 0.49, (2, len(scores))) * SCORE_GRID, None
    chooser = PrivateChoice(stated, seeded(0))
    for change in (0, 1):
        chooser.choose(scores + change + error[change])
    (before, rate, _), (after, _, _) = seen
    assert np.abs(after - before).max() * SCORE_GRID == stated.sensitivity
    assert float(rate) == stated.epsilon * SCORE_GRID / (2 * stated.sensitivity)


def test_choices_are_as_many_as_stated():
    chooser, again = (PrivateChoice(choices(times=8), seeded(5)) for _ in range(2))
    drawn = [chooser.choose(np.zeros(1000)) for _ in range(8)]
    assert drawn == [again.choose(np.zeros(1000)) for _ in range(8)]
    assert len(set(drawn)) > 4
    with pytest.raises(RuntimeError, match="budget is spent"):
        chooser.choose(np.zeros(1000))


@pytest.mark.parametrize("change", [{"epsilon": 0.1}, {"grid": 2.0**-9}, {"sensitivity": 0.0}])
def test_choices_that_the_account_does_not_cover_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        choices(**change)
