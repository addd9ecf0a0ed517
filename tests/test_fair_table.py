"""The fair table: an ordinary trainer finds the fair model on it."""

import jax
import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression
from test_fair_training import CASES, fair
from weighted_rows import LAMBDA, covariance, objective, weighted_rows

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.surrogate import make_fair_table


def table_of(rows, theta, penalty, rho):
    return make_fair_table(rows, theta, penalty, rho=rho, lambda_theta=LAMBDA)


def trained(table):
    """By scikit-learn."""
    trainer = LogisticRegression(
        C=table.C, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    return trainer.fit(table.a, table.y, sample_weight=table.weight).coef_[0]


def soft_labels(rows, theta, penalty, rho):
    """Of the rows that count, by finite differences of the penalty in each score."""
    z, w = np.asarray(rows.a @ theta), np.asarray(rows.weight)
    pull = scipy.optimize.approx_fprime(z, lambda z: float(penalty(z, rows)), 1e-7)
    there = w > 0
    return np.asarray(rows.y)[there] - 2 * rho * pull[there] * w.sum() / w[there]


@pytest.mark.parametrize(("case", "rho"), [*zip(CASES, (0.0, 50.0, 2.0, 50.0, 2.0), strict=True)])
def test_an_ordinary_trainer_finds_the_fair_model(case, rho):
    n_groups, penalty, _ = CASES[case]
    rows = weighted_rows(n_groups)
    theta = np.asarray(fair(rows, rho, penalty).params)
    table = table_of(rows, theta, penalty, rho)
    assert (table.weight > 0).all()
    assert len(table.y) <= 2 * len(rows.y)
    np.testing.assert_allclose(trained(table), theta, atol=1e-6)


def test_soft_labels_outside_the_range_have_one_label_of_another_weight():
    rows, penalty, rho = weighted_rows(), SelectionRatePenalty(), 50.0
    theta = np.asarray(fair(rows, rho, penalty).params)
    soft, table = soft_labels(rows, theta, penalty, rho), table_of(rows, theta, penalty, rho)
    above, below, between = soft > 1, soft < -1, np.abs(soft) < 1
    assert above.any()
    assert below.any()
    assert np.sum(table.y > 0) == np.sum(above) + np.sum(between)
    assert np.sum(table.y < 0) == np.sum(below) + np.sum(between)


def test_between_the_labels_weight_is_shared():
    rows, penalty, rho = weighted_rows(), CovariancePenalty(), 2.0
    theta = np.asarray(fair(rows, rho, penalty).params)
    soft, table = soft_labels(rows, theta, penalty, rho), table_of(rows, theta, penalty, rho)
    w = np.asarray(rows.weight)[np.asarray(rows.weight) > 0]
    inside = np.abs(soft) < 1
    assert inside.any()
    for sign in (1, -1):
        shares = (w * (1 + sign * soft) / 2)[inside]
        found = table.weight[table.y == sign]
        assert all(np.abs(found - share).min() < 1e-6 for share in shares)


def test_without_a_penalty_it_is_the_rows_that_count():
    rows, penalty = weighted_rows(), CovariancePenalty()
    table = table_of(rows, np.ones(rows.a.shape[1]), penalty, 0.0)
    there = np.asarray(rows.weight) > 0
    order = np.argsort(-np.asarray(rows.y)[there], kind="stable")  # those of label +1 first
    for found, part in zip(table[:3], (rows.a, rows.y, rows.weight), strict=True):
        np.testing.assert_array_equal(found, np.asarray(part)[there][order])


def test_rows_without_weights_count_alike():
    rows, theta = weighted_rows(), np.ones(4)
    plain, ones = rows._replace(weight=None), rows._replace(weight=np.ones(len(rows.y)))
    for found, expected in zip(
        *(table_of(each, theta, CovariancePenalty(), 2.0) for each in (plain, ones)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_at_any_theta_it_has_the_slope_of_the_problem_even_at_large_scores():
    rows, rho = weighted_rows(), 2.0
    for scale in (1.0, 40.0):
        theta = scale * np.array([1.0, -1.0, 1.0, 0.3])
        table = table_of(rows, theta, CovariancePenalty(), rho)
        z = table.a @ theta
        p = table.weight * -table.y / (1 + np.exp(table.y * z))
        found = (table.C * table.a.T @ p + theta) * LAMBDA / len(theta) ** 2
        wanted = scipy.optimize.approx_fprime(theta, objective, 1e-6, rows, covariance, rho)
        np.testing.assert_allclose(found, wanted, atol=1e-4 * scale)


def test_double_precision_is_used_and_given_back():
    rows = weighted_rows()
    theta = np.asarray(fair(rows, 2.0, CovariancePenalty()).params)
    expected = table_of(rows, theta, CovariancePenalty(), 2.0)
    with jax.enable_x64(False):
        plain = rows._replace(**{k: np.asarray(getattr(rows, k)) for k in rows._fields})
        found = table_of(plain, theta, CovariancePenalty(), 2.0)
        assert not jax.config.jax_enable_x64
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-12)
