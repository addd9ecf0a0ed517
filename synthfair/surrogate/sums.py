"""Sums over rows, by group and label: what a surrogate is made of. They add up over batches.

A cell is a pair of group g and label: [G, 2] arrays hold y = -1 and y = +1. Features are centred
at 1/2, the middle of their range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.data.encode import Encoded

BINS = 16
"""Public, equally wide bins of each feature's range."""

BLOCK = 2**12
"""Rows whose smooth sums are computed in one compiled call."""

STEP, RATE_STEP = 2.0**-16, 2.0**-14
"""Grids of features and of smooth rates. Sums of their multiples, and of products of two, are exact
up to 2^23 rows of a cell, so that nothing of the order of rows remains in them."""

RARE = 5
"""Rows of a cell that must differ from the others in a number, at least, for its mean, variance and
covariances in this cell to be given: those of fewer rows could be solved for. Numbers of rows are
rounded to its multiples."""


class _Sums:
    """Arrays that are sums over rows, and so add up."""

    def __add__(self, other: Self) -> Self:
        """The sums over the rows of both."""
        return type(self)(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class FewValues:
    """Values of features in which nearly all rows are alike. ``a + b`` is that of the rows of both.

    Attributes:
        value: [..., RARE] distinct values, ascending; infinite where there are fewer.
        count: [..., RARE] rows of each.
        more: [...] whether RARE rows or more differ from the most frequent value; then no value is
            listed.
    """

    value: np.ndarray
    count: np.ndarray
    more: np.ndarray

    def __add__(self, other: FewValues) -> FewValues:
        """The values of both; equal ones are joined."""
        value = np.concatenate([self.value, other.value], axis=-1)
        count = np.concatenate([self.count, other.count], axis=-1)
        value, count = _ascending(value, count)
        twice = np.isfinite(value[..., 1:]) & (value[..., 1:] == value[..., :-1])
        count[..., :-1] += np.where(twice, count[..., 1:], 0)
        value[..., 1:] = np.where(twice, np.inf, value[..., 1:])
        count[..., 1:] = np.where(twice, 0, count[..., 1:])
        value, count = _ascending(value, count)
        more = self.more | other.more | (count.sum(axis=-1) - count.max(axis=-1) >= RARE)
        value, count = np.where(more[..., None], np.inf, value), np.where(more[..., None], 0, count)
        return FewValues(value[..., :RARE], count[..., :RARE], more)

    @property
    def rare(self) -> np.ndarray:
        """[...] whether some rows, but fewer than RARE, differ from the most frequent value."""
        return ~self.more & (self.count.sum(axis=-1) > self.count.max(axis=-1))

    @property
    def mode(self) -> np.ndarray:
        """[...] the most frequent value where rows that differ from it are rare."""
        most = self.count.argmax(axis=-1)[..., None]
        return np.take_along_axis(self.value, most, axis=-1)[..., 0]


def _ascending(value: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(value, axis=-1, kind="stable")
    return np.take_along_axis(value, order, axis=-1), np.take_along_axis(count, order, axis=-1)


@dataclass(frozen=True)
class CellSums(_Sums):
    """Counts, moments and histograms of the rows of each cell. ``a + b`` is that of both tables.

    Attributes:
        count: [G, 2] number of rows.
        first: [G, 2, d] sum of x - 1/2.
        second: [G, 2, d, d] sum of (x - 1/2)(x - 1/2)'.
        binned: [G, 2, d, 16] rows in each of the public bins of a feature's range.
        within: [G, 2, d, 16] sum of x over these rows.
        few: [G, 2, d] the values of features that have few.

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
    few: FewValues

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


def cell_sums(rows: Encoded, *, n_groups: int) -> CellSums:
    """The sums over some rows, whose features are rounded to multiples of 2^-16.

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
    rows, d = _on_grid(rows), rows.x.shape[1]
    cell = 2 * rows.s + (rows.y > 0)
    bins = np.clip((rows.x * BINS).astype(np.int64), 0, BINS - 1)
    place = (bins + BINS * (np.arange(d) + d * cell[:, None])).ravel()
    size, shape = 2 * n_groups * d * BINS, (2 * n_groups, d, BINS)
    binned, within = (
        np.bincount(place, weights, size).astype(float).reshape(shape)
        for weights in (None, rows.x.ravel())
    )
    moments = np.zeros((2 * n_groups, d + 1, d + 1))
    value = np.full((2 * n_groups, d, RARE), np.inf)
    count = np.zeros_like(value)
    more = binned.sum(axis=-1) - binned.max(axis=-1) >= RARE
    for c, block in _by_cell(rows, n_groups):
        centred = np.column_stack([block - 0.5, np.ones(len(block))])
        moments[c] = centred.T @ centred
        for j in np.flatnonzero(~more[c]):
            distinct, times = np.unique(block[:, j], return_counts=True)
            more[c, j] = len(block) - times.max() >= RARE
            if not more[c, j]:
                value[c, j, : len(distinct)], count[c, j, : len(times)] = distinct, times
    moments, binned, within, value, count, more = (
        part.reshape(n_groups, 2, *part.shape[1:])
        for part in (moments, binned, within, value, count, more)
    )
    return CellSums(
        moments[..., -1, -1],
        moments[..., :-1, -1],
        moments[..., :-1, :-1],
        binned,
        within,
        FewValues(value, count, more),
    )


def _on_grid(rows: Encoded) -> Encoded:
    return rows._replace(x=np.rint(rows.x / STEP) * STEP)


def _by_cell(rows: Encoded, n_groups: int) -> Iterator[tuple[int, np.ndarray]]:
    """The features of the rows of each cell that has some."""
    cell = 2 * rows.s + (rows.y > 0)
    for c in range(2 * n_groups):
        block = rows.x[cell == c]
        if len(block):
            yield c, block


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


def smooth_sums(
    rows: Encoded, anchors: Anchors, *, n_groups: int, fixed: np.ndarray | None = None
) -> SmoothSums:
    """The sums over some rows at anchors.

    Args:
        rows: N encoded rows; features in [0, 1], which are rounded to multiples of 2^-16.
        anchors: J of them.
        n_groups: G, at least 2.
        fixed: [G, 2, d] values that take the place of a cell's own; not-a-number where its own
            stay.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rows = sf.Encoded(np.array([[0.5], [1.0]]), np.array([0, 0]), np.array([1.0, 1.0]))
        >>> anchors = sf.surrogate.Anchors(np.array([[2.0]]), np.zeros((2, 1)), np.ones(1))
        >>> sums = sf.surrogate.smooth_sums(rows, anchors, n_groups=2)
        >>> f"{sums.rate[0, 1, 0]:.3f}"  # sigma(0) + sigma(1)
        '1.231'
    """
    (j, d), shape = anchors.slope.shape, (n_groups, 2)
    total = np.zeros((2 * n_groups, j, d + 1))
    with jax.enable_x64(True):
        for c, block in _by_cell(_on_grid(rows), n_groups):
            if fixed is not None:
                own = fixed[c // 2, c % 2]
                block = np.where(np.isnan(own), block, own)  # noqa: PLW2901
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
    rates = jax.nn.sigmoid(rows[:, :-1] @ slope.T + offset)
    return (jnp.rint(rates / RATE_STEP) * RATE_STEP).T @ rows
