import jax.numpy as jnp
import numpy as np
import pytest

from synthfair.fairness.penalties import (
    CovariancePenalty,
    SelectionRatePenalty,
    group_covariances,
    selection_rate_gaps,
)
from synthfair.model import LinearModel, Rows

NOTIONS = {
    "statistical_parity": [lambda y: np.full(len(y), True)],
    "equal_opportunity": [lambda y: y > 0],
    "equalized_odds": [lambda y: y > 0, lambda y: y < 0],
}


def some_rows(n_groups, n=60):
    rng = np.random.default_rng(n_groups)
    s, y = rng.integers(n_groups, size=n), rng.choice([-1.0, 1.0], n)
    return rng.normal(size=n), Rows(jnp.array(rng.normal(size=(n, 3))), jnp.array(s), jnp.array(y))


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_covariance_is_numpys_within_each_stratum(notion, n_groups):
    z, rows = some_rows(n_groups)
    found = group_covariances(jnp.array(z), rows, notion=notion, n_groups=n_groups)
    groups = [1] if n_groups == 2 else range(n_groups)
    s, y = np.asarray(rows.s), np.asarray(rows.y)
    expected = [
        [np.cov(s[among(y)] == g, z[among(y)], bias=True)[0, 1] for g in groups]
        for among in NOTIONS[notion]
    ]
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_smooth_gap_tends_to_the_gap_in_selection_rates(notion, n_groups):
    z, rows = some_rows(n_groups)
    found = selection_rate_gaps(
        jnp.array(z), rows, notion=notion, n_groups=n_groups, temperature=1e6
    )
    groups = [1] if n_groups == 2 else range(n_groups)
    s, y = np.asarray(rows.s), np.asarray(rows.y)
    expected = [
        [(z[among(y) & (s == g)] > 0).mean() - (z[among(y) & (s != g)] > 0).mean() for g in groups]
        for among in NOTIONS[notion]
    ]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_two_groups_count_once():
    _, rows = some_rows(2)
    covariance = np.cov(np.asarray(rows.s), np.asarray(rows.a @ np.ones(3)), bias=True)[0, 1]
    penalty = CovariancePenalty()(LinearModel(), jnp.ones(3), rows)
    assert penalty == pytest.approx(covariance**2 / 2)


def test_penalties_vanish_where_groups_score_alike():
    _, rows = some_rows(3)
    for penalty in (CovariancePenalty(3), SelectionRatePenalty(3)):
        assert penalty(LinearModel(), jnp.zeros(3), rows) == pytest.approx(0, abs=1e-30)
