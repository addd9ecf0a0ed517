"""One client's problem in plain NumPy, and what a peer makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

import synthfair as sf
from benchmarks.distilling import Problem, first_rows

TURNS = 10
"""In which a peer makes its steps; between them ours runs, so that a busy minute meets both."""


def parts(steps: int) -> Iterator[int]:
    """Numbers of steps in each turn, as even as they can be."""
    return (len(part) for part in np.array_split(range(steps), min(TURNS, steps)))


class PeerProblem(NamedTuple):
    """Equations (11) and (12) with the covariance penalty and without intercept.

    Attributes:
        a: [N, n] real inputs, the group being the last column.
        y: [N] real labels.
        x: [N_s, n - 1] first synthetic features.
        s_hat: [N_s] synthetic groups.
        y_hat: [N_s] synthetic labels.
        rho_o: weight of the penalty.
        lambda_x: regularisation of x.
        lambda_theta: regularisation of theta.
        learning_rate: Adam's.
    """

    a: np.ndarray
    y: np.ndarray
    x: np.ndarray
    s_hat: np.ndarray
    y_hat: np.ndarray
    rho_o: float
    lambda_x: float
    lambda_theta: float
    learning_rate: float

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """[N_s, n] of the synthetic rows."""
        return np.column_stack([x, self.s_hat])

    def inner(self, theta: np.ndarray, a: np.ndarray) -> tuple[float, np.ndarray]:
        """Equation (11) and its gradient in theta, of inputs a [N_s, n]."""
        ridge = self.lambda_theta / len(theta) ** 2
        margin = self.y_hat * (a @ theta)
        loss = np.logaddexp(0, -margin).mean() + ridge / 2 * theta @ theta
        return float(loss), a.T @ (-self.y_hat * expit(-margin)) / len(a) + ridge * theta

    def solve(self, x: np.ndarray) -> np.ndarray:
        """theta(x) by damped Newton steps, to the last digits."""
        a, theta = self.inputs(x), np.zeros(self.a.shape[1])
        ridge = self.lambda_theta / len(theta) ** 2 * np.eye(len(theta))
        for _ in range(100):
            p = expit(a @ theta)
            hessian = (a.T * (p * (1 - p))) @ a / len(a) + ridge
            step = np.linalg.solve(hessian, self.inner(theta, a)[1])
            theta = theta - step / max(1.0, np.abs(a @ step).max() / 2)
            if np.abs(step).max() < 1e-12:
                break
        return theta

    def outer(self, theta: np.ndarray, x: np.ndarray) -> float:
        """P(x) where theta = theta(x), equation (12) with rho_s = 0."""
        scores, s = self.a @ theta, self.a[:, -1]
        loss = np.logaddexp(0, -self.y * scores).mean()
        covariance = ((s - s.mean()) * scores).mean()
        ridge = self.lambda_x / (2 * (len(x) * len(theta)) ** 2) * (x**2).sum()
        return float(loss + self.rho_o / 2 * covariance**2 + ridge)


class Reached(NamedTuple):
    """Where a peer ended.

    Attributes:
        x: [N_s, n - 1] synthetic features after the last step.
        theta: [n] what its inner solver finds there.
    """

    x: np.ndarray
    theta: np.ndarray


Peer = Iterator[Any]
"""A peer at work: once it has compiled or warmed up it yields an empty array, after each turn P(x)
as it found it itself before each of the turn's steps, and then where it ended, :class:`Reached`."""


def peer_problem(real: sf.Encoded, ours: Problem, config: sf.DistillConfig) -> PeerProblem:
    """Return the problem for the peers, with the first features that synthfair starts from."""
    first = first_rows(ours)
    s_hat, y_hat, y = (np.asarray(part, float) for part in (first.s, first.y, real.y))
    return PeerProblem(
        np.column_stack([real.x, real.s]), y, first.x, s_hat, y_hat, config.rho_o,
        config.lambda_x, config.lambda_theta, config.learning_rate,
    )  # fmt: skip
