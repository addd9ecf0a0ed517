"""What is summed over rows for a surrogate; nothing else reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from synthfair.data.encode import Encoded, expand
from synthfair.data.schema import Schema
from synthfair.privacy.mechanism import SumName
from synthfair.surrogate.anchors import smooth_rates
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.marginals import Edges, Margins, few_levels
from synthfair.surrogate.strata import Strata

GRID = 2.0**-20
"""Of numbers that are summed without noise, so that no bit tells in which order rows came."""

MANY = 40
"""Numbers of which all pairs are multiplied, at most."""

Whole = Callable[[np.ndarray], np.ndarray]
"""Makes rows of numbers [N, k] whole: multiples of a grid, shortened where that is needed."""


class Question(NamedTuple):
    """A sum over rows.

    Attributes:
        name: of the sum.
        length: number of its entries.
        of: the sum over a batch of rows of the plain schema, flat and whole; counts need nothing to
            be made so.
        counts: whether entries are numbers of rows.
        follows_from: sha256 of the tree whose pairs are counted, or of the models whose rates are
            summed, as computed here.
    """

    name: SumName
    length: int
    of: Callable[[Encoded, Whole], np.ndarray]
    counts: bool = False
    follows_from: str | None = None


def on_grid(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers of steps, without a bound."""
    return np.rint(numbers / GRID).astype(np.int64)


def histograms(columns: Columns, n_groups: int) -> Question:
    """Numbers of rows in each level of each column, by cell."""
    length, start = int(columns.ends[-1]), columns.ends[:-1]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = 2 * rows.s + (rows.y > 0)
        at = cell[:, None] * length + start + columns.levels(rows)
        return np.bincount(at.ravel(), minlength=2 * n_groups * length)

    return Question("histograms", 2 * n_groups * length, of, counts=True)


def column_moments(columns: Columns, n_groups: int) -> Question:
    """Sums of z_i z_j, i <= j, and z, of the p' numbers z in [-1/2, 1/2], by cell."""
    length = 2 * n_groups * moment_terms(columns, np.zeros((1, columns[-1].at.stop))).shape[1]

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        products = whole(moment_terms(columns, rows.x))
        return by_cell(products, 2 * rows.s + (rows.y > 0), 2 * n_groups)

    return Question("column_moments", length, of)


def moment_terms(columns: Columns, x: np.ndarray) -> np.ndarray:
    """[N, m] products of the numbers of each row, centred at 1/2, and these; 0 where missing.

    Of more than MANY numbers there are squares alone.
    """
    z = np.clip(x[:, columns.numbers] - 0.5, -0.5, 0.5)
    missing = [c.at.start + 1 for c in columns if c.missing and not c.categories]
    z[:, np.isin(columns.numbers + 1, missing)] *= 1 - x[:, missing]
    i, j = _factors(z.shape[1])
    return np.hstack([z[:, i] * z[:, j], z])


def _factors(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of k numbers the products multiply."""
    return np.triu_indices(k) if k <= MANY else (np.arange(k), np.arange(k))


def squares_and_means(k: int) -> np.ndarray:
    """Return which of the :func:`moment_terms` of k numbers are of one number alone."""
    i, j = _factors(k)
    return np.append(np.flatnonzero(i == j), len(i) + np.arange(k))


def by_cell(whole: np.ndarray, cell: np.ndarray, cells: int) -> np.ndarray:
    """Sums of rows of whole numbers [N, k] by cell, flat; rows of no cell, -1, are left out."""
    sums = [whole[cell == c].sum(axis=0) for c in range(cells)]
    return np.concatenate(sums).astype(object)  # as those of many batches may pass 2^63


def two_way_tables(columns: Columns, margins: Margins, edges: Edges | None = None) -> Question:
    """Numbers of rows in the coarse levels of pairs of columns, by set that is drawn from.

    The pairs are the edges of a tree, or all i < j.
    """
    place, sizes = places(margins.strata.drawn), margins.sizes
    pairs = list(combinations(range(len(columns)), 2)) if edges is None else edges
    length = [len(margins.n) * int(sizes[i] * sizes[j]) for i, j in pairs]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = place[2 * rows.s + (rows.y > 0)]
        fine = columns.levels(rows)[cell >= 0]
        level = [coarse[one] for coarse, one in zip(margins.coarse, fine.T, strict=True)]
        cell = cell[cell >= 0]
        return np.concatenate(
            [
                np.bincount((cell * sizes[i] + level[i]) * sizes[j] + level[j], minlength=n)
                for (i, j), n in zip(pairs, length, strict=True)
            ]
        )

    if edges is None:
        return Question("tables", sum(length), of, counts=True)
    tree = _sha256(np.array(edges, "<i8"))
    return Question("pairs", sum(length), of, counts=True, follows_from=tree)


def crossed_levels(columns: Columns, margins: Margins, n_groups: int) -> Question:
    """Return the question for the rows of each cell in the few levels of every two columns i <= j.

    Its sum is [p (p + 1) / 2, 2 G, K], with as many levels of each column as any column has.
    """
    coarse = few_levels(margins, columns).coarse
    width = 1 + max(int(own.max()) for own in coarse)
    pairs = list(combinations_with_replacement(range(len(columns)), 2))
    size = 2 * n_groups * width**2

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        fine, cell = columns.levels(rows), 2 * rows.s + (rows.y > 0)
        level = [own[one] for own, one in zip(coarse, fine.T, strict=True)]
        codes = [(cell * width + level[i]) * width + level[j] for i, j in pairs]
        return np.concatenate([np.bincount(code, minlength=size) for code in codes])

    return Question("tables", len(pairs) * size, of, counts=True)


def table_parts(tables: np.ndarray, margins: Margins) -> Callable[[int, int], np.ndarray]:
    """Of the sum of all :func:`two_way_tables`, the table [C, K_i, K_j] of columns i and j."""
    c, sizes = len(margins.n), margins.sizes
    pairs = list(combinations(range(len(sizes)), 2))
    ends = np.cumsum([c * int(sizes[i] * sizes[j]) for i, j in pairs])
    parts = dict(zip(pairs, np.split(tables, ends[:-1]), strict=True))

    def part(i: int, j: int) -> np.ndarray:
        if i > j:
            return part(j, i).swapaxes(1, 2)
        return parts[i, j].reshape(c, sizes[i], sizes[j])

    return part


def anchor_rates(thetas: np.ndarray, strata: Strata, schema: Schema) -> Question:
    """Return the question for sums of models' smooth rates by set that is drawn from.

    The rows of a label of the block are scored as if they were of its largest group.
    """
    n_groups, sets, group = len(schema.groups), strata.drawn, strata.group
    labels = np.flatnonzero(sets.sum(axis=1) > 1)  # of the block

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        cell, wide = 2 * rows.s + (rows.y > 0), rows._replace(x=expand(rows.x, schema))

        def rates(s: np.ndarray) -> np.ndarray:
            return whole(smooth_rates(wide._replace(s=s), thetas, n_groups))

        own = rates(rows.s)
        as_one = rates(np.full_like(rows.s, group[labels[0]])) if len(labels) else own
        values = [as_one if i in labels else own for i in range(len(sets))]
        sums = [each[one[cell]].sum(axis=0) for each, one in zip(values, sets, strict=True)]
        return np.concatenate(sums).astype(object)

    length, models = len(sets) * 2 * len(thetas), _sha256(np.ascontiguousarray(thetas, "<f8"))
    return Question("anchors", length, of, follows_from=models)


def _sha256(numbers: np.ndarray) -> str:
    return hashlib.sha256(numbers.data).hexdigest()


def places(sets: np.ndarray) -> np.ndarray:
    """[2 G] of each cell the set [C, 2 G] that it is in, or -1."""
    return np.where(sets.any(axis=0), sets.argmax(axis=0), -1)
