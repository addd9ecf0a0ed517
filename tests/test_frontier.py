"""The frontier of accuracy and fairness, and the least weight that meets a gap."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.optimize
from synthfair.surrogate.frontier import WEIGHTS, FrontierPoint
from weighted_rows import LAMBDA, covariance, objective, selection_rates, weighted_rows

import synthfair as sf
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.model import Rows
from synthfair.surrogate import GlobalProblem, frontier, least_weight

ROWS = weighted_rows()


def problem(penalty):
    return GlobalProblem(ROWS, penalty, "statistical_parity", 2, LAMBDA)


BY_COVARIANCE, BY_RATE = problem(CovariancePenalty()), problem(SelectionRatePenalty())


def decided(theta):
    """Weighted accuracy, and difference of the groups' rates, of decisions in NumPy."""
    selected, s, w = np.asarray(ROWS.a) @ theta > 0, np.asarray(ROWS.s), np.asarray(ROWS.weight)
    rates = [np.average(selected[s == g], weights=w[s == g]) for g in (0, 1)]
    return np.average(selected == (np.asarray(ROWS.y) > 0), weights=w), abs(rates[1] - rates[0])


def test_a_point_has_its_accuracy_and_gap():
    for rho in (0.0, 2.0):
        point = BY_RATE.point(rho)
        assert (point.rho, point.converged) == (rho, True)
        assert (point.accuracy, point.gap) == pytest.approx(decided(point.theta), abs=1e-12)


def test_more_weight_means_less_covariance_and_each_point_is_stationary():
    points = frontier(BY_COVARIANCE, [0.0, 0.1, 1.0, 10.0, 100.0])
    found = [covariance(np.asarray(ROWS.a) @ point.theta, ROWS) for point in points]
    assert np.all(np.diff(found) < 0)
    for point in points:
        assert point.converged
        args = (ROWS, covariance, point.rho)
        slope = scipy.optimize.approx_fprime(point.theta, objective, 1e-7, *args)
        assert np.linalg.norm(slope) < 1e-5


def test_a_frontier_has_the_points_of_each_weight_alone():
    weights = [0.0, 1.0, 5.0]
    for point, rho in zip(frontier(BY_RATE, weights), weights, strict=True):
        np.testing.assert_allclose(point.theta, BY_RATE.point(rho).theta, atol=1e-7)


@pytest.mark.parametrize("global_problem", [BY_COVARIANCE, BY_RATE], ids=["covariance", "rate"])
def test_the_least_weight_meets_the_gap_and_half_of_it_does_not(global_problem):
    free = global_problem.point(0.0).gap
    found = least_weight(global_problem, free / 2)
    assert found.converged
    assert found.gap <= free / 2
    assert global_problem.point(found.rho / 2).gap > free / 2
    # Gaps of decisions are steps: just below this one the gap is another.
    assert global_problem.point(0.94 * found.rho).gap > free / 2


def test_a_gap_that_is_met_already_needs_no_weight():
    assert least_weight(BY_RATE, 1.0).rho == 0.0


def loans_without(group, label):
    """The problem of a pool in which all clients have left out a pair of group and label."""
    x, s, y = sf.encode(*sf.load_dataset("loanapp"))
    rest = (s != group) | (y != label)
    table = sf.surrogate.WeightedTable(x[rest], s[rest], y[rest], np.ones(rest.sum()))
    return replace(problem(SelectionRatePenalty()), rows=table.rows(n_groups=2), lambda_theta=1e-3)


@pytest.mark.parametrize(("max_gap", "least"), [(0.05, 0.66), (0.02, 0.65)])
def test_where_a_pair_is_left_out_the_gap_does_not_cost_all_accuracy(max_gap, least):
    """The path of growing rho alone ends where all are refused: .56 and .53; a constant has .53."""
    found = least_weight(loans_without(1, 1.0), max_gap)
    assert found.gap <= max_gap
    assert found.accuracy > least


def test_a_gap_that_growing_rho_misses_is_met():
    found = least_weight(loans_without(0, 1.0), 0.02)
    assert found.gap <= 0.02
    assert found.accuracy > 0.87  # a constant has .86


@pytest.mark.parametrize("rho", [30.0, 300.0])
def test_of_many_local_optima_it_is_a_lower_one_than_that_of_growing_rho(rho):
    """Their objectives in NumPy."""
    bad = loans_without(1, 1.0)
    up = bad.point(0.0)
    for weight in (1.0, 3.0, 10.0, rho):
        up = bad.point(weight, up.theta)
    for found in (bad.point(rho), frontier(bad, [0.0, rho])[1]):
        args = (bad.rows, selection_rates, rho, bad.lambda_theta)
        assert found.objective == pytest.approx(objective(found.theta, *args))
        assert found.objective < objective(up.theta, *args) - 0.03


def test_where_no_weight_meets_the_gap_it_is_the_fairest_of_all():
    found = least_weight(BY_RATE, -1.0)
    points = frontier(BY_RATE)
    assert found.gap == min(point.gap for point in points)
    assert [point.rho for point in points] == list(WEIGHTS)


def test_equal_opportunity_compares_rows_with_the_positive_label():
    point = replace(BY_RATE, notion="equal_opportunity").point(1.0)
    s, y, w = (np.asarray(part) for part in (ROWS.s, ROWS.y, ROWS.weight))
    selected = np.asarray(ROWS.a) @ point.theta > 0
    rates = [np.average(selected[m], weights=w[m]) for m in ((s == g) & (y > 0) for g in (0, 1))]
    assert point.gap == pytest.approx(abs(rates[1] - rates[0]), abs=1e-12)


def test_double_precision_is_used_and_given_back():
    rows = weighted_rows()._replace(**{k: np.asarray(getattr(ROWS, k)) for k in ROWS._fields})
    with jax.enable_x64(False):
        point = replace(BY_RATE, rows=rows).point(2.0)
        assert not jax.config.jax_enable_x64
    np.testing.assert_allclose(point.theta, BY_RATE.point(2.0).theta, atol=1e-12)


class TwoOptima:
    """A problem whose path from rho = 0 costs ten points, and has a lower optimum beside it.

    Parameters say which: those of the other optimum are negative, and several starts find it.
    """

    rows = sf.Rows(np.zeros((8, 1)), np.arange(8) % 2, np.repeat([1.0, -1.0], 4), np.ones(8))

    def __init__(self, other, left=0.8, clients=0):
        self.other, self.left, self.clients, self.starts = other, left, clients, 0

    def point(self, rho, start=None):
        self.starts += start is None and rho > 0.1
        is_other = rho > 0 and self.other and (start is None or start[0] < 0) and rho != 0.1
        accuracy = 0.9 if rho == 0 else 0.86 if is_other else self.left
        theta = np.array([-1.0 if is_other else 1.0])
        gap, objective = (0.0 if rho >= 1 else 0.3), (0.4 if is_other else 0.5)
        return FrontierPoint(float(rho), theta, accuracy, gap, 0.0, True, objective)


@pytest.mark.parametrize(("other", "accuracy", "starts"), [(False, 0.8, 1), (True, 0.86, 38)])
def test_a_gap_that_costs_much_is_met_at_the_lowest_optimum(other, accuracy, starts):
    """One look from several starts says whether it is; only if not, all points are tried."""
    problem = TwoOptima(other)
    found = least_weight(problem, max_gap=0.05)
    assert found.accuracy == accuracy
    assert found.gap == 0.0
    assert problem.starts == starts - (starts > 1)


@pytest.mark.parametrize(("left", "clients", "starts"), [(0.65, 0, 36), (0.65, 2, 1), (0.5, 2, 36)])
def test_clients_may_cost_all_that_a_model_has_above_the_constant_classifier(left, clients, starts):
    """Of labels half and half; more than half of it costs a look at all points without clients."""
    problem = TwoOptima(False, left, clients)
    assert least_weight(problem, max_gap=0.05).accuracy == left
    assert problem.starts == starts


def with_clients(number):
    """The rows as those of clients, one after the other, and the problem over these."""
    client = np.arange(len(ROWS.y)) * number // len(ROWS.y)
    rows = ROWS._replace(s=2 * client + np.asarray(ROWS.s))
    penalty = SelectionRatePenalty(clients=number)
    return client, replace(problem(penalty), rows=rows, clients=number)


def unfairness_of(client):
    """The penalty of all rows and of each client's own, in NumPy."""

    def part(z, rows, k):
        own = Rows(*(np.asarray(column)[client == k] for column in rows))
        return selection_rates(z[client == k], own)

    return lambda z, rows: selection_rates(z, rows) + sum(part(z, rows, k) for k in set(client))


@pytest.mark.parametrize("number", [2, 5])
def test_with_clients_points_are_stationary_and_have_the_largest_gap_of_one(number):
    """Of two clients there are fewer gaps than inputs, of five there are more."""
    client, global_problem = with_clients(number)
    point = global_problem.point(3.0)
    args = (ROWS, unfairness_of(client), 3.0)
    slope = scipy.optimize.approx_fprime(point.theta, objective, 1e-7, *args)
    assert point.converged
    assert np.linalg.norm(slope) < 1e-5
    assert (point.accuracy, point.gap) == pytest.approx(decided(point.theta), abs=1e-12)
    selected, s, w = (np.asarray(ROWS.a) @ point.theta > 0, *map(np.asarray, (ROWS.s, ROWS.weight)))
    gaps = []
    for k in range(number):
        rates = [
            np.average(selected[own], weights=w[own])
            for own in ((client == k) & (s == g) for g in (0, 1))
        ]
        gaps.append(abs(rates[1] - rates[0]))
    assert point.client_gap == pytest.approx(max(gaps), abs=1e-12)


@pytest.mark.parametrize(("max_gap", "of_client"), [(None, 0.5), (0.5, 0.9), (0.9, 0.5)])
def test_the_least_weight_meets_both_limits_and_half_of_it_misses_one(max_gap, of_client):
    _, global_problem = with_clients(2)
    free = global_problem.point(0.0)
    limits = (max_gap and max_gap * free.gap, of_client * free.client_gap)
    found = least_weight(global_problem, *limits)
    assert found.converged
    half = global_problem.point(found.rho / 2)
    assert found.gap <= (limits[0] or 1.0)
    assert found.client_gap <= limits[1]
    assert half.gap > (limits[0] or 1.0) or half.client_gap > limits[1]
