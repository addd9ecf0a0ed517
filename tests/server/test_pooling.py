"""The pool of releases: which are read, what their rows count, and the model of all."""

import warnings
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA, make_table, some_pool, some_release
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.data.encode import encode_records
from synthfair.errors import InputError
from synthfair.release.format import write_release
from synthfair.server import pooling, read_releases, review
from synthfair.server.pooling import make_pool, train_pool
from synthfair.surrogate import FrontierPoint, Price

WIDTH = len(SCHEMA.encoded_names)


# The model


def test_pooled_model_of_fair_releases_is_scikit_learns():
    releases = {name: made_for(one, config=ODD.header.config) for name, one in POOL.items()}
    model = sf.pool_and_train(releases, SCHEMA)
    x, s, y = pooling.concatenated(releases.values())
    a = np.column_stack([x, s, np.ones(len(y))])
    C = 1 / (0.5 / a.shape[1] ** 2 * len(y))  # noqa: N806
    reference = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(a, y)
    assert model.converged
    np.testing.assert_allclose(model.theta, reference.coef_[0], rtol=1e-3, atol=1e-3)


def test_pooled_model_of_surrogates_is_scikit_learns_of_weighted_rows(surrogates):
    model = sf.pool_and_train(surrogates, SCHEMA, sf.ServerConfig(rho=0.0, C=0.5))
    x = np.concatenate([encode_records(each.x, SCHEMA) for each in surrogates.values()])
    y, w = (np.concatenate([getattr(r, n) for r in surrogates.values()]) for n in ("y", "weight"))
    reference = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(x, y, sample_weight=w)
    np.testing.assert_allclose(model.theta[:-1], reference.coef_[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.theta[-1], reference.intercept_[0], rtol=1e-3)


def test_estimated_records_have_the_odds_of_the_other_groups(surrogates):
    """By scikit-learn, of the group that has both labels, each of which weighs the same."""
    whole = surrogates["c0"]
    kept = (whole.s == 0) | (whole.y > 0)
    x, s, y, w = (each[kept] for each in (whole.x, whole.s, whole.y, whole.weight))
    more, _ = pooling.filled(replace(whole, x=x, s=s, y=y, weight=w), SCHEMA)
    a, other, mass = encode_records(x, SCHEMA), s == 0, {m: w[(s == 0) & (y == m)].sum() for m in y}
    balanced = np.array([each / mass[m] / 2 for each, m in zip(w, y, strict=True)])[other]
    balanced *= w[other].sum()
    reference = LogisticRegression(tol=1e-10).fit(a[other], y[other], sample_weight=balanced)
    odds = np.exp(-reference.decision_function(a[~other])).clip(1 / 5, 5)
    rows = min((10 - 1) / 2, w[~other].sum() * mass[-1.0] / mass[1.0])
    expected = w[~other] * odds * rows / (w[~other] @ odds)
    np.testing.assert_allclose(more.weight[len(y) :], expected, rtol=1e-4)


@pytest.mark.parametrize(("asked", "reached", "is_missed"), [
    ({"max_gap": 0.1}, {"gap": 0.1}, False), ({"max_gap": 0.1}, {"gap": 0.11}, True),
    ({"max_gap": 0.2, "max_client_gap": 0.1}, {"client_gap": 0.11}, True),
    ({"min_ratio": 0.8}, {"ratio": 0.79}, True), ({"min_ratio": 0.8}, {"ratio": 0.8}, False),
])  # fmt: skip
def test_limit_that_no_model_met_is_warned_of(surrogates, asked, reached, is_missed, monkeypatch):
    point = FrontierPoint(Price(1.0), np.zeros(8), 0.9, 0.0, 0.0, True, 0.0)._replace(**reached)
    monkeypatch.setattr(pooling, "train_pool", lambda *_, **__: (None, point))
    with warnings.catch_warnings(record=True, action="always") as caught:
        sf.pool_and_train([surrogates["c0"]], SCHEMA, config := sf.ServerConfig(**asked))
    assert len(caught) == len(review._missed_limits(point, config)) == is_missed


@pytest.mark.parametrize("name", ["gap", "client_gap"])
def test_ratio_and_gap_that_are_both_asked_are_both_met(surrogates, name):
    asked = sf.ServerConfig(min_ratio=0.3, group_input=True, **{f"max_{name}": 0.03})
    pooled = make_pool(dict([*surrogates.items()][:2]), SCHEMA, asked)
    point = train_pool(pooled, SCHEMA)[1]
    assert point.ratio >= 0.3
    assert getattr(point, name) <= 0.03 < pooled.problem().solve(0.0).gap


def test_pool_that_is_not_all_that_was_sent_is_warned_of(surrogates):
    pooled = make_pool(dict([*surrogates.items()][:2]), SCHEMA)
    trained, point = train_pool(pooled, SCHEMA)
    stopped = trained.model_copy(update={"converged": False})
    for changes, free, said in (
        ({}, trained, None), ({}, stopped, "without a penalty"),
        ({"left_out": ("town=z",)}, None, "town=z"), ({"unpaired": ("c1",)}, None, "c1: "),
        ({"capped": {"c1": 5e6}}, None, "c1: claims 5,000,000 rows"),
        ({"estimated": {"c0": ((1, -1.0),)}}, None, SCHEMA.pair(1, -1.0) + " (of 1"),
        ({"trust": {"c0": 0.09, "c1": 1.9}}, None, "c0 (0.09): "),
    ):  # fmt: skip
        found = review.pool_warnings(pooled._replace(**changes), point, SCHEMA, free)
        assert [said in line for line in found] == [True] * (said is not None), said


@pytest.mark.parametrize(("claim", "counts"), [(20.0, 20.0), (20.1, 20.0), (5.0, 5.0)])
def test_weights_of_a_client_are_capped_at_twenty_lower_medians(surrogates, claim, counts):
    releases = {}
    for name, rows in (("c0", 100 * claim), ("c1", 100.0), ("c2", 100.0), ("c3", 2000.0)):
        weight = surrogates[name].weight
        releases[name] = replace(surrogates[name], weight=rows * weight / weight.sum())
    pooled = make_pool(releases, SCHEMA)
    assert pooled.weight[pooled.parts["c0"]].sum() == pytest.approx(100 * counts)
    assert pooled.capped == ({} if claim == counts else {"c0": pytest.approx(100 * claim)})
    pooled = make_pool(releases, SCHEMA, sf.ServerConfig(max_rows=90.0))
    np.testing.assert_allclose(np.bincount(pooled.owner, pooled.weight), 90)


# Which releases


def made_for(release, **changes):
    return replace(release, header=release.header.model_copy(update=changes))


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


@dataclass(frozen=True)
class Pairs(sf.LinearModel):
    """Other params than a trained model has."""

    def init(self, n_inputs):
        return jnp.zeros(n_inputs), jnp.zeros(())


POOL, HINGE = some_pool(2, rows=120), sf.LinearModel(squared_hinge)
ODD = some_release(lambda_theta=0.5)


@pytest.mark.parametrize(("releases", "given", "named"), [
    ({}, {}, "no releases"), (POOL | {"odd": ODD}, {}, "odd: made for .*0.5"),
    (POOL | {"odd": some_release(group_input=False)}, {}, "odd: made for"),
    (POOL | {"odd": some_release(intercept=False)}, {}, "odd: made for"),
    ({"c": made_for(POOL["c0"], model=HINGE.name)}, {}, f"'{HINGE.name}'"),
    (POOL, {"model": HINGE}, f"'{HINGE.name}'"),
    ({"c": made_for(POOL["c0"], model=Pairs().name)}, {"model": Pairs()}, "vector of 9"),
    (POOL, {"penalty": sf.CovariancePenalty()}, "covariance"),
    (POOL, {"config": sf.ServerConfig(max_client_gap=0.1)}, "max_client_gap"),
])  # fmt: skip
def test_releases_that_are_no_pool_are_refused(releases, given, named):
    with pytest.raises(InputError, match=named):
        sf.pool_and_train(releases, SCHEMA, **given)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Files of forty releases of three rows each."""
    folder, rng = tmp_path_factory.mktemp("many"), np.random.default_rng(0)
    for i in range(40):
        write_release(some_release(rng.random((3, WIDTH))), folder / f"client_{i}.parquet")
    return sorted(folder.iterdir())


def test_files_of_no_or_twice_the_same_release_are_refused(many, tmp_path):
    with pytest.raises(InputError, match="empty"):
        read_releases([], SCHEMA)
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(many[7].read_bytes())
    for again in (many[7], copy):
        with pytest.raises(InputError, match=f"{again.name}: the same release as .*{many[7].name}"):
            read_releases([*many, again], SCHEMA)


def test_files_share_the_room_of_a_pool(many, monkeypatch):
    monkeypatch.setattr(pooling, "MAX_CELLS", 3 * 3 * (WIDTH + 2))
    assert len(read_releases(many[:3], SCHEMA)) == 3
    with pytest.raises(InputError, match=f"{many[3].name}: holds 3 rows .*leave 0"):
        read_releases(many[:4], SCHEMA)


# Gaps of each client


def against(group, seed, n=400):
    """A table in which positive labels of one group are denied."""
    table = make_table(n, seed=seed)
    denied = (table["town"] == group) & (np.random.default_rng(seed).random(n) < 0.7)
    return table.assign(paid=table["paid"].mask(denied, "no"))


@pytest.fixture(scope="module")
def unlike():
    """Surrogates of three clients that are unfair, and of one with few rows."""
    tables = {"a1": against("a", 1), "b": against("b", 2), "a2": against("a", 3)}
    table = make_table(400, seed=4)
    tables["small"] = table.drop(table.index[table["town"] == "b"][20:])
    config = sf.SurrogateConfig(k_min=5)
    return {name: sf.distill_table(t, SCHEMA, config).release for name, t in tables.items()}


def test_gap_of_each_client_is_met_but_where_rows_are_few(unlike):
    pooled = make_pool(unlike, SCHEMA, sf.ServerConfig(max_client_gap=0.1))
    point, rows, gaps = train_pool(pooled, SCHEMA)[1], pooled.rows, {}
    selected = rows.a @ point.theta > 0
    for name, part in pooled.parts.items():
        s, w = rows.s[part], pooled.weight[part]
        first, second = (np.average(selected[part][s == g], weights=w[s == g]) for g in (0, 1))
        gaps[name] = abs(second - first)
    assert pooled.compared == ("a1", "b", "a2")
    assert point.client_gap == pytest.approx(max(gaps[name] for name in pooled.compared))
    assert 0.07 < point.client_gap <= 0.1 < gaps["small"]
    assert any("small" in said for said in review.pool_warnings(pooled, point, SCHEMA, None))


def test_gap_of_each_client_that_cannot_be_asked_is_refused(unlike):
    for names, changes, given, named in (
        (["small"], {}, {}, "30 rows"),
        (unlike, {"min_group_rows": 250}, {}, "250 rows"),
        (unlike, {}, {"penalty": sf.CovariancePenalty()}, "max_client_gap"),
        (unlike, {}, {"model": HINGE}, "max_client_gap"),
    ):
        asked = sf.ServerConfig(max_client_gap=0.1, **changes)
        with pytest.raises(InputError, match=named):
            sf.pool_and_train({name: unlike[name] for name in names}, SCHEMA, asked, **given)
