"""A loss and a penalty of one's own, from distillation to the server and an estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA, make_table
from scipy.optimize import minimize
from small_problem import squared_hinge

import synthfair as sf
from synthfair.server.pooling import make_pool

TABLES = [make_table(400, seed=k) for k in range(2)]
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


def mean_score_gap(scores, rows):
    """A penalty: the squared difference of the groups' mean scores."""
    weight = jnp.ones_like(scores) if rows.weight is None else rows.weight
    zero, one = (jnp.average(scores, weights=weight * (rows.s == g)) for g in (0, 1))
    return (one - zero) ** 2


def logistic(margin):
    return np.logaddexp(0, -margin)


def hinge(margin):
    return np.maximum(0, 1 - margin) ** 2


def gap_of(scores, s, weight):
    zero, one = (np.average(scores[s == g], weights=weight[s == g]) for g in (0, 1))
    return one - zero


def optimum(pooled, loss, rho=0.0):
    """By SciPy, of NumPy's formula."""
    rows, weight = pooled.rows, pooled.weight

    def value(theta):
        z = rows.a @ theta
        unfair = rho * gap_of(z, rows.s, weight) ** 2 if rho else 0.0
        return np.average(loss(rows.y * z), weights=weight) + unfair + pooled.ridge @ theta**2 / 2

    theta = np.zeros(rows.a.shape[1])
    for _ in range(3):
        theta = minimize(value, theta, method="BFGS", jac="3-point", options={"gtol": 1e-9}).x
    return theta


def test_own_penalty_of_server_and_estimator_has_the_optimum_of_scipy(records):
    asked = sf.ServerConfig(rho=10.0)
    model = sf.pool_and_train(records, SCHEMA, asked, penalty=mean_score_gap)
    pooled = make_pool(records, SCHEMA, asked)
    np.testing.assert_allclose(model.theta, optimum(pooled, logistic, rho=10.0), atol=1e-4)

    x, s, y = sf.encode(TABLES[0], SCHEMA)
    estimator = sf.sklearn.FairLogisticRegression(rho=10.0, penalty=mean_score_gap, bounds=(0, 1))
    estimator.fit(x, y, sensitive_features=s)
    rows = sf.Rows(np.column_stack([x, np.ones(len(y))]), s, y, np.ones(len(y)))
    ridge = np.append(np.full(x.shape[1], 1 / len(y)), 0.0)
    expected = optimum(pooled._replace(rows=rows, ridge=ridge), logistic, rho=10.0)
    found = [*estimator.coef_[0], estimator.intercept_[0]]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_own_penalty_of_any_scale_meets_a_gap(records):
    for scale in (1.0, 1000.0):
        own = lambda scores, rows, scale=scale: scale * mean_score_gap(scores, rows)  # noqa: E731
        pooled = make_pool(records, SCHEMA, sf.ServerConfig(max_gap=0.02), penalty=own)
        assert 0.01 < pooled.problem().meet(0.02).gap <= 0.02
        assert pooled.problem().meet(0.9).price.rho == 0


def test_own_loss_has_the_optimum_of_scipy_for_releases_of_both_kinds(records):
    model = sf.LinearModel(squared_hinge)
    fair = [sf.distill_table(table, SCHEMA, QUICK, model=model) for table in TABLES]
    for releases, asked in ((fair, None), (records, sf.ServerConfig(rho=0.0))):
        trained = sf.pool_and_train(releases, SCHEMA, asked, model=model)
        pooled = make_pool(releases, SCHEMA, asked)
        assert (trained.converged, trained.loss) == (True, model.name)
        np.testing.assert_allclose(trained.theta, optimum(pooled, hinge), atol=1e-3)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_own_loss_compares_the_rows_that_the_built_in_one_does(records, penalty):
    asked = sf.ServerConfig(rho=30.0, notion="equal_opportunity", penalty=penalty)
    pooled = make_pool(records, SCHEMA, asked)
    pooled = pooled._replace(is_known=np.arange(len(pooled.rows.y)) % 4 > 0)
    own = sf.LinearModel(lambda margin: jnp.logaddexp(0.0, -margin))
    expected, found = (pooled.problem(model).solve(30.0) for model in (None, own))
    assert found.objective == pytest.approx(expected.objective, abs=1e-6)
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-3)
