"""Penalties and gaps against NumPy, a stratum at a time."""

import jax
import numpy as np
import pytest

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty, decision_gaps
from synthfair.model import Rows

NOTIONS = {
    "statistical_parity": [lambda y: np.full(len(y), True)],
    "equal_opportunity": [lambda y: y > 0],
    "equalized_odds": [lambda y: y > 0, lambda y: y < 0],
}

gaps_of = jax.jit(lambda penalty, *given: penalty.gaps(*given), static_argnums=0)
value_of = jax.jit(lambda penalty, *given: penalty(*given), static_argnums=0)
decision_gaps_of = jax.jit(decision_gaps, static_argnames=("notion", "n_groups", "by"))

each_notion = pytest.mark.parametrize("notion", NOTIONS)
each_number_of_groups = pytest.mark.parametrize("n_groups", [2, 3])


def some_rows(n_groups, n=60):
    """Scores, groups, labels; and the rows."""
    rng = np.random.default_rng(n_groups)
    s, y = rng.integers(n_groups, size=n), rng.choice([-1.0, 1.0], n)
    return rng.normal(size=n), s, y, Rows(np.zeros((n, 3)), s, y)


@each_notion
@each_number_of_groups
def test_covariance_is_numpys_within_each_stratum(notion, n_groups):
    z, s, y, rows = some_rows(n_groups)
    found = gaps_of(CovariancePenalty(n_groups, notion), z, rows)
    groups = [1] if n_groups == 2 else range(n_groups)
    expected = [
        [np.cov(s[among(y)] == g, z[among(y)], bias=True)[0, 1] for g in groups]
        for among in NOTIONS[notion]
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@each_notion
@each_number_of_groups
def test_smooth_gap_is_the_difference_of_mean_sigmoids(notion, n_groups):
    z, s, y, rows = some_rows(n_groups)
    found = gaps_of(SelectionRatePenalty(n_groups, notion, 3.0), z, rows)
    groups, selected = [1] if n_groups == 2 else range(n_groups), 1 / (1 + np.exp(-3.0 * z))
    expected = [
        [
            selected[among(y) & (s == g)].mean() - selected[among(y) & (s != g)].mean()
            for g in groups
        ]
        for among in NOTIONS[notion]
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@each_notion
@each_number_of_groups
def test_the_gap_in_decisions_is_the_largest_minus_the_smallest_rate(notion, n_groups):
    z, s, y, rows = some_rows(n_groups)
    found = decision_gaps_of(z, rows, notion=notion, n_groups=n_groups)
    rates = [
        [(z[among(y) & (s == g)] > 0).mean() for g in range(n_groups)] for among in NOTIONS[notion]
    ]
    np.testing.assert_allclose(found, np.max(rates, axis=1) - np.min(rates, axis=1), atol=1e-12)
    absent = decision_gaps_of(z, rows, notion=notion, n_groups=n_groups + 1)
    np.testing.assert_array_equal(absent, found)  # a group without rows does not count


def test_two_groups_count_once():
    z, s, _, rows = some_rows(2)
    covariance = np.cov(s, z, bias=True)[0, 1]
    assert value_of(CovariancePenalty(), z, rows) == pytest.approx(covariance**2 / 2)


@pytest.mark.parametrize("make", [CovariancePenalty, SelectionRatePenalty])
@each_notion
def test_a_weight_is_a_number_of_equal_rows(make, notion):
    """0 among them: such a row is as if it were not there."""
    z, s, y, rows = some_rows(3)
    times = np.random.default_rng(0).integers(0, 4, len(z))
    weighted = value_of(make(3, notion), z, rows._replace(weight=times.astype(float)))
    several = Rows(*(np.repeat(part, times, axis=0) for part in (rows.a, s, y)))
    assert weighted == pytest.approx(make(3, notion)(np.repeat(z, times), several))


@pytest.mark.parametrize("penalty", [CovariancePenalty(3), SelectionRatePenalty(3)])
def test_penalties_vanish_where_groups_score_alike(penalty):
    assert value_of(penalty, np.zeros(60), some_rows(3)[-1]) == pytest.approx(0, abs=1e-30)


@each_notion
@pytest.mark.parametrize("penalty", [CovariancePenalty, SelectionRatePenalty])
def test_groupings_are_compared_as_if_each_were_alone(notion, penalty):
    z, s, y, rows = some_rows(4)
    by = ((0, 0, 1, 1), (0, 1, 2, 1), (-1, -1, 0, 1))
    gaps = gaps_of(penalty(4, notion, by=by), z, rows)
    decided = decision_gaps_of(z, rows, notion=notion, n_groups=4, by=by)
    alone, alone_decided = [], []
    for grouping in by:
        own = np.array(grouping)[s]
        some, n = own >= 0, max(grouping) + 1
        part = Rows(np.zeros((some.sum(), 3)), own[some], y[some])
        alone.append(penalty(n, notion).gaps(z[some], part))
        of = decision_gaps(z[some], part, notion=notion, n_groups=n)
        alone_decided.append(of)
    np.testing.assert_allclose(gaps, np.concatenate(alone, axis=1), atol=1e-12)
    np.testing.assert_allclose(decided, np.concatenate(alone_decided), atol=1e-12)
