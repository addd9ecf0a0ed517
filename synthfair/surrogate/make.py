"""From a client's rows to its surrogate: sums, first rows, anchors, smooth sums, fitted rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.schema import Schema, shown
from synthfair.errors import InputError
from synthfair.privacy.mechanism import numeric_features
from synthfair.surrogate.anchors import (
    IMPORTANCE,
    TEMPERATURE,
    anchors_of,
    public_anchors,
    self_play,
)
from synthfair.surrogate.fit import Targets, copula_rows, fitted_rows, with_moments
from synthfair.surrogate.sums import (
    RARE,
    STEP,
    Anchors,
    CellSums,
    SmoothSums,
    cell_sums,
    smooth_sums,
)
from synthfair.surrogate.table import WeightedTable, together

FEWEST_IN_BIN = 5
"""Rows of a cell in a bin of a feature; fewer do not shape the first rows."""

PLENTY = 200
"""Rows of a cell whose covariances are its own although some features are rare."""


REMEDIES = (
    "Lower k_min (--k-min, at least 5; it is published), make one release of your rows and another"
    " organisation's, or merge small groups (in the schema, by 'unlisted')"
)
"""What a client can do whose pairs of group and label have too few rows."""


@dataclass(frozen=True)
class Cell:
    """What is known of the rows of one group and label.

    Attributes:
        group: index.
        label: -1 or +1.
        count: number of rows, positive.
        mean: [d] of x - 1/2, of :func:`safe_moments`.
        covariance: [d, d] of x; the same.
        values: [d, 16] of x - 1/2 in each bin of a feature.
        counts: [d, 16] rows of each bin.
        rare: [d] numbers in which some rows, but fewer than RARE, differ from the others.
        few: whether there are hardly more rows than features: then nothing but count, mean and
            marginals is the cell's own.
    """

    group: int
    label: float
    count: float
    mean: np.ndarray
    covariance: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    rare: np.ndarray
    few: bool = False


class Surrogate(NamedTuple):
    """A client's surrogate, and how near it came.

    Attributes:
        table: the weighted rows.
        left_out: (group, label) of the cells with rows, but fewer than ``k_min``. Private, unless
            noisy counts decided.
        rate_error: largest difference, over cells and anchors, between the mean of a smooth rate
            over the surrogate's rows and over the real ones; not-a-number with moments alone.
    """

    table: WeightedTable
    left_out: tuple[tuple[int, float], ...]
    rate_error: float


def make_surrogate(
    rows: Batches,
    config: SurrogateConfig,
    schema: Schema,
    *,
    known: CellSums | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Surrogate:
    """The surrogate of some rows: in each cell, weighted rows with the same sums.

    A cell is a pair of group and label. Its count is exact, mean and covariance are those of
    :func:`safe_moments`, however the rows are cut into batches. Sums of sigma(v'(x - 1/2) + b) and
    sigma(v'(x - 1/2) + b) (x - 1/2) are matched as nearly as so many rows and iterations allow, at
    public anchors (v, b) and at those of self-play. Reads the rows twice; with
    ``config.moments_only`` once.

    Args:
        rows: encoded, in memory or a stream.
        config: without epsilon.
        schema: of the rows, public; a client may hold one group alone, or one label.
        known: :func:`first_sums` of the rows, where they are there already.
        on_stage: called with what is done next, in a few words.

    Raises:
        InputError: no cell has ``config.k_min`` rows, or ``config.rows_per_cell`` are too few.
    """
    if config.epsilon is not None:
        raise InputError("epsilon: make_private_surrogate reads the rows through noisy sums")
    n_groups, d = len(schema.groups), len(schema.encoded_names)
    sums = known or first_sums(rows, schema)
    n_rows = rows_of_a_cell(config, d)
    cells = cells_of(sums, schema, k_min=config.k_min)
    left_out = tuple(
        (int(g), 2.0 * label - 1)
        for g, label in np.argwhere((sums.count > 0) & (sums.count < config.k_min))
    )
    if not cells:
        raise InputError(_too_few(sums.count, config, schema))
    seed = own_seed(config.seed, cells)
    if config.moments_only:
        normal = [normal_rows(cell, n_rows, seed + i) for i, cell in enumerate(cells)]
        return Surrogate(weighted(cells, normal), left_out, np.nan)
    first = [
        (normal_rows if cell.few else _first_rows)(cell, n_rows, seed + i)
        for i, cell in enumerate(cells)
    ]
    show = on_stage or (lambda _: None)
    show("choosing directions along which the rows must agree")
    anchors = choose_anchors(weighted(cells, first), config, schema, seed=seed)
    show("reading the rows again")
    fixed = _rare_values(cells, n_groups)
    smooth = rows.sum(partial(smooth_sums, anchors=anchors, n_groups=n_groups, fixed=fixed))
    targets = [_targets(cell, anchors, smooth, schema) for cell in cells]
    fitted = []
    for i, (cell, start, target) in enumerate(zip(cells, first, targets, strict=True), 1):
        show(f"fitting rows, pair {i} of {len(cells)} of group and label")
        iterations = 0 if cell.few else config.iterations
        fitted.append(fitted_rows(start, target, iterations=iterations, seed=seed))
    error = max(map(_rate_error, fitted, targets))
    return Surrogate(weighted(cells, fitted), left_out, error)


def _too_few(count: np.ndarray, config: SurrogateConfig, schema: Schema) -> str:
    """Why [G, 2] numbers of rows are too few, and what can be done."""
    if (count >= config.k_min).any():
        d = len(schema.encoded_names)
        return (
            f"the pairs of {schema.sensitive} and {schema.label} with {config.k_min} rows (k_min)"
            f" have together {count[count >= config.k_min].sum():.0f} rows; {d + 2} are needed for"
            f" {d} features. {REMEDIES}; or leave out columns"
        )
    pairs = [
        f"{schema.pair(group, 2 * label - 1)} has {n:.0f}"
        for (group, label), n in np.ndenumerate(count)
    ]
    return (
        f"no pair of {schema.sensitive} and {schema.label} has the {config.k_min} rows that k_min"
        f" asks for: {shown(pairs)}. {REMEDIES}"
    )


def first_sums(rows: Batches, schema: Schema) -> CellSums:
    """The sums of the first reading of the rows."""
    return rows.sum(partial(cell_sums, n_groups=len(schema.groups)))


def cells_of(sums: CellSums, schema: Schema, *, k_min: int) -> list[Cell]:
    """The cells with at least ``k_min`` rows, with :func:`safe_moments`.

    Bins with few rows do not count in their marginals. d + 1 rows or fewer lie on a hull that their
    covariance would give away, and in fewer than :data:`PLENTY` rows numbers may be rare. Such a
    cell has its own variances and the average correlations of the other cells; it is no part of
    that average, from which it could be subtracted else, unless all cells are such. Where all cells
    together have no more than d + 1 rows, there is none.
    """
    d = sums.first.shape[-1]
    released, hull = sums.count >= k_min, sums.count < d + 2
    if sums.count[released].sum() < d + 2:
        return []
    mean, covariance, rare = safe_moments(sums, schema, released)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1).copy()
    own = released & ~hull & ((sums.count >= PLENTY) | ~rare.any(axis=-1))
    averaged = own if own.any() else released
    common = np.average(covariance[averaged], axis=0, weights=sums.count[averaged])
    spread = np.sqrt(np.diag(common))
    scale = np.divide(np.sqrt(variance), spread, out=np.zeros_like(variance), where=spread > 0)
    borrowed = common * scale[..., :, None] * scale[..., None, :]
    covariance = np.where(own[..., None, None], covariance, borrowed)
    covariance[..., range(d), range(d)] = variance
    values = sums.within / np.maximum(sums.binned, 1) - 0.5
    counts = np.where((sums.binned >= FEWEST_IN_BIN) & ~rare[..., None], sums.binned, 0.0)
    empty = counts.sum(axis=-1) == 0  # then the mean is all that is known
    counts[empty], values[empty] = 1.0, mean[empty, None]
    return [
        Cell(
            int(g),
            2.0 * label - 1,
            float(sums.count[g, label]),
            *(part[g, label] for part in (mean, covariance, values, counts, rare)),
            few=bool(hull[g, label]),
        )
        for g, label in np.argwhere(released)
    ]


def safe_moments(
    sums: CellSums, schema: Schema, released: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moments of the released cells that no row can be solved for from, and which numbers are rare.

    Columns of a category add up to 1, so that a rare one is what the others leave. Therefore all
    sums over the rows of a category are rounded: numbers of rows to multiples of RARE, and sums of
    a number, which is from 0 to 1, to whole ones. Statistical offices round tables of frequencies
    so (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 5).

    A number is rare where some rows of a cell, but fewer than RARE, differ from the most frequent
    value. It has mean and variance of other cells, and no covariances: of cells of the same label,
    or else of any, in which it is not rare. Where it is rare in all, it has the most frequent value
    of the cell, or 1/2 where fewer than RARE rows have that.

    Returns:
        Mean of x - 1/2 [G, 2, d], covariance of x [G, 2, d, d], positive semi-definite, and whether
        a feature is a rare number [G, 2, d].
    """
    d = sums.first.shape[-1]
    number = np.isin(np.arange(d), numeric_features(schema))
    rare = sums.few.rare & number
    n = np.maximum(sums.count, 1)[..., None]
    steps = np.where(number, 0.0, RARE)
    total = rounded(sums.first + n / 2, steps, n)  # of x, as they are centred at 1/2
    half = (sums.first + n / 2) / 2
    squares = sums.second + half[..., :, None] + half[..., None, :] - n[..., None] / 4
    each = np.where(number[:, None] & number, 0.0, np.where(number[:, None] | number, 1.0, RARE))
    most = np.where(number, n, total)  # a category without a row, as rounded, has no sums
    squares = rounded(squares, each, np.minimum(most[..., :, None], most[..., None, :]))
    flags = np.flatnonzero(~number)
    squares[..., flags, flags] = total[..., flags]  # 0 and 1 are their own squares
    mean = total / n
    covariance = squares / n[..., None] - mean[..., :, None] * mean[..., None, :]
    covariance[rare[..., :, None] | rare[..., None, :]] = 0.0
    values, vectors = np.linalg.eigh(covariance)
    covariance = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    for g, label, j in np.argwhere(rare & released[..., None]):
        others = released & ~rare[..., j]
        alike = others & (np.arange(2) == label)
        weights = np.where(alike if alike.any() else others, sums.count, 0.0)
        if others.any():
            m = np.average(mean[..., j], weights=weights)
            variances = covariance[..., j, j] + (mean[..., j] - m) ** 2
            covariance[g, label, j, j] = np.average(variances, weights=weights)
        else:
            often = sums.few.count[g, label, j].max() >= RARE
            m = sums.few.mode[g, label, j] if often else 0.5
        mean[g, label, j] = m
    return mean - 0.5, covariance, rare


def rounded(total: np.ndarray, steps: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Sums rounded to multiples of steps, from 0 to ``most``; where a step is 0, as they are."""
    whole = np.rint(total / np.where(steps > 0, steps, 1.0)) * steps
    return np.where(steps > 0, np.clip(whole, 0.0, most), total)


def _rare_values(cells: Sequence[Cell], n_groups: int) -> np.ndarray:
    """[G, 2, d] what all rows of a cell have in a rare feature, and not-a-number elsewhere."""
    fixed = np.full((n_groups, 2, len(cells[0].mean)), np.nan)
    for cell in cells:
        on_grid = np.rint((cell.mean + 0.5) / STEP) * STEP
        fixed[cell.group, int(cell.label > 0)] = np.where(cell.rare, on_grid, np.nan)
    return fixed


def rows_of_a_cell(config: SurrogateConfig, d: int) -> int:
    """Rows for each cell with d features. Raises InputError: fewer than these need."""
    n_rows = config.rows_for(d)
    if n_rows < d + 2:
        raise InputError(f"rows_per_cell = {n_rows}: {d} features need at least {d + 2}")
    return n_rows


def own_seed(seed: int, cells: Sequence[Cell]) -> int:
    """A seed for each client: errors of clients that draw alike would add up in the pool.

    Of the cells it takes the counts, which the surrogate's weights give, too.
    """
    return seed + zlib.crc32(np.array([cell.count for cell in cells]).tobytes())


def choose_anchors(
    table: WeightedTable, config: SurrogateConfig, schema: Schema, *, seed: int
) -> Anchors:
    """Public anchors, and those of self-play on a table like the client's."""
    n_groups, d = len(schema.groups), len(schema.encoded_names)
    binary = np.isin(np.arange(d), numeric_features(schema), invert=True)
    n_random = config.random_anchors
    anchors = public_anchors(binary, n_groups=n_groups, n_random=n_random, seed=config.seed)
    if config.self_play == 0:
        return anchors
    thetas = self_play(table, config.self_play, n_groups=n_groups, seed=seed)
    for times in (1.0, TEMPERATURE):
        anchors += anchors_of(times * thetas, d, n_groups=n_groups, weight=IMPORTANCE)
    return anchors


def _first_rows(cell: Cell, n_rows: int, seed: int) -> np.ndarray:
    """[R, d] with about the cell's marginals and correlations, from a Gaussian copula."""
    spread = np.sqrt(np.diag(cell.covariance))
    scale = np.outer(spread, spread)
    correlation = np.divide(cell.covariance, scale, out=np.eye(len(spread)), where=scale > 1e-12)
    return copula_rows(n_rows, cell.values, cell.counts, correlation, seed)


def normal_rows(cell: Cell, n_rows: int, seed: int) -> np.ndarray:
    """[R, d] normal rows with exactly the cell's mean and covariance: all that they tell of it."""
    drawn = np.random.default_rng(seed).normal(size=(n_rows, len(cell.mean)))
    return with_moments(drawn, cell.mean, cell.covariance, seed)


def _targets(cell: Cell, anchors: Anchors, smooth: SmoothSums, schema: Schema) -> Targets:
    """Rounded as :func:`safe_moments`: a smooth rate counts rows."""
    place, d = (cell.group, int(cell.label > 0)), len(cell.mean)
    number = np.isin(np.arange(d), numeric_features(schema))
    rate, n = smooth.rate[place], np.array(cell.count)
    products = smooth.moment[place] + rate[:, None] / 2  # of x, as they are centred at 1/2
    rate = rounded(rate, np.array(RARE), n)
    most = np.minimum(rate[:, None], np.where(number, n, n * (cell.mean + 0.5)))
    rate, products = rate / n, rounded(products, np.where(number, 1.0, RARE), most) / n
    return Targets(
        cell.mean,
        cell.covariance,
        anchors.slope,
        anchors.offset[cell.group],
        anchors.weight / anchors.weight.sum(),
        rate,
        products - rate[:, None] / 2,
    )


def _rate_error(x: np.ndarray, targets: Targets) -> float:
    rates = expit(x @ targets.slope.T + targets.offset)
    return float(np.abs(rates.mean(axis=0) - targets.rate).max())


def weighted(cells: Sequence[Cell], parts: Sequence[np.ndarray]) -> WeightedTable:
    """Rows of each cell, centred at 1/2, as features with the cell's count shared among them."""
    return together(
        WeightedTable(
            x + 0.5,
            np.full(len(x), cell.group),
            np.full(len(x), cell.label),
            np.full(len(x), cell.count / len(x)),
        )
        for cell, x in zip(cells, parts, strict=True)
    )
