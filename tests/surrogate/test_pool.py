"""A pool of surrogates: its rows and records, caps, what is estimated, and what is compared."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_schema, make_table, some_release, unlike_tables
from scipy.special import expit

import synthfair as sf
from synthfair.data.encode import encode, encode_records
from synthfair.errors import InputError
from synthfair.fairness.penalties import decision_gaps
from synthfair.release.format import write_release
from synthfair.server.pooling import filled, make_pool, train_pool
from synthfair.surrogate import GlobalProblem, Price
from synthfair.surrogate.fair import ridge_of

CONFIG = sf.SurrogateConfig(k_min=5)


def made(table, schema=SCHEMA, **settings):
    return sf.distill_table(table, schema, sf.SurrogateConfig(**{"k_min": 5} | settings)).release


@pytest.fixture(scope="module")
def releases():
    return {name: made(table) for name, table in unlike_tables().items()}


def test_records_are_the_rows_that_the_server_trains_on(releases, tmp_path):
    """Capped alike, also where they are read from files."""
    heavy = {**releases, "c0": replace(releases["c0"], weight=1e6 * releases["c0"].weight)}
    for name, release in heavy.items():
        write_release(release, tmp_path / f"{name}.parquet")
    table, weight = sf.pool_records(sorted(tmp_path.iterdir()), SCHEMA, max_rows=300.0)
    pooled = make_pool(heavy, SCHEMA, sf.ServerConfig(max_rows=300.0))
    x, s, y = encode(table, SCHEMA)
    np.testing.assert_allclose(np.asarray(pooled.rows.a)[:, :7], x, atol=1e-12)
    for mine, field in ((s, "s"), (y, "y"), (weight, "weight")):
        np.testing.assert_array_equal(np.asarray(getattr(pooled.rows, field)), mine)
    assert weight[pooled.parts["c0"]].sum() == pytest.approx(300)
    assert list(table.columns) == list(SCHEMA.columns)
    same, _ = sf.pool_records(heavy, SCHEMA)
    pd.testing.assert_frame_equal(same, table)


def test_pool_of_other_kinds_is_refused(releases):
    mixed = {**releases, "c9": some_release()}
    with pytest.raises(InputError, match="c9: a fair release"):
        sf.pool_records(mixed, SCHEMA)
    with pytest.raises(InputError, match="c9 is fair, c0 a surrogate"):
        make_pool(mixed, SCHEMA)
    with pytest.raises(InputError, match="max_gap"):
        make_pool({"c9": some_release()}, SCHEMA, sf.ServerConfig(max_gap=0.1))
    with pytest.raises(InputError, match="empty"):
        sf.pool_records([], SCHEMA)


@pytest.mark.parametrize("names", [("c0", "c1"), ("c0", "c1", "c2")])
def test_claim_counts_as_at_most_20_lower_medians(releases, names):
    """The middle of two claims is their mean, which the larger sets itself."""
    few = {name: releases[name] for name in names}
    few["c0"] = replace(few["c0"], weight=1e6 * few["c0"].weight)
    pooled, claims = make_pool(few, SCHEMA), sorted(one.weight.sum() for one in few.values())
    most = 20 * claims[(len(claims) - 1) // 2]
    assert pooled.capped == {"c0": pytest.approx(claims[-1])}
    assert pooled.weight[pooled.parts["c0"]].sum() == pytest.approx(most)
    assert make_pool(releases, SCHEMA).capped == {}


def test_room_is_counted_in_columns_of_the_encoding(releases, monkeypatch, tmp_path):
    """7 encoded columns, a group, a label and a weight; of the file's own 6 there would be room."""
    cells = 10 * sum(len(release.y) for release in releases.values())
    for name, release in releases.items():
        write_release(release, tmp_path / f"{name}.parquet")
    monkeypatch.setattr("synthfair.server.pooling.MAX_CELLS", cells)
    assert len(sf.server.read_releases(sorted(tmp_path.iterdir()), SCHEMA)) == 3
    monkeypatch.setattr("synthfair.server.pooling.MAX_CELLS", cells - 1)
    with pytest.raises(InputError, match="c2.parquet: .* 10 columns"):
        sf.server.read_releases(sorted(tmp_path.iterdir()), SCHEMA)


def test_model_is_as_fair_as_central_training_where_clients_are_unlike(releases):
    whole = encode(make_table(600), SCHEMA)
    a = np.column_stack([whole.x, np.ones(600)])
    ridge = ridge_of(1.0, 600, a.shape[1], intercept=True)
    problem = GlobalProblem(a, whole.s, whole.y, np.ones(600), sf.CovariancePenalty(), ridge)
    central = problem.solve(10.0).theta
    theta = np.array(sf.pool_and_train(releases, SCHEMA, sf.ServerConfig(rho=10.0)).theta)
    # As probabilities, on average: cells have some ten rows of a category, and round by two.
    assert np.abs(expit(a @ theta) - expit(a @ central)).mean() < 0.06
    gaps = [np.diff([(a @ t > 0)[whole.s == g].mean() for g in (0, 1)]) for t in (theta, central)]
    np.testing.assert_allclose(*gaps, atol=0.03)


def test_model_under_a_custom_penalty_is_that_of_the_same_named_one(releases):
    def total_covariance(scores, rows):
        return sf.CovariancePenalty()(scores, rows)

    config = sf.ServerConfig(rho=10.0, penalty="selection_rate")
    own = sf.pool_and_train(releases, SCHEMA, config, penalty=total_covariance)
    same = sf.pool_and_train(releases, SCHEMA, sf.ServerConfig(rho=10.0))
    np.testing.assert_allclose(own.theta, same.theta, atol=1e-6)


def test_group_that_nobody_has_is_not_compared():
    """Of three the other two are; of two, only a model without a penalty is left."""
    table, three = make_table(900), make_schema()
    towns = three.columns["town"].model_copy(update={"categories": ("a", "b", "green")})
    three = three.model_copy(update={"columns": {**three.columns, "town": towns}})
    pooled = make_pool({"c0": made(table, three)}, three, sf.ServerConfig(rho=10.0))
    two = make_pool({"c0": made(table)}, SCHEMA, sf.ServerConfig(rho=10.0))
    assert pooled.left_out == ("town=green",)
    gaps = [train_pool(pooled, three)[1].gap, train_pool(two, SCHEMA)[1].gap]
    assert gaps[0] == pytest.approx(gaps[1], abs=0.02)
    only = {"c0": made(table[table["town"] == "a"])}
    with pytest.raises(InputError, match="'town': fewer than two") as refused:
        make_pool(only, SCHEMA)
    assert refused.value.arguments == ("rho",)
    free = make_pool(only, SCHEMA, sf.ServerConfig(rho=0.0))
    assert free.left_out == ("town=b",)
    assert train_pool(free, SCHEMA)[1].converged


# Cells that are left out are estimated; those of a block are not compared by label.

K_MIN = 50


def large_client(seed, lost=30, n=4000):
    """A table in which group b has few rows with "no", as many as are left out."""
    table = make_table(2 * n, seed=seed)
    small, no = table["town"] == "b", table["paid"] == "no"
    keep = np.flatnonzero(~small)[: n - 280].tolist()
    keep += np.flatnonzero(small & no)[:lost].tolist() + np.flatnonzero(small & ~no)[:250].tolist()
    return table.iloc[keep]


def weight_of(release, group, label):
    return release.weight[(release.s == group) & (release.y == label)].sum()


@pytest.fixture(scope="module")
def incomplete():
    return {f"c{i}": made(large_client(i), k_min=K_MIN) for i in range(2)}


def test_cell_that_is_left_out_is_estimated_from_what_is_public(incomplete):
    release = incomplete["c0"]
    (more, pairs), n = filled(release, SCHEMA), len(release.y)
    assert (weight_of(release, 1, -1.0), pairs) == (0, ((1, -1.0),))
    odds = weight_of(release, 0, -1.0) / weight_of(release, 0, 1.0)
    expected = min((K_MIN - 1) / 2, weight_of(release, 1, 1.0) * odds)
    assert weight_of(more, 1, -1.0) == pytest.approx(expected)
    np.testing.assert_array_equal(more.x[:n], release.x)
    np.testing.assert_array_equal(more.x[n:], release.x[release.s == 1])  # with the other label
    ratio = more.weight[n:] / release.weight[release.s == 1]
    assert 1.5 < ratio.max() / ratio.min() <= 25 + 1e-9
    # Nearer to the means of the 30 real rows than the group's own records are.
    real, wide = encode(large_client(0), SCHEMA), encode_records(more.x[n:], SCHEMA)
    few = real.x[(real.s == 1) & (real.y < 0)].mean(axis=0)
    after, before = (
        np.linalg.norm(np.average(wide, axis=0, weights=weights) - few)
        for weights in (more.weight[n:], release.weight[release.s == 1])
    )
    assert after < before


def test_estimates_are_learned_from_and_not_compared_by_label(incomplete):
    config = sf.ServerConfig(notion="equalized_odds", rho=1.0)
    with pytest.raises(InputError, match="fewer than two have rows"):
        make_pool(incomplete, SCHEMA, config)
    pooled = make_pool({**incomplete, "c2": made(make_table(4000, seed=5))}, SCHEMA, config)
    estimated, (_, s, y, weight) = ~pooled.is_known, pooled.rows
    assert set(pooled.estimated) == {"c0", "c1"}
    assert {*zip(s[estimated].tolist(), y[estimated].tolist(), strict=True)} == {(1, -1.0)}
    rows = sum(weight_of(filled(one, SCHEMA)[0], 1, -1.0) for one in incomplete.values())
    assert weight[estimated].sum() == pytest.approx(rows)


def test_estimates_are_none_where_nothing_is_left_out_or_known():
    table = make_table(600)
    only = made(table.query("town == 'b' and paid == 'yes'"))
    for release in (made(table), made(table, epsilon=8.0, delta=1e-5), only):
        assert filled(release, SCHEMA) == (release, ())


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_made_up_pairs_are_not_compared_by_label(releases, notion, penalty):
    table = make_table(700, seed=3)
    few = table.index[(table.town == "b") & (table.paid == "yes")][10:]
    hiding, config = (
        made(table.drop(few), k_min=20),
        sf.ServerConfig(notion=notion, penalty=penalty),
    )
    whole = {n: one for n, one in releases.items() if not one.header.hides_pairs}
    others, both = make_pool(whole, SCHEMA, config), {**whole, "hiding": hiding}
    pooled, parity = make_pool(both, SCHEMA, config), make_pool(both, SCHEMA)
    assert (pooled.unpaired, parity.unpaired) == (("hiding",), ())
    np.testing.assert_array_equal(pooled.rows.a, parity.rows.a)  # the loss has them
    problem, scores = pooled.problem(), np.random.default_rng(0).normal(size=len(pooled.rows.y))
    gaps = problem.charged(problem.penalty.term(scores), Price(1.0))
    mine = scores[: len(others.rows.y)]
    assert gaps @ gaps / 2 == pytest.approx(others.penalty(mine, others.rows))
    found = problem.solve(5.0)
    gap = decision_gaps(others.rows.a @ found.theta, others.rows, notion=notion, n_groups=2).max()
    assert found.gap == pytest.approx(gap)
    with pytest.raises(InputError, match="make up pairs"):
        make_pool({"alone": hiding}, SCHEMA, config)
