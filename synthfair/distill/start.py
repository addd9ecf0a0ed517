"""The choice of the synthetic rows' groups and labels, and of their first features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.errors import InputError

ROWS_PER_PAIR = 200
"""Synthetic rows for each pair of group and label where n_synthetic is not given."""


class Start(NamedTuple):
    """Where distillation starts.

    Attributes:
        x: [N_s, d] first features.
        s: [N_s] groups.
        y: [N_s] labels.
    """

    x: np.ndarray
    s: np.ndarray
    y: np.ndarray


def choose_start(
    rng: np.random.Generator, real: Encoded, config: DistillConfig, *, n_groups: int
) -> Start:
    """Groups, labels and first features as ``config.labels`` and ``config.start`` say.

    With balanced labels and the range start nothing is read off the real rows but the number d of
    features. Every other choice discloses something; see
    :func:`synthfair.release.format.disclosures`.

    Raises:
        InputError: n_synthetic does not split as wanted.
    """
    if config.labels == "copy":
        s, y = _copied_labels(real, config)
    else:
        counts = np.bincount(2 * real.s + (real.y > 0), minlength=2 * n_groups)
        s, y = _groups_and_labels(counts.reshape(n_groups, 2), config)
    shape = (len(s), real.x.shape[1])
    if config.start in ("range", "middle"):
        return Start(_public_features(rng, shape, config.start), s, y)
    if config.start == "normal":
        spread = [column.std() for column in real.x.T]  # one by one: the rows may be a million
        return Start(real.x.mean(axis=0) + spread * rng.standard_normal(shape), s, y)
    return Start(real.x[_matching_rows(rng, real, s, y)], s, y)


def choose_private_start(
    rng: np.random.Generator, counts: np.ndarray, config: DistillConfig, *, d: int
) -> Start:
    """The same without a real row, from noisy numbers of rows [G, 2] by group and label.

    Raises:
        InputError: n_synthetic does not split as wanted.
    """
    s, y = _groups_and_labels(counts, config)
    return Start(_public_features(rng, (len(s), d), config.start), s, y)


def _copied_labels(real: Encoded, config: DistillConfig) -> tuple[np.ndarray, np.ndarray]:
    if config.n_synthetic not in (None, len(real.y)):
        raise InputError(
            f"n_synthetic = {config.n_synthetic}: with labels = 'copy' it must be the number of"
            f" real rows, {len(real.y)}"
        )
    return real.s, real.y


def _groups_and_labels(
    real_counts: np.ndarray, config: DistillConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Balanced, or in proportion to counts [G, 2] of rows with y = -1 and y = +1."""
    n_groups = len(real_counts)
    n_synthetic = config.n_synthetic or ROWS_PER_PAIR * 2 * n_groups
    if config.labels == "balanced":
        counts = _even_counts(n_synthetic, 2 * n_groups)
    else:
        counts = _proportional_counts(n_synthetic, real_counts.ravel())
    s, y = np.repeat(np.arange(n_groups), 2), np.tile([-1.0, 1.0], n_groups)
    return np.repeat(s, counts), np.repeat(y, counts)


def _even_counts(n: int, parts: int) -> np.ndarray:
    if n % parts:
        raise InputError(
            f"n_synthetic = {n}: with balanced labels it must be a multiple of {parts},"
            " the number of pairs of group and label"
        )
    return np.full(parts, n // parts)


def _proportional_counts(n: int, real_counts: np.ndarray) -> np.ndarray:
    """Counts in proportion to the real ones by largest remainders, at least 1 where any is."""
    if n < np.count_nonzero(real_counts):
        raise InputError(
            f"n_synthetic = {n}: must be at least {np.count_nonzero(real_counts)}, one row for"
            " each pair of group and label"
        )
    needed = (real_counts > 0).astype(int)
    quota = (n - needed.sum()) * real_counts / real_counts.sum()
    counts = needed + np.floor(quota).astype(int)
    largest = np.argsort(-(quota % 1), kind="stable")[: n - counts.sum()]
    counts[largest] += 1
    return counts


def _public_features(rng: np.random.Generator, shape: tuple[int, int], start: str) -> np.ndarray:
    """Uniform over the range that encoded features have by the schema, [0, 1], or its middle."""
    low, high = (0.0, 1.0) if start == "range" else (0.25, 0.75)
    return rng.uniform(low, high, size=shape)


def _matching_rows(
    rng: np.random.Generator, real: Encoded, s: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """[N_s] indices of real rows with the wanted group and label, as few repeated as can be."""
    if len(s) == len(real.s) and np.array_equal(s, real.s) and np.array_equal(y, real.y):
        return np.arange(len(s))
    order = rng.permutation(len(real.s))
    chosen = np.empty(len(s), int)
    for pair in set(zip(s.tolist(), y.tolist(), strict=True)):
        wanted = np.flatnonzero((s == pair[0]) & (y == pair[1]))
        pool = order[(real.s[order] == pair[0]) & (real.y[order] == pair[1])]
        if len(pool) == 0:
            names = "group {} and label {:+g}".format(*pair)
            raise InputError(f"start = 'real': no real row has {names}")
        chosen[wanted] = np.resize(pool, len(wanted))
    return chosen
