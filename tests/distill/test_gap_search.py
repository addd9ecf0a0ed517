"""The search for the weight that a wanted gap needs."""

import numpy as np
import pytest
from builders import SCHEMA, SCHEMA_OF_3, TABLE, TABLE_OF_3, make_table

import synthfair as sf
from synthfair.distill import gap_search
from synthfair.distill import problem as outer
from synthfair.distill.problem import make_problem
from synthfair.distill.solvers import choose_method
from synthfair.fairness.metrics import statistical_parity_difference
from synthfair.report.release_tables import fit_warnings

REAL = sf.encode(TABLE, SCHEMA)


def distil(max_gap, **settings):
    config = sf.DistillConfig(
        **{"max_gap": max_gap, "n_synthetic": 24, "group_input": True} | settings
    )
    return sf.distill_table(TABLE, SCHEMA, config)


def gap_of_release(release):
    """|SPD| on the real rows of the model that the release alone trains: nothing of the loop."""
    model = sf.pool_and_train({"only": release}, SCHEMA)
    decided = np.where(model.scores(REAL.x, REAL.s) > 0, 1, -1)
    return abs(statistical_parity_difference(REAL.y, decided, sensitive_features=REAL.s))


@pytest.mark.parametrize(("wanted", "reads"), [(0.15, True), (0.08, True), (0.02, False)])
def test_the_released_model_has_the_wanted_gap(wanted, reads):
    found = distil(wanted, group_input=reads)
    assert found.gap_met
    assert float(found.reached.gap) <= wanted
    assert gap_of_release(found.release) == pytest.approx(
        float(found.reached.gap), abs=2 / len(TABLE)
    )


def test_the_weight_found_is_about_the_smallest_that_does():
    found = distil(0.1)
    problem = make_problem(REAL, found.config, n_groups=2)
    weaker = gap_search.with_weight(problem, found.rho_o / 1.5)
    method = choose_method(problem, found.config)
    *_, (end, _) = outer.run(weaker, outer.init(problem, method), method, steps=1000)
    assert end.best.record.gap > 0.1


def test_a_gap_that_is_there_anyway_needs_no_penalty():
    found = distil(0.9)
    assert found.gap_met
    assert found.rho_o <= 10 * gap_search.MIN_RHO


def searched(gap_of, wanted):
    """All weights that a search tries where weight w reaches gap_of(w)."""
    tried = {}
    while (weight := gap_search.next_weight(tried, wanted)) is not None:
        assert weight not in tried
        tried[weight] = gap_of(weight)
    return tried


@pytest.mark.parametrize("needed", [0.02, 0.5, 3.0, 5e4])
def test_a_falling_gap_leads_to_the_smallest_weight(needed):
    tried = searched(lambda w: 0.1 * needed / w, 0.1)
    enough = min(weight for weight, gap in tried.items() if gap <= 0.1)
    assert needed <= enough <= needed * gap_search.MIN_RATIO
    assert len(tried) < 15


@pytest.mark.parametrize("crossing", [2e-3, 0.3, 5.0, 700.0])
def test_a_gap_that_overshoots_is_found_where_it_is_small(crossing):
    """It falls through zero and settles at 0.02 on the other side, far from the first weights."""
    tried = searched(lambda w: abs(0.15 * crossing / w - 0.02 * (1 - crossing / w)), 0.01)
    assert min(tried.values()) <= 0.01


def test_where_nothing_suffices_the_search_ends_near_the_best():
    tried = searched(lambda w: 0.05 + abs(np.log10(w / 40.0)), 0.01)
    best = min(tried, key=tried.get)
    assert best == pytest.approx(40, rel=gap_search.MIN_RATIO - 1)
    assert len(tried) < 25


def test_a_gap_out_of_reach_is_reported_and_the_smallest_released():
    found = distil(1e-9, penalty="covariance", steps=200)
    assert found.gap_met is False
    assert not found.search_ended
    assert "Raise --steps" in " ".join(fit_warnings(found))
    assert float(found.reached.gap) == pytest.approx(min(found.tried.values()))


def test_a_search_through_all_weights_says_that_none_does():
    found = distil(1e-9, penalty="covariance", steps=1000)
    assert found.gap_met is False
    assert found.search_ended
    assert "none of the" in " ".join(fit_warnings(found))


def test_the_gap_of_three_groups_is_that_between_the_extremes():
    table, schema = TABLE_OF_3, SCHEMA_OF_3
    found = sf.distill_table(table, schema, sf.DistillConfig(max_gap=0.1, n_synthetic=36))
    assert found.gap_met
    model = sf.pool_and_train({"only": found.release}, schema)
    real = sf.encode(table, schema)
    decided = np.where(model.scores(real.x, real.s) > 0, 1, -1)
    spd = statistical_parity_difference(real.y, decided, sensitive_features=real.s)
    assert spd == pytest.approx(float(found.reached.gap), abs=3 / 200)


def test_weights_share_one_compilation(compilations, monkeypatch):
    monkeypatch.setattr(gap_search, "FIRST_RHO", 0.7)  # no other test has tried these weights
    config = sf.DistillConfig(max_gap=0.05, n_synthetic=24, group_input=True)
    problem = make_problem(REAL, config, n_groups=2)
    method = choose_method(problem, config)
    chunks = gap_search.run(problem, method, max_gap=0.05, steps=300)
    next(chunks)
    before = compilations()
    assert list(chunks)
    assert compilations() == before


def test_few_steps_still_distil():
    found = distil(0.3, steps=10)
    assert len(found.history.objective) == 50
    assert found.reached.objective < found.history.objective[0]


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalized_odds"])
def test_other_notions_have_gaps_too(notion):
    found = distil(0.15, notion=notion)
    assert found.gap_met
    model = sf.pool_and_train({"only": found.release}, SCHEMA)
    decided = np.where(model.scores(REAL.x, REAL.s) > 0, 1, -1)
    gaps = [
        abs(
            statistical_parity_difference(
                None, decided[REAL.y == y], sensitive_features=REAL.s[REAL.y == y]
            )
        )
        for y in ((1,) if notion == "equal_opportunity" else (1, -1))
    ]
    assert max(gaps) == pytest.approx(float(found.reached.gap), abs=0.02)


def test_releases_with_a_wanted_gap_pool_to_a_model_with_about_that_gap():
    own, schema = {str(i): make_table(400, seed=i) for i in range(3)}, SCHEMA

    def pooled_with(**wanted):
        config = sf.DistillConfig(n_synthetic=24, steps=200, group_input=True, **wanted)
        made = {name: sf.distill_table(table, schema, config) for name, table in own.items()}
        assert all(found.gap_met is not False for found in made.values())
        model = sf.pool_and_train({name: found.release for name, found in made.items()}, schema)
        return sf.evaluate(model, own, sf.ServerConfig(resamples=2))

    assert abs(pooled_with(max_gap=0.9).overall["spd"].value) > 0.1
    pooled = pooled_with(max_gap=0.04)
    assert abs(pooled.overall["spd"].value) < 0.05
    assert pooled.overall["accuracy"].value > pooled.constant_accuracy
