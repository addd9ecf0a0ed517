"""The global problem of the weighted rows of all clients.

    min over theta   sum_i w_i log(1 + exp(-y_i z_i)) + rho/2 sum_c max(|gap_c| - free, 0)^2
                     + 1/2 sum_j ridge_j theta_j^2,          z = A theta,   sum_i w_i = 1

Each row is in one *cell*: a client, a group and a label. All gaps are linear in the cells' sums of
w g(z), where g is the penalty's function of a score:

    gap = C m,   m = cell sums of w_i g(z_i)

With r_i = w_i (C' charged)[cell of i], where charged = sign(gap) max(|gap| - free, 0), the penalty
has the gradient A'(r g'(z)) and the Hessian A' diag(r g''(z)) A + U'U, where
U = C [cell sums of w_i g'(z_i) a_i]. So a step of Newton's method takes one weighted Gram matrix,
whatever is compared. NumPy and SciPy alone.

A smooth selection rate is not convex: of the optima that several starts lead to the lowest is
taken. A wanted gap is met by what is free, not by rho: a search for rho jumps over it where an
optimum ends, and gives up accuracy where the gap is met already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_solve
from scipy.optimize import minimize
from scipy.special import expit

from synthfair.data.batches import other_inputs
from synthfair.fairness.penalties import (
    STRATA,
    CovariancePenalty,
    SumPenalty,
    grouped,
    rate_differences,
    sum_gaps,
)
from synthfair.model import Rows

MAX_DENSITY = 0.3
"""Share of nonzero inputs below which they are kept sparse."""

MAX_SPARSE_PRODUCTS = 10_000_000
"""Products of pairs of sparse inputs that are kept at most; a Gram matrix of them takes a tenth of
the time."""

WEIGHT_STEP = 1e-4
"""Step of a finite difference in an owner's weight, as a share of it."""

PATH_RHOS = (0.0, *(0.1 * 4.0**k for k in range(11)))
"""Weights of a path of growing rho; each problem starts at the solution of the one before."""

RHOS = (0.0, *np.geomspace(0.1, 1e5, 37).tolist())
"""Values of rho of a frontier."""

GAP_TOLERANCE = 0.02
"""Share of a wanted gap by which a model may be fairer than asked for a search to end."""

CLEAR_RATIO = 1.2
"""Ratio of the gap of a sample of the rows to the limit above which that sample alone shows that a
model without a penalty does not meet the limit."""

MIN_SEARCH_RHO, MAX_SEARCH_MODELS, MAX_SEARCH_STARTS = 100.0, 12, 2
"""Of a search: the least weight of what is beyond the wanted gap, and the largest numbers of models
and of starts."""

START_SHARES = (1.0, 0.5)
"""Shares of the limits that are free where searches begin: each leads to other optima."""

COVARIANCE_RHOS = (10.0, 100.0, 1000.0)
"""Weights of the covariance whose solutions are starts of a penalty that is not convex."""

MAX_NEWTON_STEPS = 100
"""The most steps of Newton's method."""

NEWTON_DECREMENT, START_DECREMENT = 1e-12, 1e-6
"""Decrements g'H^-1 g, about twice what the objective is above the optimum, at which Newton's
method ends: for the result, and for starts that are compared."""

MAX_GRADIENT_NORM = 1e-4
"""Norm of the gradient, in coordinates in which the Hessian is about the identity, at which L-BFGS
ends: the objective is then within half its square of the optimum."""

MAX_RATIO_SEARCHES = 8
"""Searches for a gap, of which the last meets a ratio."""

START_ROWS, SEARCH_ROWS = 10_000, 40_000
"""Rows on which starts are compared, and on which a gap is searched for; of more, a sample."""


class WeightedTable(NamedTuple):
    """A table of encoded rows, each of which stands for a number of real ones.

    Attributes:
        x: [R, d] features; they may leave [0, 1].
        s: [R] groups.
        y: [R] labels, -1 or +1.
        weight: [R] numbers of real rows, at least 0.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x, s, y = np.array([[0.2], [0.7]]), np.array([0, 1]), np.array([-1.0, 1.0])
        >>> table = sf.surrogate.WeightedTable(x, s, y, weight=np.array([1.5, 2.5]))
        >>> table.rows(n_groups=2).a.tolist()  # x, s and the 1 of the intercept
        [[0.2, 0.0, 1.0], [0.7, 1.0, 1.0]]
    """

    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def rows(self, *, n_groups: int, intercept: bool = True) -> Rows:
        """Return the same as a model sees them, which reads so many groups; 1 where it is blind."""
        groups = other_inputs(self.s, n_groups=n_groups, intercept=intercept)
        return Rows(np.column_stack([self.x, groups.T]), self.s, self.y, self.weight)  # type: ignore[arg-type]


class Price(NamedTuple):
    """The price of a gap: rho/2 max(|gap| - free, 0)^2.

    Attributes:
        rho: weight of the penalty, at least 0.
        free: gap of all rows that costs nothing.
        free_of_client: gap of a client's own rows that costs nothing.
    """

    rho: float
    free: float = 0.0
    free_of_client: float = 0.0


class FrontierPoint(NamedTuple):
    """A model of the global problem, and how fair and accurate it is on the weighted rows.

    Attributes:
        price: of a gap.
        theta: [p] parameters.
        accuracy: weighted share of rows that are decided as labelled.
        gap: largest difference between the groups' decision rates.
        gradient_norm: of the whole objective at theta.
        converged: whether its training met its tolerance.
        objective: loss, penalty and ridge at theta.
        client_gap: the largest gap of a client on its own rows; not-a-number where no client's is
            asked for.
        ratio: the lowest of the groups' selection rates over the highest; not-a-number where nobody
            is selected.

    Example:
        See :func:`frontier`.
    """

    price: Price
    theta: np.ndarray
    accuracy: float
    gap: float
    gradient_norm: float
    converged: bool
    objective: float
    client_gap: float = np.nan
    ratio: float = np.nan


def ridge_of(c: float, rows: float, n_inputs: int, *, intercept: bool) -> np.ndarray:
    """Return the ridge [n] of scikit-learn's C: 1 / (C N) an input, and none of the intercept."""
    ridge = np.full(n_inputs, 1 / (c * rows))
    ridge[n_inputs - intercept :] = 0.0
    return ridge


@dataclass(frozen=True, eq=False)
class GlobalProblem:
    """The problem that the server solves over all clients' rows, but for the price of a gap.

    Attributes:
        a: [N, p] inputs, dense or sparse.
        s: [N] group index.
        y: [N] label, -1 or +1.
        weight: [N] at least 0; only ratios count.
        penalty: of the scores.
        ridge: [p] at least 0.
        client: [N] the client whose own gaps count, too, from 0 on; -1 of nobody's. None if no
            client's do. Their squares are averaged over clients.
    """

    a: Any
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    penalty: SumPenalty
    ridge: np.ndarray
    client: np.ndarray | None = None

    # What is fixed while theta changes.

    @cached_property
    def inputs(self) -> Any:
        """The inputs [N, p], sparse where most are 0."""
        if sp.issparse(self.a):
            return sp.csr_matrix(self.a, dtype=float)
        a = np.ascontiguousarray(self.a, dtype=float)
        sample = a[:: max(1, len(a) // 2000)]
        return a if np.count_nonzero(sample) > MAX_DENSITY * sample.size else sp.csr_matrix(a)

    @cached_property
    def w(self) -> np.ndarray:
        """The weights [N], of sum 1."""
        weight = np.asarray(self.weight, dtype=float)
        return weight / weight.sum()

    @cached_property
    def clients(self) -> int:
        """The number of clients whose own gaps count."""
        return 0 if self.client is None else int(self.client.max()) + 1

    @cached_property
    def cell(self) -> np.ndarray:
        """The cell [N] of each row: (client + 1) x group x label."""
        owner = np.zeros(len(self.s), int) if self.client is None else self.client + 1
        return (owner * self.penalty.n_groups + self.s) * 2 + (self.y > 0)

    @cached_property
    def n_cells(self) -> int:
        """The number of cells."""
        return (self.clients + 1) * self.penalty.n_groups * 2

    @cached_property
    def by_stratum(self) -> sp.csr_matrix:
        """The matrix [(1 + clients) K G, cells] that sums cells, of all rows and of each client."""
        scopes, groups = np.eye(self.clients + 1), sp.eye(self.penalty.n_groups)
        scopes[0] = 1.0
        among = [np.isin([[-1.0, 1.0]], labels) for labels in STRATA[self.penalty.notion]]
        return sp.csr_matrix(
            sp.kron(scopes, sp.vstack([sp.kron(groups, labels) for labels in among]))
        )

    def in_strata(self, by_cell: np.ndarray) -> np.ndarray:
        """Return sums [1 + clients, K, G, ...] of sums [cells, ...]."""
        shape = self.clients + 1, len(STRATA[self.penalty.notion]), self.penalty.n_groups
        return (self.by_stratum @ by_cell).reshape(*shape, *by_cell.shape[1:])

    @cached_property
    def mass(self) -> np.ndarray:
        """The weight [cells]."""
        return self.sums(np.ones(len(self.s)))

    @cached_property
    def contrast(self) -> Any:
        """The matrix C [gaps, cells], those of all rows first.

        The squares of clients' own gaps are averaged: these are divided by the root of their
        number. A gap in which nothing can be compared, such as of a group without rows, is 0.
        """
        shares = self.in_strata(self.mass)
        scopes, strata, groups = shares.shape
        units = np.eye(strata * groups).reshape(strata, groups, -1)
        units = np.broadcast_to(units, (scopes, *units.shape))
        gaps = np.nan_to_num(sum_gaps(self.penalty, shares, units), posinf=0.0, neginf=0.0)
        gaps[1:] /= max(self.clients, 1) ** 0.5
        blocks: Any = sp.block_diag([*gaps])
        return (blocks @ self.by_stratum).tocsr()

    @cached_property
    def of_all(self) -> np.ndarray:
        """Return whether a gap [gaps] is of all rows, and not of a client's own."""
        gaps = self.contrast.shape[0]
        return np.arange(gaps) < gaps // (self.clients + 1)

    @cached_property
    def products(self) -> sp.csc_matrix | None:
        """The products [p p, N] a_ij a_ik, j <= k, of sparse rows: times d they are A'diag(d)A."""
        if not sp.issparse(a := self.inputs):
            return None
        a.sort_indices()
        after = np.repeat(a.indptr[1:], np.diff(a.indptr)) - np.arange(a.nnz)  # to its row's end
        if after.sum() > MAX_SPARSE_PRODUCTS:
            return None
        first, begin = np.repeat(np.arange(a.nnz), after), np.append(0, np.cumsum(after))
        second = first + np.arange(len(first)) - begin[first]
        place = a.indices[first].astype(np.int64) * a.shape[1] + a.indices[second]
        parts = a.data[first] * a.data[second], place, begin[a.indptr]
        return sp.csc_matrix(parts, (a.shape[1] ** 2, a.shape[0]))

    # The objective and its derivatives.

    def sums(self, terms: np.ndarray) -> np.ndarray:
        """Return the sums [cells] of weighted terms [N]."""
        return np.bincount(self.cell, self.w * terms, self.n_cells)

    def charged(self, terms: np.ndarray, price: Price) -> np.ndarray:
        """Return the gaps [gaps] of terms [N], less what is free."""
        return _charged(self.contrast @ self.sums(terms), self.free(price))

    def free(self, price: Price) -> np.ndarray:
        """Return how much of each gap [gaps] costs nothing."""
        of_client = price.free_of_client / max(self.clients, 1) ** 0.5
        return np.where(self.of_all, price.free, of_client)

    def value(self, theta: np.ndarray, price: Price, z: np.ndarray | None = None) -> float:
        """Return the objective at theta [p], of scores z [N]."""
        z = self.inputs @ theta if z is None else z
        gap = self.charged(self.penalty.term(z), price)
        loss = self.w @ np.logaddexp(0.0, -self.y * z)
        return float(loss + price.rho / 2 * gap @ gap + theta @ (self.ridge * theta) / 2)

    def slope(self, theta: np.ndarray, price: Price) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient [p]."""
        z = self.inputs @ theta
        g, g1, _ = self.penalty.derivatives(z)
        gap, margin = self.charged(g, price), self.y * z
        # The loss and its slope of one exponential, which most of the time is spent on.
        small = np.exp(-np.abs(margin))
        loss = np.log1p(small) - np.minimum(margin, 0.0)
        q = np.where(margin < 0, 1.0, small) / (1.0 + small)
        by_row = price.rho * (self.contrast.T @ gap)[self.cell] * g1 - self.y * q
        value = self.w @ loss + price.rho / 2 * gap @ gap
        ridge = self.ridge * theta
        return float(value + theta @ ridge / 2), self.inputs.T @ (self.w * by_row) + ridge

    def cell_slopes(self, g1: np.ndarray) -> np.ndarray:
        """Return the gradients [cells, p] of the cells' sums of terms, of slopes g'(z) [N]."""
        n = len(self.s)
        to_cells = sp.csr_matrix((self.w * g1, (self.cell, np.arange(n))), (self.n_cells, n))
        return _dense(to_cells @ self.inputs)

    def gram(self, d: np.ndarray) -> np.ndarray:
        """Return A' diag(d) A [p, p]."""
        a = self.inputs
        if self.products is not None:
            half = (self.products @ d).reshape(a.shape[1], -1)
            return half + np.triu(half, 1).T
        return _dense(a.T @ sp.diags(d) @ a) if sp.issparse(a) else a.T @ (d[:, None] * a)

    def hessian(
        self, theta: np.ndarray, price: Price, z: np.ndarray | None = None, *, cut: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient [p] and the Hessian [p, p].

        Args:
            theta: [p] where.
            price: of a gap.
            z: [N] scores there.
            cut: whether the penalty may bend a row's term downwards by at most nine tenths of the
                loss's own curvature, so that the Hessian is positive definite.
        """
        z = self.inputs @ theta if z is None else z
        q = expit(-self.y * z)
        bend, pull = self.w * q * (1 - q), -self.w * self.y * q
        g, g1, g2 = self.penalty.derivatives(z)
        gap = self.charged(g, price)
        r = price.rho * self.w * (self.contrast.T @ gap)[self.cell]
        of_penalty = np.maximum(r * g2, -0.9 * bend) if cut else r * g2
        bends = (gap != 0) | (self.free(price) == 0)
        u = (self.contrast @ self.cell_slopes(g1)) * bends[:, None]
        gradient = self.inputs.T @ (r * g1 + pull) + self.ridge * theta
        return gradient, self.gram(bend + of_penalty) + price.rho * u.T @ u + np.diag(self.ridge)

    @property
    def zero(self) -> np.ndarray:
        """Parameters [p] of 0."""
        return np.zeros(self.inputs.shape[1])

    def point(
        self, theta: np.ndarray, price: Price, f: float, gradient: np.ndarray, *, converged: bool
    ) -> FrontierPoint:
        """Return params [p] with what they reach on the rows; the rest is as it stands there."""
        z = self.inputs @ theta
        gap, *of_clients = self.decision_gaps(z > 0).tolist()
        accuracy, norm = self.w @ ((z > 0) == (self.y > 0)), np.linalg.norm(gradient)
        client_gap = float(np.nanmax(of_clients)) if of_clients else np.nan
        return FrontierPoint(
            price, theta, float(accuracy), gap, float(norm), converged, f, client_gap,
            self.selection_ratio(z > 0),
        )  # fmt: skip

    def is_flipped(self, theta: np.ndarray) -> bool:
        """Return whether the largest gap of decisions has another sign than its smooth one."""
        z = self.inputs @ theta
        hard, smooth = (self.contrast @ self.sums(g) for g in (z > 0, self.penalty.term(z)))
        worst = np.argmax(np.abs(hard))
        return bool(hard[worst] * smooth[worst] < 0)

    def decision_gaps(self, decisions: np.ndarray) -> np.ndarray:
        """Return the largest gap [1 + clients] of decisions [N]: of all rows, of each client's."""
        sums, mass = self.in_strata(self.sums(decisions)), self.in_strata(self.mass)
        return np.fmax.reduce(rate_differences(sums, mass, self.penalty.by), axis=-1)

    def selection_ratio(self, decisions: np.ndarray) -> float:
        """Return the lowest selection rate over the highest of decisions [N], over groupings."""
        n, ratios = self.penalty.n_groups, []
        selected, rows = (np.bincount(self.s, w, n) for w in (self.w * decisions, self.w))
        for grouping in self.penalty.by or [tuple(range(n))]:
            hits, mass = grouped(selected, grouping), grouped(rows, grouping)
            rates = hits[mass > 0] / mass[mass > 0]
            ratios.append(rates.min() / rates.max() if rates.size and rates.max() > 0 else np.nan)
        return float(np.fmin.reduce(ratios))

    def gradients_without(
        self, theta: np.ndarray, price: Price, owner: np.ndarray, compared: Sequence[int] = ()
    ) -> np.ndarray:
        """Return the gradients [K, p] of the objective, each without the rows of one owner.

        The gaps of all rows are taken to first order in the owner's weight: where the rest is
        unlike it, they change far less at the optimum without it than they do here.

        Args:
            theta: [p] where.
            price: of a gap.
            owner: [N] of each row, from 0 to K - 1.
            compared: the owner of each client, whose own gaps go with its rows.
        """
        z, k, n = self.inputs @ theta, int(owner.max()) + 1, len(self.s)
        g, g1, _ = self.penalty.derivatives(z)
        of_owner = sp.csr_matrix((self.w, (owner, np.arange(n))), (k, n))
        pull = _dense(of_owner @ sp.diags(-self.y * expit(-self.y * z)) @ self.inputs)
        rest = np.maximum(1 - of_owner @ np.ones(n), np.finfo(float).tiny)[:, None]
        gradients = (pull.sum(axis=0) - pull) / rest + self.ridge * theta
        if not price.rho:
            return gradients

        # All rows' gaps and their slopes, and how they change with the owner's weight.
        by_owner = self.changed(client=owner)
        terms = [by_owner.mass, by_owner.sums(g), by_owner.cell_slopes(g1)]
        owners = by_owner.in_strata(np.column_stack(terms))[1:]  # [K, strata, groups, 2 + p]
        total, change = owners.sum(axis=0), WEIGHT_STEP * owners
        less, more = (
            np.nan_to_num(sum_gaps(self.penalty, sums[..., 0], sums[..., 1:]))
            for sums in (total - change, total + change)
        )
        gaps, change = (less + more) / 2, (less - more) / (2 * WEIGHT_STEP * rest[..., None])
        gap, slope = gaps[..., 0], gaps[..., 1:]
        gradients += price.rho * _pull(gap + change[..., 0], slope, price.free)
        gradients += price.rho * _pull(gap, change[..., 1:], price.free)
        if not compared:
            return gradients

        # Each client's own gaps, and the mean of the others'.
        root = self.clients**0.5
        gap = (self.contrast @ self.sums(g))[~self.of_all].reshape(self.clients, -1) * root
        slope = (self.contrast @ self.cell_slopes(g1))[~self.of_all] * root
        slope = slope.reshape(*gap.shape, -1)
        of_client = np.zeros_like(gradients)
        of_client[list(compared)] = _pull(gap, slope, price.free_of_client)
        remaining = self.clients - np.isin(np.arange(k), compared)[:, None]
        without = of_client.sum(axis=0) - of_client
        return gradients + price.rho * without / np.maximum(remaining, 1)

    # Its optima.

    def newton(
        self, start: np.ndarray, price: Price, tolerance: float = NEWTON_DECREMENT
    ) -> FrontierPoint:
        """Return the optimum near a start, by Newton's method."""
        theta = np.array(start, dtype=float)
        z = self.inputs @ theta
        f, decrement, gradient = self.value(theta, price, z), np.inf, theta
        for steps in range(MAX_NEWTON_STEPS + 1):
            gradient, hessian = self.hessian(theta, price, z)
            try:
                step = cholesky_solve(hessian, gradient)
            except LinAlgError:
                gradient, hessian = self.hessian(theta, price, z, cut=True)
                values, vectors = np.linalg.eigh(hessian)  # where rounding makes it indefinite
                size = np.maximum(np.abs(values), 1e-12 * np.abs(values).max() + 1e-300)
                step = vectors @ (gradient @ vectors / size)
            decrement = float(gradient @ step)
            if not decrement > tolerance or steps == MAX_NEWTON_STEPS:
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

    def polish(self, near: FrontierPoint, sample: GlobalProblem) -> FrontierPoint:
        """Return the optimum of all rows near that of a sample of them.

        L-BFGS in coordinates in which the sample's Hessian is the identity: a gradient of all rows
        takes a fraction of a Gram matrix, and some ten are enough.
        """
        _, hessian = sample.hessian(near.theta, near.price)
        values, vectors = np.linalg.eigh(hessian)
        least = 1e-9 * np.abs(values).max()
        scale = vectors / np.sqrt(np.maximum(np.abs(values), least))
        # In units of the first gradient, as the first step of L-BFGS has the length 1.
        unit = float(np.linalg.norm(scale.T @ self.slope(near.theta, near.price)[1])) or 1.0

        def objective(u: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.slope(near.theta + unit * (scale @ u), near.price)
            return value / unit**2, scale.T @ gradient / unit

        options = {"ftol": 0.0, "gtol": MAX_GRADIENT_NORM / unit, "maxiter": 200}
        zero = np.zeros(len(near.theta))
        end = minimize(objective, zero, jac=True, method="L-BFGS-B", options=options)
        gradient, theta = end.jac * unit, near.theta + unit * (scale @ end.x)
        converged = bool(np.linalg.norm(gradient) <= 3 * MAX_GRADIENT_NORM)
        gradient, value = np.linalg.solve(scale.T, gradient), float(end.fun) * unit**2
        return self.point(theta, near.price, value, gradient, converged=converged)

    @cached_property
    def fair_by_covariance(self) -> list[np.ndarray]:
        """Solutions [p] of the same problem with the covariance as its penalty."""
        of = self.penalty
        covariance = self.changed(penalty=CovariancePenalty(of.n_groups, of.notion, of.by))
        ends = [self.zero]
        for rho in COVARIANCE_RHOS:
            ends.append(covariance.newton(ends[-1], Price(rho), START_DECREMENT).theta)
        return ends[1:]

    def near(
        self, theta: np.ndarray, price: Price, tolerance: float = NEWTON_DECREMENT
    ) -> FrontierPoint:
        """Return the optimum near params [p], of many rows by way of a sample of them."""
        sample = self.search_sample
        if sample is self:
            return self.newton(theta, price, tolerance)
        return self.polish(sample.newton(theta, price, START_DECREMENT), sample)

    @cached_property
    def search_sample(self) -> GlobalProblem:
        """The sample of many rows of which a Gram matrix is made."""
        return self.sample(SEARCH_ROWS)

    def changed(self, **fields: Any) -> GlobalProblem:
        """Return the same rows with another penalty, other weights [N] or other clients [N]."""
        problem = replace(self, **fields)
        problem.__dict__.update(inputs=self.inputs, products=self.products)
        return problem

    def sample(self, rows: int) -> GlobalProblem:
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
        cell, weight = self.cell[chosen], self.w[chosen]
        mass = np.bincount(cell, weight, self.n_cells)
        weight = weight * (self.mass / np.maximum(mass, np.finfo(float).tiny))[cell]
        client = None if self.client is None else self.client[chosen]
        a, s, y = (of[chosen] for of in (self.inputs, self.s, self.y))
        return replace(self, a=a, s=s, y=y, weight=weight, client=client)

    def solve(self, rho: float) -> FrontierPoint:
        """Return the lowest of the optima that several starts lead to, for a weight of the penalty.

        Growing rho leads from the most accurate model to a fair one; solutions of the covariance,
        which has one optimum, lead to models that are fair in another way, and so does a larger
        rho. Of many rows, a sample decides between the starts.
        """
        few, price = self.sample(START_ROWS), Price(float(rho))
        starts = [few.newton(few.zero, Price(0.0), START_DECREMENT).theta]
        if rho > 0 and not self.penalty.convex:
            for weight in (weight for weight in PATH_RHOS if 0 < weight < rho):
                starts[0] = few.newton(starts[0], Price(weight), START_DECREMENT).theta
            steep = few.newton(few.fair_by_covariance[-1], Price(16.0 * rho), START_DECREMENT)
            starts += [few.zero, *few.fair_by_covariance, steep.theta]
        ends = [few.newton(start, price, START_DECREMENT) for start in starts]
        return self.near(min(ends, key=lambda end: end.objective).theta, price)

    def meet(self, max_gap: float | None, max_client_gap: float | None = None) -> FrontierPoint:
        """Return an accurate model whose gap of decisions is just within a limit.

        What is beyond a share t of the limit costs a lot, and t is searched for, as the penalty
        sees smooth rates in place of decisions. Roots in t are not unique: of all models that meet
        the limit on the way, from several starts, the most accurate is returned; where none does,
        that of the least gap.
        """
        limits = np.array([np.inf if most is None else most for most in (max_gap, max_client_gap)])
        few, more = self.sample(START_ROWS), self.search_sample
        start = few.newton(few.zero, Price(0.0), START_DECREMENT)
        free = more.newton(start.theta, Price(0.0))
        if _excess(free, limits) <= CLEAR_RATIO:
            free = self.near(free.theta, free.price)
            if _excess(free, limits) <= 1:
                return free
        rho = float(max(MIN_SEARCH_RHO, 10 / limits.min()))
        # A sample is searched first where a model of all rows takes far longer.
        larger = [more] if len(self.s) > 5 * SEARCH_ROWS else []
        larger += [self] if few is not self else []
        ends: list[FrontierPoint] = []
        for share in START_SHARES:
            price = Price(rho, *(share * limits).tolist())
            firsts = [
                few.newton(theta, price, START_DECREMENT)
                for theta in (start.theta, *few.fair_by_covariance)
            ]
            distinct = {round(first.objective / START_DECREMENT): first.theta for first in firsts}
            for _, theta in sorted(distinct.items())[:MAX_SEARCH_STARTS]:
                ends += _search(few, theta, limits, price)
        for stage in larger:
            best = _best(ends, limits)
            ends = _search(stage, best.theta, limits, best.price)
        return _best(ends, limits)


def meet_ratio(
    problem: GlobalProblem,
    min_ratio: float,
    max_gap: float | None = None,
    max_client_gap: float | None = None,
) -> FrontierPoint:
    """Return an accurate model whose lowest selection rate is a share of the highest, or more.

    The gap of such a model is 1 - min_ratio of its highest rate, or less. This rate hardly moves
    with the limit, so that a few searches for a gap, each by the rate of the model before, end at
    the largest gap that meets the ratio. If none meets it, the last model is returned.
    """
    limit = np.inf if max_gap is None else max_gap
    searches = max_gap is not None or max_client_gap is not None
    point = problem.meet(max_gap, max_client_gap) if searches else problem.solve(0.0)
    for _ in range(MAX_RATIO_SEARCHES):
        if not point.ratio < min_ratio:
            break
        highest = point.gap / (1 - point.ratio)
        limit = min((1 - min_ratio) * highest, (1 - GAP_TOLERANCE) * limit)
        point = problem.meet(limit, max_client_gap)
    return point


def frontier(problem: GlobalProblem, weights: Sequence[float] = RHOS) -> list[FrontierPoint]:
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
    for _ in range(MAX_SEARCH_MODELS):
        widths = (t * limit if limit < np.inf else limit for limit in limits.tolist())
        near = problem.near(theta, Price(price.rho, *map(float, widths)), 1e-9)
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


def _charged(gap: np.ndarray, free: np.ndarray | float) -> np.ndarray:
    """Return gaps, less what is free."""
    return np.sign(gap) * np.maximum(np.abs(gap) - free, 0.0)


def _pull(gap: np.ndarray, slope: np.ndarray, free: float) -> np.ndarray:
    """Return the gradients [..., p] of half of what is charged, squared."""
    return np.einsum("...c,...cp->...p", _charged(gap, free), slope)


def _dense(matrix: Any) -> np.ndarray:
    """Return a matrix that may be sparse."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def cholesky_solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return H^-1 b by Cholesky. Raises LinAlgError: H is not positive definite.

    NumPy factorises, as it makes Gram matrices: SciPy has threads of its own, and those of both
    would wait for each other.
    """
    return cho_solve((np.linalg.cholesky(matrix), True), right)
