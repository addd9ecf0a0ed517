"""Noisy sums by group and label: all that a private surrogate is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.privacy.mechanism import (
    NoisySum,
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
    noisy = {m.name: NoisySum(m, guarantee.relation, source) for m in guarantee.mechanisms}
    moments = noisy["cell_moments"]
    numeric = numeric_features(schema) if "histograms" in noisy else np.empty(0, int)
    exact = rows.sum(
        partial(
            _exact_sums,
            n_groups=len(schema.groups),
            centre=feature_ball(schema).centre,
            terms=moments.terms,
            numeric=numeric,
        )
    )
    binned = exact.binned.astype(float)
    if len(numeric):
        steps = exact.binned.astype(object) * round(1 / noisy["histograms"].terms.grid)
        binned = noisy["histograms"].release(steps)
    return PrivateSums(_noisy_symmetric(exact.moments, moments), binned)


def _noisy_symmetric(exact: np.ndarray, noisy_sum: NoisySum) -> np.ndarray:
    """Noise is added to the entries on and above the diagonal, and copied below."""
    upper = np.triu_indices(exact.shape[-1])
    noisy = np.zeros(exact.shape)
    noisy[..., *upper] = noisy_sum.release(exact[..., *upper])
    return noisy + np.swapaxes(np.triu(noisy, 1), -1, -2)


@dataclass(frozen=True)
class _ExactSums:
    """The sums before noise, in integers. They add up over batches, and never leave this module.

    Moments count steps of their grid; ``binned`` counts rows.
    """

    moments: np.ndarray
    binned: np.ndarray

    def __add__(self, other: _ExactSums) -> _ExactSums:
        return _ExactSums(self.moments + other.moments, self.binned + other.binned)


def _exact_sums(
    rows: Encoded, *, n_groups: int, centre: np.ndarray, terms: Terms, numeric: np.ndarray
) -> _ExactSums:
    require_float64(rows.x)
    b = np.column_stack([rows.x - centre, np.ones(len(rows.y))])
    bins = _bins(rows.x[:, numeric])
    cell, k, m = 2 * rows.s + (rows.y > 0), b.shape[1], len(numeric)
    moments = np.stack([terms.squares(b[cell == c]) for c in range(2 * n_groups)])
    place = (bins + BINS * (np.arange(m) + m * cell[:, None])).ravel()
    binned = np.bincount(place, minlength=2 * n_groups * m * BINS)
    return _ExactSums(moments.reshape(n_groups, 2, k, k), binned.reshape(n_groups, 2, m, BINS))


def _bins(x: np.ndarray) -> np.ndarray:
    """Of numbers [N, m]: whatever a row holds has one bin; not-a-number has the first."""
    return np.minimum((np.nan_to_num(np.clip(x, 0.0, 1.0)) * BINS).astype(np.int64), BINS - 1)
