"""Choices by the exponential mechanism: what they cost, alone and with sums, and what they are."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.stats import norm

from synthfair.privacy import mechanism as module
from synthfair.privacy.accounting import delta_of, epsilon_of_choice, mu_of_choice
from synthfair.privacy.mechanism import SCORE_GRID, ExponentialMechanism, PrivateChoice
from synthfair.privacy.noise import seeded

EPSILONS = [2.0**-20, 0.01, 0.3, 1.0, 4.0, 12.0]
RATIOS = np.linspace(-14, 14, 141)


def choices(**changes):
    fields = {"name": "tree", "sensitivity": 1 + SCORE_GRID, "epsilon": 0.75, "times": 3}
    return ExponentialMechanism(**fields | changes)


def hockey_stick(p, q, ratio):
    """The least delta of two distributions [n] at epsilon = ratio."""
    return np.maximum(p - np.exp(ratio) * q, 0).sum()


def probits(v):
    """Phi^-1(sigma(v)), exact in both tails."""
    return np.sign(v) * norm.isf(expit(-np.abs(v)))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_choice_of_the_range_costs_more(epsilon):
    """By the hockey-stick divergence of pairs of outcomes, from very rare to very likely."""
    mu = mu_of_choice(epsilon)
    for u, ratio in itertools.product(np.linspace(-15, 15, 31), RATIOS):
        p, q = expit(u + epsilon / 2), expit(u - epsilon / 2)
        delta = hockey_stick(np.array([p, 1 - p]), np.array([q, 1 - q]), ratio)
        assert delta <= delta_of(mu, ratio) + 1e-12


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_cost_is_that_of_the_worst_pair_and_no_more(epsilon):
    """By the trade-off's breakpoint on a grid of pairs, where the proof uses derivatives."""
    u = np.linspace(-20, 20, 4001)
    cost = probits(u + epsilon / 2) - probits(u - epsilon / 2)
    assert cost.max() == pytest.approx(mu_of_choice(epsilon), rel=1e-6)
    assert delta_of(mu_of_choice(epsilon), 0.0) == pytest.approx(np.tanh(epsilon / 4), rel=1e-6)


def test_the_function_of_the_proof_falls_on_either_side():
    x = np.linspace(0.001, 12, 12_000)
    a, phi = norm.cdf(x) - 0.5, norm.pdf(x)
    slope = norm.cdf(x) * norm.sf(x) / phi
    assert (np.diff(slope) < 0).all()
    d = 2 * a * phi - x * norm.cdf(x) * norm.sf(x)
    assert (d > 0).all()
    np.testing.assert_allclose(np.gradient(d, x), 2 * phi**2 - 0.25 + a**2, atol=1e-3)


@given(mu=st.floats(1e-5, 10))
def test_the_epsilon_for_a_cost_uses_it_up_and_never_passes_it(mu):
    epsilon = epsilon_of_choice(mu)
    assert epsilon * 2**20 == int(epsilon * 2**20)
    assert mu_of_choice(epsilon) <= mu * (1 + 1e-9)
    assert mu_of_choice(epsilon + 2.0**-20) > mu * (1 - 1e-9)


def two_outcomes(u, epsilon):
    """The distribution of the privacy loss of a pair, rounded so that it is never too small."""
    p, q = expit(u + epsilon / 2), expit(u - epsilon / 2)
    upper, lower = ({0: np.log(one), 1: np.log1p(-one)} for one in (p, q))
    return pld.from_two_probability_mass_functions(
        lower, upper, pessimistic_estimate=True, value_discretization_interval=1e-4
    )


BUDGETS = [(0.5, 9, 0.3, 1.0), (2.0**-6, 28, 0.23, 1.0), (2.0, 4, 0.5, 3.0), (1.0, 1, 0.05, 0.3)]


@pytest.mark.parametrize(
    ("u", "budget"),
    [*zip((-3.0, -1.0, 1.0, 3.0), BUDGETS, strict=True), *((0.0, b) for b in BUDGETS)],
)
def test_choices_and_sums_together_never_cost_more_than_claimed(u, budget):
    """By dp-accounting's composition of privacy losses."""
    epsilon, times, mu, claimed = budget
    together = two_outcomes(u, epsilon).self_compose(times)
    together = together.compose(
        pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    )
    delta = together.get_delta_for_epsilon(claimed)
    assert delta <= delta_of(math.hypot(mu, choices(epsilon=epsilon, times=times).mu), claimed)
    if u == 0:  # and a quarter of the cost of choices would be too little
        quarter = times**0.5 * mu_of_choice(epsilon) / 2
        assert delta > delta_of(math.hypot(mu, quarter), claimed)


def log_chances(steps, mechanism):
    return log_softmax(mechanism.epsilon * mechanism.grid / (2 * mechanism.sensitivity) * steps)


@pytest.mark.parametrize("sensitivity", [1 + SCORE_GRID, 2 + SCORE_GRID])
def test_log_ratios_of_neighbours_have_the_range_epsilon(sensitivity):
    """The closed form of the chances, for random neighbours and for the worst ones."""
    stated, rng = choices(sensitivity=sensitivity), np.random.default_rng(0)
    most, ranges = round(sensitivity / SCORE_GRID), []
    for _ in range(200):
        steps = rng.integers(0, 30 * most, size=rng.integers(2, 30))
        other = steps + rng.choice([-most, 0, most], size=len(steps))
        p, q = log_chances(steps, stated), log_chances(other, stated)
        ranges.append(np.ptp(p - q))
        for ratio in (-0.2, 0.0, 0.2):
            at_most = delta_of(mu_of_choice(stated.epsilon), ratio)
            assert hockey_stick(np.exp(p), np.exp(q), ratio) <= at_most
    assert max(ranges) == pytest.approx(stated.epsilon)


def steps_of(monkeypatch, *scores):
    """What is chosen among, in steps, for vectors of scores."""
    found = []
    monkeypatch.setattr(module, "exponential_choice", lambda steps, *_: found.append(steps) or 0)
    guarded = PrivateChoice(choices(times=len(scores)), seeded(0))
    for one in scores:
        guarded.choose(one)
    return found


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
def test_scores_of_neighbours_differ_by_the_sensitivity_at_most(monkeypatch, relation):
    """Sums over cells and levels of |rows - expected|, what is expected being the same for both."""
    rng, most = np.random.default_rng(1), {"add_or_remove": 1, "replace": 2}[relation]
    counts, expected = rng.integers(0, 9, size=(40, 4, 5, 6)), 9 * rng.random((40, 4, 5, 6))
    expected[::2] = expected[::2].round()
    neighbours = counts.copy()
    for table in neighbours.reshape(40, -1):
        table[rng.integers(table.size)] += 1
        if relation == "replace":
            table[rng.choice(np.flatnonzero(table))] -= 1
    scores = (np.abs(n - expected).sum(axis=(1, 2, 3)) for n in (counts, neighbours))
    before, after = steps_of(monkeypatch, *scores)
    largest = np.abs(before - after).max() * SCORE_GRID
    assert most <= largest <= most + SCORE_GRID


def test_rounding_and_small_errors_move_a_score_by_a_step_at_most(monkeypatch):
    rng = np.random.default_rng(2)
    scores = np.append(1e6 * rng.random(10_000), (np.arange(100) + 0.5) * SCORE_GRID)
    error = rng.uniform(-0.49, 0.49, size=(2, len(scores))) * SCORE_GRID
    before, after = steps_of(monkeypatch, scores + error[0], scores + 1 + error[1])
    moved = after - before
    assert moved.max() == 1025
    assert moved.min() == 1023


def test_choices_are_as_many_as_stated_and_repeat_only_with_a_seed():
    guarded, again = (PrivateChoice(choices(times=8), seeded(5)) for _ in range(2))
    scores = np.zeros(1000)
    drawn = [guarded.choose(scores) for _ in range(8)]
    assert drawn == [again.choose(scores) for _ in range(8)]
    assert len(set(drawn)) > 4
    with pytest.raises(RuntimeError, match="tree: the budget is spent"):
        guarded.choose(scores)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.1}, "multiple of 2.-20"),
        ({"epsilon": -0.5}, "greater than or equal to 0"),
        ({"grid": 2.0**-9}, "grid 0.001953125 must be 0.0009765625"),
        ({"sensitivity": 0.0}, "greater than 0"),
        ({"times": 0}, "greater than or equal to 1"),
        ({"name": "pairs"}, "tree"),
    ],
)
def test_choices_that_the_account_does_not_cover_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        choices(**change)
