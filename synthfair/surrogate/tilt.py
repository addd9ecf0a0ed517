"""Weights of records such that sums over them are near those of the real rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve

SLACK = 100.0
"""By which the variance of noise counts more than a row's divergence, or weights would chase it."""

FLOOR = 0.005
"""Standard deviation with which any mean is met, at least."""

STEPS = 60
"""Of Newton's method, at most; it takes some ten."""


def variance_of(sd: float, rows: float, *, noisy: bool) -> float:
    """Of a mean over a cell's rows, whose sum has noise or is rounded; and by sampling."""
    return (SLACK if noisy else 1.0) * (sd / rows) ** 2 + FLOOR**2 + 1 / (4 * rows)


def _solve(a: np.ndarray, variance: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solution [m] of (a'a + diag(variance)) x = b; a: [R, m]; if R <= m by Woodbury's rule."""
    if len(a) > len(b):
        return solve(a.T @ a + np.diag(variance), b, assume_a="pos")
    small = a / variance
    inside = solve(np.eye(len(a)) + small @ a.T, small @ b, assume_a="pos")
    return b / variance - small.T @ inside


def tilt_weights(f: np.ndarray, target: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """[R] weights p, of sum 1, that bring means of f near to targets.

        min over p    KL(p || 1/R) + sum_j (sum_r p_r f_rj - target_j)^2 / (2 variance_j)

    is solved by p_r = exp(lambda'f_r) / Z, with lambda the minimum of the convex dual

        log mean_r exp(lambda'(f_r - target)) + sum_j variance_j lambda_j^2 / 2,

    that Newton's method finds. Entropy balancing (Hainmueller 2012), with targets that have errors.

    Args:
        f: [R, m] functions of each record.
        target: [m] their means over the real rows.
        variance: [m] of the errors of these, positive.
    """
    f, at = f - target, np.zeros(f.shape[1])

    def dual(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = f @ at
        p = np.exp(z - z.max())
        value = np.log(p.mean()) + z.max() + (variance * at**2).sum() / 2
        p = p / p.sum()
        return float(value), p @ f + variance * at, p

    value, gradient, p = dual(at)
    for _ in range(STEPS):
        step, length = -_solve(p[:, None] ** 0.5 * (f - p @ f), variance, gradient), 1.0
        fall = gradient @ step
        while dual(at + length * step)[0] > value + 1e-4 * length * fall and length > 1e-6:
            length /= 2
        at, before = at + length * step, value
        value, gradient, p = dual(at)
        if before - value < 1e-11:
            break
    return p
