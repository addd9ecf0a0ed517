"""Federated averaging, against its algorithm in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from two_group_rows import make

from synthfair.fairness.penalties import CovariancePenalty
from synthfair.federated import Cohorts, FedAvg, LogisticRegression, Protection, make_users
from synthfair.federated.engine import UNPROTECTED, run
from synthfair.federated.fedavg import FedAvgRecord, safe_rate

A, S, Y = make(80)
OWNER = np.repeat([0, 1], [50, 30])
USERS, EVERYONE = make_users(A, S, Y, OWNER), Cohorts(2, 2)
BY_PAIR = np.array([[1.0, 3.0], [2.0, 1.0]])  # weights of rows by group and label
W = BY_PAIR[S, (Y > 0).astype(int)]
RHO, RIDGE = 20.0, 3.0

SETTINGS = {"penalty": CovariancePenalty(), "rho": RHO, "lambda_theta": RIDGE}
SETTINGS |= {"model": LogisticRegression(3), "learning_rate": 0.3, "local_steps": 3}
METHOD = FedAvg(**SETTINGS, row_weights=jnp.asarray(BY_PAIR))


def user_terms(user, theta):
    """A user's sum of weights, and its gradient and Hessian of loss, ridge and penalty."""
    mine = user == OWNER
    a, s, y, w = A[mine], S[mine], Y[mine], W[mine]
    total, p = w.sum(), expit(-y * (a @ theta))
    slope = (w * (s - w @ s / total)) @ a / total  # of the covariance
    gradient = -(w * y * p) @ a / total + RIDGE / 9 * theta + RHO * (slope @ theta) * slope
    hessian = (a.T * (w * p * (1 - p))) @ a / total + RIDGE / 9 * np.eye(3)
    return total, gradient, hessian + RHO * np.outer(slope, slope)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fedavg_rounds_are_the_algorithm(clip, momentum):
    """Users count by their weights of rows; where they are clipped, alike."""
    protection = UNPROTECTED if clip is None else Protection(clip)
    method = METHOD.bound(momentum=momentum, clip=clip)
    done = run(method, USERS, EVERYONE, rounds=4, seed=0, protection=protection)

    theta, velocity, drift, norms = np.zeros(3), np.zeros(3), [], []
    for _ in range(4):
        changes, counts = [], []
        for user in (0, 1):
            end = theta
            for _ in range(3):
                weight, gradient, _ = user_terms(user, end)
                end = end - 0.3 * gradient
            norms.append(np.linalg.norm(end - theta))
            factor = 1.0 if clip is None else min(1.0, clip / norms[-1])
            changes.append(factor * (end - theta))
            counts.append(weight if clip is None else 1.0)
        mean = np.average(changes, axis=0, weights=counts)
        velocity = momentum * velocity + mean
        theta = theta + velocity
        drift.append(np.linalg.norm(mean) / (0.3 * 3))
    np.testing.assert_allclose(done.state.params, theta, rtol=1e-9)
    np.testing.assert_allclose(done.history.drift, drift, rtol=1e-9)
    assert clip is None or max(norms) > clip


def test_fedavg_safe_rate_is_one_over_the_largest_curvature_of_a_user():
    largest = max(np.linalg.eigvalsh(user_terms(user, np.zeros(3))[2]).max() for user in (0, 1))
    assert float(safe_rate(METHOD, USERS)) == pytest.approx(1 / largest)


def test_fedavg_has_converged_where_its_drift_stays_small():
    def converged(*last, **more):
        drift = np.array([1.0] * 95 + [1e-4] * (5 - len(last)) + [*last])
        return METHOD.bound(**{"cohorts": EVERYONE} | more).converged(FedAvgRecord(drift))

    assert converged(1e-3) is True
    assert converged(1.1e-3) is False
    assert converged(2e-3, 1e-4, 1e-4) is False  # it has passed its optimum
    assert converged(cohorts=Cohorts(3, 2)) is None
    assert converged(protection=Protection(1.0, 0.1)) is None
