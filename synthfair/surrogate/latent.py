"""Correlations of a Gaussian copula that give rows a wanted covariance."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

ORDER, POINTS = 12, 2000
"""Terms of a feature's series, and ranks on which it is computed."""

RANGE = np.linspace(-0.99, 0.99, 199)
"""Correlations of the copula among which the wanted one is found."""

SMALLEST = 1e-4
"""Eigenvalue of the copula's correlations, at least."""


def latent_correlation(
    values: np.ndarray, counts: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """Correlations of normal variables z whose features f_j(z_j) have a covariance.

    With the normalised Hermite polynomials h_k and a_jk = E f_j(z) h_k(z), for a correlation r of
    z_i and z_j,

        Cov(f_i(z_i), f_j(z_j)) = sum over k >= 1 of a_ik a_jk r^k        (Mehler 1866),

    which grows with r, as the quantile functions f do. It is inverted pair by pair, and the result
    brought to the nearest positive definite one. Cario and Nelson (1997), *Modeling and generating
    random vectors with arbitrary marginal distributions and correlation matrix*.

    Args:
        values: [d, B] values of each feature, ascending.
        counts: [d, B] how often, at least 0 and not all 0.
        covariance: [d, d] wanted; where no correlation gives it, the nearest is taken.

    Example:
        >>> import numpy as np
        >>> from synthfair.surrogate.latent import latent_correlation
        >>> coins, fair = np.array([[0.0, 1.0]] * 2), np.ones((2, 2))
        >>> found = latent_correlation(coins, fair, np.array([[1.0, 0.5], [0.5, 1.0]]) / 4)
        >>> float(found[0, 1].round(2)), float(np.sin(np.pi / 2 * 0.5).round(2))  # Sheppard (1899)
        (0.71, 0.71)
    """
    series = _series(values, counts)
    powers = RANGE ** np.arange(1, ORDER + 1)[:, None]
    found = np.eye(len(values))
    for i, j in zip(*np.triu_indices(len(values), 1), strict=True):
        reached = np.maximum.accumulate((series[i] * series[j]) @ powers)
        if reached[-1] > reached[0]:  # not so where a feature has one value alone
            found[i, j] = found[j, i] = np.interp(covariance[i, j], reached, RANGE)
    eigenvalues, vectors = np.linalg.eigh(found)
    positive = (vectors * np.maximum(eigenvalues, SMALLEST)) @ vectors.T
    spread = np.sqrt(np.diag(positive))
    return positive / np.outer(spread, spread)


def _series(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[d, ORDER] coefficients a_jk of each feature's quantile function."""
    ranks = (np.arange(POINTS) + 0.5) / POINTS
    z = norm.ppf(ranks)
    hermite = [np.ones(POINTS), z]
    for k in range(2, ORDER + 1):
        hermite.append((z * hermite[-1] - np.sqrt(k - 1) * hermite[-2]) / np.sqrt(k))
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    last = values.shape[1] - 1
    features = np.array(
        [
            v[np.searchsorted(share, ranks).clip(0, last)]
            for v, share in zip(values, shares, strict=True)
        ]
    )
    centred = features - features.mean(axis=1, keepdims=True)
    return centred @ np.array(hermite[1:]).T / POINTS
