"""Accuracy against fairness over rho, and the least rho that meets a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config.rules import Notion
from synthfair.fairness.penalties import Grouping, Penalty, client_gaps, decision_gaps
from synthfair.model import LinearModel, Rows
from synthfair.surrogate.fair_training import Trainer, thinned

WEIGHTS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

SLACK = 0.05
"""Accuracy that a gap may cost before other optima are looked for: where nobody is selected it
costs all that a model has above the constant classifier."""

LOWER = 1e-4
"""Objective by which an optimum is lower than another one, and not the same."""

LEAST = 1e-4
"""Weights below are as good as 0."""

PRECISION = 1.05
"""Ratio of a weight that meets a gap and a lesser one that does not, at which a search ends."""


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
        client_gap: the largest gap of a client on its own rows; not-a-number where no client's is
            asked for.

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
    client_gap: float = np.nan


@dataclass(frozen=True, eq=False)
class GlobalProblem:
    """What the server solves over all clients' rows, but for rho.

    Attributes:
        rows: of all clients, weighted.
        penalty: of their scores.
        notion: which rows :attr:`FrontierPoint.gap` compares.
        n_groups: number of groups.
        lambda_theta: regularisation, see :func:`synthfair.model.regularized_loss`.
        by: groupings, of which the gap is the largest; without any, each index s is a group.
        clients: number of clients whose own gaps count, too. The index s of the rows is then client
            * n_groups + group, and beyond for rows of others.

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
    by: tuple[Grouping, ...] = ()
    clients: int = 0

    @cached_property
    def _trainer(self) -> Trainer:
        return Trainer(self.rows, self.lambda_theta, LinearModel(), self.penalty)

    def point(self, rho: float, start: np.ndarray | None = None) -> FrontierPoint:
        """The model for this rho, of several starts or one. See :func:`train_fair`."""
        with jax.enable_x64(True):
            solution = self._trainer.solve(float(rho), start)
            accuracy, gap, client_gap = _decisions(
                solution.params,
                self._trainer.all_rows,
                notion=self.notion,
                n_groups=self.n_groups,
                by=self.by,
                clients=self.clients,
            )
        return FrontierPoint(
            float(rho),
            np.asarray(solution.params),
            float(accuracy),
            float(gap),
            float(solution.gradient_norm),
            bool(solution.converged),
            float(solution.value),
            float(client_gap),
        )


@partial(jax.jit, static_argnames=("notion", "n_groups", "by", "clients"))
def _decisions(
    theta: jax.Array,
    rows: Rows,
    *,
    notion: Notion,
    n_groups: int,
    by: tuple[Grouping, ...],
    clients: int,
) -> tuple[jax.Array, jax.Array, jax.Array | float]:
    """Computes the accuracy of a linear model, its largest gap, and the largest of a client."""
    scores, largest = LinearModel().scores(theta, rows.a), np.nan
    accuracy = jnp.average((scores > 0) == (rows.y > 0), weights=rows.weight)
    compared: Any = {"notion": notion, "n_groups": n_groups, "by": by}
    if clients:
        largest = jnp.max(client_gaps(scores, rows, **compared, clients=clients))
        rows = rows._replace(s=rows.s % n_groups)
    return accuracy, jnp.nanmax(decision_gaps(scores, rows, **compared)), largest


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


def least_weight(
    problem: GlobalProblem, max_gap: float | None, max_client_gap: float | None = None
) -> FrontierPoint:
    """The model of about the least rho whose gap on the weighted rows is at most ``max_gap``.

    And whose largest gap of a client is at most ``max_client_gap``, if that is given.

    A path of growing rho is followed from the model without a penalty to where it meets the gap, on
    a part of many rows first. Where it ends without, or at a poor model, which has lost half of
    what it had above the constant classifier (with clients all of it), or much and is not the
    lowest optimum of several starts, it is the path through the first of the frontier's points that
    meet the gap and are nearly as accurate as any; where none meets it, the model of least gap.

    Args:
        problem: of all clients.
        max_gap: largest difference between the groups' decision rates, from 0 to 1; None for any.
        max_client_gap: the same of each of the problem's clients.

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
    limits = tuple(np.inf if most is None else most for most in (max_gap, max_client_gap))
    free = problem.point(0.0)
    if _meets(free, limits):
        return free
    # The path leads from the most accurate model to where the gap is met: on a part of many rows
    # first, whose models differ from those of all rows much alike whatever rho is.
    positive = float(np.average(np.asarray(problem.rows.y) > 0, weights=problem.rows.weight))
    constant = max(positive, 1 - positive)
    enough = free.accuracy - max(SLACK, (free.accuracy - constant) / 2)
    if problem.clients:  # to be fair to each of unlike clients may cost more
        enough = constant
    few = thinned(problem.rows)
    part = problem if few is problem.rows else replace(problem, rows=few)
    start = free if part is problem else part.point(0.0, free.theta)
    least = _least_along(part, part.point(WEIGHTS[1], start.theta), limits, factor=2.0)
    if part is not problem and least.accuracy > enough:
        near = problem.point(least.rho, least.theta + free.theta - start.theta)
        least = _least_along(problem, near, limits, factor=1.1)
    # One that costs much must be the lowest optimum that several starts lead to.
    if _meets(least, limits) and least.accuracy > enough:
        costly = least.accuracy <= free.accuracy - SLACK
        if not costly or problem.point(least.rho).objective > least.objective - LOWER:
            return least
    # It may end at a poor optimum, and which is the lowest changes with rho: of the frontier's
    # points that meet the gap and are nearly as accurate as any, the first is followed.
    points = frontier(problem)
    if met := [point for point in points if _meets(point, limits)]:
        most = max(point.accuracy for point in met) - SLACK
        first = next(point for point in met if point.accuracy >= most)
        return _least_along(problem, first, limits, factor=1.1)
    return min(points, key=lambda point: (np.isnan(point.theta).any(), _excess(point, limits)))


def _excess(point: FrontierPoint, limits: tuple[float, ...]) -> float:
    """How far the gap, or the largest of a client, is above its limit; the larger of both."""
    return float(np.fmax(point.gap - limits[0], point.client_gap - limits[1]))


def _meets(point: FrontierPoint, limits: tuple[float, ...]) -> bool:
    """A model of not-a-number selects nobody, and has no gap."""
    return _excess(point, limits) <= 0 and bool(np.isfinite(point.theta).all())


def _least_along(
    problem: GlobalProblem, point: FrontierPoint, limits: tuple[float, ...], *, factor: float
) -> FrontierPoint:
    """The point of least rho that meets the gap, on the path of optima through a point.

    Where the path ends before, because rho is as large or as small as it may be or there is no
    optimum, its last point.
    """
    # To neighbours on the path, at first by the factor, of which one meets the gap.
    rises = not _meets(point, limits)
    while True:
        rho = point.rho * factor if rises else point.rho / factor
        if not LEAST <= rho <= WEIGHTS[-1] or np.isnan(point.theta).any():
            return point
        last, point = point, problem.point(rho, point.theta)
        if _meets(point, limits) == rises:
            break
        factor = min(factor**2, 2.0)
    met, missed = (point, last) if rises else (last, point)
    # Between them, on a logarithmic scale.
    while met.rho > PRECISION * missed.rho:
        rho, start = (met.rho * missed.rho) ** 0.5, (met.theta + missed.theta) / 2
        middle = problem.point(rho, start)
        met, missed = (middle, missed) if _meets(middle, limits) else (met, middle)
    return met
