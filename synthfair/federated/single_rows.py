"""Rows as a method sees them, whose exact sums must tell the record of none.

A sum of w_i a_i a_i' over rows i has a line for each input c, the sum of w_i a_ic a_i. Where few
rows have c, or one weighs far more than the others, the line over its entry at c is their record.
So a site answers where many rows have each value, and where no row outweighs the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from synthfair.data.schema import Categorical, Schema
from synthfair.errors import InputError
from synthfair.model import Array

MIN_VALUE_ROWS = 10
"""Rows that must have a value in each set of rows that is summed, unless none has it."""

MAX_SUM_SHARE, MAX_LINE_SHARE = 0.1 * (1 + 1e-6), 0.5
"""Largest share that a row may have of the absolute weights in a sum, and in a line of a sum of
products: there it must not outweigh all others that have the same value."""


class UserRows(NamedTuple):
    """The rows of one user, or of several, padded to one length.

    Attributes:
        a: [..., R, ...] model inputs.
        s: [..., R, A] group index in each of A attributes.
        y: [..., R] label: -1.0 or +1.0, or the index of one of several classes.
        weight: [..., R] 1 for a row that is there, 0 for padding.
    """

    a: Array
    s: Array
    y: Array
    weight: Array

    def factors(self, by_pair: Array | None) -> Array:
        """Return the entry of [G, 2] for each row's group and label -1 or +1; 1 without entries.

        The group is that of the first attribute.
        """
        if by_pair is None:
            return self.weight * 0 + 1.0
        return by_pair[self.s[..., 0], (self.y > 0).astype(int)]


class SummandWeights(NamedTuple):
    """The weights of the rows in each sum of a report.

    Attributes:
        members: [S, R] not 0 where a row is in a set that is summed; all are in the first.
        sums: arrays [..., R].
        products: [..., R], in sums of products of a row's inputs.
    """

    members: Array
    sums: Any
    products: Array


def require_alike(
    weights: SummandWeights, rows: UserRows, schema: Schema, *, source: str, least: Sequence[int]
) -> None:
    """Refuse to report sums that would tell the records of few rows.

    The values of a column are counted in each set that is summed, and in the rows of no set but the
    first, whose sums follow from the others.

    Args:
        weights: in the sums, at params that may have been chosen to single a row out.
        rows: R of them, all of weight 1.
        schema: of the rows.
        source: what to call the table.
        least: rows that a pair of group and label must have, and a value, unless none has it. Sums
            over one label follow from those over both: a large group does not hide few of a label.

    Raises:
        InputError: names values and numbers of rows, and what to merge; or a row outweighs others.
    """
    members, lines, refused = weights.members > 0, {}, []
    sets = [rows_in for rows_in in (*members, ~members[1:].any(axis=0)) if rows_in.any()]
    for can_merge, names, block in _values(rows, schema):
        is_pair = not lines  # pairs of group and label come before the columns
        must, remedy = least[not is_pair], "merge small groups" if is_pair else "leave it out"
        lines |= zip(names, np.abs(block).T, strict=True)
        counts = np.array([np.count_nonzero(block[rows_in], axis=0) for rows_in in sets])
        if (small := (counts > 0) & (counts < must)).any():
            # Those with few rows become one category, with the smallest others that it takes.
            few, total = small.any(axis=0), np.where(counts[0] > 0, counts[0], np.inf)
            order = np.lexsort((total, ~few))
            for k in range(np.isfinite(total).sum() - 1, few.sum() - 1, -1):
                together = counts[:, order[:k]].sum(axis=1)
                if can_merge and ((together == 0) | (together >= must)).all():
                    remedy = f"make one category of {', '.join(names[i] for i in order[:k])}"
            rare, fewest = names[order[0]], counts[small[:, order[0]], order[0]].min()
            refused.append(f"rows with {rare}: {fewest}, must be none or {must} ({remedy})")

    # No row outweighs the others in a sum, or in a line of one.
    leaves = weights.members, *weights.sums, weights.products
    shares = [("any value", leaf, MAX_SUM_SHARE) for leaf in leaves]
    shares += [(name, weights.products * line, MAX_LINE_SHARE) for name, line in lines.items()]
    for name, w, most in shares:
        if not refused and (abs(w).max(axis=-1) > most * abs(w).sum(axis=-1)).any():
            refused = [f"among rows with {name}, one outweighs others at the params asked for"]
    if refused:
        raise InputError(
            f"{source}: exact sums would tell the records of few rows: {'; '.join(refused)}. Take"
            " part in secure sums with noise, which need none of this, or in none"
        )


def _values(rows: UserRows, schema: Schema) -> Iterator[tuple[bool, list[str], np.ndarray]]:
    """Yield, for pairs and each column, if values can be merged, these, and [R, values] of rows."""
    pairs = [schema.pair(g, y) for g in range(len(schema.groups)) for y in (-1, 1)]
    yield False, pairs, np.eye(len(pairs))[2 * np.asarray(rows.s[:, 0]) + (np.asarray(rows.y) > 0)]
    blocks = schema.encoded_blocks
    split = np.split(np.asarray(rows.a), np.cumsum([*map(len, blocks.values())]), axis=1)
    for (name, names), block in zip(blocks.items(), split, strict=False):
        if isinstance(column := schema.columns.get(name), Categorical):
            # The first of two categories has no encoded column, and an unknown value has none.
            first = column.categories[0] if len(column.categories) == 2 else "(unknown)"
            yield True, [*names, f"{name}={first}"], np.c_[block, 1 - block.sum(axis=1)]
        else:
            # A number that nearly all rows have tells the others, as 0 does.
            unlike = [f"{name} unlike most" for name in names]
            yield False, [*names, *unlike], np.c_[block, block - np.median(block, axis=0)]
