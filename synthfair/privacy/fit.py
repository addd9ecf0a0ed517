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
from functools import cache
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.privacy.moments import Cells, covariance_moments, rate_gaps
from synthfair.privacy.plan import Plan

LEAST_ROWS = 2.0
"""A cell counts as having so many standard deviations of its noise, at least: means over cells that
are empty or nearly so must not explode."""

RELAXATION = 0.6
"""kappa, in units of the largest second derivative of the loss; above 1/2. Chosen, like the floor
of S, by F and SPD on training rows; see benchmarks/privacy."""

MARGINS = 20.0
"""The largest second derivative is looked for at margins up to this size."""

Penalties = CovariancePenalty | SelectionRatePenalty


class Queries(Protocol):
    """What may be asked about real rows; see :class:`synthfair.privacy.queries.PrivateQueries`."""

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts and sums of inputs by cell."""
        ...

    def second_moment(self) -> np.ndarray:
        """Sum of a a'."""
        ...

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Sum of the losses' gradients."""
        ...

    def rates(self, theta: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Smooth selection rates by cell, and their gradients, summed."""
        ...


class PrivateFit(NamedTuple):
    """What is known of the real rows once the budget is spent.

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
    queries: Queries,
    plan: Plan,
    penalty: Penalties,
    *,
    rho_o: float,
    lambda_theta: float,
    curvature: float,
) -> PrivateFit:
    """Spends the whole plan.

    Args:
        queries: answers about the real rows; no row is seen here.
        plan: by which they answer.
        penalty: of F.
        rho_o: its weight.
        lambda_theta: regularisation of theta, as in the server's training problem.
        curvature: largest second derivative of the loss, see :func:`largest_curvature`.
    """
    cells = _cells(queries, plan)
    n = cells.inputs.shape[-1]
    ridge = lambda_theta / n**2 * np.eye(n)
    second_moment = _floored(queries.second_moment(), plan.curvature.mechanism.noise)
    base = RELAXATION * curvature * second_moment / cells.n_rows
    path, theta, hessian = [], np.zeros(n), base
    for _ in range(plan.gradients.mechanism.times):
        gaps, jacobian = _gaps(queries, cells, penalty, theta)
        hessian = base + rho_o * jacobian.T @ jacobian + ridge
        slope = queries.gradient(theta) / cells.n_rows + rho_o * jacobian.T @ gaps + ridge @ theta
        theta = theta - np.linalg.solve(hessian, slope)
        path.append(theta)
    mean = np.mean(path[len(path) // 2 :], axis=0)
    return PrivateFit(mean, hessian, covariance_moments(cells, penalty.notion), cells.counts)


def _cells(queries: Queries, plan: Plan) -> Cells:
    counts, inputs = queries.moments()
    return Cells(np.maximum(counts, LEAST_ROWS * plan.moments.mechanism.noise), inputs)


def _floored(second_moment: np.ndarray, noise: float) -> np.ndarray:
    """The same with eigenvalues of at least noise sqrt(n), about those of a matrix of noise alone.

    A smaller eigenvalue cannot be told from noise. Steps in such a direction are short, so that
    their own noise does not carry theta away.
    """
    values, vectors = np.linalg.eigh(second_moment)
    return (vectors * np.maximum(values, noise * len(values) ** 0.5)) @ vectors.T


def _gaps(
    queries: Queries, cells: Cells, penalty: Penalties, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gaps [C] whose squares the penalty halves and sums, and their derivative [C, n]."""
    if isinstance(penalty, CovariancePenalty):
        moments = covariance_moments(cells, penalty.notion)
        return moments @ theta, moments
    rates, slopes = queries.rates(theta, penalty.temperature)
    return rate_gaps(cells, penalty.notion, rates), rate_gaps(cells, penalty.notion, slopes)


@cache
def largest_curvature(loss: Callable[[jax.Array], jax.Array]) -> float:
    """The largest second derivative of a loss of the margin; 1/4 for the logistic loss."""
    margins = jnp.linspace(-MARGINS, MARGINS, 4001)
    return float(jnp.max(jax.vmap(jax.grad(jax.grad(loss)))(margins)))
