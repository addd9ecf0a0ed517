"""Models of the global problem: for a weight of the penalty, for many, and for a wanted gap.

A smooth selection rate is not convex: of the optima that several starts lead to the lowest is
taken. A wanted gap is met by what is free, not by rho: a search for rho jumps over it where an
optimum ends, and gives up accuracy where the gap is met already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve
from scipy.optimize import minimize

from synthfair.fairness.penalties import CovariancePenalty
from synthfair.surrogate.objective import FairObjective, FrontierPoint, Price

PATH = (0.0, *(0.1 * 4.0**k for k in range(11)))
"""Weights of a path of growing rho; each problem starts at the solution of the one before."""

WEIGHTS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

GAP_TOLERANCE = 0.02
"""Share of a wanted gap by which a model may be fairer than asked for a search to end."""

CLEAR_RATIO = 1.2
"""Ratio of the gap of a part of the rows to the limit above which that part alone shows that a
model without a penalty does not meet the limit."""

MIN_RHO, MAX_TRIES, MAX_STARTS = 100.0, 12, 2
"""Of a search: the least weight of what is beyond the wanted gap, and the largest numbers of models
and of starts."""

START_SHARES = (1.0, 0.5)
"""Shares of the limits that are free where searches begin: each leads to other optima."""

COVARIANCE = (10.0, 100.0, 1000.0)
"""Weights of the covariance whose solutions are starts of a penalty that is not convex."""

TOLERANCE, START_TOLERANCE = 1e-12, 1e-6
"""Decrements g'H^-1 g, about twice what the objective is above the optimum, at which Newton's
method ends: for the result, and for starts that are compared."""

PRECISION = 1e-4
"""Norm of the gradient, in coordinates in which the Hessian is about the identity, at which L-BFGS
ends: the objective is then within half its square of the optimum."""

START_ROWS, SEARCH_ROWS = 10_000, 40_000
"""Rows on which starts are compared, and on which a gap is searched for; of more, a part."""


@dataclass(frozen=True, eq=False)
class GlobalProblem(FairObjective):
    """What the server solves over all clients' rows. See :class:`FairObjective` for its fields."""

    def newton(
        self, start: np.ndarray, price: Price, tolerance: float = TOLERANCE, most: int = 100
    ) -> FrontierPoint:
        """Return the optimum near a start, by Newton's method."""
        theta = np.array(start, dtype=float)
        z = self.inputs @ theta
        f, decrement, gradient = self.value(theta, price, z), np.inf, theta
        for steps in range(most + 1):
            gradient, hessian = self.hessian(theta, price, z)
            try:
                step = cholesky_solve(hessian, gradient)
            except LinAlgError:
                gradient, hessian = self.hessian(theta, price, z, cut=True)
                step = _solve(hessian, gradient)
            decrement = float(gradient @ step)
            if not decrement > tolerance or steps == most:
                break
            # Halve the step until it gains enough; near the optimum rounding hides what it gains.
            t, dz, rounding = 1.0, self.inputs @ step, 1e-14 * max(1.0, abs(f))
            while t > 1e-9:
                after = self.value(theta - t * step, price, z - t * dz)
                if after <= f - 1e-4 * t * decrement + rounding:
                    break
                t /= 2
            else:
                break
            theta, z, stalled, f = theta - t * step, z - t * dz, not after < f, after
            if stalled:
                break
        converged = decrement <= max(tolerance, 1e-9 * max(1.0, abs(f)))
        return self.point(theta, price, f, gradient, converged=bool(converged))

    def polish(self, near: FrontierPoint, part: GlobalProblem) -> FrontierPoint:
        """Return the optimum of all rows near that of a part of them.

        L-BFGS in coordinates in which the part's Hessian is the identity: a gradient of all rows
        takes a fraction of a Gram matrix, and some ten are enough.
        """
        _, hessian = part.hessian(near.theta, near.price)
        values, vectors = np.linalg.eigh(hessian)
        least = 1e-9 * np.abs(values).max()
        scale = vectors / np.sqrt(np.maximum(np.abs(values), least))
        # In units of the first gradient, as the first step of L-BFGS has the length 1.
        unit = float(np.linalg.norm(scale.T @ self.slope(near.theta, near.price)[1])) or 1.0

        def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.slope(near.theta + unit * (scale @ u), near.price)
            return value / unit**2, scale.T @ gradient / unit

        options = {"ftol": 0.0, "gtol": PRECISION / unit, "maxiter": 200}
        zero = np.zeros(len(near.theta))
        end = minimize(objective, zero, jac=True, method="L-BFGS-B", options=options)
        gradient, theta = end.jac * unit, near.theta + unit * (scale @ end.x)
        converged = bool(np.linalg.norm(gradient) <= 3 * PRECISION)
        gradient, value = np.linalg.solve(scale.T, gradient), float(end.fun) * unit**2
        return self.point(theta, near.price, value, gradient, converged=converged)

    @cached_property
    def fair_by_covariance(self) -> list[np.ndarray]:
        """Solutions [p] of the same problem with the covariance as its penalty."""
        own = self.penalty
        covariance = self.changed(penalty=CovariancePenalty(own.n_groups, own.notion, own.by))
        ends = [self.zero]
        for rho in COVARIANCE:
            ends.append(covariance.newton(ends[-1], Price(rho), START_TOLERANCE).theta)
        return ends[1:]

    def near(self, theta: np.ndarray, price: Price) -> FrontierPoint:
        """Return the optimum near params [p], of many rows by way of a part of them."""
        part = self.part_of_rows
        if part is self:
            return self.newton(theta, price, 1e-9)
        return self.polish(part.newton(theta, price, START_TOLERANCE), part)

    def finish(self, near: FrontierPoint) -> FrontierPoint:
        """Return the optimum near that of a part of the rows, to all digits."""
        if self.part_of_rows is self:
            return self.newton(near.theta, near.price)
        return self.near(near.theta, near.price)

    @cached_property
    def part_of_rows(self) -> GlobalProblem:
        """The part of many rows of which a Gram matrix is made."""
        return self.part(SEARCH_ROWS)

    def changed(self, **fields: Any) -> GlobalProblem:
        """Return the same rows with another penalty or other weights [N]."""
        problem = replace(self, **fields)
        for name in ("inputs", "products", "cell"):
            problem.__dict__[name] = getattr(self, name)
        return problem

    def part(self, rows: int) -> GlobalProblem:
        """Return the same problem on about so many rows, alike of each cell; or itself."""
        n = len(self.s)
        if rows >= n:
            return self
        order = np.random.default_rng(0).permutation(n)
        order = order[np.argsort(self.cell[order], kind="stable")]
        size = np.bincount(self.cell, minlength=self.n_cells)
        few = np.minimum(size, np.maximum(50, np.ceil(size * rows / n))).astype(int)
        rank = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
        chosen = np.sort(order[rank < np.repeat(few, size)])
        cell = self.cell[chosen]
        own = np.bincount(cell, self.w[chosen], self.n_cells)
        weight = self.w[chosen] * (self.mass / np.maximum(own, np.finfo(float).tiny))[cell]
        client = None if self.client is None else self.client[chosen]
        a, s, y = (of[chosen] for of in (self.inputs, self.s, self.y))
        return replace(self, a=a, s=s, y=y, weight=weight, client=client)

    def solve(self, rho: float) -> FrontierPoint:
        """Return the lowest of the optima that several starts lead to, for a weight of the penalty.

        Growing rho leads from the most accurate model to a fair one; solutions of the covariance,
        which has one optimum, lead to models that are fair in another way, and so does a larger
        rho. Of many rows, a part decides between the starts.
        """
        few, price = self.part(START_ROWS), Price(float(rho))
        starts = [few.newton(few.zero, Price(0.0), START_TOLERANCE).theta]
        if rho > 0 and not self.penalty.convex:
            for weight in (weight for weight in PATH if 0 < weight < rho):
                starts[0] = few.newton(starts[0], Price(weight), START_TOLERANCE).theta
            steep = few.newton(few.fair_by_covariance[-1], Price(16.0 * rho), START_TOLERANCE)
            starts += [few.zero, *few.fair_by_covariance, steep.theta]
        ends = [few.newton(start, price, START_TOLERANCE) for start in starts]
        return self.finish(min(ends, key=lambda end: end.objective))

    def meet(self, max_gap: float | None, max_client_gap: float | None = None) -> FrontierPoint:
        """Return an accurate model whose gap of decisions is just within a limit.

        What is beyond a share t of the limit costs a lot, and t is searched for, as the penalty
        sees smooth rates in place of decisions. Roots in t are not unique: of all models that meet
        the limit on the way, from several starts, the most accurate is returned; where none does,
        that of the least gap.
        """
        limits = np.array([np.inf if most is None else most for most in (max_gap, max_client_gap)])
        few, more = self.part(START_ROWS), self.part(SEARCH_ROWS)
        start = few.newton(few.zero, Price(0.0), START_TOLERANCE)
        free = more.newton(start.theta, Price(0.0))
        if _excess(free, limits) <= CLEAR_RATIO and _excess(free := self.finish(free), limits) <= 1:
            return free
        rho = float(max(MIN_RHO, 10 / limits.min()))
        # Where a model of all rows takes far longer than one of a part, the part is searched first.
        larger = [more] if len(self.s) > 5 * SEARCH_ROWS else []
        larger += [self] if few is not self else []
        ends: list[FrontierPoint] = []
        for share in START_SHARES:
            price = Price(rho, *(share * limits).tolist())
            firsts = [
                few.newton(theta, price, START_TOLERANCE)
                for theta in (start.theta, *few.fair_by_covariance)
            ]
            distinct = {round(first.objective / START_TOLERANCE): first.theta for first in firsts}
            for _, theta in sorted(distinct.items())[:MAX_STARTS]:
                ends += _search(few, theta, limits, price)
        for stage in larger:
            best = _best(ends, limits)
            ends = _search(stage, best.theta, limits, best.price)
        return _best(ends, limits)


def frontier(problem: GlobalProblem, weights: Sequence[float] = WEIGHTS) -> list[FrontierPoint]:
    """Return the models for weights of the penalty.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> from synthfair.surrogate import GlobalProblem, frontier
        >>> rng = np.random.default_rng(0)
        >>> s = rng.integers(2, size=500)
        >>> a = np.column_stack([rng.normal(s), np.ones(500)])
        >>> y = np.where(a[:, 0] + rng.logistic(size=500) > 0.5, 1.0, -1.0)
        >>> penalty = sf.CovariancePenalty(2)
        >>> problem = GlobalProblem(a, s, y, np.ones(500), penalty, ridge=np.zeros(2))
        >>> [point.gap > 0.1 for point in frontier(problem, [0.0, 1000.0])]
        [True, False]
    """
    return [problem.solve(rho) for rho in weights]


def _search(
    problem: GlobalProblem, theta: np.ndarray, limits: np.ndarray, price: Price
) -> list[FrontierPoint]:
    """Return the models of a search for the share t of the limits that is free, from a price on."""
    t = price[1 + (tightest := int(np.argmin(limits)))] / limits[tightest]
    low: tuple[float, float, FrontierPoint] | None = None
    high, tries = low, []
    for _ in range(MAX_TRIES):
        widths = (t * limit if limit < np.inf else limit for limit in limits.tolist())
        near = problem.near(theta, Price(price.rho, *map(float, widths)))
        tries.append(near)
        e = _excess(near, limits)
        if e > 1 and problem.is_flipped(near.theta):
            e = -e  # beyond the limit on the other side: t is too small
        low, high = ((t, e, near), high) if e <= 1 else (low, (t, e, near))
        if (
            1 - GAP_TOLERANCE <= e <= 1
            or (e > 1 and t == 0)
            or (low and high and abs(high[0] - low[0]) < 1e-3)
        ):
            break
        if low and high:
            share = np.clip((1 - GAP_TOLERANCE / 2 - low[1]) / (high[1] - low[1]), 0.1, 0.9)
            t = low[0] + share * (high[0] - low[0])
            theta = min(low, high, key=lambda end: abs(end[1] - 1))[2].theta
        else:
            t, theta = max(0.0, t + 1.2 * (1 - GAP_TOLERANCE / 2 - e)), near.theta
    return tries


def _best(points: Sequence[FrontierPoint], limits: np.ndarray) -> FrontierPoint:
    """Return the most accurate of the models that meet the limits, else that of the least gap."""
    met = [point for point in points if _excess(point, limits) <= 1]
    if met:
        return max(met, key=lambda point: point.accuracy)
    return min(points, key=lambda point: _excess(point, limits))


def _excess(point: FrontierPoint, limits: np.ndarray) -> float:
    """Return the gap as a share of its limit, or that of a client, the larger."""
    return float(np.fmax(point.gap / limits[0], point.client_gap / limits[1]))


def cholesky_solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return H^-1 b by Cholesky. Raises LinAlgError: H is not positive definite.

    NumPy factorises, as it makes Gram matrices: SciPy has threads of its own, and those of both
    would wait for each other.
    """
    return cho_solve((np.linalg.cholesky(matrix), True), right)


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return H^-1 v, with absolute eigenvalues where rounding makes H indefinite."""
    try:
        return cholesky_solve(matrix, vector)
    except LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
    size = np.abs(values)
    return vectors @ ((vector @ vectors) / np.maximum(size, 1e-12 * size.max() + 1e-300))
