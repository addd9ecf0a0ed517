"""Rows that have given sums: from a Gaussian copula, by L-BFGS, mapped to exact moments at last."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

MEAN_WEIGHT, SECOND_WEIGHT = 0.1, 0.01
"""Of the differences of means and of second moments, which are mapped to 0 afterwards, next to
smooth sums: large weights would make the problem stiff, and L-BFGS slow."""

SCALE = 1e4
"""Of the objective: SciPy's L-BFGS-B ends where it falls by less than 2e-9 of its size or of 1."""

FLOOR = 1e-12
"""Smallest eigenvalue of a covariance that counts as more than 0, relatively."""


class Targets(NamedTuple):
    """What the rows of a cell must have on average, x being centred at 1/2.

    Attributes:
        mean: [d] of x.
        covariance: [d, d] of x.
        slope: [J, d] v of the anchors sigma(v'x + b).
        offset: [J] b.
        weight: [J] of each anchor; together 1.
        rate: [J] mean of sigma(v'x + b).
        moment: [J, d] mean of sigma(v'x + b) x.
    """

    mean: np.ndarray
    covariance: np.ndarray
    slope: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    rate: np.ndarray
    moment: np.ndarray


def copula_rows(
    n_rows: int, values: np.ndarray, counts: np.ndarray, correlation: np.ndarray, seed: int
) -> np.ndarray:
    """[R, d] rows with given distributions of each feature, and about the given correlations.

    Args:
        n_rows: R.
        values: [d, B] values that a feature takes.
        counts: [d, B] how often, at least 0 and not all 0.
        correlation: [d, d], of a Gaussian copula.
        seed: of what is drawn.
    """
    rng = np.random.default_rng(seed)
    eigenvalues, vectors = np.linalg.eigh(correlation)
    # The symmetric root: the sign of an eigenvector is a matter of rounding.
    root = (vectors * np.sqrt(np.maximum(eigenvalues, 1e-6))) @ vectors.T
    drawn = rng.normal(size=(n_rows, len(correlation))) @ root
    ranks = (drawn.argsort(axis=0).argsort(axis=0) + 0.5) / n_rows
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    position = [np.searchsorted(share, rank) for share, rank in zip(shares, ranks.T, strict=True)]
    return np.column_stack([v[p] for v, p in zip(values, position, strict=True)])


def with_moments(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray, seed: int) -> np.ndarray:
    """[R, d] rows, moved as little as may be by an affine map to this mean and covariance.

    The map is x -> mean + (x - mean of x) T with T = A^-1 (A S A)^1/2 A^-1, A^2 being the rows'
    covariance and S the one wanted: the optimal transport between normal distributions (Gelbrich
    1990). Where the rows have no variance in a direction that S has, a little noise gives them
    some, and more where that little counts as 0 next to the rest: a category of one row in 10^7.
    Mapped once more without noise, such rows lose what rounding left.

    Args:
        x: [R, d] rows, R at least d + 2.
        mean: [d].
        covariance: [d, d], positive semi-definite; it may be singular.
        seed: of the noise.
    """
    moved, random = x, np.random.default_rng(seed).normal(size=x.shape)
    for noise in (0.0, 1e-3, 0.0, 0.1, 0.0):
        spread = moved + noise * (random @ _root(covariance))
        centred = spread - spread.mean(axis=0)
        root, inverse = _root_and_inverse(centred.T @ centred / len(x))
        moved = centred @ inverse @ _root(root @ covariance @ root) @ inverse
        found = moved.T @ moved / len(x)
        if np.abs(found - covariance).max() <= 1e-9 * max(1.0, np.abs(covariance).max()):
            break
    return mean + moved


def _root_and_inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The symmetric square root of a covariance, and its pseudo-inverse."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    positive = values > FLOOR * max(values[-1], FLOOR)
    inverse = np.where(positive, 1.0 / np.sqrt(np.where(positive, values, 1.0)), 0.0)
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors * inverse) @ vectors.T


def _root(matrix: np.ndarray) -> np.ndarray:
    return _root_and_inverse(matrix)[0]


def fitted_rows(start: np.ndarray, targets: Targets, *, iterations: int, seed: int) -> np.ndarray:
    """[R, d] rows whose means are the targets: moments exactly, smooth sums as nearly as may be.

    From the start, L-BFGS (SciPy's) minimises over the rows X

        sum_j w_j || mean of sigma(v_j'x + b_j) (1, x) - wanted ||^2
            + 0.1 || difference of means ||^2 + 0.01 || difference of second moments ||_F^2.

    Args:
        start: [R, d] first rows, R at least d + 2.
        targets: of their means.
        iterations: of L-BFGS, at most.
        seed: see :func:`with_moments`.
    """
    shape = start.shape

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _mismatch(flat.reshape(shape), targets)
        return float(value), np.asarray(gradient).ravel()

    with jax.enable_x64(True):
        found = scipy.optimize.minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxfun": 2 * iterations},
        )
    return with_moments(found.x.reshape(shape), targets.mean, targets.covariance, seed)


@jax.jit
@jax.value_and_grad
def _mismatch(x: jax.Array, targets: Targets) -> jax.Array:
    mean, weight = jnp.asarray(targets.mean), jnp.asarray(targets.weight)
    selected = jax.nn.sigmoid(x @ targets.slope.T + targets.offset)
    rates = jnp.mean(selected, axis=0) - targets.rate
    moments = selected.T @ x / len(x) - targets.moment
    means = jnp.mean(x, axis=0) - mean
    seconds = x.T @ x / len(x) - (targets.covariance + jnp.outer(mean, mean))
    smooth = weight @ (rates**2 + jnp.sum(moments**2, axis=1))
    return SCALE * (smooth + MEAN_WEIGHT * means @ means + SECOND_WEIGHT * jnp.sum(seconds**2))
