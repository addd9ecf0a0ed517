"""P(x) and its hypergradient: what an optimiser of the synthetic features is told."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill import inner
from synthfair.distill.implicit import hessian_factor, implicit_vjp
from synthfair.distill.problem import Problem
from synthfair.model import Params


class Record(NamedTuple):
    """What was found at one x.

    Attributes:
        objective: P(x).
        covariance: of group and score on the real rows, as the objective defines it.
        gap: largest difference between groups there, of what is decided.
        gradient_norm: of the inner problem, at its solution.
        inner_converged: whether the inner problem met its tolerance.
        inner_iterations: L-BFGS iterations.
    """

    objective: jax.Array | np.ndarray
    covariance: jax.Array | np.ndarray
    gap: jax.Array | np.ndarray
    gradient_norm: jax.Array | np.ndarray
    inner_converged: jax.Array | np.ndarray
    inner_iterations: jax.Array | np.ndarray


def no_record(dtype: jnp.dtype) -> Record:
    """Fills a place in compiled code where nothing was found yet."""
    zero = jnp.zeros((), dtype)
    return Record(zero, zero, zero, zero, jnp.zeros((), bool), jnp.zeros((), int))


class Judged(NamedTuple):
    """Synthetic features and what they are worth.

    Attributes:
        x: [N_s, d] synthetic features.
        params: theta(x).
        factor: Cholesky factor [p, p] of the inner Hessian there.
        gradient: dP/dx [N_s, d].
        record: the rest.
    """

    x: jax.Array
    params: Params
    factor: jax.Array
    gradient: jax.Array
    record: Record


def hypergradient(
    problem: Problem, params: Params, x: jax.Array, factor: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P(x) and dP/dx at the inner optimum theta(x).

        dP/dx = dP/dx (direct)  -  (d2 inner/(dtheta dx))' H^-1 dP/dtheta

    Wu et al. (2024) eq. (13); the direct part has the rho_s term as well as the lambda_x term.
    """
    value, (by_params, by_x) = jax.value_and_grad(problem.outer, argnums=(0, 1))(params, x)
    through_theta = implicit_vjp(problem.inner, params, x, by_params, factor)
    return value, by_x + through_theta


def judge(
    problem: Problem,
    x: jax.Array,
    params: Params,
    factor: jax.Array,
    *,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
) -> Judged:
    """Solves the inner problem at x, from params and the factor of a Hessian near, and judges x."""
    solution = inner.solve(
        problem.training_loss,
        params,
        problem.rows(x),
        factor=factor,
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    factor = hessian_factor(problem.inner, solution.params, x)
    value, gradient = hypergradient(problem, solution.params, x, factor)
    record = Record(
        value,
        problem.objective.covariance(solution.params),
        problem.objective.gap(solution.params),
        solution.gradient_norm,
        solution.converged,
        solution.iterations.astype(int),
    )
    return Judged(x, solution.params, factor, gradient, record)
