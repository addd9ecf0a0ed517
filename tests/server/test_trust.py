"""Which releases count with trusted rows: the hypergradient, bad clients, and what is said."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.optimize
from builders import make_schema, make_table, some_pool
from printed import plain_text
from scipy.optimize import minimize

import synthfair as sf
from synthfair.data.schema import Categorical
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.files import read_as
from synthfair.metrics_file import MAX_METRICS_BYTES, MetricsFile
from synthfair.model import Rows
from synthfair.release.format import write_release
from synthfair.report.result_tables import influence_table
from synthfair.server import measure_influence, serve, trust
from synthfair.server.pooling import make_pool
from synthfair.server.trust import MIN_TRUST, PRIOR_WEIGHT, learn_weights
from synthfair.surrogate import GlobalProblem

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


def problem_of(a, s, y, *, weight=None, ridge=0.0, penalty=None):
    weight = np.ones(len(y)) if weight is None else weight
    ridge = np.full(a.shape[1], ridge)
    return GlobalProblem(a, s, y, weight, penalty or CovariancePenalty(), ridge)


def some_rows(rng, n, **named):
    a = np.column_stack([rng.random((n, 2)), np.ones(n)])
    y = np.where(a[:, 0] + 0.5 * rng.normal(size=n) > 0.5, 1.0, -1.0)
    return problem_of(a, rng.integers(2, size=n), y, **named)


def by_scipy(a, y, weight, ridge):
    """Theta of the regularised loss, straight from the equation, in NumPy."""

    def loss(theta):
        margins = y * (a @ theta)
        gradient = a.T @ (-weight / weight.sum() * y / (1 + np.exp(margins))) + ridge * theta
        value = np.average(np.logaddexp(0, -margins), weights=weight)
        return value + ridge @ theta**2 / 2, gradient

    start = np.zeros(a.shape[1])
    return scipy.optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-11}).x


def mean_loss(a, y, theta):
    return np.mean(np.logaddexp(0, -y * (a @ theta)))


@pytest.mark.parametrize(
    ("penalty", "groupings"),
    [(CovariancePenalty(), []), (SelectionRatePenalty(), []), (None, [(0, 1)])],
)
def test_weights_minimise_all_three_terms_and_have_their_gradient(penalty, groupings, monkeypatch):
    """Of fair releases with the clients' penalty, of surrogates with models of the groups."""
    rng, owner = np.random.default_rng(0), np.repeat([0, 1, 2, 3], [60, 60, 80, 400])
    rows = some_rows(rng, 600, weight=rng.random(600), ridge=0.1)
    trusted, rho = some_rows(rng, 50, penalty=penalty), 3.0 if penalty else 0.0
    shares = np.bincount(owner, rows.weight) / rows.weight.sum()
    target = np.minimum(shares, 3 * np.median(shares))
    target /= target.sum()
    assert target[3] < 0.9 * shares[3]

    def outer(weight):
        theta = by_scipy(rows.a, rows.y, weight, rows.ridge)
        found = mean_loss(trusted.a, trusted.y, theta)
        if penalty:
            found += rho * penalty(trusted.a @ theta, Rows(trusted.a, trusted.s, trusted.y))
        for _ in groupings:  # the group, of features and label
            each = [np.column_stack([p.a[:, :2], p.y, np.ones(len(p.y))]) for p in (rows, trusted)]
            of = [np.where(p.s == 1, 1.0, -1.0) for p in (rows, trusted)]
            theta = by_scipy(each[0], of[0], weight, np.array([0.1, 0.1, 0.1, 0.0]))
            found += mean_loss(each[1], of[1], theta)
        return found

    alone = np.array([outer(rows.weight * (owner == k)) for k in range(4)])

    def objective(alpha):
        w = np.exp(alpha) / np.exp(alpha).sum()
        mu = PRIOR_WEIGHT / 50 + 3 * 4 / rows.weight.sum()
        return outer(rows.weight * (w / shares)[owner]) + w @ alone + mu * w @ np.log(w / target)

    asked = []

    def keep(function, *args, **named):
        asked.append(function)
        return minimize(function, *args, **named)

    monkeypatch.setattr(trust, "minimize", keep)
    parts = {k: slice(*np.searchsorted(owner, [k, k + 1])) for k in range(4)}
    named = {"rho": rho, "n_features": 2, "groupings": groupings}
    weights = learn_weights(rows, parts, trusted, **named)
    for alpha in (np.log(target), np.array([0.3, -0.5, 0.1, 0.2])):
        value, gradient = asked[0](alpha)
        slopes = scipy.optimize.approx_fprime(alpha, objective, 1e-5)
        assert value == pytest.approx(objective(alpha), rel=1e-7)
        np.testing.assert_allclose(gradient, slopes, atol=1e-4)
    best = scipy.optimize.minimize(objective, np.log(weights * shares), method="Nelder-Mead")
    assert objective(np.log(weights * shares)) <= best.fun + 1e-5


def rows_of_clients(rng, shift, false=()):
    """Rows of five clients, of whom some have exchanged the groups."""
    s = rng.integers(2, size=1500)
    x = rng.normal(size=1500) + shift * s
    y = np.where(x + rng.normal(size=1500) > 0.5, 1.0, -1.0)
    return x, np.where(np.isin(np.arange(1500) // 300, false), 1 - s, s), y


@pytest.mark.parametrize("column", ["s", "y"])
def test_a_client_of_one_group_or_label_keeps_its_weight(column):
    x, s, y = rows_of_clients(np.random.default_rng(3), 1.0)
    kept = (np.arange(1500) >= 300) | ((s if column == "s" else y > 0) == 1)
    weights = weigh(x[kept], s[kept], y[kept], kept[:300].sum())
    assert weights[0] > MIN_TRUST


def weigh(x, s, y, first=300, *, groupings=((0, 1),)):
    """Weights of four releases, the first of so many rows; the rest is trusted."""
    a, ends = np.column_stack([x, s, np.ones(len(x))]), np.cumsum([0, first, 300, 300, 300])
    parts = {k: slice(*ends[k : k + 2]) for k in range(4)}
    few, rest = slice(ends[-1]), slice(ends[-1], None)
    rows = problem_of(a[few], s[few], y[few], ridge=1e-4)
    trusted = problem_of(a[rest], s[rest], y[rest])
    return learn_weights(rows, parts, trusted, rho=0.0, n_features=1, groupings=groupings)


def test_groups_show_in_surrogates_alone():
    """A model of the group sees exchanged groups, of which the label does not depend."""
    x, s, y = rows_of_clients(np.random.default_rng(2), 2.0, false=[0])
    weights = weigh(x, s, y)
    assert weights[0] < MIN_TRUST < 0.5 < min(weights[1:])
    assert weigh(x, s, y, groupings=())[0] > 0.5


@pytest.mark.parametrize("is_swapped", [False, True])
def test_who_claims_many_rows_is_not_pulled_towards_them(is_swapped):
    """Two of eight clients claim 19 medians, of 44 together: they are pulled towards 6 of 12.

    Pulled towards what they claim, those with exchanged groups have .32 of the pool.
    """
    releases = surrogates(swapped if is_swapped else lambda table: table, 2, n=8)
    claims = dict(zip(releases, (19, 19, 1, 1, 1, 1, 1, 1), strict=True))
    heavy = {n: replace(r, weight=r.weight * claims[n]) for n, r in releases.items()}
    pooled = make_pool(heavy, SCHEMA, sf.ServerConfig(rho=1.0), trusted=TRUSTED[:200])
    sums = {name: pooled.weight[part].sum() for name, part in pooled.parts.items()}
    share = (sums["c0"] + sums["c1"]) / sum(sums.values())
    assert share < 0.25 if is_swapped else 0.3 < share < 0.6


@pytest.mark.parametrize(("attack", "bad"), [(swapped, 2), (reversed_labels, 3)])
def test_bad_clients_hardly_count(attack, bad):
    releases = surrogates(attack, bad)
    heavy = {n: replace(r, weight=r.weight * (19 if n == "c0" else 1)) for n, r in releases.items()}
    # A blind model is hardly moved by exchanged groups.
    config = sf.ServerConfig(rho=1.0, penalty="selection_rate", group_input=True)
    pooled = make_pool(heavy, SCHEMA, config, trusted=TRUSTED)
    assert [weight < MIN_TRUST for weight in pooled.trust.values()] == [k < bad for k in range(5)]
    # The model is near that of the others alone, and their weights keep the sum of the rows.
    model = sf.pool_and_train(heavy, SCHEMA, config, trusted=TRUSTED)
    honest = {name: release for name, release in releases.items() if int(name[1:]) >= bad}
    near, far = (sf.pool_and_train(each, SCHEMA, config) for each in (honest, heavy))
    theta = np.array(near.theta)
    distances = [np.linalg.norm(theta - each.theta) for each in (model, far)]
    assert distances[0] < 0.3 * distances[1]
    total = np.sum(make_pool(heavy, SCHEMA, config).rows.weight)
    assert np.sum(pooled.rows.weight) == pytest.approx(total)
    # Nor has one that hardly counts an influence.
    found = measure_influence(pooled, model, {"test": TRUSTED})
    assert found.releases["c0"].weight == float(f"{pooled.trust['c0']:.2g}")
    assert found.releases["c0"].scores < 0.1


def test_honest_clients_count_and_move_the_model_little():
    releases, config = surrogates(bad=0), sf.ServerConfig(rho=1.0, penalty="selection_rate")
    pooled = make_pool(releases, SCHEMA, config, trusted=TRUSTED)
    assert min(pooled.trust.values()) > MIN_TRUST
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
    assert [weight < MIN_TRUST for weight in pooled.trust.values()] == [True, False, False, False]
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
    home = Categorical(categories=("own", "rent", "other"))
    columns = {**SCHEMA.columns, "home": home}
    schema = SCHEMA.model_copy(update={"columns": columns}).with_sensitive(("town", "home"))
    table = make_table(4600, seed=3).assign(home=lambda t: t["home"].fillna("rent"))
    parts = [table[1000 * k : 1000 * (k + 1)] for k in range(5)]
    parts[0] = swapped(parts[0])
    config = sf.SurrogateConfig(k_min=10)
    releases = {
        f"c{k}": sf.distill_table(each, schema, config).release for k, each in enumerate(parts[:4])
    }
    server = sf.ServerConfig(rho=1.0, penalty="selection_rate", groups_by=("town", "home"))
    pooled = make_pool(releases, schema, server, trusted=parts[4])
    assert [weight < MIN_TRUST for weight in pooled.trust.values()] == [True, False, False, False]
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
    assert [weight < MIN_TRUST for weight in weights.values()] == [True, True, False]
    assert served.warnings[0].startswith(f"c0 ({weights['c0']:.2g}), c1 (")
    assert "counts for less than 0.1 rows" in served.warnings[0]
    # Records have the weights, and the table a column.
    records = pq.read_table(tmp_path / "records.parquet").to_pandas()
    own = releases["c0"].weight
    np.testing.assert_allclose(records.weight[: len(own)], weights["c0"] * own, rtol=0.05)
    assert "weight" in plain_text(influence_table(served.influences), width=200)
    metrics = read_as(tmp_path / "server" / "metrics.json", MetricsFile, MAX_METRICS_BYTES)
    assert metrics.influence.releases["c0"].weight == weights["c0"]
