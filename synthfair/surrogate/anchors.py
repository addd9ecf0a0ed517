"""Models on whose smooth rates a surrogate must be right: what the server's may be like."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from synthfair.data.batches import other_inputs
from synthfair.data.encode import Encoded

MOST_ROWS = 1500
"""Records that a random problem is solved on."""

TEMPERATURES = (1.0, 4.0)
"""Of scores in a smooth rate: the loss sees them as they are, smooth selection rates so many times.
"""

STEEPNESS = 4.0
"""Of the smooth selection rate that a problem may have."""

ITERATIONS = 40
"""Of L-BFGS for a problem."""

LONGEST = 60.0
"""Norm of a model; a longer one is of a problem without a solution worth matching."""


def inputs(rows: Encoded, n_groups: int) -> np.ndarray:
    """[N, n] of a model: features, the groups' indicators, and 1."""
    return np.hstack([rows.x, other_inputs(rows.s, n_groups=n_groups, intercept=True).T])


def self_play(
    rows: Encoded, weight: np.ndarray, n_problems: int, *, n_groups: int, rng: np.random.Generator
) -> np.ndarray:
    """[Q, n] models of random fair problems on records: what other clients may lead to.

    Each problem weighs the cells anew, by a Dirichlet distribution, and has a penalty, the squared
    differences of the groups' smooth selection rates or mean scores, with a weight of its own,
    log-uniform from 1 to 100. A model that is not worth matching is 0.

    Args:
        rows: records of all cells.
        weight: [R] of these.
        n_problems: Q.
        n_groups: number of groups.
        rng: draws the problems.
    """
    a, cell = inputs(rows, n_groups), 2 * rows.s + (rows.y > 0)
    found = np.zeros((n_problems, a.shape[1]))
    both = len(np.unique(rows.y)) > 1
    for q in range(n_problems):
        some = rng.choice(len(a), min(len(a), MOST_ROWS), replace=False)
        share = rng.dirichlet(np.ones(2 * n_groups)) + 0.02
        mass = np.bincount(cell[some], weight[some], minlength=2 * n_groups)
        w = weight[some] * (share / np.maximum(mass, 1e-300))[cell[some]]
        y = rows.y[some]
        if not both:  # without both labels there is nothing to learn
            y = np.where(rng.random(len(some)) < rng.uniform(0.3, 0.7), 1.0, -1.0)
        # Of one group alone there is nothing to compare.
        rho = 10 ** rng.uniform(0, 2) * (len(np.unique(rows.s[some])) > 1)
        rates = rng.random() < 0.7
        theta = fair_model(a[some], rows.s[some], y, w / w.sum(), rho=rho, rates=rates)
        if np.linalg.norm(theta) < LONGEST:  # not where there is a not-a-number
            found[q] = theta
    return found


def fair_model(
    a: np.ndarray, s: np.ndarray, y: np.ndarray, w: np.ndarray, *, rho: float, rates: bool
) -> np.ndarray:
    """Return about the minimum of logistic loss, rho/2 times the penalty, and a small ridge.

    Args:
        a: [R, n] inputs.
        s: [R] groups.
        y: [R] labels, -1 or +1.
        w: [R] weights, of sum 1.
        rho: weight of the penalty; 0 for none.
        rates: whether it compares smooth selection rates, or mean scores.
    """
    n = a.shape[1]
    group = w * (s == np.unique(s)[:, None])
    mass = group.sum(axis=1, keepdims=True)
    contrast = group[1:] / mass[1:] - group[0] / mass[0] if rho else np.zeros((1, len(w)))
    if not rates:  # the covariance of each group's indicator with the score
        contrast = group[1:] - mass[1:] * w

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = a @ theta
        rate = expit(STEEPNESS * z) if rates else z
        slope = STEEPNESS * rate * (1 - rate) if rates else 1.0
        gap = contrast @ rate
        loss = w @ np.logaddexp(0.0, -y * z) + rho / 2 * gap @ gap + theta @ theta / (2 * n**2)
        pull = -w * y * expit(-y * z) + rho * slope * (gap @ contrast)
        return float(loss), pull @ a + theta / n**2

    return minimize(
        objective, np.zeros(n), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS}
    ).x


def smooth_rates(rows: Encoded, thetas: np.ndarray, n_groups: int) -> np.ndarray:
    """[N, 2 Q] sigma(q theta'a) - 1/2 of each row, for q = 1 and 4."""
    scores = inputs(rows, n_groups) @ thetas.T
    return np.hstack([expit(q * scores) for q in TEMPERATURES]) - 0.5
