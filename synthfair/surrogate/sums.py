"""Sums over rows, by group and label: what a surrogate is made of. They add up over batches.

A cell is a pair of group g and label: [G, 2] arrays hold y = -1 and y = +1. Features are centred
at 1/2, the middle of their range.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import jax
import numpy as np

from synthfair.data.encode import Encoded

BINS = 16
"""Public, equally wide bins of each feature's range."""

BLOCK = 2**12
"""Rows whose smooth sums are computed in one compiled call."""


class _Sums:
    """Arrays that are sums over rows, and so add up."""

    def __add__(self, other: Self) -> Self:
        """The sums over the rows of both."""
        return type(self)(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class CellSums(_Sums):
    """Counts, moments and histograms of the rows of each cell. ``a + b`` is that of both tables.

    Attributes:
        count: [G, 2] number of rows.
        first: [G, 2, d] sum of x - 1/2.
        second: [G, 2, d, d] sum of (x - 1/2)(x - 1/2)'.
        binned: [G, 2, d, 16] rows in each of the public bins of a feature's range.
        within: [G, 2, d, 16] sum of x over these rows.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> rows = sf.encode(table, schema)
        >>> halves = [sf.Encoded(*(part[i::2] for part in rows)) for i in (0, 1)]
        >>> sums = [sf.surrogate.cell_sums(half, n_groups=2) for half in halves]
        >>> (sums[0] + sums[1]).count.tolist()  # by group, of labels -1 and +1
        [[90.0, 218.0], [154.0, 1527.0]]
    """

    count: np.ndarray
    first: np.ndarray
    second: np.ndarray
    binned: np.ndarray
    within: np.ndarray

    def mean(self) -> np.ndarray:
        """[G, 2, d] of x; 1/2 in an empty cell."""
        return 0.5 + self.first / np.maximum(self.count, 1)[..., None]

    def covariance(self) -> np.ndarray:
        """[G, 2, d, d] of x within each cell, divided by the number of rows."""
        n = np.maximum(self.count, 1)[..., None]
        centre = self.first / n
        found = self.second / n[..., None] - centre[..., :, None] * centre[..., None, :]
        each = np.arange(found.shape[-1])
        found[..., each, each] = np.maximum(found[..., each, each], 0.0)  # below it by rounding
        return found

    def binary(self) -> np.ndarray:
        """[d] whether a feature is 0 or 1 in all rows."""
        binned, within = self.binned.sum(axis=(0, 1)), self.within.sum(axis=(0, 1))
        ends = (within[:, 0] == 0) & (within[:, -1] == binned[:, -1])
        return ends & (binned[:, 1:-1].sum(axis=1) == 0)


def cell_sums(rows: Encoded, *, n_groups: int) -> CellSums:
    """The sums over some rows.

    Args:
        rows: N encoded rows; features in [0, 1].
        n_groups: G, at least 2.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> x = np.array([[0.25, 0.0], [0.75, 1.0], [0.5, 1.0]])
        >>> rows = sf.Encoded(x, s=np.array([1, 1, 0]), y=np.array([1.0, 1.0, -1.0]))
        >>> sums = sf.surrogate.cell_sums(rows, n_groups=2)
        >>> sums.mean()[1, 1].tolist()  # of group 1, label +1
        [0.5, 0.5]
        >>> sums.covariance()[1, 1].tolist()
        [[0.0625, 0.125], [0.125, 0.25]]
    """
    d = rows.x.shape[1]
    cell = 2 * rows.s + (rows.y > 0)
    moments = np.zeros((2 * n_groups, d + 1, d + 1))
    for c, block in _by_cell(rows, n_groups):
        centred = np.column_stack([block - 0.5, np.ones(len(block))])
        moments[c] = centred.T @ centred
    bins = np.clip((rows.x * BINS).astype(np.int64), 0, BINS - 1)
    place = (bins + BINS * (np.arange(d) + d * cell[:, None])).ravel()
    size = 2 * n_groups * d * BINS
    binned, within = (np.bincount(place, weights, size) for weights in (None, rows.x.ravel()))
    moments, shape = moments.reshape(n_groups, 2, d + 1, d + 1), (n_groups, 2, d, BINS)
    return CellSums(
        moments[..., -1, -1],
        moments[..., :-1, -1],
        moments[..., :-1, :-1],
        binned.reshape(shape).astype(float),
        within.reshape(shape),
    )


def _by_cell(rows: Encoded, n_groups: int) -> Iterator[tuple[int, np.ndarray]]:
    """The features of the rows of each cell that has some."""
    cell = 2 * rows.s + (rows.y > 0)
    for c in range(2 * n_groups):
        block = rows.x[cell == c]
        if len(block):
            yield c, block


@dataclass(frozen=True)
class CellSample:
    """Rows drawn from each cell, at most k. ``a + b`` is a sample of the rows of both.

    Attributes:
        key: [2 G, k] random; infinite where a cell has fewer rows. Rows of smallest key are kept.
        x: [2 G, k, d] their features.
    """

    key: np.ndarray
    x: np.ndarray

    def __add__(self, other: CellSample) -> CellSample:
        """A sample of as many rows of both."""
        key, x = (
            np.concatenate(both, axis=1) for both in ((self.key, other.key), (self.x, other.x))
        )
        first = np.argsort(key, axis=1)[:, : self.key.shape[1]]
        return CellSample(
            np.take_along_axis(key, first, axis=1), np.take_along_axis(x, first[..., None], axis=1)
        )

    def rows(self, cell: int) -> np.ndarray:
        """[k, d] rows of a cell that has some; those of a small cell are repeated."""
        there = int(np.isfinite(self.key[cell]).sum())
        return self.x[cell, np.arange(self.key.shape[1]) % there]


def cell_sample(rows: Encoded, *, n_groups: int, k: int) -> CellSample:
    """Draws rows from each cell, by a seed that the rows themselves give."""
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(rows.x).tobytes()))
    key = np.full((2 * n_groups, k), np.inf)
    x = np.zeros((*key.shape, rows.x.shape[1]))
    for c, block in _by_cell(rows, n_groups):
        drawn = rng.random(len(block))
        chosen = np.argsort(drawn)[:k]
        key[c, : len(chosen)], x[c, : len(chosen)] = drawn[chosen], block[chosen]
    return CellSample(key, x)


@dataclass(frozen=True)
class FirstPass(_Sums):
    """What the first reading of the rows gives."""

    sums: CellSums
    sample: CellSample


def first_pass(rows: Encoded, *, n_groups: int, k: int) -> FirstPass:
    """Sums and a sample of some rows."""
    return FirstPass(cell_sums(rows, n_groups=n_groups), cell_sample(rows, n_groups=n_groups, k=k))


@dataclass(frozen=True)
class Anchors:
    """Functions sigma(v'(x - 1/2) + b) of a row, whose sums over a cell a surrogate matches.

    Attributes:
        slope: [J, d] v.
        offset: [G, J] b, in each group.
        weight: [J] how much each counts in the fit.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> one = sf.surrogate.Anchors(np.array([[2.0, -1.0]]), np.zeros((2, 1)), np.ones(1))
        >>> (one + one).slope.shape
        (2, 2)
    """

    slope: np.ndarray
    offset: np.ndarray
    weight: np.ndarray

    def __add__(self, other: Anchors) -> Anchors:
        """All of both."""
        return Anchors(
            np.concatenate([self.slope, other.slope]),
            np.concatenate([self.offset, other.offset], axis=1),
            np.concatenate([self.weight, other.weight]),
        )


@dataclass(frozen=True)
class SmoothSums(_Sums):
    """Sums over the rows of each cell at J anchors. ``a + b`` is that of both tables.

    Attributes:
        rate: [G, 2, J] sum of sigma(v'(x - 1/2) + b).
        moment: [G, 2, J, d] sum of sigma(v'(x - 1/2) + b) (x - 1/2).

    Example:
        >>> import synthfair as sf
        >>> sf.surrogate.SmoothSums(1.0, 0.5) + sf.surrogate.SmoothSums(2.0, 0.25)
        SmoothSums(rate=3.0, moment=0.75)
    """

    rate: np.ndarray
    moment: np.ndarray


def smooth_sums(rows: Encoded, anchors: Anchors, *, n_groups: int) -> SmoothSums:
    """The sums over some rows at anchors.

    Args:
        rows: N encoded rows; features in [0, 1].
        anchors: J of them.
        n_groups: G, at least 2.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rows = sf.Encoded(np.array([[0.5], [1.0]]), np.array([0, 0]), np.array([1.0, 1.0]))
        >>> anchors = sf.surrogate.Anchors(np.array([[2.0]]), np.zeros((2, 1)), np.ones(1))
        >>> sums = sf.surrogate.smooth_sums(rows, anchors, n_groups=2)
        >>> f"{sums.rate[0, 1, 0]:.4f}"  # sigma(0) + sigma(1)
        '1.2311'
    """
    (j, d), shape = anchors.slope.shape, (n_groups, 2)
    total = np.zeros((2 * n_groups, j, d + 1))
    with jax.enable_x64(True):
        for c, block in _by_cell(rows, n_groups):
            offset = anchors.offset[c // 2]
            for begin in range(0, len(block), BLOCK):
                part = block[begin : begin + BLOCK]
                padded = np.zeros((BLOCK, d + 1))
                padded[: len(part), :d], padded[: len(part), d] = part - 0.5, 1.0
                total[c] += np.asarray(_smooth(padded, anchors.slope, offset))
    total = total.reshape(*shape, j, d + 1)
    return SmoothSums(total[..., -1], total[..., :-1])


@jax.jit
def _smooth(rows: jax.Array, slope: jax.Array, offset: jax.Array) -> jax.Array:
    """[J, d + 1] sums over rows (x - 1/2, 1), those of padding being 0."""
    return jax.nn.sigmoid(rows[:, :-1] @ slope.T + offset).T @ rows
