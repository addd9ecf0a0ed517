"""A loss and a penalty of one's own, from distillation to the server and an estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table
from scipy.optimize import minimize

import synthfair as sf
from synthfair.server.pooling import make_pool

SCHEMA, TABLES = make_schema(), [make_table(400, seed=k) for k in range(2)]
QUICK = sf.DistillConfig(rho_o=30.0, n_synthetic=40, steps=200)


@pytest.fixture(autouse=True)
def _single_precision():
    """JAX is set so by default."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="module")
def records():
    """Surrogates of the tables."""
    return [sf.distill_table(table, SCHEMA, sf.SurrogateConfig(k_min=5)) for table in TABLES]


def squared_hinge(margin):
    """A loss of the margin."""
    return jnp.maximum(0.0, 1.0 - margin) ** 2


def mean_score_gap(scores, rows):
    """A penalty: the squared difference of the groups' mean scores."""
    weight = jnp.ones_like(scores) if rows.weight is None else rows.weight
    means = [
        jnp.sum(scores * weight * (rows.s == g)) / jnp.sum(weight * (rows.s == g)) for g in (0, 1)
    ]
    return (means[1] - means[0]) ** 2


def gap_of(scores, s, weight=None):
    one, zero = (
        np.average(scores[s == g], weights=None if weight is None else weight[s == g])
        for g in (1, 0)
    )
    return one - zero


def optimum(rows, weight, ridge, loss, rho=0.0):
    """By SciPy, of NumPy's formula."""

    def value(theta):
        z = rows.a @ theta
        unfair = rho * gap_of(z, rows.s, weight) ** 2 if rho else 0.0
        return np.average(loss(rows.y * z), weights=weight) + unfair + ridge @ theta**2 / 2

    start = np.zeros(rows.a.shape[1])
    for _ in range(3):
        start = minimize(value, start, method="BFGS", jac="3-point", options={"gtol": 1e-9}).x
    return start


def test_a_penalty_goes_through_distillation_server_and_estimator(records):
    fair, free = (
        sf.distill_table(TABLES[0], SCHEMA, QUICK.replace(rho_o=rho), penalty=mean_score_gap)
        for rho in (QUICK.rho_o, 0.0)
    )
    x, s, y = sf.encode(TABLES[0], SCHEMA)
    gaps = [gap_of(sf.pool_and_train([done], SCHEMA).scores(x, s), s) for done in (fair, free)]
    assert abs(gaps[0]) < 0.3 * abs(gaps[1])

    asked = sf.ServerConfig(rho=10.0)
    model = sf.pool_and_train(records, SCHEMA, asked, penalty=mean_score_gap)
    pooled = make_pool(records, SCHEMA, asked)
    logistic = lambda margin: np.logaddexp(0, -margin)  # noqa: E731
    expected = optimum(pooled.rows, pooled.weight, pooled.ridge, logistic, rho=10.0)
    assert model.converged
    np.testing.assert_allclose(model.theta, expected, atol=1e-4)
    narrow = make_pool(records, SCHEMA, sf.ServerConfig(max_gap=0.05), penalty=mean_score_gap)
    assert narrow.problem().meet(0.05).gap <= 0.05

    estimator = sf.sklearn.FairLogisticRegression(rho=10.0, penalty=mean_score_gap, bounds=(0, 1))
    estimator.fit(x, y, sensitive_features=s)
    rows = sf.Rows(np.column_stack([x, np.ones(len(y))]), s, y)
    ridge = np.append(np.full(x.shape[1], 1 / len(y)), 0.0)
    expected = optimum(rows, np.ones(len(y)), ridge, logistic, rho=10.0)
    found = [*estimator.coef_[0], estimator.intercept_[0]]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_model_goes_through_distillation_and_server(records):
    """An estimator of this package is a logistic regression."""
    model = sf.LinearModel(squared_hinge)
    releases = [sf.distill_table(table, SCHEMA, QUICK, model=model) for table in TABLES]
    trained = sf.pool_and_train(releases, SCHEMA, model=model)
    pooled = make_pool(releases, SCHEMA)
    hinge = lambda margin: np.maximum(0, 1 - margin) ** 2  # noqa: E731
    expected = optimum(pooled.rows, pooled.weight, pooled.ridge, hinge)
    assert trained.converged
    np.testing.assert_allclose(trained.theta, expected, atol=1e-3)
    found = sf.evaluate(trained, TABLES[0], sf.ServerConfig(resamples=2))
    assert found.overall["accuracy"].value > found.constant_accuracy + 0.05

    # With surrogates the server chooses the loss.
    asked = sf.ServerConfig(rho=0.0)
    trained, pooled = (
        sf.pool_and_train(records, SCHEMA, asked, model=model),
        make_pool(records, SCHEMA, asked),
    )
    expected = optimum(pooled.rows, pooled.weight, pooled.ridge, hinge)
    assert trained.loss == model.name
    np.testing.assert_allclose(trained.theta, expected, atol=1e-4)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_a_loss_of_ones_own_compares_the_rows_that_the_built_in_one_does(records, penalty):
    asked = sf.ServerConfig(rho=30.0, notion="equal_opportunity", penalty=penalty)
    pooled = make_pool(records, SCHEMA, asked)
    pooled = pooled._replace(is_known=np.arange(len(pooled.rows.y)) % 4 > 0)
    logistic = sf.LinearModel(lambda margin: jnp.logaddexp(0.0, -margin))
    expected, found = (pooled.problem(model).solve(30.0) for model in (None, logistic))
    assert found.objective == pytest.approx(expected.objective, abs=1e-6)
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-3)


def test_a_penalty_of_any_scale_is_searched(records):
    gaps = []
    for scale in (1.0, 1000.0):
        own = lambda scores, rows, scale=scale: scale * mean_score_gap(scores, rows)  # noqa: E731
        pooled = make_pool(records, SCHEMA, sf.ServerConfig(max_gap=0.02), penalty=own)
        gaps.append(pooled.problem().meet(0.02).gap)
    assert 0.01 < min(gaps) <= max(gaps) <= 0.02


def test_limits_of_clients_take_the_built_in_loss(records):
    asked, model = sf.ServerConfig(max_client_gap=0.03), sf.LinearModel(squared_hinge)
    with pytest.raises(sf.InputError, match="max_client_gap takes the logistic loss"):
        sf.pool_and_train(records, SCHEMA, asked, model=model)
