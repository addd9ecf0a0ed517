"""Training under a penalty against SciPy, and against scikit-learn where there is none."""

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression
from weighted_rows import (
    LAMBDA,
    covariance,
    equalized_odds,
    objective,
    selection_rates,
    weighted_rows,
)

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.model import LinearModel, Rows
from synthfair.surrogate import GlobalProblem, fair_training, train_fair

CASES = {
    "covariance": (2, CovariancePenalty(), covariance),
    "selection rate": (2, SelectionRatePenalty(), selection_rates),
    "equalized odds": (2, SelectionRatePenalty(notion="equalized_odds"), equalized_odds),
    "covariance, three groups": (3, CovariancePenalty(3), covariance),
    "selection rate, three groups": (3, SelectionRatePenalty(3), selection_rates),
}
each_case = pytest.mark.parametrize(
    ("n_groups", "penalty", "unfairness"), CASES.values(), ids=CASES
)


def fair(rows, rho, penalty, **settings):
    return train_fair(rows, LAMBDA, rho, model=LinearModel(), penalty=penalty, **settings)


@each_case
def test_the_solution_is_scipys(n_groups, penalty, unfairness):
    rows = weighted_rows(n_groups)
    found, theta = fair(rows, 5.0, penalty), np.zeros(rows.a.shape[1])
    for rho in (0.0, 0.5, 5.0):
        theta = scipy.optimize.minimize(
            objective,
            theta,
            args=(rows, unfairness, rho),
            jac="3-point",
            method="BFGS",
            options={"gtol": 1e-8, "xrtol": 1e-10},
        ).x
    assert found.converged
    np.testing.assert_allclose(found.params, theta, atol=1e-5)


@each_case
def test_a_large_rho_is_stationary_and_nearly_fair(n_groups, penalty, unfairness):
    rows = weighted_rows(n_groups)
    found = fair(rows, 1e3, penalty)
    slope = scipy.optimize.approx_fprime(
        np.asarray(found.params), objective, 1e-7, rows, unfairness, 1e3
    )
    assert found.converged
    assert np.linalg.norm(slope) < 1e-4  # the error of a difference of two values
    assert unfairness(np.asarray(rows.a @ found.params), rows) < 1e-4


@pytest.mark.parametrize("penalty", [CovariancePenalty(), SelectionRatePenalty()])
def test_without_rho_it_is_scikit_learns(penalty):
    rows = weighted_rows()
    n, total = rows.a.shape[1], float(rows.weight.sum())
    trainer = LogisticRegression(
        C=n**2 / (LAMBDA * total), fit_intercept=False, tol=1e-12, max_iter=10_000
    ).fit(rows.a, rows.y, sample_weight=rows.weight)
    found = fair(rows, 0.0, penalty)
    assert found.converged
    np.testing.assert_allclose(found.params, trainer.coef_[0], atol=1e-6)


def test_weights_are_repeated_rows():
    rows = weighted_rows()
    weight = np.where(np.arange(90) < 45, np.arange(90) % 3, 0.0)
    repeated = np.repeat(np.arange(90), weight.astype(int))
    padded = np.concatenate([repeated, np.zeros(90 - len(repeated), int)])  # the shape is compiled
    ones = (np.arange(90) < len(repeated)).astype(float)
    weighted = rows._replace(weight=weight)
    one_by_one = rows._replace(a=rows.a[padded], s=rows.s[padded], y=rows.y[padded], weight=ones)
    found, expected = (fair(each, 5.0, SelectionRatePenalty()) for each in (weighted, one_by_one))
    np.testing.assert_allclose(found.params, expected.params, atol=1e-9)


def test_from_a_start_nearby_it_ends_at_the_same_solution():
    rows, penalty = weighted_rows(), SelectionRatePenalty()
    start = np.asarray(fair(rows, 4.0, penalty).params)
    found, expected = fair(rows, 5.0, penalty, start=start), fair(rows, 5.0, penalty)
    np.testing.assert_allclose(found.params, expected.params, atol=1e-8)
    assert found.iterations < 10


def test_a_problem_without_a_number_does_not_converge():
    rows = weighted_rows()
    assert not fair(rows._replace(a=rows.a * np.nan), 5.0, SelectionRatePenalty()).converged


def rows_of_many_optima(seed):
    """Binary features, some of which tell the group: small problems as wide encodings are."""
    rng, s = np.random.default_rng(seed), np.arange(120) % 2
    x = rng.integers(2, size=(120, 4)).astype(float)
    x[:, :2] = rng.random((120, 2)) < 0.25 + 0.5 * s[:, None]
    z = x @ rng.normal(size=4) + s + 0.5 * rng.normal(size=120)
    return Rows(np.column_stack([x, s, np.ones(120)]), s, np.where(z > 1, 1.0, -1.0), np.ones(120))


def own_rates(scores, rows):
    """A penalty that declares nothing."""
    return SelectionRatePenalty()(scores, rows)


def value(theta, rows, rho=10.0):
    return objective(np.asarray(theta), rows, selection_rates, rho, LAMBDA)


@pytest.mark.parametrize(
    ("seed", "penalty"), [(4, SelectionRatePenalty()), (156, own_rates)], ids=["rates", "own"]
)
def test_of_many_optima_it_is_a_lower_one_than_those_of_growing_rho_and_of_zero(seed, penalty):
    rows, zero = rows_of_many_optima(seed), np.zeros(6)
    path = zero
    for rho in (0.0, 10 / 64, 10 / 16, 10 / 4, 10.0):
        path = fair(rows, rho, penalty, start=path).params
    single = [value(path, rows), value(fair(rows, 10.0, penalty, start=zero).params, rows)]
    assert value(fair(rows, 10.0, penalty).params, rows) < min(single) - 0.03
    point = GlobalProblem(rows, penalty, "statistical_parity", 2, LAMBDA).point(10.0)
    assert point.objective < min(single) - 0.03


def test_a_convex_penalty_needs_one_start(monkeypatch):
    minimise, problems = fair_training.minimise, []
    counted = lambda *args, **settings: problems.append(args) or minimise(*args, **settings)  # noqa: E731
    monkeypatch.setattr(fair_training, "minimise", counted)
    fair(weighted_rows(), 5.0, CovariancePenalty())
    fair(weighted_rows(), 0.0, SelectionRatePenalty())
    assert len(problems) == 4  # on a part of the rows and on all, twice


def test_a_part_of_many_rows_stands_for_all_of_each_group_and_label(monkeypatch):
    rows = weighted_rows(3)
    expected = fair(rows, 5.0, SelectionRatePenalty(3))
    monkeypatch.setattr(fair_training, "THINNED", 6)
    few = fair_training.thinned(rows)
    for s, y in {*zip(np.asarray(rows.s).tolist(), np.asarray(rows.y).tolist(), strict=True)}:
        every, part = (
            np.asarray(each.weight)[(each.s == s) & (each.y == y)] for each in (rows, few)
        )
        assert 0 < len(part) <= 6
        assert part.min() > 0
        assert part.sum() == pytest.approx(every.sum())
    found = fair(rows, 5.0, SelectionRatePenalty(3))
    np.testing.assert_allclose(found.params, expected.params, atol=1e-6)
