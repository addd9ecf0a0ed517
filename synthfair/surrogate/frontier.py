"""Accuracy against fairness over rho, and the least rho that meets a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import Notion
from synthfair.fairness.penalties import Penalty, decision_gaps
from synthfair.model import LinearModel, Rows
from synthfair.surrogate.fair_training import objective, train_fair

WEIGHTS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

REFINEMENTS = 12
"""Bisections of rho, on its logarithm, between the two points where a gap is met."""

LOWEST = 1e-3
"""Where bisection towards rho = 0 begins, as a share of the weight that meets the gap."""


SLACK = 0.05
"""Accuracy that less weight may cost; an optimum where nobody is selected costs more."""


class FrontierPoint(NamedTuple):
    """A model of the frontier.

    Attributes:
        rho: weight of the penalty.
        theta: [n] parameters.
        accuracy: on the weighted rows.
        gap: largest difference between the groups' decision rates there.
        gradient_norm: of the whole objective at theta.
        converged: whether its training met its tolerance.
        objective: loss, penalty and regularisation at theta.

    Example:
        See :func:`frontier`.
    """

    rho: float
    theta: np.ndarray
    accuracy: float
    gap: float
    gradient_norm: float
    converged: bool
    objective: float


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
        """The model for this rho, of several starts or one. See :func:`train_fair`."""
        problem = self.rows, self.lambda_theta, float(rho)
        settings = {"model": LinearModel(), "penalty": self.penalty}
        with jax.enable_x64(True):
            solution = train_fair(*problem, start=start, **settings)
            value = objective(solution.params, *problem, **settings)
            theta = np.asarray(solution.params)
            scores = np.asarray(self.rows.a) @ theta
            gaps = decision_gaps(
                jnp.asarray(scores), self.rows, notion=self.notion, n_groups=self.n_groups
            )
        right = (scores > 0) == (np.asarray(self.rows.y) > 0)
        accuracy, gap = float(np.average(right, weights=self.rows.weight)), float(np.nanmax(gaps))
        norm, converged = float(solution.gradient_norm), bool(solution.converged)
        return FrontierPoint(float(rho), theta, accuracy, gap, norm, converged, float(value))


def frontier(problem: GlobalProblem, weights: Sequence[float] = WEIGHTS) -> list[FrontierPoint]:
    """The models for growing weights of the penalty.

    Args:
        problem: of all clients.
        weights: values of rho.

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
    return [problem.point(rho) for rho in weights]


def least_weight(problem: GlobalProblem, max_gap: float) -> FrontierPoint:
    """The model of about the least rho whose gap on the weighted rows is at most ``max_gap``.

    Of the frontier's points with such a gap that are nearly as accurate as any the first, and from
    there to less weight by bisection. Where no weight reaches the gap, the model of least gap.

    Args:
        problem: of all clients.
        max_gap: largest difference between the groups' decision rates, from 0 to 1.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = (part[:400] for part in sf.encode(*sf.load_dataset("loanapp")))
        >>> rows = sf.surrogate.WeightedTable(x, s, y, np.ones(len(y))).rows(n_groups=2)
        >>> problem = sf.surrogate.GlobalProblem(
        ...     rows, sf.SelectionRatePenalty(), "statistical_parity", n_groups=2, lambda_theta=1e-3
        ... )
        >>> sf.surrogate.least_weight(problem, max_gap=0.05).gap <= 0.05
        True
    """

    def meets(point: FrontierPoint) -> bool:
        """A model of not-a-number selects nobody, and has no gap."""
        return point.gap <= max_gap and bool(np.isfinite(point.theta).all())

    if meets(free := problem.point(0.0)):
        return free
    # Which optimum is the lowest may change with rho, and accuracy rise where it does.
    points = frontier(problem)
    met = [i for i, point in enumerate(points) if meets(point)]
    if not met:
        return min(points, key=lambda point: (np.isnan(point.theta).any(), point.gap))
    most = max(points[i].accuracy for i in met) - SLACK
    chosen = next(i for i in met if points[i].accuracy >= most)
    least, low = points[chosen], points[chosen - 1].rho
    # Between this weight and the one before, on a logarithmic scale, the same optimum is followed.
    for _ in range(REFINEMENTS):
        middle = problem.point(((low or least.rho * LOWEST) * least.rho) ** 0.5, least.theta)
        low, least = (low, middle) if meets(middle) else (middle.rho, least)
    return least
