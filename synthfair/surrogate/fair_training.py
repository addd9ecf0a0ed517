"""The global problem: an ordinary loss and a fairness penalty on weighted rows.

    min over theta  1/W sum_i w_i l(y_i a_i'theta) + rho penalty(theta) + lambda/(2 n^2) ||theta||^2

W is the sum of the weights. A penalty need not be convex: Newton's method takes the absolute
eigenvalues of the Hessian, and of the optima that several starts lead to the lowest is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from synthfair.distill.losses import derivative, mean_loss, regularized_hessian, squared_norm
from synthfair.distill.solvers import (
    Function,
    InnerSolution,
    LinearSolution,
    Newton,
    absolute_eigen,
)
from synthfair.fairness.penalties import CovariancePenalty, Penalty
from synthfair.model import LinearModel, Model, Params, Rows, padded

PATH = (0.0, *(0.1 * 4.0**k for k in range(11)))
"""Weights of a path of growing rho; each problem starts at the solution of the one before."""

COVARIANCE = (10.0, 100.0, 1000.0)
"""Weights of the covariance whose solutions are starts of a penalty that is not convex."""

THINNED = 2500
"""Most rows of a pair of group and label on which starts are compared."""

TOLERANCE, SINGLE_TOLERANCE = 1e-6, 1e-4
"""Training ends with the step whose Newton decrement is at most this, in double and in single
precision: the next would be about its square. Starts are compared by the second."""


@dataclass(frozen=True)
class AbsoluteEigenvalues:
    """Solves H v = c, and where H is indefinite |H| v = c, so that -v falls there, too.

    |H| has the absolute eigenvalues of H: Dauphin et al. (2014), *Identifying and attacking the
    saddle point problem in high-dimensional non-convex optimization*, algorithm 1.
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
        hessian = fun.hessian(theta)

        def absolute() -> jax.Array:
            values, vectors = absolute_eigen(hessian)
            return vectors @ ((c @ vectors) / values)

        # The factor of a matrix that is not positive definite is not-a-number.
        v = cho_solve((jax.lax.linalg.cholesky(hessian), True), c)
        v = jax.lax.cond(jnp.isfinite(v).all(), lambda: v, absolute)
        return v, memory, jnp.isfinite(v).all()


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
    """The optimum of loss + rho penalty + regularisation near a start, by Newton's method."""
    gaps: Any = getattr(penalty, "gaps", None)
    linear = getattr(type(model), "scores", None) is LinearModel.scores
    n = rows.a.shape[1]

    def scores(params: Params) -> jax.Array:
        # The model's own product has rows in columns, of which XLA would make a copy.
        return rows.a @ params if linear else model.scores(params, rows.a)

    def value(params: Params) -> jax.Array:
        z = scores(params)
        ridge = lambda_theta / (2 * n**2) * squared_norm(params)
        return mean_loss(model, z, rows) + rho * penalty(z, rows) + ridge

    def hessian(params: Params) -> jax.Array:
        if gaps is None or not linear:
            of_penalty = jax.hessian(lambda p: penalty(scores(p), rows))(params)
            return regularized_hessian(model, params, rows, lambda_theta) + rho * of_penalty
        # The slopes J of the gaps give J'J. All else is of each row alone: one product A' diag A.
        z = scores(params)
        now = rho * gaps(z, rows)
        slope = jax.grad(lambda z: mean_loss(model, z, rows) + jnp.vdot(now, gaps(z, rows)))
        if now.size > n:  # of many clients: n slopes of each gap are fewer numbers than N
            slopes = jax.jacfwd(lambda p: gaps(scores(p), rows).ravel())(params)
        else:
            slopes = jax.jacrev(gaps)(z, rows).reshape(now.size, -1) @ rows.a
        ridge = lambda_theta / n**2 * jnp.eye(n)
        return (rows.a.T * derivative(slope, z)) @ rows.a + rho * slopes.T @ slopes + ridge

    solver = Newton(tolerance, max_iterations, linear=AbsoluteEigenvalues())
    return solver.minimise(Function(value, hessian), start)


def train_fair(
    rows: Rows,
    lambda_theta: jax.Array | float,
    rho: float,
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
    return Trainer(rows, lambda_theta, model, penalty).solve(rho, start)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains on one set of rows under a penalty; what several rho have in common is solved once.

    See :func:`train_fair` for the arguments.
    """

    rows: Rows
    lambda_theta: jax.Array | float
    model: Model
    penalty: Penalty
    _path: list[Params] = field(default_factory=list, init=False)  # of the first weights of PATH

    def solve(self, rho: float, start: Params | None = None) -> InnerSolution:
        """The lowest of the optima that several starts lead to, or the optimum near one start."""
        if start is None:
            ends = [self._on_a_part(rho, each) for each in self._starts(rho)]
            values = [float(end.value) for end in ends]
            start = ends[int(np.argmin(np.nan_to_num(values, nan=np.inf)))].params
        # Of few rows this is the optimum already; that of many is not far from it.
        double = jax.dtypes.canonicalize_dtype(float) == jnp.float64
        return minimise(
            self.penalty,
            self.all_rows,
            self.lambda_theta,
            rho,
            start,
            model=self.model,
            tolerance=TOLERANCE if double else SINGLE_TOLERANCE,
        )

    def _starts(self, rho: float) -> list[Params]:
        """Params from which different optima are found, if there may be several."""
        zero, path = self.model.init(self.rows.a.shape[1]), self._path
        if rho == 0 or getattr(self.penalty, "convex", False):
            return [zero]
        # Growing rho leads from the most accurate model to a fair one.
        below = sum(weight < rho for weight in PATH)
        for weight in PATH[len(path) : below]:
            path.append(self._on_a_part(weight, path[-1] if path else zero).params)
        # At theta = 0 the groups' rates are equal, and no score is so large that they stand still.
        # The covariance, which has one optimum, leads to models that are fair in another way.
        return [zero, path[below - 1], *self._covariance_ends]

    def _on_a_part(
        self, rho: float, start: Params, penalty: Penalty | None = None
    ) -> InnerSolution:
        """Finds the optimum on a part of the rows, not to the last digits."""
        return minimise(
            penalty or self.penalty,
            self._part,
            self.lambda_theta,
            rho,
            start,
            model=self.model,
            tolerance=SINGLE_TOLERANCE,
        )

    @cached_property
    def all_rows(self) -> Rows:
        """The rows, padded, on the device."""
        return jax.device_put(padded(self.rows))

    @cached_property
    def _part(self) -> Rows:
        return jax.device_put(padded(thinned(self.rows)))

    @cached_property
    def _covariance_ends(self) -> list[Params]:
        """Params for each weight of the covariance."""
        notion: Any = getattr(self.penalty, "notion", "statistical_parity")
        n_groups: Any = getattr(self.penalty, "n_groups", int(np.max(self.rows.s)) + 1)
        by, clients = getattr(self.penalty, "by", ()), getattr(self.penalty, "clients", 0)
        covariance = CovariancePenalty(n_groups, notion, by, clients)
        ends = [self.model.init(self.rows.a.shape[1])]
        for weight in COVARIANCE:
            ends.append(self._on_a_part(weight, ends[-1], covariance).params)
        return ends[1:]


def thinned(rows: Rows) -> Rows:
    """Evenly spaced rows of each group and label, with the weight of all that they stand for."""
    a, s, y = (np.asarray(part) for part in rows[:3])
    weight = np.ones(len(y)) if rows.weight is None else np.array(rows.weight)
    cell, chosen = 2 * s + (y > 0), []
    if np.bincount(cell).max() <= THINNED:
        return rows
    there = np.flatnonzero(weight > 0)
    there = there[np.argsort(cell[there], kind="stable")]
    for part in np.split(there, np.flatnonzero(np.diff(cell[there])) + 1):
        few = part[:: -(-len(part) // THINNED)]
        weight[few] *= weight[part].sum() / weight[few].sum()
        chosen.append(few)
    index = np.concatenate(chosen)
    return Rows(a[index], s[index], y[index], weight[index])  # type: ignore[arg-type]
