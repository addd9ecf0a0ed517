"""Sets of cells that a surrogate's sums are over, so that no sum tells of few rows.

A cell is a pair of group and label. A cell with enough rows is a set of its own. Of cells that
have rows, but fewer, there is a *block*: all groups by size up to the last with such a cell, and
more until its labels have enough. In place of the sums over its cells there are those over each of
its labels, and over each of its groups. None of
these has fewer rows than is allowed, and no difference of them is a sum over a cell (complementary
suppression: Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 4). That costs how
label and group go together in the block, so that in a large table such cells are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGE = 60
"""Times the least number of rows that a sum is over: a table of so many rows has no block."""


class Strata(NamedTuple):
    """Sets of cells; cell 2 s + (y > 0) is the pair of s and the label y.

    Attributes:
        rows: [2 G] numbers of rows of cells, as far as noise lets see.
        cells: [C] in which there are records.
        hidden: [2 G] cells whose own sums are too small, or hidden by noise.
        left_out: [2 G] cells that have rows, of which no sum knows.
        drawn: [P, 2 G] the sets that records are drawn from, without a cell in common: cells, and
            the labels of the block.
        tilted: [T, 2 G] the groups of the block, whose sums the weights of its records meet, too.
        group: [P] as whose rows those of a set that is drawn from are scored. A model's score
            depends on the group, and a sum of scores over a label would tell how many of its rows
            are whose: there it is the block's largest group.
    """

    rows: np.ndarray
    cells: np.ndarray
    hidden: np.ndarray
    left_out: np.ndarray
    drawn: np.ndarray
    tilted: np.ndarray
    group: np.ndarray

    @property
    def sets(self) -> np.ndarray:
        """[P + T, 2 G] all of them."""
        return np.concatenate([self.drawn, self.tilted])

    @property
    def parts(self) -> list[np.ndarray]:
        """Of ``sets`` those that have records in common: each by itself, but all of the block."""
        block = (self.sets & self.tilted.any(axis=0)).any(axis=1)
        each = [np.array([i]) for i in np.flatnonzero(~block)]
        return [*each, np.flatnonzero(block)] if block.any() else each


def make_strata(rows: np.ndarray, k_min: int, least: int = 2) -> Strata:
    """The sets of cells for these numbers of rows.

    By size, the block has all groups up to the last in which a cell has too few rows. The next
    larger ones join until there are at least two, and each label has enough rows. Groups that have
    too few rows in all are left out.

    Where even all groups together are fewer than ``least``, or have too few rows of a label, cells
    with too few rows are left out; and so they are of a large table, in which they hardly count.
    Where the table is large only with their rows, their groups are left out whole: else the
    decision would tell how many rows they have.

    A block hides cells: with n rows in it, and at least k in each of its groups and labels, the
    number of rows in group s with label y, of which n_s and n_y are told, may be anything from

        max(0, n_s + n_y - n) to min(n_s, n_y),    which differ by min(n_s, n_y, n - n_s, n - n_y)

    and so by k at least (Frechet's bounds). That there is a block tells that at least one of its
    cells has 1 to k - 1 rows, and that no group outside has such a cell.

    Args:
        rows: [2 G] numbers of rows.
        k_min: k, rows that a set must have.
        least: groups that a block must have; more where columns would tell of fewer.

    Example:
        >>> import numpy as np
        >>> from synthfair.surrogate.strata import make_strata
        >>> strata = make_strata(np.array([20, 80, 90, 300, 500, 600]), 50)
        >>> strata.drawn.astype(int).tolist()  # two cells, and two labels of groups 0 and 1
        [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]
        >>> strata.tilted.astype(int).tolist()
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    """
    each = rows.reshape(-1, 2)
    size, few = each.sum(axis=1), (each > 0) & (each < k_min)
    large, affected = size >= k_min, few.any(axis=1) & (size >= k_min)
    order = [s for s in np.argsort(size, kind="stable") if large[s]]
    first = max((i + 1 for i, s in enumerate(order) if affected[s]), default=0)
    block, waiting = np.isin(np.arange(len(size)), order[:first]), order[first:] * (first > 0)
    while (short := block.sum() < least or each[block].sum(axis=0).min() < k_min) and waiting:
        block[waiting.pop(0)] = True
    certain = (each * ~few)[large].sum() >= LARGE * k_min
    if size[large].sum() >= LARGE * k_min or short:
        whole = affected & (not certain and not short)
        return alone(rows, (rows >= k_min) & ~np.repeat(whole, 2))

    single = alone(rows, (rows >= k_min) & ~np.repeat(block, 2))
    inside, label = np.repeat(block, 2), np.arange(len(rows)) % 2
    return Strata(
        rows,
        np.concatenate([single.cells, np.flatnonzero(inside)]),
        few.ravel() & inside,
        few.ravel() & ~inside,
        np.concatenate([single.drawn, [inside & (label == y) for y in (0, 1)]]),
        np.repeat(np.eye(len(block), dtype=bool)[block], 2, axis=1),
        np.concatenate([single.group, [np.where(block, size, -1).argmax()] * 2]),
    )


def alone(rows: np.ndarray, there: np.ndarray) -> Strata:
    """Each cell that is ``there`` [2 G] is a set of its own; all others are left out."""
    every, cells = np.eye(len(rows), dtype=bool), np.flatnonzero(there)
    left_out = (rows > 0) & ~there
    return Strata(rows, cells, np.zeros_like(there), left_out, every[cells], every[:0], cells // 2)


def frechet_bounds(labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """[2, A, 2] least and most rows of each group and label, by sums over levels of a column.

    At each level these are Frechet's bounds; over the levels they add up.

    Args:
        labels: [2, K] rows of each label at each level.
        groups: [A, K] rows of each group at each level.
    """
    y, g = labels[None], groups[:, None]
    return np.array([np.maximum(g + y - y.sum(axis=1, keepdims=True), 0), np.minimum(g, y)]).sum(-1)
