"""How far one release moves the model, against training it again, and who is refused."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from builders import SCHEMA, SCHEMA_OF_3, flipped, make_table, some_pool, some_release

import synthfair as sf
from synthfair.distill.losses import mean_loss
from synthfair.fairness.metrics import statistical_parity_difference
from synthfair.model import Rows
from synthfair.server import Influence, Influences, measure_influence, outlier_bound, review
from synthfair.server.pooling import make_pool, train_pool
from synthfair.surrogate import Price

TEST = make_table(seed=50, n=400)


def without(releases, name):
    return {other: release for other, release in releases.items() if other != name}


def measured(releases, schema=SCHEMA, test=TEST):
    trained = sf.pool_and_train(releases, schema)
    return trained, measure_influence(make_pool(releases, schema), trained, {"test": test}).releases


@dataclass(frozen=True)
class Cautious(sf.LinearModel):
    """Another loss than that of its margin."""

    def loss(self, scores, y):
        return super().loss(scores, y) + scores**2


@pytest.mark.parametrize("model", [sf.LinearModel(), Cautious()])
def test_influence_is_the_slope_in_the_weights_of_a_release(model):
    """Of the optimum of another solver: by so little less weight the model is trained again."""
    releases = {
        name: replace(r, header=r.header.model_copy(update={"model": model.name}))
        for name, r in some_pool().items()
    }
    pooled, epsilon = make_pool(releases, SCHEMA), 1e-3
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


def retrained(releases, name, trained):
    """Straight from the definitions: another model is trained, and everything is scored twice."""
    other = sf.pool_and_train(without(releases, name), SCHEMA)
    scores = [
        [model.scores(release.x.clip(0, 1), release.s) for release in releases.values()]
        for model in (trained, other)
    ]
    rms = np.sqrt(np.mean((np.array(scores[0]) - scores[1]) ** 2))
    x, s, _ = sf.encode(TEST, SCHEMA)
    decided = [np.where(model.scores(x, s) > 0, 1, -1) for model in (trained, other)]
    spd = [statistical_parity_difference(None, d, sensitive_features=s) for d in decided]
    return rms, rms / np.sqrt(np.mean(np.square(scores[1]))), spd[0] - spd[1]


def test_influence_among_many_is_nearly_that_of_training_again():
    releases = some_pool(30)
    trained, found = measured(releases)
    for name in list(releases)[:5]:
        scores, relative, spd = retrained(releases, name, trained)
        assert found[name].scores == pytest.approx(scores, rel=0.1)
        assert found[name].relative == pytest.approx(relative, rel=0.1)
        assert found[name].spd == pytest.approx(spd, abs=0.02)


def test_influence_of_surrogates_counts_their_part_of_the_ridge(surrogates):
    """It is 1 / (C N), and a third of the rows is missing."""
    releases, asks = dict([*surrogates.items()][:3]), sf.ServerConfig(rho=0.0)
    pooled = make_pool(releases, SCHEMA, asks)
    theta = train_pool(pooled, SCHEMA)[1].theta
    steps = review._without(pooled, theta, Price(0.0), sf.LinearModel()) - theta
    for name, step in zip(releases, steps, strict=True):
        exact = make_pool(without(releases, name), SCHEMA, asks).problem().solve(0.0).theta - theta
        assert np.linalg.norm(step - exact) < 0.15 * np.linalg.norm(exact)


@pytest.mark.parametrize("present", ["abc", "ab"])
def test_influence_on_spd_is_of_the_groups_that_have_test_rows(present):
    releases = some_pool(3, schema=SCHEMA_OF_3)
    header = releases["c0"].header.model_copy(update={"table_schema": SCHEMA_OF_3})
    releases = {name: replace(r, header=header) for name, r in releases.items()}
    table = make_table(n=300, n_groups=3)
    table = table[table["town"].isin([*present])]
    trained, found = measured(releases, SCHEMA_OF_3, table)
    pooled, (x, s, _) = make_pool(releases, SCHEMA_OF_3), sf.encode(table, SCHEMA_OF_3)
    thetas = review._without(pooled, np.array(trained.theta), Price(0.0), sf.LinearModel())
    for name, theta in zip(releases, thetas, strict=True):
        decided = [trained.rows(x, s) @ each > 0 for each in (trained.theta, theta)]
        gaps = [np.ptp([each[s == g].mean() for g in np.unique(s)]) for each in decided]
        assert found[name].spd == pytest.approx(gaps[0] - gaps[1])


def test_influence_on_spd_without_test_rows_is_on_those_of_the_others(surrogates):
    releases = dict([*surrogates.items()][:3])
    releases["c0"] = replace(releases["c0"], s=1 - releases["c0"].s)
    pooled = make_pool(releases, SCHEMA, sf.ServerConfig(max_gap=0.05, group_input=True))
    trained, point = train_pool(pooled, SCHEMA)
    found = measure_influence(pooled, trained, {}, price=point.price).releases
    thetas = review._without(pooled, point.theta, point.price, sf.LinearModel())
    for k, name in enumerate(releases):
        rates = [
            np.average(pooled.rows.a[mine] @ theta > 0, weights=pooled.weight[mine])
            for theta in (point.theta, thetas[k])
            for mine in ((pooled.owner != k) & (pooled.rows.s == g) for g in (0, 1))
        ]
        assert found[name].spd == pytest.approx(rates[1] - rates[0] - rates[3] + rates[2])


# Who stands out


@pytest.mark.parametrize(
    ("n", "seed", "times"), [(1, 0, 0), (4, 1, 0), (30, 2, 0), (2, 0, 1), (4, 0, 4), (30, 0, 30)]
)
def test_outlier_is_the_release_that_reverses_more_than_one_other(n, seed, times):
    releases = some_pool(n, seed=seed)
    if times:
        releases["c1"] = flipped(releases["c1"], times)
    found = [name for name, moved in measured(releases)[1].items() if moved.outlier]
    assert found == (["c1"] if times > 1 else [])


def test_outlier_bound_is_the_one_that_is_documented():
    change = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    assert outlier_bound(change) == max(3 + 5 * 1.4826 * 1, 5 * 3)
    assert outlier_bound(np.array([1.0, 1.0, 1.0])) == 5
    assert np.isnan(outlier_bound(change[:2]))


@pytest.mark.parametrize(("trust", "expected"), [
    ({}, [True, False, False]), ({"c0": 0.05}, [False, False, False]),
    ({"c1": 0.05}, [True, False, True]),
])  # fmt: skip
def test_pair_that_one_trusted_release_has_lets_it_pass(trust, expected):
    """Group 1 has the label -1 in c0 alone, and group 0 the label +1 in c1 and c2."""
    releases = some_pool(3)
    for name, release in releases.items():
        dropped = (release.s == 1) & (release.y < 0) & (name != "c0")
        dropped |= (release.s == 0) & (release.y > 0) & (name == "c0")
        x, s, y = (each[~dropped] for each in (release.x, release.s, release.y))
        releases[name] = replace(release, x=x, s=s, y=y)
    pooled = make_pool(releases, SCHEMA)._replace(trust=trust)
    assert review._alone(pooled, pooled.weight, SCHEMA).tolist() == expected


# Who is refused


@pytest.mark.parametrize(("number", "value", "key"), [
    (0, 1.5, "max_influence"), (0, np.nan, "max_influence"), (1, -0.4, "max_spd_influence"),
])  # fmt: skip
def test_influence_above_a_limit_is_refused_by_its_setting(number, value, key):
    moved, limits = [0.0, 0.0], [3.0, 2.0]
    moved[number], limits[number] = value, abs(np.nan_to_num(value, nan=2.0))
    other = Influence(0.9, moved[0], -moved[1] - 5e-10, outlier=False)
    found = Influences({"c1": other, "c0": Influence(1.0, *moved, outlier=False)}, 1.0)
    if np.isfinite(value):
        review.refuse_influence(found, *limits)
    limits[number] -= 1e-9
    with pytest.raises(sf.InputError, match=f"c0: .*raise {key}$"):
        review.refuse_influence(found, *limits)
    alone = {name: each._replace(alone=True) for name, each in found.releases.items()}
    review.refuse_influence(Influences(alone, 1.0), *limits)


def test_fairness_asked_for_is_the_strictest_of_the_clients_or_the_servers(surrogates):
    wishes = {}, {"max_gap": 0.1}, {"max_gap": 0.05, "notion": "equal_opportunity"}
    fair = {str(wish): some_release(**wish) for wish in wishes}
    target, notion = review.asked_of(fair, sf.ServerConfig())
    assert (target.max_gap, notion) == (0.05, "equal_opportunity")
    config = sf.ServerConfig(rho=3.0, notion="equalized_odds")
    assert review.asked_of(surrogates, config) == (config.asked, "equalized_odds")
