"""P(x) and its hypergradient, through the implicit derivative of theta(x)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from synthfair.distill import inner, linear
from synthfair.distill.inner import Function, InnerSolution
from synthfair.distill.linear import LinearSolution, LinearSolver
from synthfair.distill.problem import Problem
from synthfair.model import Params


def implicit_vjp(fun: Function, params: Params, data: Any, v: jax.Array) -> Any:
    """Cotangent c of theta pulled back to x through the inner optimum, given v = H^-1 c.

    At the optimum df/dtheta = 0 for every x, hence H dtheta/dx + d2f/(dtheta dx) = 0 and

        (dtheta/dx)' c = - (d2f/(dtheta dx))' H^-1 c.

    Wu et al. (2024) eq. (14), which prints the equation without the minus sign.

    Args:
        fun: f(theta, x), twice differentiable and strictly convex in theta.
        params: the inner optimum theta(x); the result is as exact as this is stationary.
        data: x, any pytree.
        v: [p] H^-1 c, H the Hessian at (params, data); see :mod:`synthfair.distill.linear`.

    Returns:
        A pytree like data.
    """
    _, unravel = ravel_pytree(params)
    _, pull = jax.vjp(lambda d: jax.grad(fun)(params, d), data)
    return jax.tree.map(lambda leaf: -leaf, pull(unravel(v))[0])


def hessian_of(fun: Callable[[Params], jax.Array], params: Params) -> jax.Array:
    """Hessian [p, p] of a function of params, a line at a time: rows of data may be a million."""
    theta, unravel = ravel_pytree(params)
    _, times_hessian = jax.linearize(jax.grad(lambda t: fun(unravel(t))), theta)
    return jax.lax.map(times_hessian, jnp.eye(len(theta), dtype=theta.dtype))


def absolute_eigen(hessian: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Absolute eigenvalues [p] and eigenvectors [p, p]; 0 counts as a little, for rounding."""
    values, vectors = jnp.linalg.eigh(hessian)
    values = jnp.abs(values)
    return jnp.maximum(values, 10 * jnp.finfo(values.dtype).eps * jnp.max(values)), vectors


class StepRecord(NamedTuple):
    """What was found at one x; or at many, one after the other.

    Attributes:
        objective: P(x).
        covariance: of group and score on the real rows, as the objective defines it.
        gap: largest difference between the groups' decision rates there.
        gradient_norm: of the inner problem, at its solution.
        inner_converged: whether the inner problem, and the system for its derivative, met their
            tolerances.
        inner_iterations: L-BFGS iterations or Newton steps.
    """

    objective: jax.Array | np.ndarray
    covariance: jax.Array | np.ndarray
    gap: jax.Array | np.ndarray
    gradient_norm: jax.Array | np.ndarray
    inner_converged: jax.Array | np.ndarray
    inner_iterations: jax.Array | np.ndarray


def empty_record(dtype: jnp.dtype) -> StepRecord:
    """Where nothing was found yet: an infinite P. Made without compiling."""
    zero, count = np.zeros((), dtype), np.zeros((), jax.dtypes.canonicalize_dtype(int))
    return StepRecord(np.full((), np.inf, dtype), zero, zero, zero, np.zeros((), bool), count)


class Iterate(NamedTuple):
    """Synthetic features and what was found there.

    Attributes:
        x: [d, N_s] synthetic features.
        params: theta(x).
        curvature: what the linear solver remembers of the inner Hessian there: Cholesky its factor
            [p, p], conjugate gradients their solution [p].
        gradient: dP/dx [d, N_s].
        record: the rest.
    """

    x: jax.Array
    params: Params
    curvature: jax.Array
    gradient: jax.Array
    record: StepRecord


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Solvers:
    """What solves the inner problem and its derivative, and how exactly.

    Attributes:
        inner: name in :data:`synthfair.distill.inner.SOLVERS`.
        linear: name in :data:`synthfair.distill.linear.SOLVERS`.
        tolerance: of the inner problem, see :class:`synthfair.distill.inner.InnerSolver`.
        max_iterations: of one inner solve.
    """

    inner: str = field(default="lbfgs", metadata={"static": True})
    linear: linear.LinearSolverName = field(default="cholesky", metadata={"static": True})
    tolerance: jax.Array | float = 1e-8
    max_iterations: jax.Array | int = 100


def hypergradient(
    problem: Problem, params: Params, x: jax.Array, curvature: jax.Array, *, solver: LinearSolver
) -> tuple[jax.Array, jax.Array, LinearSolution]:
    """P(x) and dP/dx at the inner optimum theta(x), and the solution of H v = dP/dtheta.

        dP/dx = dP/dx (direct)  -  (d2 inner/(dtheta dx))' H^-1 dP/dtheta

    Wu et al. (2024) eq. (13); the direct part has the rho_s term as well as the lambda_x term.
    """
    inputs = problem.inputs(x)
    value, (by_params, by_x) = jax.value_and_grad(problem.outer, argnums=(0, 1))(params, x)
    solution = solver.solve(
        problem.inner,
        params,
        inputs,
        ravel_pytree(by_params)[0],
        curvature,
        hessian=problem.inner_hessian,
    )
    through_theta = implicit_vjp(problem.inner, params, inputs, solution.v)
    return value, by_x + through_theta[: len(x)], solution  # the features come first


def evaluate(
    problem: Problem, x: jax.Array, params: Params, curvature: jax.Array, solvers: Solvers
) -> Iterate:
    """Solves the inner problem at x, from params and curvature near there, and differentiates."""
    solver = linear.SOLVERS[solvers.linear]
    solution: InnerSolution = inner.SOLVERS[solvers.inner](
        problem.inner,
        params,
        problem.inputs(x),
        factor=solver.factor(curvature),
        linear=solver,
        hessian=problem.inner_hessian,
        tolerance=solvers.tolerance,
        max_iterations=solvers.max_iterations,
    )
    theta = solution.params
    value, gradient, derivative = hypergradient(problem, theta, x, curvature, solver=solver)
    record = StepRecord(
        value,
        problem.objective.covariance(theta),
        problem.objective.gap(theta),
        solution.gradient_norm,
        solution.converged & derivative.converged,
        solution.iterations.astype(int),
    )
    return Iterate(x, theta, derivative.memory, gradient, record)
