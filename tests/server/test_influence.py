"""How far one release moves the model, against training it again."""

import json
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from builders import SCHEMA, flipped, make_schema, make_table, some_pool

import synthfair as sf
from synthfair.distill.losses import mean_loss
from synthfair.fairness.metrics import statistical_parity_difference
from synthfair.model import Rows
from synthfair.server import measure_influence, outlier_bound, review, serve
from synthfair.server.pooling import make_pool, train_pool
from synthfair.surrogate import Price


@pytest.fixture(scope="module")
def releases():
    """Return the surrogates of twelve clients."""
    config, tables = sf.SurrogateConfig(k_min=10), [make_table(1000, seed=k) for k in range(12)]
    return {f"c{k}": sf.distill_table(t, SCHEMA, config).release for k, t in enumerate(tables)}


TABLES = {"test": make_table(seed=50, n=400)}


def without(releases, name):
    return {other: release for other, release in releases.items() if other != name}


def measured(releases):
    trained = sf.pool_and_train(releases, SCHEMA)
    return trained, measure_influence(make_pool(releases, SCHEMA), trained, TABLES)


def expected(releases, name, trained):
    """Straight from the definitions: another model is trained, and everything is scored twice."""
    other = sf.pool_and_train(without(releases, name), SCHEMA)
    squares, before = [], []
    for release in releases.values():
        x = release.x.clip(0, 1)
        gap = trained.scores(x, release.s) - other.scores(x, release.s)
        squares.append(np.mean(gap**2))
        before.append(np.mean(other.scores(x, release.s) ** 2))
    x, s, _ = sf.encode(TABLES["test"], SCHEMA)
    decided = [np.where(model.scores(x, s) > 0, 1, -1) for model in (trained, other)]
    spd = [statistical_parity_difference(None, d, sensitive_features=s) for d in decided]
    rms = np.sqrt(np.mean(squares))
    return rms, rms / np.sqrt(np.mean(before)), spd[0] - spd[1]


def squared_hinge(margin):
    return jnp.maximum(0.0, 1.0 - margin) ** 2


@dataclass(frozen=True)
class Cautious(sf.LinearModel):
    """Another loss than that of its margin."""

    def loss(self, scores, y):
        return super().loss(scores, y) + scores**2


def made_for(model, n=4):
    return {
        name: replace(r, header=r.header.model_copy(update={"model": model.name}))
        for name, r in some_pool(n).items()
    }


@pytest.mark.parametrize("model", [sf.LinearModel(), sf.LinearModel(squared_hinge), Cautious()])
def test_it_is_the_slope_in_the_weights_of_a_release(model):
    """Of the optimum of another solver: by so little less weight the model is trained again."""
    pooled, epsilon = make_pool(made_for(model), SCHEMA), 1e-3
    pooled = pooled._replace(rows=pooled.rows._replace(weight=np.linspace(0.5, 1.5, 240)))

    def optimum(weight):
        def loss(theta):
            rows = Rows(*map(jnp.asarray, pooled.rows._replace(weight=weight)))
            return mean_loss(model, rows.a @ theta, rows) + pooled.ridge @ theta**2 / 2

        start, value = np.zeros(pooled.rows.a.shape[1]), jax.jit(jax.value_and_grad(loss))
        return scipy.optimize.minimize(value, start, jac=True, options={"gtol": 1e-9}).x

    theta = optimum(pooled.weight)
    steps = review._without(pooled, theta, Price(0.0), model) - theta
    for step, part in zip(steps, pooled.parts.values(), strict=True):
        less = pooled.weight.copy()
        less[part] *= 1 - epsilon
        slope = (optimum(less) - theta) / epsilon
        removed = pooled.weight[part].sum() / pooled.weight.sum()
        np.testing.assert_allclose(step * (1 - removed), slope, atol=0.02 * np.abs(slope).max())


def test_among_many_it_is_nearly_that_of_training_again():
    releases = made_for(sf.LinearModel(), 30)
    trained, found = measured(releases)
    for name in list(releases)[:5]:
        moved = found.releases[name]
        scores, relative, spd = expected(releases, name, trained)
        assert (moved.scores, moved.relative) == pytest.approx((scores, relative), rel=0.1)
        assert moved.spd == pytest.approx(spd, abs=0.02)


@pytest.mark.parametrize("asked", [{"rho": 3.0}, {"max_client_gap": 0.15}])
def test_of_surrogates_it_is_nearly_that_of_training_again(releases, asked):
    """At the price of a gap that was found with them all."""
    asks = sf.ServerConfig(penalty="selection_rate", **asked)
    pooled = make_pool(releases, SCHEMA, asks)
    trained, point = train_pool(pooled, SCHEMA)
    found = measure_influence(pooled, trained, {}, price=point.price)
    for name in [*releases][:3]:
        rest = make_pool(without(releases, name), SCHEMA, asks).problem()
        again = rest.newton(point.theta, point.price).theta
        rows = np.asarray(pooled.rows.a).clip(0, 1)
        moved = rows @ (point.theta - again)
        share = np.concatenate(
            [pooled.weight[part] / pooled.weight[part].sum() for part in pooled.parts.values()]
        )
        expected = np.sqrt(share @ moved**2 / len(releases))
        assert found.releases[name].scores == pytest.approx(expected, rel=0.2)


def test_the_ridge_of_surrogates_goes_with_their_rows(releases):
    """It is 1 / (C N), and a third of the rows is missing."""
    releases = dict(list(releases.items())[:3])
    asks = sf.ServerConfig(rho=0.0)
    pooled = make_pool(releases, SCHEMA, asks)
    theta = train_pool(pooled, SCHEMA)[1].theta
    steps = review._without(pooled, theta, Price(0.0), sf.LinearModel()) - theta
    for name, step in zip(releases, steps, strict=True):
        exact = make_pool(without(releases, name), SCHEMA, asks).problem().solve(0.0).theta - theta
        assert np.linalg.norm(step - exact) < 0.15 * np.linalg.norm(exact)


def test_two_releases_are_no_outliers_of_each_other():
    releases = some_pool(2, rows=120)
    releases["c0"] = replace(releases["c0"], y=-releases["c0"].y)
    _, found = measured(releases)
    assert not any(moved.outlier for moved in found.releases.values())


@pytest.mark.parametrize(("n", "seed"), [(4, 0), (4, 1), (30, 2)])
def test_honest_pools_have_no_outlier(n, seed):
    _, found = measured(some_pool(n, seed=seed))
    assert not any(moved.outlier for moved in found.releases.values())


@pytest.mark.parametrize("n", [4, 30])
def test_a_release_that_reverses_the_others_is_an_outlier_alone(n):
    releases = some_pool(n)
    releases["c2"] = flipped(releases["c2"], n)
    _, found = measured(releases)
    assert [name for name, moved in found.releases.items() if moved.outlier] == ["c2"]
    with pytest.raises(sf.InputError, match="c2: moves the scores .* at most 0.9 times is allowed"):
        review.refuse_influence(found, 0.9)


def test_the_bound_is_the_one_that_is_documented():
    change = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    assert outlier_bound(change) == max(3 + 5 * 1.4826 * 1, 5 * 3)
    assert outlier_bound(np.array([1.0, 1.0, 1.0])) == 5
    assert np.isnan(outlier_bound(change[:2]))


def test_not_a_number_does_not_pass():
    moved = sf.server.Influence(1.0, np.nan, 0.0, outlier=False)
    with pytest.raises(sf.InputError, match="c0"):
        review.refuse_influence(sf.server.Influences({"c0": moved}, 1.0), 2.0)


def test_a_refusal_says_what_an_honest_client_can_do_and_which_flag_helps():
    moved = sf.server.Influence(1.0, 1.5, 0.4, outlier=False)
    found = sf.server.Influences({"c0": moved}, 1.0)
    honest = "An honest client that is unlike the others can do this, too; .* or raise "
    with pytest.raises(sf.InputError, match=honest + "max_influence$"):
        review.refuse_influence(found, 1.0)
    with pytest.raises(sf.InputError, match=honest + "max_spd_influence$"):
        review.refuse_influence(found, 2.0, 0.3)


def written(folder, releases):
    (folder / "schema.json").write_text(SCHEMA.to_json())
    TABLES["test"].to_csv(folder / "test.csv", index=False)
    for name, release in releases.items():
        sf.write_release(release, folder / f"{name}.parquet")
    return [folder / f"{name}.parquet" for name in releases]


def test_the_cap_refuses_and_leaves_nothing(tmp_path):
    releases = some_pool(3)
    paths = written(tmp_path, {**releases, "bad": flipped(releases["c0"])})
    files = (paths, tmp_path / "schema.json", [tmp_path / "test.csv"], tmp_path / "server")
    with pytest.raises(sf.InputError, match="bad: moves the scores of the pooled model by"):
        serve(*files, sf.ServerConfig(resamples=5))
    assert not (tmp_path / "server").exists()
    served = serve(*files, sf.ServerConfig(resamples=5, max_influence=1e3))
    assert served.influences.releases["bad"].outlier


@pytest.mark.usefixtures("public_tables")
@pytest.mark.slow
def test_honest_unlike_clients_pass_with_the_defaults():
    """One of these four moves the scores 1.2 times."""
    rows, schema = sf.load_dataset("dutch", "sex")
    clients = sf.partition(rows, clients=4, seed=0, skew=0.3, schema=schema)
    releases = {
        f"c{i}": sf.distill_table(client.train, schema, sf.SurrogateConfig()).release
        for i, client in enumerate(clients)
    }
    tests = {f"c{i}": client.test for i, client in enumerate(clients)}
    for asked in ({"max_gap": 0.05}, {"penalty": "selection_rate", "rho": 10.0}):
        config = sf.ServerConfig(**asked)
        pooled = make_pool(releases, schema, config)
        trained, point = train_pool(pooled, schema)
        found = measure_influence(pooled, trained, tests, price=point.price)
        review.refuse_influence(found, 3.0, config.max_spd_influence)
        assert max(moved.relative for moved in found.releases.values()) < 1.5


@pytest.mark.usefixtures("public_tables")
@pytest.mark.slow
def test_a_public_table_passes_with_a_margin():
    """Two clients, who move a model furthest; half of what is allowed."""
    rows, schema = sf.load_dataset("law_school", "race")
    clients = sf.partition(rows, clients=2, seed=0)
    config = sf.DistillConfig(steps=300, n_synthetic=400)
    done = [sf.distill_table(client.train, schema, config) for client in clients]
    releases = {f"c{i}": distillation.release for i, distillation in enumerate(done)}
    trained = sf.pool_and_train(releases, schema)
    found = measure_influence(make_pool(releases, schema), trained, {"t": clients[0].test})
    assert max(moved.relative for moved in found.releases.values()) < 0.5
    attacked = {**releases, "c0": flipped(releases["c0"])}
    trained = sf.pool_and_train(attacked, schema)
    found = measure_influence(make_pool(attacked, schema), trained, {"t": clients[0].test})
    assert found.releases["c0"].relative > 1


def test_pools_of_one_say_so_in_metrics_json(tmp_path):
    paths = written(tmp_path, some_pool(1, rows=240))
    serve(
        paths,
        tmp_path / "schema.json",
        [tmp_path / "test.csv"],
        tmp_path,
        sf.ServerConfig(resamples=5),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["influence"] == {"outliers_above": None, "releases": {}}


def test_names_of_many_groups_and_an_empty_one():
    """SPD is the widest gap of the groups that have test rows."""
    schema = make_schema(n_groups=3)
    releases = some_pool(3, schema=schema)
    header = next(iter(releases.values())).header.model_copy(update={"table_schema": schema})
    releases = {name: replace(r, header=header) for name, r in releases.items()}
    trained = sf.pool_and_train(releases, schema)
    table = make_table(n=300, n_groups=3)
    pooled = make_pool(releases, schema)
    full = measure_influence(pooled, trained, {"t": table})
    assert all(np.isfinite(moved.spd) for moved in full.releases.values())
    two = measure_influence(pooled, trained, {"t": table[table["town"] != "c"]})
    assert all(np.isfinite(moved.spd) for moved in two.releases.values())
