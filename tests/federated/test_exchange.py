"""Exact refinement: the objective and its derivatives from sums, and where exchanges end."""

import numpy as np
import pytest
from builders import some_model

from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.federated import Cohorts, LogisticRegression, Refine, exchange, make_users
from synthfair.federated.engine import run
from synthfair.federated.exchange import DAMPING, Exchange, ExchangeSums, first_state
from synthfair.federated.single_rows import UserRows
from synthfair.surrogate.fair import GlobalProblem, Price, ridge_of

RHO, C = 10.0, 1.5
RNG = np.random.default_rng(0)
S = RNG.integers(3, size=240)
X = RNG.random((240, 3)) + 0.2 * S[:, None]
Y = np.where(X[:, 0] + 0.3 * S + 0.4 * RNG.normal(size=240) > 0.8, 1.0, -1.0)
A = np.column_stack([X, S == 1, S == 2, np.ones(240)])
USER = np.where(RNG.random(240) < 0.6, S, 2 * (Y > 0))
"""Three clients, none of which is like another."""


def pooled_problem(gap):
    return GlobalProblem(A, S, Y, np.ones(240), gap, ridge_of(C, 240, 6, intercept=True))


CENTRAL = pooled_problem(SelectionRatePenalty(3, "equalized_odds"))


def rows_where(mask):
    return UserRows(A[mask], S[mask, None], Y[mask], np.ones(mask.sum()))


def refined(start, s=S, **settings):
    """The end of rounds of all three clients."""
    model = LogisticRegression(6)
    method = Refine(start=tuple(start), model=model, gap=CENTRAL.penalty, C=C, rho=RHO)
    return run(method, make_users(A, s, Y, USER), Cohorts(3, 3), seed=0, **settings)


@pytest.mark.parametrize("kind", [CovariancePenalty, SelectionRatePenalty])
@pytest.mark.parametrize("notion", ["statistical_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("free", [0.0, 0.02])
def test_exchange_sums_give_the_pooled_objective_with_its_derivatives(kind, notion, free):
    """Those of the problem in one place are compared with JAX's where it is tested."""
    gap, price = kind(3, notion), Price(RHO, free)
    exchange = Exchange(gap, RHO, C, free)
    thetas = np.random.default_rng(1).normal(size=(len(DAMPING), 6))
    state = first_state(thetas[0])._replace(candidates=thetas)
    reports = [exchange.report(state, rows_where(k == USER)) for k in range(3)]
    sums = ExchangeSums(*map(sum, zip(*reports, strict=True)))
    pooled = pooled_problem(gap)
    for i, theta in enumerate(thetas):
        at_theta = ExchangeSums(sums.rows, *(part[i] for part in sums[1:]))
        found = exchange.derivatives(theta, at_theta)
        expected = pooled.value(theta, price), *pooled.hessian(theta, price)
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rho", [1.0, 100.0])
def test_exchanges_end_at_the_central_optimum(rho):
    central = CENTRAL.solve(rho).theta
    start = central + 0.1 * np.random.default_rng(2).normal(size=6)
    exchange, rows = Exchange(CENTRAL.penalty, rho, C), rows_where(USER >= 0)
    state, records = first_state(start), []
    for _ in range(22):
        state, record = exchange.update(state, exchange.report(state, rows))
        records.append(record)
    np.testing.assert_allclose(state.theta, central, atol=1e-6)
    assert state.gradient_norm < 1e-7
    # No exchange is worse than the one before, and the first is at the start.
    assert (np.diff([record.objective for record in records]) <= 0).all()
    assert records[0].step == 0


def test_exchange_near_the_optimum_squares_the_error_and_converges():
    central = CENTRAL.solve(RHO).theta
    history = refined(central + 1e-3, rounds=3).history
    first, second, third = history.gradient_norm
    assert second < 0.02 * first
    assert third < 0.02**2 * first
    assert Refine().converged(history)
    assert not Refine().converged(history._replace(decrement=np.array([1.1e-3])))


def test_exchange_in_which_no_candidate_is_better_is_tried_again_shorter():
    exchange, rows = Exchange(SelectionRatePenalty(3), RHO, C), rows_where(USER >= 0)
    offered = np.arange(6.0 * len(DAMPING)).reshape(len(DAMPING), 6)
    state = first_state(np.zeros(6))._replace(candidates=offered, objective=np.array(0.0))
    after, record = exchange.update(state, exchange.report(state, rows))
    np.testing.assert_array_equal(after.theta, state.theta)
    np.testing.assert_allclose(after.candidates, 0.1 * offered)
    assert (record.step, record.objective) == (0.0, 0.0)


def test_exchange_without_a_row_of_a_group_that_is_compared_leaves_the_start():
    end = refined(np.ones(6), s=np.minimum(S, 1), rounds=2)
    np.testing.assert_array_equal(end.state.theta, np.ones(6))
    assert np.isinf(end.history.objective).all()
    with pytest.raises(InputError, match="no client has a row of some group"):
        exchange.refined(some_model(), end.state)


@pytest.mark.parametrize(("place", "value"), [(0, 0.0), (0, 1301.0), (1, -1.0), (1, 300.0)])
def test_exchange_refuses_counts_that_no_client_has(place, value):
    exchange, state = Exchange(CENTRAL.penalty, RHO, C), first_state(np.zeros(6))
    report = exchange.report(state, rows_where(USER >= 0))
    exchange.check(report, 0, 1300)
    report.rows[place] = value
    with pytest.raises(ValueError, match="rows"):
        exchange.check(report, 0, 1300)
    with pytest.raises(ValueError, match="numbers; must be"):
        exchange.read(np.ones(7), state)
