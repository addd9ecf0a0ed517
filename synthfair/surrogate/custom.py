"""The global problem with a loss or a penalty of one's own: functions of JAX.

Value and slope come from ``jax.value_and_grad``, and SciPy's L-BFGS-B does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize

from synthfair.distill.gap_search import best_weight, next_weight
from synthfair.distill.losses import mean_loss
from synthfair.fairness.penalties import Penalty
from synthfair.model import LinearModel, Rows
from synthfair.surrogate.fair import PATH_RHOS, WEIGHT_STEP, FrontierPoint, GlobalProblem, Price

Functions = tuple[LinearModel, Penalty | None]
"""A model, whose loss counts, and a penalty of scores and rows."""


# Rows are arguments: what compiled code closes over is stored with it.
def _objective(
    theta: jax.Array, rho: float, rows: Rows, ridge: jax.Array, functions: Functions
) -> jax.Array:
    """Return loss, penalty and ridge at theta [p]."""
    (model, penalty), scores = functions, rows.a @ theta
    loss = mean_loss(model, scores, rows) + theta @ (ridge * theta) / 2
    return loss if penalty is None else loss + rho * penalty(scores, rows)


_slope = jax.jit(jax.value_and_grad(_objective), static_argnames="functions")
_hessian = jax.jit(jax.hessian(_objective), static_argnames="functions")


@dataclass(frozen=True, eq=False)
class CustomProblem:
    """The problem of :class:`GlobalProblem` with another loss or penalty.

    Attributes:
        problem: rows, ridge, and what gaps of decisions compare.
        model: its loss, of scores a'theta.
        penalty: of scores and rows; None for none.
    """

    problem: GlobalProblem
    model: LinearModel
    penalty: Penalty | None

    def slope(
        self, theta: np.ndarray, price: Price, weight: np.ndarray | None = None
    ) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient [p], of weights [N] in place of the problem's."""
        value, gradient = self._evaluate(_slope, theta, price, weight)
        return float(value), gradient

    def hessian(self, theta: np.ndarray, price: Price) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient [p] and the Hessian [p, p]."""
        return self.slope(theta, price)[1], self._evaluate(_hessian, theta, price)

    def _evaluate(self, function: Any, theta: np.ndarray, price: Price, weight: Any = None) -> Any:
        """Return what a function of the arguments of :func:`_objective` returns, in float64."""
        problem, functions = self.problem, (self.model, self.penalty)
        rows = Rows(problem.a, problem.s, problem.y, problem.w if weight is None else weight)
        with jax.enable_x64(True):
            values = function(theta, price.rho, rows, problem.ridge, functions=functions)
        return jax.tree.map(np.array, values)

    def gradients_without(
        self, theta: np.ndarray, price: Price, owner: np.ndarray, compared: tuple[int, ...] = ()
    ) -> np.ndarray:
        """Return the gradients [K, p], each without one owner, to first order in its weight."""
        del compared  # only penalties of the package have gaps of clients
        w, gradients = self.problem.w, []
        for k in range(int(owner.max()) + 1):
            owned = np.where(owner == k, w, 0.0)
            change = WEIGHT_STEP * owned
            less, more = (
                self.slope(theta, price, weight)[1] for weight in (w - change, w + change)
            )
            rest = max(1 - owned.sum(), np.finfo(float).tiny)
            gradients.append((less + more) / 2 + (less - more) / (2 * WEIGHT_STEP * rest))
        return np.stack(gradients)

    def near(self, start: np.ndarray, price: Price) -> FrontierPoint:
        """Return the optimum near a start, by L-BFGS."""
        options = {"ftol": 0.0, "gtol": 1e-8, "maxiter": 2000, "maxfun": 20_000}
        end = minimize(
            self.slope, start, args=(price,), jac=True, method="L-BFGS-B", options=options
        )
        small = np.abs(end.jac).max() <= 1e-5 * max(1.0, abs(end.fun))
        f, gradient = float(end.fun), np.asarray(end.jac)
        return self.problem.point(np.asarray(end.x), price, f, gradient, converged=bool(small))

    def solve(self, rho: float) -> FrontierPoint:
        """Return the lower of the optima from zeros and from the path of growing rho."""
        theta = self.problem.zero
        for weight in (weight for weight in PATH_RHOS if weight < rho or weight == 0):
            theta = self.near(theta, Price(weight)).theta
        ends = [self.near(start, Price(float(rho))) for start in (theta, self.problem.zero)]
        return min(ends, key=lambda end: end.objective)

    def meet(self, max_gap: float | None, max_client_gap: float | None = None) -> FrontierPoint:
        """Return the model of about the least rho whose gap of decisions is at most ``max_gap``.

        Where none is, that of the least gap; see :mod:`synthfair.distill.gap_search`.
        """
        del max_client_gap  # as in gradients_without
        limit = np.inf if max_gap is None else max_gap
        free = self.near(self.problem.zero, Price(0.0))
        if free.gap <= limit:
            return free
        points, gaps = dict[float, FrontierPoint](), dict[float, float]()
        while (rho := next_weight(gaps, limit)) is not None:
            starts = [free, *points.values()]
            nearest = np.argmin([abs(start.price.rho - rho) for start in starts])
            points[rho] = self.near(starts[nearest].theta, Price(rho))
            gaps[rho] = points[rho].gap
        return points[best_weight(gaps, limit)]
