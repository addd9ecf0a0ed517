"""From noisy sums to a private surrogate: nothing here sees a row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.mechanism import SumName, feature_ball, numeric_features
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.private_sums import BINS, PrivateSums, private_sums
from synthfair.privacy.statement import make_guarantee
from synthfair.surrogate.fit import copula_rows, with_moments
from synthfair.surrogate.latent import latent_correlation
from synthfair.surrogate.make import (
    Cell,
    Surrogate,
    normal_rows,
    own_seed,
    rows_of_a_cell,
    weighted,
)

GRID = np.linspace(-0.5, 0.5, BINS)
"""Values of a feature of the first rows, one a bin, centred at 1/2. The first and the last are the
bounds: many columns are 0 or 1, and many numbers lie on a bound."""

Noise = Mapping[SumName, float]
"""Standard deviation of what was added to each entry of a sum."""

FEWEST = 3.0
"""Standard deviations of the noise that the noisy count of a cell must reach."""

FEWEST_IN_BIN = 2.0
"""The same for the noisy count of a bin, which is 0 below."""

SMALLEST = 1e-3
"""Eigenvalue of a covariance, at least: noise makes some negative."""


def make_private_surrogate(
    rows: Batches, config: SurrogateConfig, schema: Schema, *, noise: RandomBytes = system_entropy
) -> Surrogate:
    """The surrogate of some rows, of which it reads noisy sums alone, once.

    All that it holds may be released, ``left_out`` too: it names the cells whose noisy count is too
    small.

    Guarantee: (config.epsilon, config.delta)-differential privacy, that of
    :func:`make_guarantee`. Unit: one row. Neighbouring relation: config.relation.

    Args:
        rows: encoded, in memory or a stream.
        config: with epsilon and delta.
        schema: of the rows, public.
        noise: where its bytes come from; other than the system's, it protects nothing.

    Raises:
        InputError: no cell has a noisy count that is large enough, or ``config.rows_per_cell`` are
            too few.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.batches import in_memory
        >>> from synthfair.surrogate.private import make_private_surrogate
        >>> table, schema = sf.load_dataset("loanapp")
        >>> config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5)
        >>> made = make_private_surrogate(in_memory(sf.encode(table, schema)), config, schema)
        >>> abs(float(made.table.weight.sum()) - len(table)) < 300  # noisy
        True
    """
    guarantee = make_guarantee(config, schema)
    rows_of_a_cell(config, len(schema.encoded_names))  # before anything is spent
    sums = private_sums(rows, schema, guarantee, source=noise)
    return private_surrogate(sums, {m.name: m.noise for m in guarantee.mechanisms}, config, schema)


def private_surrogate(
    sums: PrivateSums, noise: Noise, config: SurrogateConfig, schema: Schema
) -> Surrogate:
    """The surrogate that noisy sums give; the same ones always give the same.

    A cell is there where its noisy count reaches ``config.k_min`` and three standard deviations of
    its noise. First rows come from a Gaussian copula with the noisy histograms as marginals and
    about the noisy covariances; with moments alone, from a normal distribution. They are then
    mapped to noisy mean and covariance exactly.

    Args:
        sums: noisy.
        noise: that they have.
        config: as there.
        schema: public.

    Raises:
        InputError: see :func:`make_private_surrogate`.
    """
    n_rows = rows_of_a_cell(config, len(schema.encoded_names))
    cells, left_out = _cells(sums, noise, config, schema)
    if not cells:
        least = FEWEST * noise["cell_moments"]
        raise InputError(
            f"no pair of {schema.sensitive} and {schema.label} has a noisy number of rows that"
            f" reaches k_min = {config.k_min} and {least:.0f}, {FEWEST:g} standard deviations of"
            " its noise. Lower k_min or raise epsilon (both are published), make one release of"
            " your rows and another organisation's, or merge small groups (in the schema, by"
            " 'unlisted')"
        )
    make = normal_rows if config.moments_only else _copula_rows
    seed = own_seed(config.seed, cells)
    parts = [make(cell, n_rows, seed + i) for i, cell in enumerate(cells)]
    return Surrogate(weighted(cells, parts), left_out, np.nan)


def _copula_rows(cell: Cell, n_rows: int, seed: int) -> np.ndarray:
    correlation = latent_correlation(cell.values, cell.counts, cell.covariance)
    first = copula_rows(n_rows, cell.values, cell.counts, correlation, seed)
    return with_moments(first, cell.mean, cell.covariance, seed)


def _cells(
    sums: PrivateSums, noise: Noise, config: SurrogateConfig, schema: Schema
) -> tuple[list[Cell], tuple[tuple[int, float], ...]]:
    """Cells that are large enough, and the others."""
    of_moments, shift = noise["cell_moments"], feature_ball(schema).centre - 0.5
    count = sums.moments[..., -1, -1]
    enough = count >= max(config.k_min, FEWEST * of_moments)
    where = np.argwhere(enough)
    counts, moments = count[enough], sums.moments[enough]
    centred = moments[:, :-1, -1] / counts[:, None]
    own = moments[:, :-1, :-1] / counts[:, None, None] - centred[:, :, None] * centred[:, None, :]
    means, covariances = np.clip(centred + shift, -0.5, 0.5), _shrunk(own, counts, of_moments)
    marginals = _marginals(sums.binned[enough], means, covariances, noise, schema)
    cells = [
        Cell(
            int(g),
            2.0 * label - 1,
            float(n),
            mean,
            covariance,
            np.tile(GRID, (len(mean), 1)),
            bins,
            rare=np.zeros(len(mean), bool),
        )
        for (g, label), n, mean, covariance, bins in zip(
            where, counts, means, covariances, marginals, strict=True
        )
    ]
    return cells, tuple((int(g), 2.0 * label - 1) for g, label in np.argwhere(~enough))


def _shrunk(own: np.ndarray, counts: np.ndarray, noise: float) -> np.ndarray:
    """[C, d, d] covariances of cells, moved to their common one by how much of them is noise.

    With C_c and their average C by counts, each becomes C + share_c (C_c - C), where

        share_c = max(0, 1 - d^2 (noise / n_c)^2 / ||C_c - C||_F^2)

    leaves what the noise, d^2 numbers of standard deviation noise / n_c, does not explain: the
    estimator of James and Stein (1961).
    """
    if not len(counts):
        return own
    common = np.average(own, axis=0, weights=counts)
    difference = own - common
    explained = own[0].size * (noise / counts) ** 2
    found = (difference**2).sum(axis=(1, 2))
    share = 1.0 - np.minimum(explained, found) / np.maximum(found, np.finfo(float).tiny)
    return np.stack([_positive(c) for c in common + share[:, None, None] * difference])


def _positive(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, SMALLEST)) @ vectors.T


def _marginals(
    binned: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    noise: Noise,
    schema: Schema,
) -> np.ndarray:
    """[C, d, 16] how often a feature takes each value of the grid.

    What is 0 or 1 has its mean; a number has its histogram or, where noise hides it, a normal
    distribution.
    """
    numeric = numeric_features(schema)
    counts = np.zeros((*means.shape, len(GRID)))
    counts[..., 0], counts[..., -1] = 0.5 - means, 0.5 + means
    spread = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))[:, numeric, None]
    counts[:, numeric] = np.exp(-(((GRID - means[:, numeric, None]) / spread) ** 2) / 2)
    if binned.shape[1]:
        least = FEWEST_IN_BIN * noise["histograms"]
        seen = np.where(binned >= least, binned, 0.0)
        known = seen.any(axis=-1, keepdims=True)
        counts[:, numeric] = np.where(known, seen, counts[:, numeric])
    return counts
