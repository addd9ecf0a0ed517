"""One client's problem in plain NumPy, and what a peer makes of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

import synthfair as sf
from synthfair.data.encode import Encoded
from synthfair.distill.problem import make_problem

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


class Reached(NamedTuple):
    """Where a peer ended.

    Attributes:
        x: [N_s, n - 1] synthetic features after the last step.
        theta: [n] what its inner solver finds there.
    """

    x: np.ndarray
    theta: np.ndarray


Peer = Generator[np.ndarray, None, Reached]
"""A peer at work: once it has compiled or warmed up it yields an empty array, and after each turn
P(x) as it found it itself before each of the turn's steps."""


def peer_problem(real: Encoded, config: sf.DistillConfig) -> PeerProblem:
    """The same problem, from the same first features, as ``make_problem`` gives synthfair."""
    problem, x = make_problem(real, config, n_groups=2)
    return PeerProblem(
        np.column_stack([real.x, real.s]),
        np.asarray(real.y, float),
        np.asarray(x.T),
        np.asarray(problem.s, float),
        np.asarray(problem.y, float),
        config.rho_o,
        config.lambda_x,
        config.lambda_theta,
        config.learning_rate,
    )
