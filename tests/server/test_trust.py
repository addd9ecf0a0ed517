"""Which releases count with trusted rows: the formula and its gradient, and bad clients."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from builders import SCHEMA, make_table, some_pool
from scipy.optimize import minimize

import synthfair as sf
from synthfair.data.schema import Categorical
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.model import Rows
from synthfair.server import measure_influence, pooling, trust
from synthfair.server.pooling import make_pool
from synthfair.server.trust import MIN_TRUST, PRIOR_WEIGHT, learn_weights
from synthfair.surrogate import GlobalProblem

TRUSTED = make_table(600, seed=77)


def problem_of(a, s, y, *, weight=None, ridge=0.0, penalty=None):
    weight = np.ones(len(y)) if weight is None else weight
    ridge = np.full(a.shape[1], ridge)
    return GlobalProblem(a, s, y, weight, penalty or CovariancePenalty(), ridge)


def some_rows(rng, n, **named):
    a = np.column_stack([rng.random((n, 2)), np.ones(n)])
    y = np.where(a[:, 0] + 0.5 * rng.normal(size=n) > 0.5, 1.0, -1.0)
    return problem_of(a, rng.integers(2, size=n), y, **named)


def optimum(a, y, weight, ridge):
    """Theta of the regularised loss, straight from the equation, in NumPy."""

    def loss(theta):
        margins = y * (a @ theta)
        gradient = a.T @ (-weight / weight.sum() * y / (1 + np.exp(margins))) + ridge * theta
        value = np.average(np.logaddexp(0, -margins), weights=weight)
        return value + ridge @ theta**2 / 2, gradient

    return minimize(loss, np.zeros(a.shape[1]), jac=True, options={"gtol": 1e-11}).x


def mean_loss(a, y, theta):
    return np.mean(np.logaddexp(0, -y * (a @ theta)))


@pytest.mark.parametrize(("penalty", "groupings"), [
    (CovariancePenalty(), []), (SelectionRatePenalty(), []), (None, [(0, 1)]),
])  # fmt: skip
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
        theta = optimum(rows.a, rows.y, weight, rows.ridge)
        found = mean_loss(trusted.a, trusted.y, theta)
        if penalty:
            found += rho * penalty(trusted.a @ theta, Rows(trusted.a, trusted.s, trusted.y))
        for _ in groupings:  # the group, of features and label
            each = [np.column_stack([p.a[:, :2], p.y, np.ones(len(p.y))]) for p in (rows, trusted)]
            of = [np.where(p.s == 1, 1.0, -1.0) for p in (rows, trusted)]
            theta = optimum(each[0], of[0], weight, np.array([0.1, 0.1, 0.1, 0.0]))
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
    _, gradient = asked[0](np.log(weights * shares))
    np.testing.assert_allclose(gradient, 0, atol=1e-4)


def swapped(release):
    return replace(release, s=1 - release.s)


def reversed_labels(release):
    return replace(release, y=-release.y)


@pytest.mark.parametrize("is_swapped", [False, True])
def test_client_that_claims_many_rows_is_not_pulled_towards_them(surrogates, is_swapped):
    """Two of eight clients claim 19 medians, of 44 together: they are pulled towards 6 of 12.

    Pulled towards what they claim, those with exchanged groups have .32 of the pool.
    """
    releases = dict(surrogates)
    for name in ("c0", "c1"):
        release = swapped(releases[name]) if is_swapped else releases[name]
        releases[name] = replace(release, weight=19 * release.weight)
    pooled = make_pool(releases, SCHEMA, sf.ServerConfig(rho=1.0), trusted=TRUSTED[:200])
    sums = np.bincount(pooled.owner, pooled.weight)
    share = sums[:2].sum() / sums.sum()
    assert share < 0.25 if is_swapped else 0.3 < share < 0.6


@pytest.mark.parametrize(("attack", "bad", "is_fair"), [
    (swapped, 2, False), (reversed_labels, 3, False), (reversed_labels, 1, True), (None, 0, False),
])  # fmt: skip
def test_clients_that_are_bad_hardly_count(surrogates, attack, bad, is_fair):
    honest = some_pool(5, rows=300) if is_fair else dict([*surrogates.items()][:5])
    names, config = [*honest][:bad], None
    if not is_fair:  # a blind model is hardly moved by exchanged groups
        config = sf.ServerConfig(rho=1.0, penalty="selection_rate", group_input=True)
    releases = honest | {name: attack(honest[name]) for name in names}
    pooled = make_pool(releases, SCHEMA, config, trusted=TRUSTED)
    assert [name for name, weight in pooled.trust.items() if weight < MIN_TRUST] == names
    # The model is near that of the others alone, and their weights keep the sum of the rows.
    model = sf.pool_and_train(releases, SCHEMA, config, trusted=TRUSTED)
    others = {name: release for name, release in honest.items() if name not in names}
    near, far = (sf.pool_and_train(each, SCHEMA, config) for each in (others, releases))
    distances = [np.linalg.norm(np.subtract(near.theta, each.theta)) for each in (model, far)]
    assert distances[0] < (0.3 * distances[1] if bad else 0.05 * np.linalg.norm(near.theta))
    total = make_pool(releases, SCHEMA, config).rows.weight
    assert np.sum(pooled.rows.weight) == pytest.approx(np.sum(total))
    # Nor has one that hardly counts an influence.
    found = measure_influence(pooled, model, {"test": TRUSTED}).releases
    assert all(found[name].weight == float(f"{pooled.trust[name]:.2g}") for name in found)
    assert all(found[name].scores < 0.1 for name in names)


def test_fair_releases_are_weighed_by_what_most_clients_asked_for(monkeypatch):
    releases, asked = some_pool(3), []
    for name in ("c1", "c2"):
        header = releases[name].header
        config = header.config.replace(penalty="selection_rate", rho_o=7.0)
        header = header.model_copy(update={"config": config})
        releases[name] = replace(releases[name], header=header)

    def keep(_, parts, trusted, *, rho, **__):
        asked.append((trusted.penalty, rho))
        return np.ones(len(parts))

    monkeypatch.setattr(pooling, "learn_weights", keep)
    make_pool(releases, SCHEMA, trusted=TRUSTED)
    assert asked == [(SelectionRatePenalty(), 7.0)]


@pytest.mark.parametrize("keep", [lambda release: release.s == 1, lambda release: release.y == 1])
def test_client_of_one_group_or_label_keeps_its_weight(surrogates, keep):
    release, kept = surrogates["c0"], keep(surrogates["c0"])
    x, s, y, w = (each[kept] for each in (release.x, release.s, release.y, release.weight))
    releases = surrogates | {"c0": replace(release, x=x, s=s, y=y, weight=w)}
    assert make_pool(releases, SCHEMA, trusted=TRUSTED).trust["c0"] > MIN_TRUST


def test_client_that_is_not_trusted_has_no_limit_of_its_own_gap(surrogates):
    releases = surrogates | {"c3": reversed_labels(surrogates["c3"])}
    pooled = make_pool(releases, SCHEMA, sf.ServerConfig(max_client_gap=0.1), trusted=TRUSTED)
    assert pooled.compared == tuple(name for name in releases if name != "c3")


@pytest.mark.parametrize(("trusted", "named"), [
    (TRUSTED[TRUSTED.town == "a"], "town=b and paid=no"),
    (TRUSTED[(TRUSTED.town == "a") | (TRUSTED.paid == "no")], "town=b and paid=yes"),
])  # fmt: skip
def test_trusted_rows_without_a_group_and_label_are_refused(trusted, named):
    with pytest.raises(sf.InputError, match=named):
        sf.pool_and_train(some_pool(2), SCHEMA, trusted=trusted)
    with pytest.raises(sf.InputError, match="only one"):
        sf.pool_and_train(some_pool(1), SCHEMA, trusted=TRUSTED)


def test_trusted_rows_of_several_attributes_have_the_groups_of_each():
    home = Categorical(categories=("own", "rent", "other"))
    schema = SCHEMA.model_copy(update={"columns": {**SCHEMA.columns, "home": home}})
    schema = schema.with_sensitive(("town", "home"))
    table = make_table(4600, seed=3).assign(home=lambda t: t["home"].fillna("rent"))
    *parts, trusted = (table[1000 * k : 1000 * (k + 1)] for k in range(5))
    parts[0] = parts[0].assign(town=parts[0].town.map({"a": "b", "b": "a"}))
    config = sf.SurrogateConfig(k_min=10)
    releases = [sf.distill_table(part, schema, config) for part in parts]
    server = sf.ServerConfig(rho=1.0, penalty="selection_rate", groups_by=("town", "home"))
    pooled = make_pool(releases, schema, server, trusted=trusted)
    assert [weight < MIN_TRUST for weight in pooled.trust.values()] == [True, False, False, False]
    with pytest.raises(sf.InputError, match="home=other and paid=no"):
        make_pool(releases, schema, server, trusted=trusted[trusted.home != "other"])
