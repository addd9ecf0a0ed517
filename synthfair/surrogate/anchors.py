"""Models on whose smooth rates a surrogate must be right: what the server's may be like."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from synthfair.data.batches import other_inputs
from synthfair.data.encode import Encoded
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.surrogate.objective import FairObjective, Price

MOST_ROWS = 1500
"""Records that a random problem is solved on."""

TEMPERATURES = (1.0, 4.0)
"""Of scores in a smooth rate: the loss sees them as they are, smooth selection rates so many times.
"""

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
        kind = SelectionRatePenalty if rng.random() < 0.7 else CovariancePenalty
        ridge = np.full(a.shape[1], 1 / a.shape[1] ** 2)
        problem = FairObjective(a[some], rows.s[some], y, w, kind(n_groups), ridge)
        start, options = problem.zero, {"maxiter": ITERATIONS}
        theta = minimize(
            problem.slope, start, (Price(rho),), "L-BFGS-B", jac=True, options=options
        ).x
        if np.linalg.norm(theta) < LONGEST:  # not where there is a not-a-number
            found[q] = theta
    return found


def smooth_rates(rows: Encoded, thetas: np.ndarray, n_groups: int) -> np.ndarray:
    """[N, 2 Q] sigma(q theta'a) - 1/2 of each row, for q = 1 and 4."""
    scores = inputs(rows, n_groups) @ thetas.T
    return np.hstack([expit(q * scores) for q in TEMPERATURES]) - 0.5
