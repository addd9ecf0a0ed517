"""P(x) and its hypergradient: what an optimiser of the synthetic features is told."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from synthfair.distill import inner, lbfgs, linear, newton
from synthfair.distill.implicit import implicit_vjp
from synthfair.distill.linear import LinearSolution, LinearSolver
from synthfair.distill.problem import Problem
from synthfair.model import Params

InnerSolver = Literal["lbfgs", "newton", "jaxopt"]


class Solvers(NamedTuple):
    """By what the inner problem and its derivative are solved; chosen when compiling."""

    inner: InnerSolver = "lbfgs"
    linear: linear.Name = "cholesky"


class Record(NamedTuple):
    """What was found at one x.

    Attributes:
        objective: P(x).
        covariance: of group and score on the real rows, as the objective defines it.
        gap: largest difference between groups there, of what is decided.
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


def no_record(dtype: jnp.dtype) -> Record:
    """Fills a place in compiled code where nothing was found yet; made without compiling."""
    zero, count = np.zeros((), dtype), np.zeros((), jax.dtypes.canonicalize_dtype(int))
    return Record(zero, zero, zero, zero, np.zeros((), bool), count)


class Judged(NamedTuple):
    """Synthetic features and what they are worth.

    Attributes:
        x: [d, N_s] synthetic features.
        params: theta(x).
        curvature: what the linear solver keeps of the inner Hessian there: Cholesky its factor
            [p, p], conjugate gradients their solution [p].
        gradient: dP/dx [d, N_s].
        record: the rest.
    """

    x: jax.Array
    params: Params
    curvature: jax.Array
    gradient: jax.Array
    record: Record


def hypergradient(
    problem: Problem,
    params: Params,
    x: jax.Array,
    curvature: jax.Array,
    *,
    solver: LinearSolver = linear.SOLVERS["cholesky"],
) -> tuple[jax.Array, jax.Array, LinearSolution]:
    """P(x) and dP/dx at the inner optimum theta(x), and the solution of H v = dP/dtheta.

        dP/dx = dP/dx (direct)  -  (d2 inner/(dtheta dx))' H^-1 dP/dtheta

    Wu et al. (2024) eq. (13); the direct part has the rho_s term as well as the lambda_x term.
    """
    columns = problem.columns(x)
    value, (by_params, by_x) = jax.value_and_grad(problem.outer, argnums=(0, 1))(params, x)
    solution = solver.solve(
        problem.training_loss,
        params,
        columns,
        ravel_pytree(by_params)[0],
        curvature,
        hessian=problem.training_hessian,
    )
    by_columns = implicit_vjp(
        problem.training_loss, params, columns, solution.v, mixed=problem.training_mixed
    )
    return value, problem.moving(by_x + by_columns[: len(x)]), solution  # the features come first


def _minimiser(name: InnerSolver) -> lbfgs.Minimise:
    if name == "lbfgs":
        return lbfgs.lbfgs
    from synthfair.distill import with_jaxopt  # slow to import

    return with_jaxopt.lbfgs


def judge(
    problem: Problem,
    x: jax.Array,
    params: Params,
    curvature: jax.Array,
    *,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int,
    solvers: Solvers = Solvers(),  # noqa: B008 - immutable
) -> Judged:
    """Solves the inner problem at x, from params and what is known of the curvature near."""
    columns, solver = problem.columns(x), linear.SOLVERS[solvers.linear]
    limits = {"tolerance": tolerance, "max_iterations": max_iterations}
    if solvers.inner == "newton":
        solution = newton.solve(
            problem.training_loss,
            params,
            columns,
            linear=solver,
            hessian=problem.training_hessian,
            **limits,
        )
    else:
        solution = inner.solve(
            problem.training_loss,
            params,
            columns,
            factor=solver.factor(curvature),
            minimise=_minimiser(solvers.inner),
            **limits,
        )
    value, gradient, derivative = hypergradient(
        problem, solution.params, x, curvature, solver=solver
    )
    record = Record(
        value,
        problem.objective.covariance(solution.params),
        problem.objective.gap(solution.params),
        solution.gradient_norm,
        solution.converged & derivative.converged,
        solution.iterations.astype(int),
    )
    return Judged(x, solution.params, derivative.memory, gradient, record)
