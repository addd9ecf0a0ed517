"""The inner problem alone, by SciPy's L-BFGS-B with the gradient in NumPy."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from benchmarks.peers.problem import PeerProblem


def solve(problem: PeerProblem, x: np.ndarray) -> np.ndarray:
    """theta(x), from zero."""
    a, y = np.column_stack([x, problem.s_hat]), problem.y_hat
    ridge = problem.lambda_theta / a.shape[1] ** 2

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (a @ theta)
        loss = np.logaddexp(0, -margin).mean() + ridge / 2 * theta @ theta
        return float(loss), -(a.T @ (y * expit(-margin))) / len(y) + ridge * theta

    options = {"gtol": 1e-7, "ftol": 0.0, "maxiter": 1000}
    start = np.zeros(a.shape[1])
    return minimize(value, start, jac=True, method="L-BFGS-B", options=options).x
