"""Which releases count with trusted rows: the hypergradient, bad clients, and what is said."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.optimize
from conftest import make_schema, make_table
from test_attributes import SCHEMA as SEVERAL
from test_influence import some_pool

import synthfair as sf
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.files import read_as
from synthfair.model import Rows
from synthfair.release.format import write_release
from synthfair.report.result_tables import influence_table
from synthfair.report.text_table import plain_text
from synthfair.run_files import MAX_BYTES, MetricsFile
from synthfair.server import measure_influence, serve
from synthfair.server.pooling import make_pool
from synthfair.server.trust import LITTLE, PULL, WeightProblem, hypergradient, learn_weights

SCHEMA = make_schema()
TRUSTED = make_table(600, seed=77)


def swapped(table):
    return table.assign(town=table.town.map({"a": "b", "b": "a"}))


def reversed_labels(table):
    return table.assign(paid=table.paid.map({"yes": "no", "no": "yes"}))


def surrogates(attack=swapped, bad=2, n=5):
    tables = [make_table(1000, seed=k) for k in range(n)]
    tables = [attack(table) if k < bad else table for k, table in enumerate(tables)]
    config = sf.SurrogateConfig(k_min=10)
    return {f"c{k}": sf.distill_table(t, SCHEMA, config).release for k, t in enumerate(tables)}


def some_rows(rng, n):
    a = np.column_stack([rng.random((n, 2)), np.ones(n)])
    return Rows(a, rng.integers(2, size=n), rng.choice([-1.0, 1.0], n), rng.random(n))


def by_scipy(rows):
    """Theta of the regularised loss with lambda 0.1, straight from the equation, in NumPy."""
    a, y, weight = np.asarray(rows.a), np.asarray(rows.y), rows.weight / np.sum(rows.weight)

    def loss(theta):
        margins = y * (a @ theta)
        gradient = a.T @ (-weight * y / (1 + np.exp(margins))) + 0.1 / 9 * theta
        return weight @ np.log1p(np.exp(-margins)) + 0.1 / 18 * theta @ theta, gradient

    return scipy.optimize.minimize(
        loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-11}
    ).x


def mean_trusted_loss(theta, trusted):
    return np.average(np.log1p(np.exp(-trusted.y * (trusted.a @ theta))), weights=trusted.weight)


@pytest.mark.parametrize("penalty", [None, CovariancePenalty(), SelectionRatePenalty()])
def test_the_hypergradient_is_the_central_difference(penalty):
    rng = np.random.default_rng(0)
    pooled, trusted, owner = (
        some_rows(rng, 100),
        some_rows(rng, 40),
        np.repeat([0, 1, 2], [30, 50, 20]),
    )
    shares = np.bincount(owner, pooled.weight) / pooled.weight.sum()

    def objective(alpha):
        w = np.exp(alpha) / np.exp(alpha).sum()
        theta = by_scipy(pooled._replace(weight=pooled.weight * (w / shares)[owner]))
        unfair = 3.0 * float(penalty(jnp.asarray(trusted.a @ theta), trusted)) if penalty else 0.0
        return mean_trusted_loss(theta, trusted) + unfair

    with jax.enable_x64(True):
        problem = WeightProblem(pooled, owner, shares, trusted, 0.1, 3.0, penalty)
        alpha, h = np.array([0.3, -0.5, 0.1]), 1e-3
        theta, gradient = hypergradient(problem, jnp.asarray(alpha), jnp.zeros(3))
        slopes = [
            (objective(alpha + h * e) - objective(alpha - h * e)) / (2 * h) for e in np.eye(3)
        ]
        assert float(problem.outer(theta)) == pytest.approx(objective(alpha), rel=1e-9)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-7)


def test_weights_are_the_minimum_of_all_three_terms():
    rng = np.random.default_rng(1)
    rows, trusted = some_rows(rng, 600), some_rows(rng, 200)._replace(weight=None)
    parts = [slice(0, 100), slice(100, 300), slice(300, 600)]
    false = (rng.random(600) < 0.1) & (np.arange(600) < 300)
    rows, trusted = (
        each._replace(y=np.where((each.a[:, 0] > 0.5) ^ those, 1.0, -1.0))
        for each, those in ((rows, false), (trusted, np.zeros(200, bool)))
    )
    penalty, shares = CovariancePenalty(), [rows.weight[part].sum() for part in parts]
    shares = np.array(shares) / rows.weight.sum()

    def f(theta):
        return mean_trusted_loss(theta, trusted) + 2.0 * float(
            penalty(jnp.asarray(trusted.a @ theta), trusted)
        )

    def objective(alpha):
        w = np.exp(alpha) / np.exp(alpha).sum()
        by_row = np.repeat(w / shares, [part.stop - part.start for part in parts])
        entropy = (PULL / 200 + 3 * 3 / rows.weight.sum()) * w @ np.log(w / shares)
        return f(by_scipy(rows._replace(weight=rows.weight * by_row))) + w @ alone + entropy

    with jax.enable_x64(True):
        alone = [f(by_scipy(Rows(*(column[part] for column in rows)))) for part in parts]
        best = scipy.optimize.minimize(objective, np.log(shares), method="Nelder-Mead").x
        given = {"lambda_theta": 0.1, "penalty": penalty, "rho": 2.0}
        weights = learn_weights(
            rows, named(parts), trusted, **given, n_features=2, n_groups=2, groupings=[(0, 1)]
        )
    np.testing.assert_allclose(weights * shares, np.exp(best) / np.exp(best).sum(), atol=1e-2)


def named(parts):
    return dict(enumerate(parts))


@pytest.mark.parametrize("column", ["s", "y"])
def test_a_client_of_one_group_or_label_keeps_its_weight(column):
    rng, n = np.random.default_rng(3), 300
    s = rng.integers(2, size=5 * n)
    x = rng.normal(size=5 * n) + s
    y = np.where(x + rng.normal(size=5 * n) > 0.5, 1.0, -1.0)
    rows = Rows(np.column_stack([x, s, np.ones(5 * n)]), s, y)
    of = rows.s if column == "s" else rows.y > 0
    own = np.flatnonzero((np.arange(5 * n) >= n) | (of == 1))  # the first has one kind alone
    kept = Rows(*(part[own] for part in rows[:3]))
    first = len(own) - 4 * n
    ends = [0, first, *(first + k * n for k in (1, 2, 3))]
    parts = {k: slice(ends[k], ends[k + 1]) for k in range(4)}
    pooled = Rows(*(part[: ends[-1]] for part in kept[:3]))
    trusted = Rows(*(part[ends[-1] :] for part in kept[:3]))
    given = {"lambda_theta": 1e-3, "rho": 0.0, "n_features": 1, "n_groups": 2}
    weights = learn_weights(pooled, parts, trusted, penalty=None, groupings=[(0, 1)], **given)
    assert weights[0] > LITTLE


def test_groups_show_in_surrogates_alone():
    """A model of the group sees exchanged groups, of which the label does not depend."""
    rng, n = np.random.default_rng(2), 300
    s = rng.integers(2, size=4 * n)
    x = rng.normal(size=4 * n) + 2 * s
    y = np.where(rng.random(4 * n) < 0.5, 1.0, -1.0)
    a = np.column_stack([x, s, np.ones(4 * n)])
    false = np.arange(4 * n) < n
    a[false, 1], s = 1 - a[false, 1], np.where(false, 1 - s, s)
    rows = Rows(a, s, y)
    parts = [slice(k * n, (k + 1) * n) for k in range(3)]
    pooled, trusted = (
        Rows(*(column[part] for column in rows[:3])) for part in (slice(3 * n), slice(3 * n, None))
    )
    given = {"lambda_theta": 1e-3, "rho": 0.0, "n_features": 1, "n_groups": 2}
    given["groupings"] = [(0, 1)]
    weights = learn_weights(pooled, named(parts), trusted, penalty=None, **given)
    assert weights[0] < LITTLE < 1 < min(weights[1:])
    of_fair_releases = learn_weights(
        pooled, named(parts), trusted, penalty=CovariancePenalty(), **given
    )
    assert of_fair_releases[0] > 0.5


@pytest.mark.parametrize(("attack", "bad"), [(swapped, 2), (reversed_labels, 3)])
def test_bad_clients_hardly_count(attack, bad):
    releases = surrogates(attack, bad)
    heavy = {n: replace(r, weight=r.weight * (19 if n == "c0" else 1)) for n, r in releases.items()}
    config = sf.ServerConfig(rho=1.0, penalty="selection_rate")
    pooled = make_pool(heavy, SCHEMA, config, trusted=TRUSTED)
    assert [weight < LITTLE for weight in pooled.trust.values()] == [k < bad for k in range(5)]
    # The model is near that of the others alone, and their weights keep the sum of the rows.
    model = sf.pool_and_train(heavy, SCHEMA, config, trusted=TRUSTED)
    honest = {name: release for name, release in releases.items() if int(name[1:]) >= bad}
    near, far = (sf.pool_and_train(each, SCHEMA, config) for each in (honest, heavy))
    theta = np.array(near.theta)
    distances = [np.linalg.norm(theta - each.theta) for each in (model, far)]
    assert distances[0] < 0.25 * distances[1]
    total = np.sum(make_pool(heavy, SCHEMA, config).rows.weight)
    assert np.sum(pooled.rows.weight) == pytest.approx(total)
    # Nor has one that hardly counts an influence.
    found = measure_influence(heavy, model, {"test": TRUSTED}, config=config, trusted=TRUSTED)
    assert found.releases["c0"].weight == pooled.trust["c0"]
    assert found.releases["c0"].scores < 0.1


def test_honest_clients_count_and_move_the_model_little():
    releases, config = surrogates(bad=0), sf.ServerConfig(rho=1.0, penalty="selection_rate")
    pooled = make_pool(releases, SCHEMA, config, trusted=TRUSTED)
    assert min(pooled.trust.values()) > LITTLE
    test = {"test": make_table(4000, seed=5)}
    found = [
        sf.evaluate(sf.pool_and_train(releases, SCHEMA, config, trusted=trusted), test).overall
        for trusted in (None, TRUSTED)
    ]
    assert found[1]["accuracy"].value == pytest.approx(found[0]["accuracy"].value, abs=0.005)
    assert found[1]["spd"].value == pytest.approx(found[0]["spd"].value, abs=0.01)


def test_a_fair_release_of_reversed_labels_hardly_counts(quick):
    config = quick.model_copy(update={"rho_o": 30.0, "steps": 200})
    tables = [make_table(600, seed=k) for k in range(4)]
    tables[0] = reversed_labels(tables[0])
    releases = {f"c{k}": sf.distill_table(t, SCHEMA, config).release for k, t in enumerate(tables)}
    pooled = make_pool(releases, SCHEMA, trusted=TRUSTED)
    assert [weight < LITTLE for weight in pooled.trust.values()] == [True, False, False, False]
    thetas = [
        np.array(sf.pool_and_train(each, SCHEMA, trusted=trusted).theta)
        for each, trusted in [
            (releases, TRUSTED),
            ({name: releases[name] for name in ("c1", "c2", "c3")}, None),
            (releases, None),
        ]
    ]
    distances = [np.linalg.norm(thetas[1] - each) for each in (thetas[0], thetas[2])]
    assert distances[0] < 0.25 * distances[1]


@pytest.mark.parametrize(
    ("trusted", "said"),
    [
        (TRUSTED[TRUSTED.town == "a"], r"no row of town=b and paid=no; give"),
        (TRUSTED[(TRUSTED.town == "a") | (TRUSTED.paid == "no")], r"no row of town=b and paid=yes"),
        (TRUSTED.drop(columns="paid"), "column 'paid' is missing"),
    ],
)
def test_trusted_rows_have_each_group_and_label(trusted, said):
    with pytest.raises(sf.InputError, match=said):
        sf.pool_and_train(some_pool(2), SCHEMA, trusted=trusted)


def test_of_several_attributes_each_has_its_groups_and_exchanged_ones_show():
    schema = SEVERAL.with_sensitive(("town", "home"))
    table = make_table(4600, seed=3).assign(home=lambda t: t["home"].fillna("rent"))
    parts = [table[1000 * k : 1000 * (k + 1)] for k in range(5)]
    parts[0] = swapped(parts[0])
    config = sf.SurrogateConfig(k_min=10)
    releases = {
        f"c{k}": sf.distill_table(each, schema, config).release for k, each in enumerate(parts[:4])
    }
    server = sf.ServerConfig(rho=1.0, penalty="selection_rate", groups_by=("town", "home"))
    pooled = make_pool(releases, schema, server, trusted=parts[4])
    assert [weight < LITTLE for weight in pooled.trust.values()] == [True, False, False, False]
    without = parts[4][parts[4].home != "other"]
    with pytest.raises(sf.InputError, match="no row of home=other and paid=no"):
        make_pool(releases, schema, server, trusted=without)


def test_one_release_is_not_weighed():
    with pytest.raises(sf.InputError, match="only one"):
        sf.pool_and_train(some_pool(1), SCHEMA, trusted=TRUSTED)


def test_files_say_what_counts(tmp_path):
    releases = surrogates(reversed_labels, bad=2, n=3)
    for name, release in releases.items():
        write_release(release, tmp_path / f"{name}.parquet")
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    TRUSTED.to_csv(tmp_path / "trusted.csv", index=False)
    make_table(300, seed=9).to_csv(tmp_path / "test.csv", index=False)
    served = serve(
        sorted(tmp_path.glob("c?.parquet")),
        tmp_path / "schema.json",
        [tmp_path / "test.csv"],
        tmp_path / "server",
        sf.ServerConfig(resamples=5, max_influence=0.05),  # the only one that counts may
        records=tmp_path / "records.parquet",
        trusted=tmp_path / "trusted.csv",
    )
    found = json.loads((tmp_path / "server" / "metrics.json").read_text())
    weights = {name: one["weight"] for name, one in found["influence"]["releases"].items()}
    assert weights == {n: one.weight for n, one in served.influences.releases.items()}
    assert [weight < LITTLE for weight in weights.values()] == [True, True, False]
    assert served.warnings[0].startswith(f"c0 ({weights['c0']:.2g}), c1 (")
    assert "counts for less than 0.1 rows" in served.warnings[0]
    # Records have the weights, and the table a column.
    records = pq.read_table(tmp_path / "records.parquet").to_pandas()
    own = releases["c0"].weight
    np.testing.assert_allclose(records.weight[: len(own)], weights["c0"] * own)
    assert "weight" in plain_text(influence_table(served.influences), width=200)
    metrics = read_as(tmp_path / "server" / "metrics.json", MetricsFile, MAX_BYTES)
    assert metrics.influence.releases["c0"].weight == weights["c0"]
