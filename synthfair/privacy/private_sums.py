"""Noisy sums by group and label: all that a private surrogate is made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.privacy.mechanism import (
    NoisySum,
    SumName,
    Terms,
    feature_ball,
    numeric_features,
    require_float64,
)
from synthfair.privacy.noise import RandomBytes
from synthfair.privacy.statement import Guarantee

BINS = 16
"""Public, equally wide bins of each numeric feature's range."""


class PrivateSums(NamedTuple):
    """Noisy sums over the rows of each cell, a pair of group and label (-1, then +1).

    What is made of them is as private as they are.

    Attributes:
        moments: [G, 2, d + 1, d + 1] of b b' with b = (x - centre, 1), the centre being that of
            :func:`feature_ball`. Symmetric; noise may make it indefinite, and counts negative.
        binned: [G, 2, m, 16] rows in the bins of the m numeric features; m is 0 where the guarantee
            has no histograms.
    """

    moments: np.ndarray
    binned: np.ndarray


def private_sums(
    rows: Batches, schema: Schema, guarantee: Guarantee, *, source: RandomBytes
) -> PrivateSums:
    """Reads all rows once, and adds noise to each sum once.

    Guarantee: as given. Unit: one row. Neighbouring relation: that of the guarantee. A row's
    part is clipped to the bound that the schema implies and rounded to the grid, so that this holds
    for any rows.

    Args:
        rows: encoded, in memory or a stream.
        schema: theirs, public.
        guarantee: of the mechanisms "cell_moments" and, where wanted, "histograms".
        source: of the noise.

    Raises:
        InputError: features are not float64.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.batches import in_memory
        >>> from synthfair.privacy.noise import system_entropy
        >>> from synthfair.privacy.private_sums import private_sums
        >>> table, schema = sf.load_dataset("loanapp")
        >>> config = sf.SurrogateConfig(epsilon=1.0, delta=1e-5, moments_only=True)
        >>> guarantee = sf.privacy.make_guarantee(config, schema)
        >>> rows = in_memory(sf.encode(table, schema))
        >>> private_sums(rows, schema, guarantee, source=system_entropy).moments.shape
        (2, 2, 38, 38)
    """
    noisy: dict[SumName, NoisySum] = {
        m.name: NoisySum(m, guarantee.relation, source) for m in guarantee.mechanisms
    }
    exact = whole_sums(rows, schema, {name: one.terms for name, one in noisy.items()})
    return as_private_sums({name: noisy[name].release(exact[name]) for name in noisy}, schema)


def as_private_sums(totals: Mapping[SumName, np.ndarray], schema: Schema) -> PrivateSums:
    """Noisy totals, flat as of :func:`whole_sums`, in the form of which a surrogate is made."""
    groups, k = len(schema.groups), len(schema.encoded_names) + 1
    moments = np.zeros((groups, 2, k, k))
    moments[..., *np.triu_indices(k)] = totals["cell_moments"].reshape(groups, 2, -1)
    binned = totals.get("histograms", np.empty(0)).reshape(groups, 2, -1, BINS)
    return PrivateSums(moments + np.swapaxes(np.triu(moments, 1), -1, -2), binned)


def sum_length(name: SumName, schema: Schema) -> int:
    """How many numbers the sum of this name has, of all cells together."""
    k, m = len(schema.encoded_names) + 1, len(numeric_features(schema))
    return 2 * len(schema.groups) * (k * (k + 1) // 2 if name == "cell_moments" else m * BINS)


def whole_sums(
    rows: Batches, schema: Schema, terms: Mapping[SumName, Terms]
) -> dict[SumName, np.ndarray]:
    """Exact sums before noise, each flat, of Python integers that count steps of its grid.

    Of "cell_moments" these are the upper triangles, cell after cell; of "histograms" the counts.
    Nobody but who adds noise to them may see them. All rows are read once.

    Args:
        rows: encoded, in memory or a stream.
        schema: theirs, public.
        terms: which sums, with bound and grid of each.

    Raises:
        InputError: features are not float64.
    """
    found = rows.sum(partial(_of_batch, schema=schema, terms=terms))
    ends = np.cumsum([sum_length(name, schema) for name in terms])
    return dict(zip(terms, np.split(found, ends[:-1]), strict=True))


def _of_batch(rows: Encoded, *, schema: Schema, terms: Mapping[SumName, Terms]) -> np.ndarray:
    """All sums, one after the other."""
    require_float64(rows.x)
    sums = {"cell_moments": _moments, "histograms": _histograms}
    return np.concatenate([sums[name](rows, schema, own).ravel() for name, own in terms.items()])


def _moments(rows: Encoded, schema: Schema, terms: Terms) -> np.ndarray:
    b = np.column_stack([rows.x - feature_ball(schema).centre, np.ones(len(rows.y))])
    cell, upper = 2 * rows.s + (rows.y > 0), np.triu_indices(b.shape[1])
    return np.stack([terms.squares(b[cell == c])[upper] for c in range(2 * len(schema.groups))])


def _histograms(rows: Encoded, schema: Schema, terms: Terms) -> np.ndarray:
    bins = _bins(rows.x[:, numeric_features(schema)])
    cell, m = 2 * rows.s + (rows.y > 0), bins.shape[1]
    place = (bins + BINS * (np.arange(m) + m * cell[:, None])).ravel()
    counts = np.bincount(place, minlength=sum_length("histograms", schema))
    return counts.astype(object) * round(1 / terms.grid)


def _bins(x: np.ndarray) -> np.ndarray:
    """Of numbers [N, m]: whatever a row holds has one bin; not-a-number has the first."""
    return np.minimum((np.nan_to_num(np.clip(x, 0.0, 1.0)) * BINS).astype(np.int64), BINS - 1)
