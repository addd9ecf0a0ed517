"""The search for the weight that a wanted gap needs."""

import jax
import numpy as np
import pytest
import scipy.optimize
from builders import SCHEMA, SCHEMA_OF_3, TABLE, TABLE_OF_3
from hypothesis import given
from hypothesis import strategies as st

import synthfair as sf
from synthfair.distill import gap_search
from synthfair.distill.problem import make_problem
from synthfair.fairness.metrics import statistical_parity_difference


def distil(max_gap, table=TABLE, schema=SCHEMA, **settings):
    settings = {"n_synthetic": 24, "group_input": True} | settings
    return sf.distill_table(table, schema, sf.DistillConfig(max_gap=max_gap, **settings))


def gap_of_release(release, table, schema, strata):
    """The largest gap on the real rows of the model that the release alone trains."""
    rows = sf.encode(table, schema)
    model = sf.pool_and_train({"only": release}, schema)
    decided = np.where(model.scores(rows.x, rows.s) > 0, 1, -1)
    gaps = [
        statistical_parity_difference(None, decided[mask], sensitive_features=rows.s[mask])
        for mask in (np.isin(rows.y, labels) for labels in strata)
    ]
    return max(map(abs, gaps))


@pytest.mark.parametrize(("notion", "strata", "wanted", "group_input", "n_groups"), [
    ("statistical_parity", [(-1, 1)], 0.08, True, 2),
    ("statistical_parity", [(-1, 1)], 0.02, False, 2),
    ("statistical_parity", [(-1, 1)], 0.1, False, 3), ("equal_opportunity", [(1,)], 0.15, True, 2),
    ("equalized_odds", [(-1,), (1,)], 0.15, True, 2),
])  # fmt: skip
def test_gap_of_the_released_model_is_the_wanted_one(notion, strata, wanted, group_input, n_groups):
    table, schema = (TABLE, SCHEMA) if n_groups == 2 else (TABLE_OF_3, SCHEMA_OF_3)
    settings = {"n_synthetic": 12 * n_groups, "notion": notion, "group_input": group_input}
    found = distil(wanted, table, schema, **settings)
    assert found.gap_met
    least = min(weight for weight, gap in found.tried.items() if gap <= wanted)
    assert (found.rho_o, float(found.reached.gap)) == (least, found.tried[least])
    gap = gap_of_release(found.release, table, schema, strata)
    assert gap == pytest.approx(float(found.reached.gap), abs=0.02)


@pytest.mark.parametrize(("steps", "search_ended"), [(10, False), (200, False), (1000, True)])
def test_gap_out_of_reach_is_not_met_and_the_smallest_is_released(steps, search_ended):
    found = distil(1e-9, penalty="covariance", steps=steps)
    assert found.gap_met is False
    assert found.search_ended == search_ended
    assert float(found.reached.gap) == pytest.approx(min(found.tried.values()))
    assert len(found.history.objective) == 50 * len(found.tried)
    assert distil(None, penalty="covariance", steps=10, rho_o=3.0).rho_o == 3


def test_excess_of_a_search_is_above_the_optimum_for_the_weight_found():
    found = distil(0.08, penalty="covariance")
    config = found.config.replace(max_gap=None, rho_o=found.rho_o)
    problem = make_problem(sf.encode(TABLE, SCHEMA), config, n_groups=2)
    fun = jax.jit(jax.value_and_grad(problem.objective))
    best = scipy.optimize.minimize(lambda t: tuple(map(np.asarray, fun(t))), found.theta, jac=True)
    above = (float(found.reached.objective) - best.fun) / float(fun(problem.first_theta)[0])
    assert found.outer_excess == pytest.approx(above, rel=0.5, abs=1e-6)


def searched(gap_of, wanted):
    """All weights that a search tries where weight w reaches gap_of(w)."""
    tried = {}
    while (weight := gap_search.next_weight(tried, wanted)) is not None:
        assert weight not in tried
        tried[weight] = gap_of(weight)
    assert len(tried) < 25
    return tried


@given(needed=st.floats(-2, 5).map(lambda exponent: 10**exponent))
def test_weight_of_a_falling_gap_is_the_smallest_that_suffices(needed):
    tried = searched(lambda w: 0.1 * needed / w, 0.1)
    enough = min(weight for weight, gap in tried.items() if gap <= 0.1)
    assert needed <= enough <= needed * gap_search.MIN_RATIO * (1 + 1e-9)


@given(crossing=st.floats(-2.5, 3).map(lambda exponent: 10**exponent))
def test_weight_of_a_gap_that_overshoots_is_where_it_is_small(crossing):
    """It falls through zero and settles at 0.02 on the other side, far from the first weights."""
    tried = searched(lambda w: abs(0.15 * crossing / w - 0.02 * (1 - crossing / w)), 0.01)
    assert min(tried.values()) <= 0.01


def test_weight_where_none_suffices_is_near_the_best():
    tried = searched(lambda w: 0.05 + abs(np.log10(w / 40.0)), 0.01)
    best = min(tried, key=tried.get)
    assert best == pytest.approx(40, rel=gap_search.MIN_RATIO - 1)
