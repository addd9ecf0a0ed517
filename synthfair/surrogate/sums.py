"""The sums over rows that a surrogate is made of; nothing else reads rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import expit

from synthfair.data.batches import Batches, other_inputs
from synthfair.data.encode import Encoded, expand
from synthfair.data.schema import Schema
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.mechanism import (
    GaussianMechanism,
    NoisySum,
    PrivateChoice,
    SumName,
    require_float64,
)
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.tables import (
    Edges,
    Margins,
    Strata,
    Tables,
    chow_liu,
    dependence,
    round_to,
    split_tables,
)

SUM_GRID = 2.0**-20
"""Of numbers that are summed without noise, so that no bit tells in which order rows came."""

MAX_FACTOR_COLUMNS = 40
"""Numbers of which all pairs are multiplied, at most."""

TEMPERATURES = (1.0, 4.0)
"""Factors of scores in a smooth rate: the loss sees them as they are, smooth selection rates four
times as large."""

ROW_STEP = 5.0
"""Without epsilon, all sums are rounded to multiples of this many rows: statistical offices round
tables of frequencies so (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 5)."""

Whole = Callable[[np.ndarray], np.ndarray]
"""A function that makes rows of numbers [N, k] whole: multiples of a grid, shortened where that is
needed."""


class SurrogateSpec:
    """The public rules of a surrogate.

    Args:
        config: settings.
        schema: of the rows.
        errors: standard deviation of the error in each entry of a sum that many clients share; if
            not given, those of the guarantee.

    Attributes:
        guarantee: of the noise of sums; None where they have none, and are rounded.
        columns: levels of each.
        step: to multiples of which sums are rounded; 0 where they have noise.
    """

    def __init__(
        self, config: SurrogateConfig, schema: Schema, errors: Mapping[SumName, float] | None = None
    ) -> None:
        """Derive what follows from settings and schema."""
        self.config, self.schema, self.n_groups = config, schema, len(schema.groups)
        private, shared = config.epsilon is not None, errors is not None
        self.guarantee = make_guarantee(config, schema, common_tree=shared) if private else None
        self.columns = Columns.of(schema, private=private)
        self.step = 0.0 if private else ROW_STEP
        if errors is None:
            mechanisms = self.guarantee.mechanisms if self.guarantee else ()
            errors = {m.name: m.noise for m in mechanisms if isinstance(m, GaussianMechanism)}
        self._errors = errors

    def sd(self, name: SumName) -> float:
        """Return the standard deviation of the error in each entry of a sum: noise, or rounding."""
        return self.step / 12**0.5 if self.step else self._errors.get(name, 0.0)


class Statistic(NamedTuple):
    """A sum over rows that a surrogate asks for.

    Attributes:
        name: of the sum.
        length: number of its entries.
        of: the sum over a batch of rows of the plain schema, flat and whole; counts need nothing to
            be made so.
        counts: whether entries are numbers of rows.
        tree: sha256 of the tree whose pairs are counted.
        models: coefficients of all models whose rates are summed, one model after the other.
    """

    name: SumName
    length: int
    of: Callable[[Encoded, Whole], np.ndarray]
    counts: bool = False
    tree: str | None = None
    models: tuple[float, ...] | None = None


class Answers(Protocol):
    """The statistics of rows: of one client's, or of all clients' together."""

    def sums(self, *statistics: Statistic) -> list[np.ndarray]:
        """Return the sums over the rows; with noise, or exact and then private."""
        ...

    def rated_models(self, thetas: np.ndarray) -> np.ndarray:
        """Return the models whose rates are summed: the given ones unless others were."""
        ...

    def tree(self, columns: Columns, margins: Margins) -> tuple[Edges, Tables]:
        """Return a tree over the columns, of those that depend most on each other, and its pairs.

        The pairs are numbers of rows, by edge, with noise or exact.
        """
        ...


def on_grid(numbers: np.ndarray) -> np.ndarray:
    """Return numbers in whole steps of the grid, without a bound."""
    return np.rint(numbers / SUM_GRID).astype(np.int64)


def histograms(columns: Columns, n_groups: int) -> Statistic:
    """Return the statistic of numbers of rows in each level of each column, by cell."""
    length, start = int(columns.ends[-1]), columns.ends[:-1]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = 2 * rows.s + (rows.y > 0)
        code = cell[:, None] * length + start + columns.levels(rows)
        return np.bincount(code.ravel(), minlength=2 * n_groups * length)

    return Statistic("histograms", 2 * n_groups * length, of, counts=True)


def column_moments(columns: Columns, n_groups: int) -> Statistic:
    """Return the statistic of sums of z_i z_j, i <= j, and z, by cell.

    z are the p' numbers, in [-1/2, 1/2].
    """
    length = 2 * n_groups * moment_terms(columns, np.zeros((1, columns[-1].place.stop))).shape[1]

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        products, cell = whole(moment_terms(columns, rows.x)), 2 * rows.s + (rows.y > 0)
        sums = [products[cell == c].sum(axis=0) for c in range(2 * n_groups)]
        return np.concatenate(sums).astype(object)  # those of many batches may pass 2^63

    return Statistic("column_moments", length, of)


def moment_terms(columns: Columns, x: np.ndarray) -> np.ndarray:
    """Return the products [N, m] of each row's numbers, centred at 1/2, and these; 0 where missing.

    Of more than :data:`MAX_FACTOR_COLUMNS` numbers there are squares alone.
    """
    z = np.clip(x[:, columns.numbers] - 0.5, -0.5, 0.5)
    missing = [c.place.start + 1 for c in columns if c.missing and not c.categories]
    z[:, np.isin(columns.numbers + 1, missing)] *= 1 - x[:, missing]
    i, j = _factors(z.shape[1])
    return np.hstack([z[:, i] * z[:, j], z])


def _factors(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of k numbers the products multiply."""
    return np.triu_indices(k) if k <= MAX_FACTOR_COLUMNS else (np.arange(k), np.arange(k))


def squares_and_means(k: int) -> np.ndarray:
    """Return which of the :func:`moment_terms` of k numbers are of one number alone."""
    i, j = _factors(k)
    return np.append(np.flatnonzero(i == j), len(i) + np.arange(k))


def two_way_tables(
    columns: Columns, margins: Margins, pairs: Edges, name: Literal["pairs", "tables"] = "pairs"
) -> Statistic:
    """Return the statistic of rows in the coarse levels of pairs of columns, by set drawn from.

    Args:
        columns: public.
        margins: with the sets, and coarse levels.
        pairs: of columns.
        name: "pairs" for those of a tree, "tables" for all of them.
    """
    place, sizes = margins.strata.place, margins.sizes
    length = [len(margins.n) * int(sizes[i] * sizes[j]) for i, j in pairs]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = place[2 * rows.s + (rows.y > 0)]
        fine = columns.levels(rows)[cell >= 0]
        level = [coarse[column] for coarse, column in zip(margins.coarse, fine.T, strict=True)]
        cell = cell[cell >= 0]
        codes = [(cell * sizes[i] + level[i]) * sizes[j] + level[j] for i, j in pairs]
        counts = [np.bincount(code, minlength=n) for code, n in zip(codes, length, strict=True)]
        return np.concatenate(counts)

    tree = hashlib.sha256(np.array(pairs, "<i8").data).hexdigest() if name == "pairs" else None
    return Statistic(name, sum(length), of, counts=True, tree=tree)


def anchor_rates(thetas: np.ndarray, strata: Strata, schema: Schema) -> Statistic:
    """Return the statistic of sums of models' smooth rates by set that is drawn from.

    The rows of a label of the block are scored as if they were of its largest group.
    """

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        cell, x = 2 * rows.s + (rows.y > 0), expand(rows.x, schema)

        def sums(cells: np.ndarray, group: int) -> np.ndarray:
            mask = cells[cell]
            scored = Encoded(x[mask], np.full(mask.sum(), group), rows.y[mask])
            return whole(smooth_rates(scored, thetas, len(schema.groups))).sum(axis=0)

        return np.concatenate([*map(sums, strata.drawn, strata.group)]).astype(object)

    length = len(strata.drawn) * len(TEMPERATURES) * len(thetas)
    return Statistic("anchors", length, of, models=tuple(thetas.ravel().tolist()))


def inputs(rows: Encoded, n_groups: int) -> np.ndarray:
    """Return a model's inputs [N, n]: features, the groups' indicators, and 1."""
    return np.hstack([rows.x, other_inputs(rows.s, n_groups=n_groups, intercept=True).T])


def smooth_rates(rows: Encoded, thetas: np.ndarray, n_groups: int) -> np.ndarray:
    """Return sigma(q theta'a) - 1/2 [N, 2 Q] of each row, for q = 1 and 4."""
    scores = inputs(rows, n_groups) @ thetas.T
    return np.hstack([expit(q * scores) for q in TEMPERATURES]) - 0.5


class TableSums:
    """The answers of one client's rows: with a guarantee noisy, else exact and private.

    Guarantee: that of ``spec``, (epsilon, delta)-differential privacy of all answers together.
    Unit: one row. Neighbouring relation: that of the settings.

    Args:
        rows: encoded by ``schema.plain``, in memory or a stream; of one group alone, or one label,
            if need be. They are read three times, or four for a block.
        spec: public.
        noise: where its bytes come from; other than the system's, it protects nothing.
    """

    def __init__(
        self, rows: Batches, spec: SurrogateSpec, noise: RandomBytes = system_entropy
    ) -> None:
        """Make ready; nothing is read yet."""
        self._rows, self._step, self._choose = rows, spec.step, np.argmax
        self._noisy: dict[SumName, NoisySum] = {}
        for mechanism in spec.guarantee.of_release if spec.guarantee else ():
            if isinstance(mechanism, GaussianMechanism):
                self._noisy[mechanism.name] = NoisySum(mechanism, spec.config.relation, noise)
            else:
                self._choose = PrivateChoice(mechanism, noise).choose

    def sums(self, *statistics: Statistic) -> list[np.ndarray]:
        """Return the sums, of one reading of the rows."""
        return [*map(self._released, statistics, self._exact(*statistics))]

    def rated_models(self, thetas: np.ndarray) -> np.ndarray:
        """Return the given models."""
        return thetas

    def tree(self, columns: Columns, margins: Margins) -> tuple[Edges, Tables]:
        """Return a tree, and its pairs, of one reading of the rows."""
        pairs = [*combinations(range(len(columns)), 2)]
        statistic = two_way_tables(columns, margins, pairs)
        (whole,) = self._exact(statistic)
        rounded = split_tables(round_to(whole, self._step), margins, pairs)
        scores = dependence(rounded, margins, lambda off: abs(off).sum())
        edges, tables = chow_liu(scores, self._choose), split_tables(whole, margins, pairs)
        tables |= {(j, i): table.swapaxes(1, 2) for (i, j), table in tables.items()}
        chosen = np.concatenate([tables[edge].ravel() for edge in edges])
        return edges, split_tables(self._released(statistic, chosen), margins, edges)

    def _exact(self, *statistics: Statistic) -> list[np.ndarray]:
        """Return whole numbers, of one reading of the rows."""

        def of(rows: Encoded) -> np.ndarray:
            if not self._noisy:
                return np.concatenate([q.of(rows, on_grid) for q in statistics])
            require_float64(rows.x)
            noisy = self._noisy
            return np.concatenate([q.of(rows, noisy[q.name].terms.whole) for q in statistics])

        return np.split(self._rows.sum(of), np.cumsum([q.length for q in statistics])[:-1])

    def _released(self, statistic: Statistic, whole: np.ndarray) -> np.ndarray:
        if not self._noisy:
            return whole.astype(float) * (1.0 if statistic.counts else SUM_GRID)
        noisy = self._noisy[statistic.name]
        unit = round(1 / noisy.terms.grid) if statistic.counts else 1
        return noisy.release(whole.astype(object) * unit)
