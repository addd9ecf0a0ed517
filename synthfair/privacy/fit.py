"""Finds theta from noisy answers: preconditioned gradient steps, the last half of them averaged.

In step t, with noisy gradient g_t of the losses, the penalty's gaps c and their derivative J,

    theta <- theta - P^-1 (g_t / N + rho_o J'c + lambda_theta/n^2 theta),
    P = kappa S / N + rho_o J'J + lambda_theta/n^2 I,

where S is the noisy second moment of the inputs and kappa 0.6 times the largest second derivative
of the loss of the margin. So P lies above half the Hessian, which is all that such steps need to
converge, and no line search, which would ask for more, is needed. Averaging takes out most of the
noise of single steps (Polyak and Juditsky 1992).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.fairness.penalties import (
    STRATA,
    CovariancePenalty,
    SelectionRatePenalty,
    SumPenalty,
    sum_gaps,
)
from synthfair.model import Params
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.queries import PrivateQueries

LEAST_ROWS = 2.0
"""A cell counts as having so many standard deviations of its noise, at least: means over cells that
are empty or nearly so must not explode."""

RELAXATION = 0.6
"""kappa, in units of the largest second derivative of the loss; above 1/2. Chosen, like the floor
of S, by F and SPD on training rows; see benchmarks/privacy."""

MARGINS = 20.0
"""The largest second derivative is looked for at margins up to this size."""

Penalties = CovariancePenalty | SelectionRatePenalty


class PrivateFit(NamedTuple):
    """The statistics of the real rows that a privacy budget has bought.

    Attributes:
        theta: [n] parameters.
        curvature: [n, n] P at the end; positive definite.
        moments: [C, n] of the covariances of group and score.
        counts: [G, 2] noisy numbers of rows by group and label; positive.
    """

    theta: np.ndarray
    curvature: np.ndarray
    moments: np.ndarray
    counts: np.ndarray


def private_fit(
    queries: PrivateQueries,
    guarantee: Guarantee,
    penalty: Penalties,
    *,
    rho_o: float,
    lambda_theta: float,
    curvature: float,
) -> PrivateFit:
    """Spends the whole budget. What it returns is post-processing of the answers.

    Args:
        queries: answers about the real rows; no row is seen here.
        guarantee: by whose mechanisms they answer.
        penalty: of F.
        rho_o: its weight.
        lambda_theta: regularisation of theta, as in the server's training problem.
        curvature: largest second derivative of the loss, see :func:`largest_curvature`.
    """
    # Once: counts, which are positive then, and moments.
    counts, inputs = queries.moments()
    least = LEAST_ROWS * guarantee.mechanism("moments").noise
    counts = np.maximum(counts, least)
    n, n_rows = inputs.shape[-1], float(counts.sum())
    ridge = lambda_theta / n**2 * np.eye(n)
    # Second moments with eigenvalues of at least noise sqrt(n), about those of a matrix of noise: a
    # smaller one may as well be noise. Steps in such a direction are short, so that their own noise
    # does not carry theta away.
    values, vectors = np.linalg.eigh(queries.second_moment())
    floor = guarantee.mechanism("curvature").noise * n**0.5
    second_moment = (vectors * np.maximum(values, floor)) @ vectors.T
    base = RELAXATION * curvature * second_moment / n_rows
    # Gradient steps with the penalty's gaps and their derivative, and the mean of the last half.
    path, theta, hessian = [], np.zeros(n), base
    for _ in range(guarantee.mechanism("gradients").times):
        if isinstance(penalty, CovariancePenalty):
            jacobian = gaps_of(counts, inputs, penalty)
            gaps = jacobian @ theta
        else:
            sums = queries.rates(theta, penalty.temperature)
            gaps, jacobian = (gaps_of(counts, one, penalty) for one in sums)
        hessian = base + rho_o * jacobian.T @ jacobian + ridge
        slope = queries.gradient(theta) / n_rows + rho_o * jacobian.T @ gaps + ridge @ theta
        theta = theta - np.linalg.solve(hessian, slope)
        path.append(theta)
    mean = np.mean(path[len(path) // 2 :], axis=0)
    return PrivateFit(mean, hessian, gaps_of(counts, inputs, penalty), counts)


def gaps_of(counts: np.ndarray, sums: np.ndarray, penalty: SumPenalty) -> np.ndarray:
    """Return the gaps [C, ...] of sums over rows by group and label, as the penalty compares them.

    Of sums of inputs they are vectors m with C_g(theta) = m'theta, of the covariance C_g of group
    and score: Wu et al. (2024) eq. (2), (3).

    Args:
        counts: [G, 2] numbers of rows, exact or with noise; positive.
        sums: [G, 2, ...], likewise.
        penalty: says what is compared.
    """
    labels = np.array([[-1 in among, 1 in among] for among in STRATA[penalty.notion]], float)
    total = np.einsum("kl,gl...->kg...", labels, sums)
    shape = *total.shape[:2], -1
    gaps = sum_gaps(penalty, labels @ counts.T, total.reshape(shape))
    return gaps.reshape(-1, *sums.shape[2:])


@cache
def largest_curvature(loss: Callable[[jax.Array], jax.Array]) -> float:
    """The largest second derivative of a loss of the margin; 1/4 for the logistic loss."""
    margins = jnp.linspace(-MARGINS, MARGINS, 4001)
    return float(jnp.max(jax.vmap(jax.grad(jax.grad(loss)))(margins)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PrivateObjective:
    """F(theta) = 1/2 (theta - target)' curvature (theta - target).

    The quadratic model, at its minimum, of the loss and the penalty on the real rows.

    Attributes:
        target: [n] theta that was found privately.
        curvature: [n, n], positive definite.
        moments: [C, n] m with C_g(theta) = m'theta, the covariances of group and score.
    """

    target: jax.Array
    curvature: jax.Array
    moments: jax.Array

    def __call__(self, params: Params) -> jax.Array:
        """Evaluates F(theta)."""
        difference = params - self.target
        return 0.5 * difference @ self.curvature @ difference

    def covariance(self, params: Params) -> jax.Array:
        """The largest covariance of group and score by the noisy moments, signed."""
        covariances = self.moments @ params
        return covariances[jnp.argmax(jnp.abs(covariances))]

    def gap(self, params: Params) -> jax.Array:  # noqa: ARG002 - as Objective has it
        """Returns not-a-number: to count decisions would need the rows."""
        return jnp.full((), jnp.nan, self.target.dtype)
