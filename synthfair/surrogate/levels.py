"""The public levels of a table's columns.

Rows are counted by level, and records are drawn by level.
A category is a level, and so is a missing value. A number has one level for each whole number of a
range below :data:`MAX_BINS`, and bins between them; else bins, and levels of its own for both
bounds, as many columns lie on one.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from synthfair.data.bases import Steps
from synthfair.data.encode import Encoded
from synthfair.data.schema import Categorical, Numeric, Schema

MAX_BINS, MAX_BINS_PRIVATE = 128, 32
"""Bins of a number, without and with an epsilon, whose noise is less on fewer."""

MIN_SKEWED_RANGE = 1000.0
"""Range from which bins grow with a number's size, as money and durations are skewed."""

MAX_ROUNDING = 1e-6
"""Difference up to which a number is a whole one: encoding and back have rounded it."""


class ColumnLevels(NamedTuple):
    """A feature of the schema and its L levels, in order.

    Attributes:
        place: positions of its encoded columns.
        categories: number of its categories; 0 of a number.
        low, width: [L] of a number, where each level begins, and how wide it is; 0 for one value.
            The first and the last are its bounds.
        missing: whether the last level, then the L + 1st, is a missing value.
    """

    place: slice
    categories: int
    low: np.ndarray
    width: np.ndarray
    missing: bool

    @property
    def size(self) -> int:
        """Number of levels, that of missing values included."""
        return (self.categories or len(self.low)) + self.missing

    @property
    def whole(self) -> bool:
        """Return whether whole numbers have levels, and not only bounds."""
        return bool((self.width == 0).sum() > 2)

    def levels(self, x: np.ndarray) -> np.ndarray:
        """Return the level [N] of each row, of its encoded columns x [N, k]."""
        if self.categories == 2:
            rest = 1 - x.sum(axis=1, keepdims=True)
            return np.argmax(np.hstack([rest, x]), axis=1)
        if self.categories:
            return np.argmax(x, axis=1)
        # Both are scaled as encoding does it, so that a value on an edge is not below it.
        lower, span, z = self.low[0], self.low[-1] - self.low[0], np.clip(x[:, 0], 0.0, 1.0)
        begin = (self.low - lower) / span
        if self.whole:
            value = lower + z * span
            near = np.rint(value)
            z = np.where(np.abs(value - near) < MAX_ROUNDING, (near - lower) / span, z)
        level = np.searchsorted(begin, z, side="right") - 1
        # Where a level of one value begins, so does the bin after it: the value is the former's.
        level = np.clip(level - (begin[level - 1] == z), 0, len(self.low) - 1)
        return np.where(x[:, 1] > 0.5, len(self.low), level) if self.missing else level

    def values(self, level: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return a category's position [R], or a number: at ``share`` [R], 0 to 1, of its level."""
        if self.categories:
            return level.astype(float)
        low, width = (np.append(values, np.nan) for values in (self.low, self.width))
        return np.minimum(low[level] + share * width[level], self.low[-1])


class Columns(tuple[ColumnLevels, ...]):
    """The p features of a schema, in order."""

    @classmethod
    def of(cls, schema: Schema, *, private: bool) -> Self:
        """Return those of rows of ``schema.plain``; ``private`` makes fewer bins."""
        columns, start, none = [], 0, np.empty(0)
        blocks = schema.plain.encoded_blocks
        for name, column in schema.features.items():
            end = start + len(blocks[name])
            place, missing, start = slice(start, end), column.missing == "category", end
            if isinstance(column, Categorical):
                columns.append(ColumnLevels(place, len(column.categories), none, none, missing))
            else:
                low, width = _levels_of(column, private=private)
                columns.append(ColumnLevels(place, 0, low, width, missing))
        return cls(columns)

    @property
    def numbers(self) -> np.ndarray:
        """[p'] positions of the first encoded column of each number."""
        return np.array([c.place.start for c in self if not c.categories], dtype=int)

    @property
    def ends(self) -> np.ndarray:
        """[p + 1] where the levels of each column begin among those of all, and where they end."""
        return np.cumsum([0, *(column.size for column in self)])

    def levels(self, rows: Encoded) -> np.ndarray:
        """Return the level [N, p] of each row in each column."""
        return np.stack([column.levels(rows.x[:, column.place]) for column in self], axis=1)


def _levels_of(column: Numeric, *, private: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return where levels begin, and their widths: single values, bins between them, and steps."""
    lower, upper, bins = column.lower, column.upper, MAX_BINS_PRIVATE if private else MAX_BINS
    span = upper - lower
    if span < MAX_BINS and lower == round(lower) and upper == round(upper):
        each = max(1, int(bins // span))
        edges = lower + np.arange(int(span) * each + 1) / each
        single = edges == np.rint(edges)
    else:
        scale, back = (
            (np.arcsinh, np.sinh) if span >= MIN_SKEWED_RANGE else (np.asarray, np.asarray)
        )
        edges = back(np.linspace(scale(lower), scale(upper), bins + 1))
        edges[0], edges[-1] = lower, upper
        if isinstance(column.basis, Steps) and not private:
            edges = np.union1d(edges, column.basis.edges)
        single = np.isin(edges, (lower, upper))
    wide = np.append(np.diff(edges), 0.0)
    low = np.repeat(edges, single.astype(int) + (wide > 0))
    width = np.stack([np.zeros(len(edges)), wide], axis=1)
    return low, width[np.stack([single, wide > 0], axis=1)]
