"""The choice of the synthetic rows' groups and labels, and of their first features."""

from __future__ import annotations

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.settings import DistillConfig

ROWS_PER_PAIR = 200
"""Synthetic rows for each pair of group and label where n_synthetic is not given."""

PUBLIC = {"range": (0.0, 1.0), "middle": (0.25, 0.75)}
"""Starts that read no real row: uniform over the range that encoded features have by the schema,
or over its middle half."""


def choose_start(config: DistillConfig, counts: np.ndarray, rows: Encoded) -> Encoded:
    """Return groups, labels and first features as ``config.labels`` and ``config.start`` say.

    With balanced labels and a public start nothing is read but the numbers of groups and features.
    Every other choice discloses something; see :func:`synthfair.release.format.disclosures`.

    Args:
        config: settings; the seed is theirs.
        counts: [G, 2] numbers of rows by group and label.
        rows: the rows, of which only some settings read more than the number of features.

    Raises:
        InputError: n_synthetic does not split as wanted.
    """
    rng = np.random.default_rng(config.seed)
    n_rows = config.n_synthetic or ROWS_PER_PAIR * counts.size
    if not config.group_input:
        counts = counts.sum(axis=0, keepdims=True)
        rows = rows._replace(s=np.zeros_like(rows.s))
    if config.labels == "copy":
        if config.n_synthetic not in (None, len(rows.y)):
            raise InputError(
                f"n_synthetic = {config.n_synthetic}: with labels = 'copy' it must be the number of"
                f" real rows, {len(rows.y)}"
            )
        s, y = rows.s, rows.y
    else:
        split = _even_counts if config.labels == "balanced" else _proportional_counts
        per_pair = split(n_rows, counts)
        s = np.repeat(np.repeat(np.arange(len(counts)), 2), per_pair)
        y = np.repeat(np.tile([-1.0, 1.0], len(counts)), per_pair)
    shape = (len(s), rows.x.shape[1])
    if config.start in PUBLIC:
        x = rng.uniform(*PUBLIC[config.start], size=shape)
    elif config.start == "normal":
        spread = [column.std() for column in rows.x.T]  # one by one: they may be a million
        x = rows.x.mean(axis=0) + spread * rng.standard_normal(shape)
    else:
        x = rows.x[_matching_rows(rng, rows, s, y)]
    return Encoded(x, s, y)


def _even_counts(n: int, real_counts: np.ndarray) -> np.ndarray:
    parts = real_counts.size
    if n % parts:
        raise InputError(
            f"n_synthetic = {n}: with balanced labels it must be a multiple of {parts},"
            f" the number of {'labels' if len(real_counts) == 1 else 'pairs of group and label'}"
        )
    return np.full(parts, n // parts)


def _proportional_counts(n: int, real_counts: np.ndarray) -> np.ndarray:
    """Counts in proportion to the real ones by largest remainders, at least 1 where any is."""
    if n < np.count_nonzero(real_counts):
        raise InputError(
            f"n_synthetic = {n}: must be at least {np.count_nonzero(real_counts)}, one row for"
            f" each {'label' if len(real_counts) == 1 else 'pair of group and label'}"
        )
    real_counts = real_counts.ravel()
    needed = (real_counts > 0).astype(int)
    quota = (n - needed.sum()) * real_counts / real_counts.sum()
    counts = needed + np.floor(quota).astype(int)
    largest = np.argsort(-(quota % 1), kind="stable")[: n - counts.sum()]
    counts[largest] += 1
    return counts


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
            names = f"group {pair[0]} and " * bool(s.any()) + f"label {pair[1]:+g}"
            raise InputError(f"start = 'real': no real row has {names}")
        chosen[wanted] = np.resize(pool, len(wanted))
    return chosen
