"""The global problem: an ordinary loss and a fairness penalty on weighted rows.

    min over theta  1/W sum_i w_i l(y_i a_i'theta) + rho penalty(theta) + lambda/(2 n^2) ||theta||^2

W is the sum of the weights. A penalty need not be convex: rho grows in steps, and Newton's method
takes the absolute eigenvalues of the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill.hypergradient import absolute_eigen
from synthfair.distill.inner import InnerSolution, newton
from synthfair.distill.linear import LinearSolution, Matrix
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params, Rows, regularized_hessian, regularized_loss

PATH = (0.0, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""Shares of rho, one after the other; each problem starts at the solution of the one before."""

TOLERANCE, SINGLE_TOLERANCE = 1e-9, 1e-4
"""Newton decrement at which training ends, in double and in single precision."""


class AbsoluteEigenvalues:
    """Solves |H| v = c, with the absolute eigenvalues of H: -v falls where H is indefinite, too.

    Dauphin et al. (2014), *Identifying and attacking the saddle point problem in high-dimensional
    non-convex optimization*, algorithm 1.
    """

    def init(self, c: jax.Array | np.ndarray) -> jax.Array:
        """Nothing is remembered."""
        return jnp.asarray(c)

    def factor(self, memory: jax.Array) -> None:  # noqa: ARG002
        """Not known."""
        return

    def solve(
        self,
        fun: Callable[[Params, Any], jax.Array],
        params: Params,
        data: Any,
        c: jax.Array,
        memory: jax.Array,
        *,
        hessian: Matrix | None = None,
        tolerance: jax.Array | float | None = None,  # noqa: ARG002 - exact but for rounding
    ) -> LinearSolution:
        """See :class:`synthfair.distill.linear.LinearSolver`."""
        h = hessian(params, data) if hessian else jax.hessian(fun)(params, data)
        values, vectors = absolute_eigen(h)
        v = vectors @ ((c @ vectors) / values)
        return LinearSolution(v, memory, jnp.isfinite(v).all())


def minimise(
    unfairness: Penalty,
    rows: Rows,
    lambda_theta: jax.Array | float,
    weights: jax.Array,
    start: Params,
    *,
    model: Model,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int = 100,
) -> InnerSolution:
    """Minimises loss + weights[i] unfairness, one i after the other; the solution of the last."""

    def solved(start: Params, weight: jax.Array) -> tuple[Params, InnerSolution]:
        def objective(params: Params, rows: Rows) -> jax.Array:
            loss = regularized_loss(model, params, rows, lambda_theta)
            return loss + weight * unfairness(model.scores(params, rows.a), rows)

        def hessian(params: Params, rows: Rows) -> jax.Array:
            of_penalty = jax.hessian(lambda p: unfairness(model.scores(p, rows.a), rows))(params)
            return regularized_hessian(model, params, rows, lambda_theta) + weight * of_penalty

        solution = newton(
            objective,
            start,
            rows,
            linear=AbsoluteEigenvalues(),
            hessian=hessian,
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
        return solution.params, solution

    _, solutions = jax.lax.scan(solved, start, weights)
    return jax.tree.map(lambda leaf: leaf[-1], solutions)


@partial(jax.jit, static_argnames=("model", "penalty"))
def train_fair(
    rows: Rows,
    lambda_theta: jax.Array | float,
    rho: jax.Array | float,
    *,
    model: Model,
    penalty: Penalty,
    start: Params | None = None,
) -> InnerSolution:
    """Trains a model under a fairness penalty on rows: real, synthetic or weighted.

    Args:
        rows: N rows, each with a weight or all alike.
        lambda_theta: regularisation, see :func:`synthfair.model.regularized_loss`.
        rho: weight of the penalty, at least 0.
        model: what is trained.
        penalty: of its scores.
        start: the solution for a rho nearby; if not given, rho grows from 0.

    Example:
        >>> import jax, numpy as np
        >>> import synthfair as sf
        >>> rng, model, penalty = np.random.default_rng(0), sf.LinearModel(), sf.CovariancePenalty()
        >>> s, y = rng.integers(2, size=300), rng.choice([-1.0, 1.0], 300)
        >>> a = np.column_stack([rng.random(300) + 0.3 * s + 0.3 * y, s, np.ones(300)])
        >>> rows = sf.Rows(a, s, y, weight=rng.random(300))
        >>> with jax.enable_x64(True):
        ...     found = [
        ...         sf.surrogate.train_fair(rows, 1e-3, rho, model=model, penalty=penalty)
        ...         for rho in (0.0, 100.0)
        ...     ]
        ...     [f"{penalty(model.scores(each.params, a), rows):.5f}" for each in found]
        ['0.01494', '0.00000']
    """
    path = jnp.asarray(PATH if start is None else (1.0,))
    first = model.init(rows.a.shape[1]) if start is None else start
    double = jax.dtypes.canonicalize_dtype(float) == jnp.float64
    tolerance = TOLERANCE if double else SINGLE_TOLERANCE
    return minimise(
        penalty, rows, lambda_theta, rho * path, first, model=model, tolerance=tolerance
    )
