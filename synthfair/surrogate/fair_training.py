"""The global problem: an ordinary loss and a fairness penalty on weighted rows.

    min over theta  1/W sum_i w_i l(y_i a_i'theta) + rho penalty(theta) + lambda/(2 n^2) ||theta||^2

W is the sum of the weights. A penalty need not be convex: Newton's method takes the absolute
eigenvalues of the Hessian, and of the optima that several starts lead to the lowest is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.distill.solvers import (
    Function,
    InnerSolution,
    LinearSolution,
    Newton,
    absolute_eigen,
)
from synthfair.fairness.penalties import CovariancePenalty, Penalty
from synthfair.model import (
    LinearModel,
    Model,
    Params,
    Rows,
    derivative,
    mean_loss,
    regularized_hessian,
    regularized_loss,
)

PATH = (0.0, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""Shares of rho, one after the other; each problem starts at the solution of the one before."""

COVARIANCE = (10.0, 100.0, 1000.0)
"""Weights of the covariance whose solutions are starts of a penalty that is not convex."""

THINNED = 5000
"""Most rows of a pair of group and label on which starts are compared."""

TOLERANCE, SINGLE_TOLERANCE = 1e-9, 1e-4
"""Newton decrement at which training ends, in double and in single precision."""


@dataclass(frozen=True)
class AbsoluteEigenvalues:
    """Solves |H| v = c, with the absolute eigenvalues of H: -v falls where H is indefinite, too.

    Dauphin et al. (2014), *Identifying and attacking the saddle point problem in high-dimensional
    non-convex optimization*, algorithm 1.
    """

    def init(self, fun: Function, theta: jax.Array) -> jax.Array:  # noqa: ARG002
        """Nothing is remembered."""
        return theta

    def factor(self, memory: jax.Array) -> None:  # noqa: ARG002
        """Not known."""
        return

    def solve(
        self, fun: Function, theta: jax.Array, c: jax.Array, memory: jax.Array
    ) -> LinearSolution:
        """See :class:`synthfair.distill.solvers.LinearSolver`."""
        values, vectors = absolute_eigen(fun.hessian(theta))
        v = vectors @ ((c @ vectors) / values)
        return v, memory, jnp.isfinite(v).all()


@partial(jax.jit, static_argnames=("model", "penalty"))
def objective(
    params: Params,
    rows: Rows,
    lambda_theta: jax.Array | float,
    rho: jax.Array | float,
    *,
    model: Model,
    penalty: Penalty,
) -> jax.Array:
    """Loss + rho penalty + regularisation."""
    loss = regularized_loss(model, params, rows, lambda_theta)
    return loss + rho * penalty(model.scores(params, rows.a), rows)


@partial(jax.jit, static_argnames=("penalty", "model"))
def minimise(
    penalty: Penalty,
    rows: Rows,
    lambda_theta: jax.Array | float,
    rho: jax.Array | float,
    start: Params,
    *,
    model: Model,
    tolerance: jax.Array | float,
    max_iterations: jax.Array | int = 100,
) -> InnerSolution:
    """The optimum of :func:`objective` that Newton's method finds from a start."""
    gaps: Any = getattr(penalty, "gaps", None)
    linear = getattr(type(model), "scores", None) is LinearModel.scores

    def hessian(params: Params) -> jax.Array:
        if gaps is None or not linear:
            of_penalty = jax.hessian(lambda p: penalty(model.scores(p, rows.a), rows))(params)
            return regularized_hessian(model, params, rows, lambda_theta) + rho * of_penalty
        # The slopes J of the gaps give J'J. All else is of each row alone: one product A' diag A.
        scores = model.scores(params, rows.a)
        now = rho * gaps(scores, rows)
        slope = jax.grad(lambda z: mean_loss(model, z, rows) + jnp.vdot(now, gaps(z, rows)))
        slopes = jax.jacrev(gaps)(scores, rows).reshape(now.size, -1) @ rows.a
        ridge = lambda_theta / len(params) ** 2 * jnp.eye(len(params))
        return (rows.a.T * derivative(slope, scores)) @ rows.a + rho * slopes.T @ slopes + ridge

    def value(params: Params) -> jax.Array:
        return objective(params, rows, lambda_theta, rho, model=model, penalty=penalty)

    solver = Newton(tolerance, max_iterations, linear=AbsoluteEigenvalues())
    return solver.minimise(Function(value, hessian), start)


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
        start: the solution of a problem nearby, from which alone to start. If not given, of the
            solutions of several starts the one of lowest objective is taken, unless the penalty
            says that it is ``convex``. Of many rows, a part decides between the starts.

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
    double = jax.dtypes.canonicalize_dtype(float) == jnp.float64
    settings = {"model": model, "tolerance": TOLERANCE if double else SINGLE_TOLERANCE}

    def solved(rows: Rows, start: Params, rho: Any, penalty: Penalty = penalty) -> InnerSolution:
        return minimise(penalty, rows, lambda_theta, rho, start, **settings)

    few, rows = _padded(_thinned(rows)), _padded(rows)
    if start is None:
        start = model.init(rows.a.shape[1])
        # At theta = 0 the groups' rates are equal, and no score is so large that they stand still.
        ends = [solved(few, start, rho).params]
        if rho > 0 and not getattr(penalty, "convex", False):
            # Growing rho leads from the most accurate model to a fair one.
            path = start
            for share in PATH:
                path = solved(few, path, rho * share).params
            ends.append(path)
            # The covariance, which has one optimum, leads to models that are fair in another way.
            notion: Any = getattr(penalty, "notion", "statistical_parity")
            covariance = CovariancePenalty(int(np.max(rows.s)) + 1, notion)
            for weight in COVARIANCE:
                start = solved(few, start, weight, covariance).params
                ends.append(solved(few, start, rho).params)
        problem = few, lambda_theta, rho
        values = [objective(end, *problem, model=model, penalty=penalty) for end in ends]
        start = ends[int(np.argmin(np.nan_to_num(values, nan=np.inf)))]
    # Of few rows this is the optimum already; that of many is not far from it.
    return solved(rows, start, rho)


def _padded(rows: Rows) -> Rows:
    """With rows of weight 0 up to one of few numbers of rows, as each number is compiled for."""
    n = len(rows.y)
    step = max(1, 2 ** (n.bit_length() - 4))
    more = -n % step
    weight = jnp.ones(n) if rows.weight is None else jnp.asarray(rows.weight)
    a, s, y = jnp.asarray(rows.a), jnp.asarray(rows.s), jnp.asarray(rows.y)
    return Rows(
        jnp.pad(a, ((0, more), (0, 0))), jnp.pad(s, (0, more)),
        jnp.pad(y, (0, more), constant_values=1), jnp.pad(weight, (0, more)),
    )  # fmt: skip


def _thinned(rows: Rows) -> Rows:
    """Evenly spaced rows of each group and label, with the weight of all that they stand for."""
    cell = 2 * np.asarray(rows.s) + (np.asarray(rows.y) > 0)
    if np.bincount(cell).max() <= THINNED:
        return rows
    weight, chosen = np.ones(len(cell)) if rows.weight is None else np.array(rows.weight), []
    for c in np.unique(cell[weight > 0]):
        part = np.flatnonzero((cell == c) & (weight > 0))
        few = part[:: -(-len(part) // THINNED)]
        weight[few] *= weight[part].sum() / weight[few].sum()
        chosen.append(few)
    index = np.concatenate(chosen)
    return Rows(rows.a[index], rows.s[index], rows.y[index], jnp.asarray(weight[index]))
