"""From a client's rows to its surrogate: what is asked of the rows, and the records of the answers.

    histograms    of each column, at fine public levels; of them, coarse levels of about equal mass
    moments       first and second ones of the numbers
    pairs         two-way tables on the edges of a tree over columns
    anchors       smooth rates of models of random fair problems on records that are drawn so far

each by cell, which is a pair of group and label. Records are then drawn through the tree, and their
weights tilted until moments and rates agree, too. How wide the encoding of the columns is does not
matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded, encode_records
from synthfair.data.schema import Schema, shown
from synthfair.errors import InputError
from synthfair.privacy.mechanism import (
    GaussianMechanism,
    NoisySum,
    PrivateChoice,
    SumName,
    require_float64,
)
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import PRIVATE_PROBLEMS, Guarantee, make_guarantee
from synthfair.surrogate.anchors import self_play, smooth_rates
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.marginals import (
    Edges,
    Margins,
    associations,
    chow_liu,
    draw,
    expected,
    make_margins,
    rounded,
)
from synthfair.surrogate.tilt import tilted, variance_of

PROBLEMS = 60
"""Random fair problems of a surrogate without epsilon."""

RARE = 5.0
"""Without epsilon, all sums are rounded to multiples of this many rows: statistical offices round
tables of frequencies so (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 5)."""

GRID = 2.0**-20
"""Of numbers that are summed without noise, so that no bit tells in which order rows came."""

LEAST_WEIGHT = 1e-6
"""Of a record; others are left out."""

REMEDIES = (
    "Lower k_min (--k-min, at least 5; it is published), make one release of your rows and another"
    " organisation's, or merge small groups (in the schema, by 'unlisted')"
)
"""What a client can do whose pairs of group and label have too few rows."""


class Sums(NamedTuple):
    """All that is read of the rows: exact, and then private; or with noise.

    Attributes:
        histograms: [2 G, L] numbers of rows of each cell in each level of each column.
        moments: [2 G, m] sums of z_i z_j, i <= j, and of z, of the numbers z in [-1/2, 1/2].
        edges: [p - 1, 2] columns of the tree's edges.
        pairs: flat, of each edge [C, K_i, K_j] numbers of rows of the C cells that are large.
        thetas: [Q, n] models; computed from records, not from rows.
        rates: [C, 2 Q] sums of sigma(q theta'a) - 1/2, for q = 1 and 4.
    """

    histograms: np.ndarray
    moments: np.ndarray
    edges: np.ndarray
    pairs: np.ndarray
    thetas: np.ndarray
    rates: np.ndarray


Whole = Callable[[np.ndarray], np.ndarray]
"""Makes rows of numbers [N, k] whole: multiples of a grid, shortened where that is needed."""


class Question(NamedTuple):
    """A sum over rows.

    Attributes:
        name: of the sum.
        length: number of its entries.
        of: the sum over a batch of rows, flat and whole; counts need nothing to be made so.
        counts: whether entries are numbers of rows.
    """

    name: SumName
    length: int
    of: Callable[[Encoded, Whole], np.ndarray]
    counts: bool = False


Errors = Mapping[SumName, float]
"""Standard deviation of the error in each entry of a sum."""

ROUNDING: Errors = dict.fromkeys(
    ("histograms", "column_moments", "pairs", "anchors"), RARE / 12**0.5
)


class Surrogate(NamedTuple):
    """A client's surrogate, and how near it came.

    Attributes:
        records: [R, p] features as of :func:`synthfair.data.encode.encode_records`.
        s: [R] groups.
        y: [R] labels, -1 or +1.
        weight: [R] numbers of real rows that each record stands for.
        left_out: (group, label) of the cells with rows, but fewer than ``k_min``. Private, unless
            noisy counts decided.
        rate_error: largest difference, over cells and models, between the mean of a smooth rate
            over the records and over the real rows; with epsilon, over the noisy ones. Private.
    """

    records: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    left_out: tuple[tuple[int, float], ...]
    rate_error: float


def make_surrogate(
    rows: Batches,
    config: SurrogateConfig,
    schema: Schema,
    *,
    noise: RandomBytes = system_entropy,
    on_stage: Callable[[str], None] | None = None,
) -> Surrogate:
    """The surrogate of some rows, which are read three times.

    Guarantee: with ``config.epsilon``, (epsilon, delta)-differential privacy, that of
    :func:`make_guarantee`; without it none, and all sums are rounded to multiples of five rows.
    Unit: one row. Neighbouring relation: config.relation.

    Args:
        rows: encoded, in memory or a stream.
        config: settings.
        schema: of the rows, public; a client may hold one group alone, or one label.
        noise: where its bytes come from; other than the system's, it protects nothing.
        on_stage: called with what is done next, in a few words.

    Raises:
        InputError: no cell has ``config.k_min`` rows, or a noisy number that is large enough.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.batches import in_memory
        >>> table, schema = sf.load_dataset("loanapp")
        >>> rows = in_memory(sf.encode(table, schema))
        >>> made = sf.surrogate.make_surrogate(rows, sf.SurrogateConfig(), schema)
        >>> made.records.shape[1] == len(schema.features), round(made.weight.sum())
        (True, 1989)
    """
    sums = read_sums(rows, config, schema, noise=noise, on_stage=on_stage)
    errors = noise_of(make_guarantee(config, schema)) if config.epsilon else ROUNDING
    return surrogate_of(sums, errors, config, schema)


def noise_of(guarantee: Guarantee) -> Errors:
    """Standard deviation of the noise of each sum."""
    return {m.name: m.noise for m in guarantee.mechanisms if isinstance(m, GaussianMechanism)}


def read_sums(
    rows: Batches,
    config: SurrogateConfig,
    schema: Schema,
    *,
    noise: RandomBytes = system_entropy,
    on_stage: Callable[[str], None] | None = None,
) -> Sums:
    """All that a surrogate needs of the rows: see :func:`make_surrogate`."""
    show = on_stage or (lambda _: None)
    guarantee = make_guarantee(config, schema) if config.epsilon else None
    mechanisms = {m.name: m for m in guarantee.mechanisms} if guarantee else {}
    sums = {
        name: NoisySum(m, config.relation, noise)
        for name, m in mechanisms.items()
        if isinstance(m, GaussianMechanism)
    }
    errors = noise_of(guarantee) if guarantee else ROUNDING

    def exact(*questions: Question) -> list[np.ndarray]:
        """Whole numbers; all questions are answered in one reading of the rows."""

        def of(part: Encoded) -> np.ndarray:
            if guarantee:
                require_float64(part.x)
            wholes = (sums[q.name].terms.whole if sums else _on_grid for q in questions)
            return np.concatenate([q.of(part, whole) for q, whole in zip(questions, wholes)])

        return np.split(rows.sum(of), np.cumsum([q.length for q in questions])[:-1])

    def answer(question: Question, whole: np.ndarray) -> np.ndarray:
        """The sum, with its noise where there is an epsilon."""
        if not guarantee:
            return whole if question.counts else whole * GRID
        noisy = sums[question.name]
        return noisy.release(whole * (round(1 / noisy.terms.grid) if question.counts else 1))

    # Columns one by one, and what numbers have to do with each other.
    show("reading the rows")
    columns, n_groups = Columns.of(schema, private=bool(guarantee)), len(schema.groups)
    first = [histograms(columns, n_groups)]
    if len(columns.numbers):
        first.append(column_moments(columns, n_groups))
    found = dict(zip((q.name for q in first), map(answer, first, exact(*first)), strict=True))
    counts = found["histograms"].reshape(2 * n_groups, -1)
    moments = found.get("column_moments", np.empty(0)).reshape(2 * n_groups, -1)
    margins = margins_of(counts, columns, errors, config)
    if not len(margins.cells):
        raise InputError(_too_few(margins, counts, config, schema, errors))

    # A tree over columns, by how far their two-way tables are from independence.
    edges, pairs = np.empty((0, 2), int), np.empty(0)
    if len(columns) > 1:
        show("reading pairs of columns")
        tables = two_way_tables(columns, margins, n_groups)
        (whole,) = exact(tables._replace(name="pairs"))
        parts = table_parts(whole, margins)

        def choose(able: Edges) -> int:
            scores = np.array([abs(parts(*pair) - expected(margins, *pair)).sum() for pair in able])
            return choice.choose(scores) if guarantee else int(np.argmax(scores))

        if guarantee:
            choice = PrivateChoice(mechanisms["tree"], noise)
        edges = chow_liu(len(columns), choose)
        of_edges = np.concatenate([parts(*edge).ravel() for edge in edges])
        pairs = answer(tables._replace(name="pairs"), of_edges)

    # Smooth rates of models that may be the server's.
    show("choosing models that the rates of rows must agree for")
    drawn = records_of(counts, edges, pairs, errors, config, schema)
    thetas = self_play(
        Encoded(encode_records(drawn.records, schema), drawn.s, drawn.y),
        drawn.weight,
        PRIVATE_PROBLEMS if guarantee else PROBLEMS,
        n_groups=n_groups,
        seed=own_seed(config.seed, margins),
    )
    show("reading rates")
    question = anchor_rates(thetas, margins, n_groups)
    rates = answer(question, *exact(question)).reshape(len(margins.cells), -1)
    return Sums(counts, moments, np.array(edges), pairs, thetas, rates)


def _on_grid(numbers: np.ndarray) -> np.ndarray:
    return np.rint(numbers / GRID).astype(np.int64)


def histograms(columns: Columns, n_groups: int) -> Question:
    """Numbers of rows in each level of each column, by cell."""
    length, start = int(columns.ends[-1]), columns.ends[:-1]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = 2 * rows.s + (rows.y > 0)
        at = cell[:, None] * length + start + columns.levels(rows)
        return np.bincount(at.ravel(), minlength=2 * n_groups * length)

    return Question("histograms", 2 * n_groups * length, of, counts=True)


def column_moments(columns: Columns, n_groups: int) -> Question:
    """Sums of z_i z_j, i <= j, and z, of the p' numbers z in [-1/2, 1/2], by cell."""
    k = len(columns.numbers)
    length = 2 * n_groups * (k * (k + 1) // 2 + k)

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        products = whole(moment_terms(columns, rows.x))
        return by_cell(products, 2 * rows.s + (rows.y > 0), 2 * n_groups)

    return Question("column_moments", length, of)


def moment_terms(columns: Columns, x: np.ndarray) -> np.ndarray:
    """[N, m] products of the numbers of each row, centred at 1/2, and these; 0 where missing."""
    z = np.clip(x[:, columns.numbers] - 0.5, -0.5, 0.5)
    missing = [c.at.start + 1 for c in columns if c.missing and not c.categories]
    z[:, np.isin(columns.numbers + 1, missing)] *= 1 - x[:, missing]
    i, j = np.triu_indices(z.shape[1])
    return np.hstack([z[:, i] * z[:, j], z])


def by_cell(whole: np.ndarray, cell: np.ndarray, cells: int) -> np.ndarray:
    """Sums of rows of whole numbers [N, k] by cell, flat; rows of no cell, -1, are left out."""
    return np.concatenate([whole[cell == c].sum(axis=0) for c in range(cells)])


def two_way_tables(columns: Columns, margins: Margins, n_groups: int) -> Question:
    """Numbers of rows in the coarse levels of each pair of columns i < j, by large cell."""
    place, sizes = places(margins, n_groups), margins.sizes
    pairs = list(combinations(range(len(columns)), 2))
    length = [len(margins.cells) * int(sizes[i] * sizes[j]) for i, j in pairs]

    def of(rows: Encoded, _: Whole) -> np.ndarray:
        cell = place[2 * rows.s + (rows.y > 0)]
        fine = columns.levels(rows)[cell >= 0]
        level = [coarse[one] for coarse, one in zip(margins.coarse, fine.T, strict=True)]
        cell = cell[cell >= 0]
        return np.concatenate(
            [
                np.bincount((cell * sizes[i] + level[i]) * sizes[j] + level[j], minlength=n)
                for (i, j), n in zip(pairs, length, strict=True)
            ]
        )

    return Question("tables", sum(length), of, counts=True)


def table_parts(tables: np.ndarray, margins: Margins) -> Callable[[int, int], np.ndarray]:
    """Of the sum of :func:`two_way_tables`, the table [C, K_i, K_j] of columns i and j."""
    c, sizes = len(margins.cells), margins.sizes
    pairs = list(combinations(range(len(sizes)), 2))
    ends = np.cumsum([c * int(sizes[i] * sizes[j]) for i, j in pairs])
    parts = dict(zip(pairs, np.split(tables, ends[:-1]), strict=True))

    def part(i: int, j: int) -> np.ndarray:
        if i > j:
            return part(j, i).swapaxes(1, 2)
        return parts[i, j].reshape(c, sizes[i], sizes[j])

    return part


def anchor_rates(thetas: np.ndarray, margins: Margins, n_groups: int) -> Question:
    """Sums of smooth rates of models, by large cell."""
    place, c = places(margins, n_groups), len(margins.cells)

    def of(rows: Encoded, whole: Whole) -> np.ndarray:
        cell = place[2 * rows.s + (rows.y > 0)]
        return by_cell(whole(smooth_rates(rows, thetas, n_groups)), cell, c)

    return Question("anchors", c * 2 * len(thetas), of)


def places(margins: Margins, n_groups: int) -> np.ndarray:
    """[2 G] of each cell its position among the large ones, or -1."""
    found = np.full(2 * n_groups, -1)
    found[margins.cells] = np.arange(len(margins.cells))
    return found


def margins_of(
    counts: np.ndarray, columns: Columns, errors: Errors, config: SurrogateConfig
) -> Margins:
    """As the settings have it."""
    return make_margins(
        counts,
        columns,
        step=0.0 if config.epsilon else RARE,
        sd=errors["histograms"],
        k_min=config.k_min,
    )


def own_seed(seed: int, margins: Margins) -> int:
    """A seed for each client: errors of clients that draw alike would add up in the pool.

    Of the rows it takes the numbers of rows of cells, which the weights give, too.
    """
    return seed + zlib.crc32(margins.count.tobytes())


def records_of(
    counts: np.ndarray,
    edges: Edges | np.ndarray,
    pairs: np.ndarray,
    errors: Errors,
    config: SurrogateConfig,
    schema: Schema,
) -> Surrogate:
    """Records as the marginals have them, those of a cell of equal weights."""
    columns = Columns.of(schema, private=bool(config.epsilon))
    margins = margins_of(counts, columns, errors, config)
    sizes, c = margins.sizes, len(margins.cells)
    edges = [(int(i), int(j)) for i, j in edges]
    ends = np.cumsum([c * int(sizes[i] * sizes[j]) for i, j in edges])
    parts = np.split(pairs, ends[:-1]) if edges else []
    tables = associations(
        [part.reshape(c, sizes[i], sizes[j]) for part, (i, j) in zip(parts, edges, strict=True)],
        edges,
        margins,
        step=0.0 if config.epsilon else RARE,
        sd=errors.get("pairs", errors.get("tables", 0.0)),
    )
    seed = own_seed(config.seed, margins)
    drawn = [draw(i, margins, edges, tables, columns, seed + i) for i in range(c)]
    size = np.array([len(records) for records in drawn])
    return Surrogate(
        np.concatenate(drawn),
        np.repeat(margins.cells // 2, size),
        np.repeat(2.0 * (margins.cells % 2) - 1, size),
        np.repeat(margins.count / size, size),
        _left_out(counts, columns, margins, config),
        np.nan,
    )


def _left_out(
    counts: np.ndarray, columns: Columns, margins: Margins, config: SurrogateConfig
) -> tuple[tuple[int, float], ...]:
    rows = counts[:, : columns.ends[1]].sum(axis=1)
    small = np.setdiff1d(np.flatnonzero(rows > (-np.inf if config.epsilon else 0)), margins.cells)
    return tuple((int(cell // 2), 2.0 * (cell % 2) - 1) for cell in small)


def surrogate_of(
    sums: Sums, errors: Errors, config: SurrogateConfig, schema: Schema
) -> Surrogate:
    """The surrogate that sums give; the same ones always give the same. It sees no rows.

    Args:
        sums: exact or noisy.
        errors: that they have.
        config: as there.
        schema: public.
    """
    step = 0.0 if config.epsilon else RARE
    columns = Columns.of(schema, private=bool(config.epsilon))
    margins = margins_of(sums.histograms, columns, errors, config)
    found = records_of(sums.histograms, sums.edges, sums.pairs, errors, config, schema)
    rows = Encoded(encode_records(found.records, schema), found.s, found.y)
    level, rates = columns.levels(rows), smooth_rates(rows, sums.thetas, len(schema.groups))
    of_category = np.concatenate(
        [np.arange(*columns.ends[j : j + 2]) for j, c in enumerate(columns) if c.categories]
        or [np.empty(0, int)]
    )
    weight, worst = found.weight.copy(), 0.0
    for c, (cell, n) in enumerate(zip(margins.cells, margins.count, strict=True)):
        here = 2 * found.s + (found.y > 0) == cell
        flags = np.zeros((here.sum(), columns.ends[-1]))
        np.put_along_axis(flags, columns.ends[:-1] + level[here], 1.0, axis=1)
        blocks = {
            "anchors": (rates[here], sums.rates[c]),
            "column_moments": (moment_terms(columns, rows.x[here]), sums.moments[cell]),
            "histograms": (flags[:, of_category], sums.histograms[cell, of_category]),
        }
        f = np.hstack([block for block, _ in blocks.values()])
        target = rounded(np.concatenate([total for _, total in blocks.values()]), step) / n
        variance = np.concatenate(
            [
                np.full(len(total), variance_of(errors.get(name, 0.0), n))
                for name, (_, total) in blocks.items()
            ]
        )
        p = tilted(f, target, variance)
        weight[here] = n * p
        k = rates.shape[1]
        worst = max(worst, abs(p @ f[:, :k] - target[:k]).max(initial=0.0))
    weight = np.where(weight < LEAST_WEIGHT, 0.0, weight)
    keep = weight > 0
    return Surrogate(
        found.records[keep], found.s[keep], found.y[keep], weight[keep], found.left_out, worst
    )


def _too_few(
    margins: Margins,
    counts: np.ndarray,
    config: SurrogateConfig,
    schema: Schema,
    errors: Errors,
) -> str:
    """Why no cell is large enough, and what can be done."""
    if config.epsilon:
        least = 3 * errors["histograms"]
        return (
            f"no pair of {schema.sensitive} and {schema.label} has a noisy number of rows that"
            f" reaches k_min = {config.k_min} and {least:.0f}, three standard deviations of its"
            " noise. Lower k_min or raise epsilon (both are published), make one release of your"
            " rows and another organisation's, or merge small groups (in the schema, by"
            " 'unlisted')"
        )
    first = Columns.of(schema, private=False)[0].size
    pairs = [
        f"{schema.pair(cell // 2, 2 * (cell % 2) - 1)} has {n:.0f}"
        for cell, n in enumerate(counts[:, :first].sum(axis=1))
    ]
    return (
        f"no pair of {schema.sensitive} and {schema.label} has the {config.k_min} rows that k_min"
        f" asks for: {shown(pairs)}. {REMEDIES}"
    )
