"""Sets of cells that a surrogate's sums are over, so that no sum tells of few rows.

A cell is a pair of group and label. Where all cells that have rows have enough of them, each is a
set of its own. Else the cells of some groups, a *block*, are hidden: in place of their sums there
are those of each label, and of each group, over the block. None of these has fewer rows than is
allowed, and no difference of them is a sum over a cell (complementary suppression: Hundepool et al.
2012, *Statistical Disclosure Control*, chapter 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Strata(NamedTuple):
    """Sets of cells; cell 2 s + (y > 0) is the pair of s and the label y.

    Attributes:
        rows: [2 G] numbers of rows of cells, as far as noise lets see.
        few: [2 G] cells that have rows, and too few.
        drawn: [P, 2 G] the sets that records are drawn from, without a cell in common: cells, and
            the labels of the block.
        tilted: [T, 2 G] the groups of the block, whose sums the weights of its records meet, too.
        cells: [C] in which there are records. Rows of a group or label of the block with too few
            rows count as those of the largest one in its set.
    """

    rows: np.ndarray
    few: np.ndarray
    drawn: np.ndarray
    tilted: np.ndarray
    cells: np.ndarray

    @property
    def sets(self) -> np.ndarray:
        """[P + T, 2 G] all of them."""
        return np.concatenate([self.drawn, self.tilted])

    @property
    def group(self) -> np.ndarray:
        """[P + T] as whose rows those of a set are scored: the largest group's that has records.

        A model's score depends on the group, and the sum of scores over a label would tell how many
        of its rows are whose.
        """
        size = np.full(len(self.rows) // 2, -1.0)
        some = np.unique(self.cells // 2)
        size[some] = self.rows.reshape(-1, 2)[some].sum(axis=1)
        return np.array([np.where(s[::2] | s[1::2], size, -2.0).argmax() for s in self.sets])

    def bounds(self, k_min: int) -> np.ndarray:
        """[2, C] least and most rows that the records of ``cells`` may stand for.

        That follows from which cells have fewer than ``k_min`` rows, or none.
        """
        sets, small, told = self.sets, self.rows < k_min, []
        for cell in self.cells:
            in_all = sets[sets[:, cell]].all(axis=0)
            large = (in_all & ~small).sum()
            told.append((large * k_min, np.inf if large else in_all.sum() * (k_min - 1)))
        return np.array(told).T


def make_strata(rows: np.ndarray, k_min: int, groupings: Sequence[Sequence[int]]) -> Strata:
    """The sets of cells for these numbers of rows; none where all together are too few.

    The block starts with the groups that have a cell with too few rows. The next larger groups join
    until each label has enough. In it, groups with too few rows are put together with the next
    larger one; so are the labels, where all groups have joined and one has still too few.

    That hides the cells: with n rows in the block and at least k in each set, the number of rows in
    label y and a set g of groups, of which n_g and n_y are told, may be anything from

        max(0, n_g + n_y - n) to min(n_g, n_y),    which are min(n_g, n_y, n - n_g, n - n_y) >= k

    apart (Frechet's bounds). That the block is there tells that one of its cells has 1 to k - 1.

    Args:
        rows: [2 G] numbers of rows.
        k_min: k, rows that a set must have.
        groupings: for each sensitive attribute the group of every s; of one, [0, ..., G - 1].
            Without any there are no sums by group, and all rows count as the largest group's.

    Example:
        >>> import numpy as np
        >>> from synthfair.surrogate.strata import make_strata
        >>> strata = make_strata(np.array([20, 80, 90, 300, 500, 600]), 50, [range(3)])
        >>> strata.drawn.astype(int).tolist()  # two cells, and two labels of groups 0 and 1
        [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]
        >>> strata.tilted.astype(int).tolist()
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    """
    each, every = rows.reshape(-1, 2), np.eye(len(rows), dtype=bool)
    few = (rows > 0) & (rows < k_min)
    block = np.asarray(few.reshape(-1, 2).any(axis=1))
    if not block.any():
        return alone(rows, few, rows > 0)

    # Groups join the block, small ones first, until each label that is there has enough rows.
    for s in np.argsort(each.sum(axis=1), kind="stable"):
        total = each[block].sum(axis=0)
        if block.sum() > 1 and (total[total > 0] >= k_min).all():
            break
        block[s] |= each[s].any()
    total = each[block].sum(axis=0)
    if total.max() < k_min:
        return alone(rows, few, rows < 0)

    # Sets of the block, and who stands for each: the last of it, the largest.
    labels, label, inside = _merged(total, k_min), np.arange(len(rows)) % 2, np.repeat(block, 2)
    drawn, tilted, standing = [inside & np.isin(label, own) for own in labels], [], block
    if not groupings:
        standing = np.arange(len(block)) == np.where(block, each.sum(axis=1), -1).argmax()
    for of in map(np.asarray, groupings):
        groups = _merged(np.bincount(of[block], each[block].sum(axis=1)), k_min)
        tilted += [inside & np.repeat(np.isin(of, own), 2) for own in groups if len(groups) > 1]
        standing = standing & np.isin(of, [own[-1] for own in groups])
    cells = 2 * np.flatnonzero(standing)[:, None] + [own[-1] for own in labels]
    others = (rows > 0) & ~inside
    return Strata(
        rows,
        few,
        np.array([*every[others], *drawn]),
        np.array(tilted, bool).reshape(-1, len(rows)),
        np.concatenate([np.flatnonzero(others), cells.ravel()]),
    )


def count_bounds(labels: np.ndarray, groups: np.ndarray, step: float) -> np.ndarray:
    """[2, A, B] least and most rows of each group and label that rounded sums leave open.

    At each level these are Frechet's bounds of what may have been rounded; over levels they add up.

    Args:
        labels: [B, K] rows of each label of the block at each level of a column, rounded.
        groups: [A, K] those of each group.
        step: to multiples of which they are rounded.
    """
    y, g, off = labels[None], groups[:, None], step / 2
    total = np.minimum(
        labels.sum(axis=0) + len(labels) * off, groups.sum(axis=0) + len(groups) * off
    )
    least = np.maximum(g + y - 2 * off - total, 0.0).sum(axis=-1)
    return np.array([least, (np.minimum(g, y) + off).sum(axis=-1)])


def alone(rows: np.ndarray, few: np.ndarray, there: np.ndarray) -> Strata:
    """Each cell that is ``there`` is a set of its own."""
    every = np.eye(len(rows), dtype=bool)
    return Strata(rows, few, every[there], every[:0], np.flatnonzero(there))


def _merged(rows: np.ndarray, k_min: int) -> list[list[int]]:
    """Sets of groups, or labels, with enough rows: those with too few join the next larger one."""
    sets: list[list[int]] = []
    for i in np.argsort(rows, kind="stable"):
        if sets and rows[sets[-1]].sum() < k_min:
            sets[-1].append(int(i))
        elif rows[i]:
            sets.append([int(i)])
    if len(sets) > 1 and rows[sets[-1]].sum() < k_min:
        last = sets.pop()
        sets[-1] += last
    return sets
