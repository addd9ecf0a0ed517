"""Accuracy against fairness over rho: each point starts at the solution of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import Notion
from synthfair.distill.inner import InnerSolution
from synthfair.fairness.penalties import Penalty, decision_gaps
from synthfair.model import LinearModel, Rows
from synthfair.surrogate.fair_training import train_fair

WEIGHTS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

REFINEMENTS = 12
"""Bisections of rho, on its logarithm, between the two points where a gap is met."""

LOWEST = 1e-3
"""Where bisection towards rho = 0 begins, as a share of the weight that meets the gap."""


class FrontierPoint(NamedTuple):
    """A model of the frontier.

    Attributes:
        rho: weight of the penalty.
        theta: [n] parameters.
        accuracy: on the weighted rows.
        gap: largest difference between the groups' decision rates there.
        gradient_norm: of the whole objective at theta.
        converged: whether its training met its tolerance.

    Example:
        See :func:`frontier`.
    """

    rho: float
    theta: np.ndarray
    accuracy: float
    gap: float
    gradient_norm: float
    converged: bool


class GlobalProblem(NamedTuple):
    """What the server solves over all clients' rows, but for rho.

    Attributes:
        rows: of all clients, weighted.
        penalty: of their scores.
        notion: which rows :attr:`FrontierPoint.gap` compares.
        n_groups: number of groups.
        lambda_theta: regularisation, see :func:`synthfair.model.regularized_loss`.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = sf.encode(*sf.load_dataset("loanapp"))
        >>> rows = sf.surrogate.WeightedTable(x, s, y, np.ones(len(y))).rows(n_groups=2)
        >>> problem = sf.surrogate.GlobalProblem(
        ...     rows, sf.SelectionRatePenalty(), "statistical_parity", n_groups=2, lambda_theta=1e-3
        ... )
        >>> point = problem.point(rho=10.0)
        >>> point.converged, f"{point.gap:.2f}"
        (True, '0.01')
    """

    rows: Rows
    penalty: Penalty
    notion: Notion
    n_groups: int
    lambda_theta: float

    def point(self, rho: float, start: np.ndarray | None = None) -> FrontierPoint:
        """The model for this rho; from that of a rho nearby, or with rho growing from 0."""
        with jax.enable_x64(True):
            solution = train_fair(
                self.rows,
                self.lambda_theta,
                float(rho),
                model=LinearModel(),
                penalty=self.penalty,
                start=start,
            )
            accuracy, gap = _measured(
                solution.params, self.rows, notion=self.notion, n_groups=self.n_groups
            )
        return _point(rho, solution, float(accuracy), float(gap))


def _point(rho: float, solution: InnerSolution, accuracy: float, gap: float) -> FrontierPoint:
    norm, theta = float(solution.gradient_norm), np.asarray(solution.params)
    return FrontierPoint(float(rho), theta, accuracy, gap, norm, bool(solution.converged))


@partial(jax.jit, static_argnames=("notion", "n_groups"))
def _measured(
    theta: jax.Array, rows: Rows, *, notion: Notion, n_groups: int
) -> tuple[jax.Array, jax.Array]:
    """Accuracy and gap of decisions on weighted rows."""
    scores = LinearModel().scores(theta, rows.a)
    right = jnp.where(rows.y > 0, scores > 0, scores <= 0)
    accuracy = jnp.average(right, weights=rows.weight)
    return accuracy, jnp.nanmax(decision_gaps(scores, rows, notion=notion, n_groups=n_groups))


def frontier(problem: GlobalProblem, weights: Sequence[float] = WEIGHTS) -> list[FrontierPoint]:
    """The models for growing weights of the penalty.

    Args:
        problem: of all clients.
        weights: values of rho, in ascending order.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = sf.encode(*sf.load_dataset("loanapp"))
        >>> rows = sf.surrogate.WeightedTable(x, s, y, np.ones(len(y))).rows(n_groups=2)
        >>> problem = sf.surrogate.GlobalProblem(
        ...     rows, sf.SelectionRatePenalty(), "statistical_parity", n_groups=2, lambda_theta=1e-3
        ... )
        >>> for point in sf.surrogate.frontier(problem, [0.0, 1.0, 10.0]):
        ...     print(f"{point.rho:4.1f} {point.accuracy:.2f} {point.gap:.2f}")
         0.0 0.93 0.18
         1.0 0.93 0.14
        10.0 0.91 0.01
    """
    points = [problem.point(weights[0])]
    for rho in weights[1:]:
        points.append(problem.point(rho, points[-1].theta))
    return points


def _meets(point: FrontierPoint, max_gap: float) -> bool:
    """A model of not-a-number selects nobody, and has no gap."""
    return point.gap <= max_gap and bool(np.isfinite(point.theta).all())


def least_weight(problem: GlobalProblem, max_gap: float) -> FrontierPoint:
    """The model of about the least rho whose gap on the weighted rows is at most ``max_gap``.

    Along the frontier, and then by bisection, as if the gap fell with rho. Where no weight reaches
    it, the one of least gap.

    Args:
        problem: of all clients.
        max_gap: largest difference between the groups' decision rates, from 0 to 1.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = sf.encode(*sf.load_dataset("loanapp"))
        >>> rows = sf.surrogate.WeightedTable(x, s, y, np.ones(len(y))).rows(n_groups=2)
        >>> problem = sf.surrogate.GlobalProblem(
        ...     rows, sf.SelectionRatePenalty(), "statistical_parity", n_groups=2, lambda_theta=1e-3
        ... )
        >>> sf.surrogate.least_weight(problem, max_gap=0.05).gap <= 0.05
        True
    """
    before: FrontierPoint | None = None
    points: list[FrontierPoint] = []
    for rho in WEIGHTS:
        found = problem.point(rho, points[-1].theta if points else None)
        if _meets(found, max_gap):
            break
        points.append(before := found)
    else:
        return min(points, key=lambda point: point.gap)
    if before is None:
        return found
    for _ in range(REFINEMENTS):
        low = before.rho or found.rho * LOWEST
        middle = problem.point((low * found.rho) ** 0.5, before.theta)
        before, found = (before, middle) if _meets(middle, max_gap) else (middle, found)
    return found
