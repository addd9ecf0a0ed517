"""The global problem: a logistic loss, a fairness penalty and a ridge on weighted rows.

    min over theta   sum_i w_i log(1 + exp(-y_i z_i)) + rho/2 sum_c max(|gap_c| - free, 0)^2
                     + 1/2 sum_j ridge_j theta_j^2,          z = A theta,   sum_i w_i = 1

Each row is in one *cell*: a client, a group and a label. All gaps are linear in the cells' sums of
w g(z), where g is the penalty's function of a score:

    gap = C m,   m = cell sums of w_i g(z_i)

With r_i = w_i (C' charged)[cell of i], where charged = sign(gap) max(|gap| - free, 0), the penalty
has the gradient A'(r g'(z)) and the Hessian A' diag(r g''(z)) A + U'U, where
U = C [cell sums of w_i g'(z_i) a_i]. So a step of Newton's method takes one weighted Gram matrix,
whatever is compared. NumPy and SciPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from synthfair.fairness.penalties import (
    STRATA,
    SumPenalty,
    rate_differences,
    sum_gaps,
)

MAX_DENSITY = 0.3
"""Share of nonzero inputs below which they are kept sparse."""

BLOCK_ROWS, MAX_PRODUCTS = 4096, 3e7
"""Rows of a dense Gram matrix at a time, and the largest number of products of a sparse one."""

WEIGHT_STEP = 1e-4
"""Step of a finite difference in an owner's weight, as a share of it."""


class Price(NamedTuple):
    """What a gap costs: rho/2 max(|gap| - free, 0)^2.

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


def ridge_of(c: float, rows: float, n_inputs: int, *, intercept: bool) -> np.ndarray:
    """Return the ridge [n] of scikit-learn's C: 1 / (C N) an input, and none of the intercept."""
    ridge = np.full(n_inputs, 1 / (c * rows))
    ridge[n_inputs - intercept :] = 0.0
    return ridge


@dataclass(frozen=True, eq=False)
class FairObjective:
    """The objective over all clients' rows, but for the price of a gap.

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
        some = a[:: max(1, len(a) // 2000)]
        return a if np.count_nonzero(some) > MAX_DENSITY * some.size else sp.csr_matrix(a)

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
        return sp.csr_matrix(sp.kron(scopes, sp.vstack([sp.kron(groups, one) for one in among])))

    def in_strata(self, by_cell: np.ndarray) -> np.ndarray:
        """Return sums [1 + clients, K, G] of sums [cells]."""
        shape = self.clients + 1, len(STRATA[self.penalty.notion]), self.penalty.n_groups
        return (self.by_stratum @ by_cell).reshape(shape)

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
        """Whether a gap [gaps] is of all rows, and not of a client's own."""
        gaps = self.contrast.shape[0]
        return np.arange(gaps) < gaps // (self.clients + 1)

    @cached_property
    def products(self) -> sp.csc_matrix | None:
        """The products [p p, N] of pairs of inputs, of sparse rows: times d they are A'diag(d)A."""
        a = self.inputs
        if not sp.issparse(a):
            return None
        most = int(np.diff(a.indptr).max(initial=0))
        return _products(a) if len(self.s) * most * (most + 1) / 2 <= MAX_PRODUCTS else None

    # The objective and its derivatives.

    def sums(self, terms: np.ndarray) -> np.ndarray:
        """Return the sums [cells] of weighted terms [N]."""
        return np.bincount(self.cell, self.w * terms, self.n_cells)

    def charged(self, terms: np.ndarray, price: Price) -> np.ndarray:
        """Return the gaps [gaps] of terms [N], less what is free."""
        gap = self.contrast @ self.sums(terms)
        return np.sign(gap) * np.maximum(np.abs(gap) - self.free(price), 0.0)

    def free(self, price: Price) -> np.ndarray:
        """Return how much of each gap [gaps] costs nothing."""
        of_client = price.free_of_client / max(self.clients, 1) ** 0.5
        return np.where(self.of_all, price.free, of_client)

    def value(self, theta: np.ndarray, price: Price, z: np.ndarray | None = None) -> float:
        """Return the objective at theta [p], of scores z [N]."""
        z = self.inputs @ theta if z is None else z
        gap = self.charged(self.penalty.term(z), price) if price.rho else np.zeros(0)
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

    def gap_slopes(self, g1: np.ndarray) -> np.ndarray:
        """Return the gradients [gaps, p] of the gaps, of the slopes g'(z) [N]."""
        n = len(self.s)
        to_cells = sp.csr_matrix((self.w * g1, (self.cell, np.arange(n))), (self.n_cells, n))
        return np.asarray(self.contrast @ _dense(to_cells @ self.inputs))

    def gram(self, d: np.ndarray) -> np.ndarray:
        """Return A' diag(d) A [p, p]."""
        a, p = self.inputs, self.inputs.shape[1]
        if self.products is not None:
            half = (self.products @ d).reshape(p, p)
            return half + np.triu(half, 1).T
        total, root = np.zeros((p, p)), np.sqrt(np.abs(d))[:, None]
        for i in range(0, len(d), BLOCK_ROWS):
            here = slice(i, i + BLOCK_ROWS)
            block = root[here] * _dense(a[here])
            negative = block[d[here] < 0]
            # The product of a matrix with itself takes half of another product's time.
            total += block.T @ block - 2 * (negative.T @ negative)
        return total

    def hessian(
        self,
        theta: np.ndarray,
        price: Price,
        z: np.ndarray | None = None,
        *,
        cut: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient [p] and the Hessian [p, p].

        Args:
            theta: [p] where.
            price: of a gap.
            z: [N] scores there.
            cut: whether the penalty may bend a row's part downwards by at most nine tenths of the
                loss's own curvature, so that the Hessian is positive definite.
        """
        z = self.inputs @ theta if z is None else z
        q = expit(-self.y * z)
        bend, pull = self.w * q * (1 - q), -self.w * self.y * q
        ridge = np.diag(self.ridge)
        if not price.rho:
            return self.inputs.T @ pull + self.ridge * theta, self.gram(bend) + ridge
        g, g1, g2 = self.penalty.derivatives(z)
        gap = self.charged(g, price)
        r = price.rho * self.w * (self.contrast.T @ gap)[self.cell]
        of_penalty = np.maximum(r * g2, -0.9 * bend) if cut else r * g2
        bends = (gap != 0) | (self.free(price) == 0)
        u = self.gap_slopes(g1) * bends[:, None]
        gradient = self.inputs.T @ (r * g1 + pull) + self.ridge * theta
        return gradient, self.gram(bend + of_penalty) + price.rho * u.T @ u + ridge

    @property
    def zero(self) -> np.ndarray:
        """Parameters [p] of 0."""
        return np.zeros(self.inputs.shape[1])

    def point(
        self, theta: np.ndarray, price: Price, f: float, gradient: np.ndarray, *, converged: bool
    ) -> FrontierPoint:
        """Return params [p] with what they reach on the rows; the rest is as it stands there."""
        z = self.inputs @ theta
        gaps = self.decision_gaps(z > 0)
        return FrontierPoint(
            price,
            theta,
            float(self.w @ ((z > 0) == (self.y > 0))),
            float(gaps[0]),
            float(np.linalg.norm(gradient)),
            converged,
            f,
            float(np.nanmax(gaps[1:])) if self.clients else np.nan,
        )

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
        parts = []
        for among in STRATA[self.penalty.notion]:
            here = np.flatnonzero(np.isin(self.y, among))
            line = owner[here] * self.penalty.n_groups + self.s[here]
            matrix = sp.csr_matrix((self.w[here], (line, here)), (k * self.penalty.n_groups, n))
            slopes = _dense(matrix @ sp.diags(g1) @ self.inputs)
            of_rows = np.column_stack([matrix @ np.ones(n), matrix @ g, slopes])
            parts.append(of_rows.reshape(k, self.penalty.n_groups, -1))
        own = np.stack(parts, axis=1)  # [K, strata, groups, 2 + p]
        less, more = (
            np.nan_to_num(sum_gaps(self.penalty, sums[..., 0], sums[..., 1:]))
            for sums in (own.sum(axis=0) - WEIGHT_STEP * own, own.sum(axis=0) + WEIGHT_STEP * own)
        )
        gaps, change = (less + more) / 2, (less - more) / (2 * WEIGHT_STEP * rest[..., None])
        gap, slope = gaps[..., 0], gaps[..., 1:]
        gradients += price.rho * _pull(gap + change[..., 0], slope, price.free)
        gradients += price.rho * _pull(gap, change[..., 1:], price.free)
        if not compared:
            return gradients

        # Each client's own gaps, and the mean of the others'.
        root = self.clients**0.5
        shape = self.clients, -1
        gap = (self.contrast @ self.sums(g))[~self.of_all].reshape(shape) * root
        slope = self.gap_slopes(g1)[~self.of_all].reshape(*gap.shape, -1) * root
        of_client = _pull(gap, slope, price.free_of_client)
        without = np.tile(of_client.sum(axis=0), (k, 1))
        without[list(compared)] -= of_client
        others = np.full((k, 1), self.clients)
        others[list(compared)] -= 1
        return gradients + price.rho * without / np.maximum(others, 1)


def _pull(gap: np.ndarray, slope: np.ndarray, free: float) -> np.ndarray:
    """Return the gradients [..., p] of half of what is charged, squared."""
    charged = np.sign(gap) * np.maximum(np.abs(gap) - free, 0.0)
    return np.einsum("...c,...cp->...p", charged, slope)


def _dense(matrix: Any) -> np.ndarray:
    """Return a matrix that may be sparse."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def _products(a: Any) -> sp.csc_matrix:
    """Return the products [p p, N] a_ij a_ik, j <= k, of each row of [N, p]."""
    n, p = a.shape
    a.sort_indices()
    size = np.diff(a.indptr)
    most = int(size.max())
    j, k = np.triu_indices(most)
    places, products = np.empty((n, len(j)), np.int32), np.empty((n, len(j)))
    for begin in range(0, n, BLOCK_ROWS):
        rows = slice(begin, min(begin + BLOCK_ROWS, n))
        stored = slice(a.indptr[rows.start], a.indptr[rows.stop])
        there = np.arange(most) < size[rows, None]
        index, entry = np.zeros(there.shape, np.int32), np.zeros(there.shape)
        index[there], entry[there] = a.indices[stored], a.data[stored]
        first, second = np.minimum(index[:, j], index[:, k]), np.maximum(index[:, j], index[:, k])
        places[rows], products[rows] = first * p + second, entry[:, j] * entry[:, k]
    ends = np.arange(n + 1) * len(j)
    return sp.csc_matrix((products.ravel(), places.ravel(), ends), (p * p, n))
