"""Sums over the rows of each group and label, and what penalties make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.fairness.penalties import Notion


class Cells(NamedTuple):
    """Sums over the rows of each pair of group and label, exact or with noise.

    Attributes:
        counts: [G, 2] numbers of rows with y = -1 and y = +1; positive, also where noise or an
            empty cell would have it otherwise.
        inputs: [G, 2, n] sums of model inputs.
    """

    counts: np.ndarray
    inputs: np.ndarray

    @property
    def n_rows(self) -> float:
        """Number of rows."""
        return float(self.counts.sum())


def cell_inputs(sums: np.ndarray, centre: np.ndarray, *, intercept: bool) -> np.ndarray:
    """[G, 2, n] sums of model inputs, from sums [G, 2, d + 1] of (x - centre, 1).

    Linear, so that it holds for weighted sums, and for those with noise, as well.
    """
    n_groups, ones = len(sums), sums[..., -1:]
    x = sums[..., :-1] + ones * centre
    groups = ones * np.eye(n_groups)[:, None, 1:]
    return np.concatenate([x, groups, ones[..., : int(intercept)]], axis=-1)


def cell_weights(notion: Notion, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Which cells are compared with which: two arrays [C, G, 2] of 0 and 1.

    The comparisons are those of :mod:`synthfair.fairness.penalties`: in each stratum of labels, a
    group with the rest; of two groups only group 1.
    """
    labels = {
        "statistical_parity": [[1.0, 1.0]],
        "equal_opportunity": [[0.0, 1.0]],
        "equalized_odds": [[0.0, 1.0], [1.0, 0.0]],
    }[notion]
    compared = range(1 if n_groups == 2 else 0, n_groups)
    member = [np.outer(np.eye(n_groups)[g], label) for label in labels for g in compared]
    rest = [np.outer(1 - np.eye(n_groups)[g], label) for label in labels for g in compared]
    return np.array(member), np.array(rest)


def covariance_moments(cells: Cells, notion: Notion) -> np.ndarray:
    """[C, n] vectors m with C_g(theta) = m'theta, the covariance of group and score.

        m = (1/N) (sum_{s = g} a - share_g sum a)

    over the rows of a stratum, N of them. Wu et al. (2024) eq. (2), (3).
    """
    member, rest = cell_weights(notion, len(cells.counts))
    inside, total = (_summed(w, cells.inputs) for w in (member, member + rest))
    n_inside, n_total = (_summed(w, cells.counts) for w in (member, member + rest))
    return (inside - (n_inside / n_total)[:, None] * total) / n_total[:, None]


def rate_gaps(cells: Cells, notion: Notion, sums: np.ndarray) -> np.ndarray:
    """[C, ...] means over a group minus means over the rest, of what sums [G, 2, ...] add up."""
    extra = (slice(None), *[None] * (sums.ndim - 2))

    def mean(weights: np.ndarray) -> np.ndarray:
        return _summed(weights, sums) / _summed(weights, cells.counts)[extra]

    member, rest = cell_weights(notion, len(cells.counts))
    return mean(member) - mean(rest)


def _summed(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[C, ...] sums over cells of weights [C, G, 2] times values [G, 2, ...]."""
    return np.tensordot(weights, values, axes=2)
