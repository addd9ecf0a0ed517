"""The guarantee of a surrogate: norms, shares of the budget, and what choices of a tree cost."""

import numpy as np
import pytest
from builders import schema_with
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from synthfair.data.schema import Categorical, Numeric
from synthfair.privacy import mechanism
from synthfair.privacy.accounting import delta_of, epsilon_of_choice, mu_for, mu_of_choice
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.mechanism import SCORE_GRID, ExponentialMechanism, PrivateChoice
from synthfair.privacy.noise import seeded
from synthfair.release.settings import SurrogateConfig


def schema_of(numbers, categories):
    columns = [Numeric(lower=-3.0, upper=5.0, missing="category")] * numbers
    columns += [Categorical(categories=("a", "b", "c"))] * categories
    return schema_with(**{f"c{i}": column for i, column in enumerate(columns)})


@pytest.mark.parametrize(("numbers", "categories"), [(1, 0), (0, 1), (0, 3), (4, 2), (9, 0)])
@pytest.mark.parametrize("common_tree", [False, True])
@pytest.mark.parametrize(("relation", "rows"), [("add_or_remove", 1), ("replace", 2)])
def test_guarantee_shares_the_budget(numbers, categories, common_tree, relation, rows):
    """The sums' sensitivities are those of rows, see test_private.py; those of all pairs are here."""
    p = numbers + categories
    shares = {"histograms": 175, "column_moments": 200 * (numbers > 0), "anchors": 300}
    shares |= {"tables" if common_tree else "tree": 50, "pairs": 275} if p > 1 else {}
    shares = {name: share for name, share in shares.items() if share}
    config = SurrogateConfig(epsilon=1.0, delta=1e-5, relation=relation)
    guarantee = make_guarantee(config, schema_of(numbers, categories), common_tree=common_tree)
    stated = {m.name: m for m in guarantee.mechanisms}
    assert guarantee.mu == pytest.approx(mu_for(1.0, 1e-5), rel=1e-5)
    expected = {name: share / sum(shares.values()) for name, share in shares.items()}
    found = {name: (m.mu / guarantee.mu) ** 2 for name, m in stated.items()}
    assert found == pytest.approx(expected, rel=1e-3)
    if "tables" in stated:
        assert stated["tables"].sensitivity == pytest.approx((rows * p * (p - 1) / 2) ** 0.5)
    if tree := stated.get("tree"):
        assert (tree.sensitivity, tree.times) == (rows + SCORE_GRID, p - 1)
        assert tree.mu == pytest.approx((p - 1) ** 0.5 * mu_of_choice(tree.epsilon))


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
def test_choice_of_an_epsilon_uses_up_its_mu(mu):
    epsilon = epsilon_of_choice(mu)
    assert epsilon * 2**20 == int(epsilon * 2**20)
    assert mu_of_choice(epsilon) <= mu * (1 + 1e-9)
    assert mu_of_choice(epsilon + 2.0**-20) > mu * (1 - 1e-9)


def chooser(times):
    fields = {"name": "tree", "sensitivity": 1 + SCORE_GRID, "epsilon": 0.75, "times": times}
    return PrivateChoice(ExponentialMechanism(**fields), seeded(5))


def test_choice_weighs_rounded_scores_by_epsilon_and_sensitivity(monkeypatch):
    """Rounding and errors of floating point move a score by the step that the sensitivity has."""
    seen, rng, choice = [], np.random.default_rng(2), chooser(2)
    monkeypatch.setattr(mechanism, "exponential_choice", lambda *args: seen.append(args) or 0)
    scores = np.append(1e6 * rng.random(10_000), (np.arange(100) + 0.5) * SCORE_GRID)
    for change, error in enumerate(rng.uniform(-0.49, 0.49, (2, len(scores))) * SCORE_GRID):
        choice.choose(scores + change + error)
    (before, rate, _), (after, _, _) = seen
    assert np.abs(after - before).max() * SCORE_GRID == 1 + SCORE_GRID
    assert float(rate) == 0.75 * SCORE_GRID / (2 * (1 + SCORE_GRID))


def test_choices_are_as_many_as_stated():
    choice, again = chooser(8), chooser(8)
    drawn = [choice.choose(np.zeros(1000)) for _ in range(8)]
    assert drawn == [again.choose(np.zeros(1000)) for _ in range(8)]
    assert len(set(drawn)) > 4
    with pytest.raises(RuntimeError, match="budget"):
        choice.choose(np.zeros(1000))
