"""Finds which real column each column of a release may be: reordered, scaled, shifted, reversed.

Rows in other units or with their columns in another order are copies that no distance shows. What
is looked for here is exactly this: maps of each released column j to a real one,

    x_real[:, column(j)] = scale_j x_j + shift_j,   scale_j of either sign,

with the same map for all rows. A first guess compares the columns' quantiles and correlations,
which need no pairs of rows. It is then refined as in iterative closest points (Besl and McKay
1992): rows are paired with the closest real ones, and columns by their correlation over the better
half of the pairs. Maps that mix columns, or bend them, are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

QUANTILES = np.linspace(0.02, 0.98, 25)
"""Of a column, by which columns are compared."""

ROUNDS = 8
"""Of pairing rows and columns anew, at most."""

MOST_PAIRED = 128
"""Released rows that are paired in each round."""

LINKS = 5.0
"""How much correlations count against quantiles. Chosen on loanapp and Adult."""

STAY = 0.1
"""Correlation by which another column must be better than the one that is matched."""

LEAST_SPREAD = 0.25
"""Of the real rows' variance, which mapped rows must have."""

TINY = 1e-12
"""Standard deviation below which a column is constant."""


class ColumnMap(NamedTuple):
    """A map of released columns to real ones.

    Attributes:
        column: [d] the real column of each released one.
        scale: [d] of the released columns.
        shift: [d] added to them then.
    """

    column: np.ndarray
    scale: np.ndarray
    shift: np.ndarray

    @classmethod
    def unchanged(cls, d: int) -> ColumnMap:
        """Of d columns that are as they are."""
        return cls(np.arange(d), np.ones(d), np.zeros(d))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows [N, d] of a release, as real ones."""
        mapped = np.empty_like(x, dtype=float)
        mapped[:, self.column] = self.scale * x + self.shift
        return mapped


def match_columns(released: np.ndarray, real: np.ndarray) -> ColumnMap:
    """The map after which rows of a release lie nearest to real rows; of rows alone, not of labels.

    Args:
        released: [N_s, d] rows of the release, at least 2.
        real: [N, d] rows that may be behind them, at least 2.

    Returns:
        A map, also where there is nothing to find.

    Example:
        >>> import numpy as np
        >>> from synthfair.privacy.matching import match_columns
        >>> real = np.random.default_rng(0).gamma([1, 3, 9], size=(500, 3)).cumsum(axis=1)
        >>> released = 1 - 2 * real[:300, [2, 0, 1]]
        >>> found = match_columns(released, real)
        >>> found.column.tolist(), found.scale.round(6).tolist()
        ([2, 0, 1], [-0.5, -0.5, -0.5])
    """
    few = released[:: -(-len(released) // MOST_PAIRED)]
    squares = np.einsum("ij,ij->i", real, real)
    best = ColumnMap.unchanged(real.shape[1]), np.inf
    for guess in _guesses(released, real):
        best = min(best, _refined(guess, few, real, squares), key=lambda reached: reached[1])
        if best[1] < TINY:
            break
    return best[0]


def _guesses(released: np.ndarray, real: np.ndarray) -> Iterator[ColumnMap]:
    """Maps to begin with: in two orders, with ranges of all columns, of each, or with moments."""
    (mine, linked), (theirs, really_linked) = map(_signature, (released, real))
    ways = [_cost(way, theirs) for way in (mine, -mine[:, ::-1])]
    alike = np.minimum(*ways)
    found = _assigned(alike + _cost(np.sort(linked, axis=1), np.sort(really_linked, axis=1)))
    for _ in range(ROUNDS):  # each column by its correlations with those that are matched so far
        found = _assigned(alike + LINKS * _cost(linked, really_linked[:, found]))
    for column in (np.arange(len(found)), found):
        at, matched = (np.arange(len(column)), column), real[:, column]
        for sign in (1.0, -1.0):
            yield _ranges(released, matched, column, np.array(sign), axis=None)
        sign = np.where(ways[1][at] < ways[0][at], -1.0, 1.0)
        yield _ranges(released, matched, column, sign, axis=0)
        yield _moments(released, matched, column, sign)


def _signature(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each column: quantiles [d, q], standardised; and sizes of its correlations [d, d]."""
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > TINY, spread, 1.0)
    links = np.abs(z.T @ z) / len(z)
    np.fill_diagonal(links, 0.0)  # a column's with itself would fasten it to its match
    return np.quantile(z, QUANTILES, axis=0).T, links


def _cost(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[d, d] mean squared differences between two sets of signatures."""
    from scipy.spatial.distance import cdist

    return cdist(mine, theirs, "sqeuclidean") / mine.shape[1]


def _assigned(cost: np.ndarray) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(cost)[1]


def _moments(
    released: np.ndarray, paired: np.ndarray, column: np.ndarray, sign: np.ndarray
) -> ColumnMap:
    """The map that gives released columns the means and spreads of the real ones.

    Not a regression, whose scales would shrink all rows towards one where there is nothing to find.
    """
    spread = released.std(axis=0)
    scale = sign * paired.std(axis=0) / np.where(spread > TINY, spread, np.inf)
    return ColumnMap(column, scale, paired.mean(axis=0) - scale * released.mean(axis=0))


def _ranges(
    released: np.ndarray,
    paired: np.ndarray,
    column: np.ndarray,
    sign: np.ndarray,
    *,
    axis: int | None,
) -> ColumnMap:
    """The map to the least and largest real values: exact for categories."""
    low, high = released.min(axis=axis), released.max(axis=axis)
    scale = sign * np.ptp(paired, axis=axis) / np.where(high - low > TINY, high - low, np.inf)
    shift = paired.min(axis=axis) - scale * np.where(sign > 0, low, high)
    return ColumnMap(column, *np.broadcast_arrays(scale, shift, column)[:2])


def _refined(
    found: ColumnMap, released: np.ndarray, real: np.ndarray, squares: np.ndarray
) -> tuple[ColumnMap, float]:
    """The map after pairing rows and columns by turns, and the median distance it reaches.

    Maps that move all rows near one place do not count.
    """
    best, pairs = (found, np.inf), np.empty(0, int)
    spread = real.var(axis=0).sum()
    for _ in range(ROUNDS):
        rows = found(released)
        distances = squares - 2 * rows @ real.T  # [N_s, N], but for a term of the released row
        before, pairs = pairs, distances.argmin(axis=1)
        far = np.linalg.norm(rows - real[pairs], axis=1)
        middle = float(np.median(far))
        if middle < best[1] and rows.var(axis=0).sum() > LEAST_SPREAD * spread:
            best = found, middle
        if np.array_equal(before, pairs):
            break
        near = far <= middle
        found = _paired(found, released[near], real[pairs[near]])
    return best


def _paired(found: ColumnMap, mine: np.ndarray, theirs: np.ndarray) -> ColumnMap:
    """The map of columns that paired rows suggest; columns constant there stay as they are."""
    correlation = _correlation(mine, theirs)
    every = np.arange(len(correlation))
    stay = np.zeros_like(correlation)
    stay[every, found.column] = STAY
    column = _assigned(-np.abs(correlation) - stay)
    sign = np.where(correlation[every, column] < 0, -1.0, 1.0)
    again = _moments(mine, theirs[:, column], column, sign)
    known = (np.ptp(mine, axis=0) <= TINY) & (column == found.column)
    scale, shift = (np.where(known, *pair) for pair in zip(found[1:], again[1:], strict=True))
    return ColumnMap(column, scale, shift)


def _correlation(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[d, d] of columns of paired rows; 0 for constant ones."""
    a, b = (x - x.mean(axis=0) for x in (mine, theirs))
    size = np.outer(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0))
    return np.divide(a.T @ b, size, out=np.zeros_like(size), where=size > TINY)
