"""Accuracy against fairness over rho: each point starts at the solution of the one before.

A penalty of selection rates is not convex. The path of growing rho may end where all are selected,
or nobody, and smooth rates no longer move: less accurate than a constant. So there is a second
path, of falling rho: it begins at theta = 0, where the groups' rates are equal and no score large.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import Notion
from synthfair.fairness.penalties import Penalty, decision_gaps
from synthfair.model import LinearModel, Rows, regularized_loss
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
        """The model for this rho, trained from that of a rho nearby.

        Without a start, of two the one of lower objective: rho grows from 0, or theta = 0 is first.
        """
        if start is None:
            zero = np.zeros(self.rows.a.shape[1])
            return _lower(self._trained(rho, None), self._trained(rho, zero))
        return self._trained(rho, start)

    def _trained(self, rho: float, start: np.ndarray | None) -> FrontierPoint:
        with jax.enable_x64(True):
            solution = train_fair(
                self.rows,
                self.lambda_theta,
                float(rho),
                model=LinearModel(),
                penalty=self.penalty,
                start=start,
            )
            measured = _measured(
                solution.params,
                self.rows,
                self.lambda_theta,
                float(rho),
                penalty=self.penalty,
                notion=self.notion,
                n_groups=self.n_groups,
            )
        accuracy, gap, objective = map(float, measured)
        norm, theta = float(solution.gradient_norm), np.asarray(solution.params)
        return FrontierPoint(
            float(rho), theta, accuracy, gap, norm, bool(solution.converged), objective
        )


SAME = 1e-9
"""Objectives that differ by less are of one optimum; the first of them is taken."""


def _lower(first: FrontierPoint, second: FrontierPoint) -> FrontierPoint:
    """The one of lower objective; not-a-number is where training diverged."""
    lower = second.objective < first.objective - SAME or np.isnan(first.objective)
    return second if lower else first


@partial(jax.jit, static_argnames=("penalty", "notion", "n_groups"))
def _measured(
    theta: jax.Array,
    rows: Rows,
    lambda_theta: float,
    rho: float,
    *,
    penalty: Penalty,
    notion: Notion,
    n_groups: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Accuracy and gap of decisions on weighted rows, and the objective."""
    model = LinearModel()
    scores = model.scores(theta, rows.a)
    right = jnp.where(rows.y > 0, scores > 0, scores <= 0)
    accuracy = jnp.average(right, weights=rows.weight)
    gap = jnp.nanmax(decision_gaps(scores, rows, notion=notion, n_groups=n_groups))
    loss = regularized_loss(model, theta, rows, lambda_theta)
    return accuracy, gap, loss + rho * penalty(scores, rows)


def frontier(problem: GlobalProblem, weights: Sequence[float] = WEIGHTS) -> list[FrontierPoint]:
    """The models for growing weights of the penalty, each of the lower objective of two paths.

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
    return list(map(_lower, *_paths(problem, weights)))


def _paths(problem: GlobalProblem, weights: Sequence[float]) -> tuple[list[FrontierPoint], ...]:
    """The models of growing rho, and those of falling rho; both by ascending rho."""
    up = [problem.point(weights[0])]
    for rho in weights[1:]:
        up.append(problem.point(rho, up[-1].theta))
    down = [problem.point(weights[-1], np.zeros_like(up[0].theta))]
    for rho in weights[-2::-1]:
        down.append(problem.point(rho, down[-1].theta))
    return up, down[::-1]


def _meets(point: FrontierPoint, max_gap: float) -> bool:
    """A model of not-a-number selects nobody, and has no gap."""
    return point.gap <= max_gap and bool(np.isfinite(point.theta).all())


def least_weight(problem: GlobalProblem, max_gap: float) -> FrontierPoint:
    """The model of about the least rho whose gap on the weighted rows is at most ``max_gap``.

    On each of the two paths the first such point, and then by bisection, as if the gap fell with
    rho; of these models the more accurate one. Where no weight reaches the gap, the model of least
    gap.

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
    free = problem.point(0.0)
    if _meets(free, max_gap):
        return free
    paths = _paths(problem, WEIGHTS)
    found = [_bisected(problem, path, max_gap) for path in paths]
    if met := [point for point in found if point]:
        return max(met, key=lambda point: point.accuracy)
    return min((point for path in paths for point in path), key=lambda point: point.gap)


def _bisected(
    problem: GlobalProblem, path: Sequence[FrontierPoint], max_gap: float
) -> FrontierPoint | None:
    """The first point of a path that meets a gap, with rho refined; None if none does."""
    first = next((i for i, point in enumerate(path) if _meets(point, max_gap)), None)
    if not first:
        return None if first is None else path[0]
    before, found = path[first - 1 : first + 1]
    for _ in range(REFINEMENTS):
        low = before.rho or found.rho * LOWEST
        middle = problem.point((low * found.rho) ** 0.5, found.theta)
        before, found = (before, middle) if _meets(middle, max_gap) else (middle, found)
    return found
