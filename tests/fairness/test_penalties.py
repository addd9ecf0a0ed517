"""Penalties and gaps against NumPy, a stratum at a time."""

import jax
import numpy as np
import pytest

from synthfair.fairness.penalties import (
    CovariancePenalty,
    SelectionRatePenalty,
    decision_gaps,
    named_penalty,
)
from synthfair.model import Rows
from synthfair.server.settings import ServerConfig

STRATA = {
    "statistical_parity": [(-1, 1)], "equal_opportunity": [(1,)], "equalized_odds": [(1,), (-1,)],
}  # fmt: skip

gaps_of = jax.jit(lambda penalty, *given: penalty.gaps(*given), static_argnums=0)
value_of = jax.jit(lambda penalty, *given: penalty(*given), static_argnums=0)
decision_gaps_of = jax.jit(decision_gaps, static_argnames=("notion", "n_groups", "by"))

each_notion = pytest.mark.parametrize("notion", STRATA)
each_penalty = pytest.mark.parametrize("make", [CovariancePenalty, SelectionRatePenalty])


def some_rows(n_groups, n=60):
    """Some scores are 0, which selects nobody."""
    rng = np.random.default_rng(n_groups)
    s, y, z = rng.integers(n_groups, size=n), rng.choice([-1.0, 1.0], n), rng.normal(size=n)
    return np.where(rng.random(n) < 0.2, 0.0, z), Rows(np.zeros((n, 3)), s, y)


def covariance(z, mine):
    return np.cov(mine, z, bias=True)[0, 1]


def smooth_gap(z, mine):
    selected = 1 / (1 + np.exp(-4.0 * z))
    return selected[mine].mean() - selected[~mine].mean()


@each_notion
@pytest.mark.parametrize("n_groups", [2, 3])
def test_penalty_and_gaps_are_numpys_in_each_stratum(notion, n_groups):
    """Of two groups the gap is group 1's; a group without rows does not count for decisions."""
    z, rows = some_rows(n_groups)
    strata = [np.isin(rows.y, labels) for labels in STRATA[notion]]
    groups = range(n_groups)
    for make, gap in ((CovariancePenalty, covariance), (SelectionRatePenalty, smooth_gap)):
        penalty = make(n_groups, notion)
        of_each = [[gap(z[among], rows.s[among] == g) for g in groups] for among in strata]
        expected = np.array(of_each)[:, 1:] if n_groups == 2 else of_each
        np.testing.assert_allclose(gaps_of(penalty, z, rows), expected, atol=1e-12)
        assert value_of(penalty, z, rows) == pytest.approx(np.square(expected).sum() / 2)
    rates = [[(z[among & (rows.s == g)] > 0).mean() for g in groups] for among in strata]
    for n in (n_groups, n_groups + 1):
        found = decision_gaps_of(z, rows, notion=notion, n_groups=n)
        np.testing.assert_allclose(found, np.ptp(rates, axis=1), atol=1e-12)
    alike = rows._replace(y=np.ones(60))
    found = decision_gaps_of(z, alike, notion=notion, n_groups=n_groups)
    assert list(np.isnan(found)) == [labels == (-1,) for labels in STRATA[notion]]


@each_penalty
@each_notion
def test_penalty_weight_is_a_number_of_equal_rows(make, notion):
    """0 among them: such a row is as if it were not there."""
    z, rows = some_rows(3)
    times = np.random.default_rng(0).integers(0, 4, len(z))
    weighted = value_of(make(3, notion), z, rows._replace(weight=times.astype(float)))
    several = Rows(*(np.repeat(part, times, axis=0) for part in rows[:3]))
    assert weighted == pytest.approx(make(3, notion)(np.repeat(z, times), several))


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_penalty_terms_have_the_derivatives_of_central_differences(penalty):
    """By the name, notion and temperature of settings."""
    given, by = (
        ServerConfig(penalty=penalty, notion="equalized_odds", temperature=2.5),
        ((0, 1, 0),),
    )
    made = named_penalty(given, n_groups=3, by=by)
    sharp = SelectionRatePenalty(3, given.notion, 2.5, by)
    assert made == (CovariancePenalty(3, given.notion, by) if penalty == "covariance" else sharp)
    z, step = np.linspace(-2, 2, 9), 1e-4
    low, (_, slope, bend), high = map(made.derivatives, (z - step, z, z + step))
    np.testing.assert_allclose((high[0] - low[0]) / (2 * step), slope, atol=1e-6)
    np.testing.assert_allclose((high[1] - low[1]) / (2 * step), bend, atol=1e-6)


@each_notion
@each_penalty
def test_penalty_of_groupings_is_as_if_each_were_alone(notion, make):
    z, rows = some_rows(4)
    by, alone, decided = ((0, 0, 1, 1), (0, 1, 2, 1), (-1, -1, 0, 1)), [], []
    for grouping in by:
        own, n = np.array(grouping)[rows.s], max(grouping) + 1
        part = Rows(*(each[own >= 0] for each in (rows.a, own, rows.y)))
        alone.append(make(n, notion).gaps(z[own >= 0], part))
        decided.append(decision_gaps(z[own >= 0], part, notion=notion, n_groups=n))
    gaps = gaps_of(make(4, notion, by=by), z, rows)
    np.testing.assert_allclose(gaps, np.concatenate(alone, axis=1), atol=1e-12)
    found = decision_gaps_of(z, rows, notion=notion, n_groups=4, by=by)
    np.testing.assert_allclose(found, np.concatenate(decided), atol=1e-12)
    assert np.isnan(decision_gaps_of(z, rows, notion=notion, n_groups=4, by=((-1,) * 4,))).all()
