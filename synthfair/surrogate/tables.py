"""The tables that a surrogate is drawn from, by set of cells.

A cell is a pair of group and label. A cell with enough rows is a set of its own. Of cells that
have rows, but fewer, there is a *block*: all groups by size up to the last with such a cell, and
more until its labels have enough. In place of the sums over its cells there are those over each of
its labels, and over each of its groups. None of
these has fewer rows than is allowed, and no difference of them is a sum over a cell (complementary
suppression: Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 4). That costs how
label and group go together in the block, so that in a large table such cells are left out.

What is here sees no rows, only sums over them that have noise, or are rounded: margins are those of
the columns as far as noise and rounding leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc

from synthfair.surrogate.levels import Columns

MIN_LARGE_RATIO = 60
"""Times the least number of rows that a sum is over: a table of so many rows has no block."""

MAX_COARSE_LEVELS, TREE_LEVELS = 16, 4
"""Levels of a column in two-way tables, and about so many in those by which many clients choose one
tree."""

MIN_CATEGORY_SHARE = 0.01
"""Share of the rows below which a category is in one coarse level with the other such."""

MAX_TABLE_ENTRIES = 2**20
"""Entries of all two-way tables of all cells; wide schemas have fewer coarse levels."""

MIN_ROWS_SHARE = 0.4
"""A level keeps at least this share of the rows that are expected there, unless more were lost than
noise explains. A rare level that lost one label to noise would else point to the other label."""

SHRINKAGE = 0.5
"""Levels are moved to the expected ones as if the noise had this share of its variance: the full
step of James and Stein hides how levels differ."""

RAKINGS = 25
"""Times that a table is scaled to its margins, by rows and by columns."""

Edges = list[tuple[int, int]]
"""Edges of a tree over columns, from its root on: the first column of each is in an earlier one."""

Tables = dict[tuple[int, int], np.ndarray]
"""Numbers of rows [C, K_i, K_j] in the coarse levels of pairs of columns, by set."""


class Strata(NamedTuple):
    """The sets of cells; cell 2 s + (y > 0) is the pair of s and the label y.

    Attributes:
        rows: [2 G] numbers of rows of cells, as far as noise lets see.
        cells: [C] in which there are records.
        hidden: [2 G] cells whose own sums are too small, or hidden by noise.
        left_out: [2 G] cells that have rows, of which no sum knows.
        drawn: [P, 2 G] the sets that records are drawn from, without a cell in common: cells, and
            the labels of the block.
        tilted: [T, 2 G] the groups of the block, whose sums the weights of its records meet, too.
        group: [P] as whose rows those of a set that is drawn from are scored. A model's score
            depends on the group, and a sum of scores over a label would tell how many of its rows
            are whose: there it is the block's largest group.
    """

    rows: np.ndarray
    cells: np.ndarray
    hidden: np.ndarray
    left_out: np.ndarray
    drawn: np.ndarray
    tilted: np.ndarray
    group: np.ndarray

    @property
    def sets(self) -> np.ndarray:
        """All of them [P + T, 2 G]."""
        return np.concatenate([self.drawn, self.tilted])

    @property
    def place(self) -> np.ndarray:
        """The index [2 G] of the set that a cell's records are drawn in, or -1."""
        return np.where(self.drawn.any(axis=0), self.drawn.argmax(axis=0), -1)

    @property
    def components(self) -> list[np.ndarray]:
        """Indices of ``sets`` with records in common: each by itself, but all of the block."""
        block = (self.sets & self.tilted.any(axis=0)).any(axis=1)
        each = [np.array([i]) for i in np.flatnonzero(~block)]
        return [*each, np.flatnonzero(block)] if block.any() else each


def make_strata(rows: np.ndarray, k_min: int, least: int = 2) -> Strata:
    """Return the sets of cells for these numbers of rows.

    By size, the block has all groups up to the last in which a cell has too few rows. The next
    larger ones join until there are at least two, and each label has enough rows. Groups that have
    too few rows in all are left out.

    Where even all groups together are fewer than ``least``, or have too few rows of a label, cells
    with too few rows are left out; and so they are of a large table, in which they hardly count.
    Where the table is large only with their rows, their groups are left out whole: else the
    decision would tell how many rows they have.

    A block hides cells: with n rows in it, and at least k in each of its groups and labels, the
    number of rows in group s with label y, of which n_s and n_y are told, may be anything from

        max(0, n_s + n_y - n) to min(n_s, n_y),    which differ by min(n_s, n_y, n - n_s, n - n_y)

    and so by k at least (Frechet's bounds). That there is a block tells that at least one of its
    cells has 1 to k - 1 rows, and that no group outside has such a cell.

    Args:
        rows: [2 G] numbers of rows.
        k_min: k, rows that a set must have.
        least: groups that a block must have; more where columns would tell of fewer.

    Example:
        >>> import numpy as np
        >>> from synthfair.surrogate.tables import make_strata
        >>> strata = make_strata(np.array([20, 80, 90, 300, 500, 600]), 50)
        >>> strata.drawn.astype(int).tolist()  # two cells, and two labels of groups 0 and 1
        [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]
        >>> strata.tilted.astype(int).tolist()
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    """
    each = rows.reshape(-1, 2)
    size, few = each.sum(axis=1), (each > 0) & (each < k_min)
    large, affected = size >= k_min, few.any(axis=1) & (size >= k_min)
    order = [s for s in np.argsort(size, kind="stable") if large[s]]
    first = max((i + 1 for i, s in enumerate(order) if affected[s]), default=0)
    block, waiting = np.isin(np.arange(len(size)), order[:first]), order[first:] * (first > 0)
    while (short := block.sum() < least or each[block].sum(axis=0).min() < k_min) and waiting:
        block[waiting.pop(0)] = True
    certain = (each * ~few)[large].sum() >= MIN_LARGE_RATIO * k_min
    if size[large].sum() >= MIN_LARGE_RATIO * k_min or short:
        whole = affected & (not certain and not short)
        return alone(rows, (rows >= k_min) & ~np.repeat(whole, 2))

    single = alone(rows, (rows >= k_min) & ~np.repeat(block, 2))
    inside, label = np.repeat(block, 2), np.arange(len(rows)) % 2
    return Strata(
        rows,
        np.concatenate([single.cells, np.flatnonzero(inside)]),
        few.ravel() & inside,
        few.ravel() & ~inside,
        np.concatenate([single.drawn, [inside & (label == y) for y in (0, 1)]]),
        np.repeat(np.eye(len(block), dtype=bool)[block], 2, axis=1),
        np.concatenate([single.group, [np.where(block, size, -1).argmax()] * 2]),
    )


def alone(rows: np.ndarray, kept: np.ndarray) -> Strata:
    """Return each cell of the mask [2 G] as a set of its own; all others are left out."""
    unit, cells = np.eye(len(rows), dtype=bool), np.flatnonzero(kept)
    left_out = (rows > 0) & ~kept
    return Strata(rows, cells, np.zeros_like(kept), left_out, unit[cells], unit[:0], cells // 2)


def frechet_bounds(labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the least and most rows [2, A, 2] of each group and label, by sums over levels.

    At each level these are Frechet's bounds; over the levels they add up.

    Args:
        labels: [2, K] rows of each label at each level.
        groups: [A, K] rows of each group at each level.
    """
    y, g = labels[None], groups[:, None]
    return np.array([np.maximum(g + y - y.sum(axis=1, keepdims=True), 0), np.minimum(g, y)]).sum(-1)


class Margins(NamedTuple):
    """One-way tables of the C sets of cells that records are drawn from.

    Attributes:
        strata: the sets, and others whose sums weights meet.
        n: [C] numbers of rows.
        coarse: by column, [L] the coarse level of each fine one.
        within: by column, [C, L] share of each fine level in the rows of its coarse level.
        summed: by column, [C, K] numbers of rows by coarse level as histograms have them.
        variance: of the errors of these.
        rows: by column, [C, K] numbers of rows by coarse level as far as noise leaves them; they
            add up to ``n``.
    """

    strata: Strata
    n: np.ndarray
    coarse: tuple[np.ndarray, ...]
    within: tuple[np.ndarray, ...] = ()
    summed: tuple[np.ndarray, ...] = ()
    variance: tuple[np.ndarray, ...] = ()
    rows: tuple[np.ndarray, ...] = ()

    @property
    def sizes(self) -> np.ndarray:
        """The number K [p] of coarse levels of each column."""
        return np.array([rows.shape[1] for rows in self.rows])


def make_margins(
    histograms: np.ndarray, strata: Strata, columns: Columns, *, step: float, sd: float
) -> Margins:
    """Return the margins that a histogram of each column in each cell gives.

    Args:
        histograms: [2 G, L] numbers of rows; levels of one column after the other.
        strata: of which one-way tables are made, for each of ``drawn``.
        columns: public.
        step: numbers of rows are used as rounded to multiples of this; 0 if they have noise.
        sd: standard deviation of the error of each.
    """
    parts, drawn = np.split(histograms, columns.ends[1:-1], axis=1), strata.drawn
    count, tables = round_to(drawn @ strata.rows, step), []
    # How many errors are in a set's sum: it is rounded as a whole, but has the noise of each cell.
    errors = np.ones(len(drawn)) if step else drawn.sum(axis=1)
    noise = sd * errors.sum() ** 0.5
    most = int((2 * MAX_TABLE_ENTRIES / (len(histograms) * len(columns) ** 2)) ** 0.5)
    most = max(2, min(MAX_COARSE_LEVELS, most))
    for column, histogram in zip(columns, parts, strict=True):
        h = drawn @ histogram
        pooled, used = h.sum(axis=0), np.ones(h.shape[1], bool)
        if column.whole:  # between whole numbers: hardly any rows, or noise
            between = np.pad(column.width > 0, (0, int(column.missing)))
            least = 3 * noise * (1.0 if step else between.sum() ** 0.5)
            rows = round_to(pooled[between].sum(), step)
            used = ~between | (rows > max(MIN_CATEGORY_SHARE * count.sum(), least))
        if not step and not column.categories:
            missing = max(pooled[-1], 0.0) if column.missing else 0.0
            levels = np.flatnonzero(used[: len(used) - column.missing])
            pooled[levels] = halve(pooled[levels], max(count.sum() - missing, 1.0), noise)
            used[levels] = pooled[levels] > 0
        h[:, ~used] = pooled[~used] = 0.0
        cut = round_to(pooled, step)
        if step and not column.categories:  # levels of few rows would all be empty
            cut = np.diff(round_to(np.cumsum(pooled), step), prepend=0.0)
        coarse = _coarse(cut, bool(column.categories), column.missing, most, noise)
        summed = round_to(h @ one_hot(coarse), step)
        parts_of = np.ones(summed.shape[1]) if step else np.maximum(np.bincount(coarse, used), 1)
        variance = sd**2 * np.outer(errors, parts_of)
        within = _within(round_to(h, step), round_to(pooled, step), coarse, used, sd * errors**0.5)
        tables.append((coarse, within, summed, variance))
    return settle_rows(Margins(strata, count, *zip(*tables, strict=True)), step=step)


def settle_rows(
    margins: Margins, *, step: float, tables: Tables | None = None, sd_tables: float = 0.0
) -> Margins:
    """Return the margins with rows by coarse level: what noise hides is that of all sets together.

    See :func:`james_stein`. A two-way table that has noise of its own tells the margins of its two
    columns again: y_0 of the histogram and y_e of each table are averaged by inverse variance.

        y = v (y_0 / v_0 + sum_e y_e / v_e),      1 / v = 1 / v_0 + sum_e 1 / v_e

    where v_0 is sd^2 times the fine levels in a coarse one, and v_e is sd_tables^2 times the levels
    of the table's other column.

    Args:
        margins: of histograms.
        step: as of :func:`make_margins`.
        tables: noisy, by pair of columns.
        sd_tables: standard deviation of the error of each of their entries.
    """
    count, settled = margins.n, []
    for j, (rows, variance) in enumerate(zip(margins.summed, margins.variance, strict=True)):
        y, v = rows, variance
        for edge, table in (tables or {}).items():
            if j in edge:
                other = 2 - edge.index(j)
                weight = v / np.maximum(v + sd_tables**2 * table.shape[other], 1e-300)
                y, v = y + weight * (table.sum(axis=other) - y), v * (1 - weight)
        base = np.outer(count, project(y.sum(axis=0), 1.0))
        if not step:
            base = _bases_of_hidden(base, y, v, margins)
        by_set = []
        for counts, expected, n, errors in zip(y, base, count, v, strict=True):
            noise = ((1.0 if step else SHRINKAGE) * errors.mean()) ** 0.5
            moved = project(james_stein(counts, expected, noise), n)
            if not step:
                explained = np.maximum(counts, 0.0) + 2 * errors**0.5
                moved = np.maximum(moved, np.minimum(MIN_ROWS_SHARE * expected, explained))
            by_set.append(project(moved, n))
        settled.append(np.array(by_set))
    return margins._replace(rows=tuple(settled))


def _bases_of_hidden(
    base: np.ndarray, rows: np.ndarray, variance: np.ndarray, margins: Margins
) -> np.ndarray:
    """Return the expected rows [C, K]; of a cell that noise hides as in those of its label, group.

    Others have their ``base``.
    """
    strata, count = margins.strata, margins.n
    expected, together = base.copy(), base.sum(axis=0) / count.sum()
    kin = np.array([strata.cells % 2, strata.cells // 2])
    for c in np.flatnonzero(strata.hidden[strata.cells]):
        for alike in kin == kin[:, [c]]:
            sums, bases, errors = (x[alike].sum(axis=0) for x in (rows, base, variance))
            shares = project(james_stein(sums, bases, errors.mean() ** 0.5), 1.0)
            expected[c] *= shares / np.maximum(together, 1e-9)
        expected[c] = project(expected[c], count[c])
    return expected


def few_levels(margins: Margins, columns: Columns) -> Margins:
    """Return the same with about :data:`TREE_LEVELS` levels of a column, without shares."""
    coarse, rows = [], []
    for column, level, counts in zip(columns, margins.coarse, margins.rows, strict=True):
        missing = column.missing and not column.categories
        fewer = _coarse(counts.sum(axis=0), bool(column.categories), missing, TREE_LEVELS, 0.0)
        coarse.append(fewer[level])
        rows.append(counts @ one_hot(fewer))
    return Margins(margins.strata, margins.n, tuple(coarse), rows=tuple(rows))


def one_hot(level: np.ndarray) -> np.ndarray:
    """Return the indicators [L, K] of the coarse level [L] of each fine level."""
    return np.eye(level.max() + 1)[level]


def row_counts(histograms: np.ndarray, columns: Columns) -> np.ndarray:
    """Return the rows [2 G] of cells; each column tells them, the fewer levels the less noise."""
    by_column = np.split(histograms, columns.ends[1:-1], axis=1)
    size = np.array([counts.shape[1] for counts in by_column])
    totals = np.stack([counts.sum(axis=1) for counts in by_column])
    return (totals / size[:, None]).sum(axis=0) / (1 / size).sum()


def round_to(total: np.ndarray, step: float) -> np.ndarray:
    """Return a sum, rounded to multiples of a step; as it is where that is 0."""
    return np.rint(total / step) * step if step else total


def james_stein(noisy: np.ndarray, other: np.ndarray, sd: float) -> np.ndarray:
    """Return numbers, moved to others as far as noise explains: James and Stein (1961).

    other + max(0, 1 - k sd^2 / |noisy - other|^2) (noisy - other)        of k numbers.
    """
    difference = noisy - other
    size, noise = (difference**2).sum(), difference.size * sd**2
    return other + (1 - noise / size if size > noise else 0.0) * difference


def project(counts: np.ndarray, total: float) -> np.ndarray:
    """Return the nearest [K] that are not negative and have the same sum, scaled to ``total``.

    Held, Wolfe and Crowder (1974). Noise makes some counts negative. Equal ones if the sum is.
    """
    mass = counts.sum()
    if mass <= 0:
        return np.full(len(counts), total / len(counts))
    falling = np.sort(counts)[::-1]
    level = (np.cumsum(falling) - mass) / np.arange(1, len(counts) + 1)
    least = level[np.flatnonzero(falling > level)[-1]]
    positive = np.maximum(counts - least, 0.0)
    return positive * (total / positive.sum())


def halve(counts: np.ndarray, total: float, sd: float) -> np.ndarray:
    """Return rows [L] that add up to ``total``, and none in intervals that hold only noise.

    From the whole down, an interval's rows are divided between its halves (Hay et al. 2010). A half
    that noise may explain has none; where it may explain both, all levels of the interval are
    alike. Else the noise of many empty levels would look like many rows. A half keeps the rows of
    its :func:`peaks`, which the noise of the empty levels beside them would hide; the other half
    then has the rest, however few.
    """
    size = len(counts)
    half = size // 2
    noise = 2 * sd * (half * (1 - half / size)) ** 0.5
    least = np.array([peaks(side, sd) for side in (counts[:half], counts[half:])])
    if not half or (total <= noise and not least.any()):
        return np.full(size, total / size)
    least *= min(1.0, total / max(least.sum(), 1e-300))
    rows = counts[:half].sum() + (total - counts.sum()) * half / size
    rows = 0.0 if rows < noise else total if total - rows < noise else rows
    rows = min(max(rows, least[0]), total - least[1])
    return np.concatenate([halve(counts[:half], rows, sd), halve(counts[half:], total - rows, sd)])


def peaks(counts: np.ndarray, sd: float) -> float:
    """Return the number of rows in dyadic intervals of levels that noise cannot explain.

    Such an interval has more than 3 sd sqrt(length) rows; the larger of its own rows and those of
    its halves counts.
    """
    half, rows = len(counts) // 2, float(counts.sum())
    rows = rows if rows > 3 * sd * len(counts) ** 0.5 else 0.0
    return max(rows, peaks(counts[:half], sd) + peaks(counts[half:], sd)) if half else rows


def _coarse(
    pooled: np.ndarray, category: bool, missing: bool, most: int, noise: float
) -> np.ndarray:
    """Return coarse levels [L]: of numbers, alike in rows; of categories, the rare ones together.

    A level has so many rows that noise does not hide them.
    """
    pooled = np.maximum(pooled, 0.0)
    share = pooled / max(pooled.sum(), 1e-300)
    if category:
        large = (share > MIN_CATEGORY_SHARE) & (pooled > 2 * noise)
        large &= share >= np.sort(share)[-min(most - 1, len(share))]
        return np.where(large, np.cumsum(large) - 1, large.sum())
    least = 4 * noise / max(pooled.sum(), 1e-300)
    coarse, level, mass = np.zeros(len(pooled), int), 0, 0.0
    for i, of_level in enumerate(share[: len(share) - missing]):
        if mass > least and mass + of_level > 1.3 / (most - 1):
            level, mass = level + 1, 0.0
        coarse[i], mass = level, mass + of_level
    if missing:
        coarse[-1] = level + 1
    return coarse


def _within(
    h: np.ndarray, pooled: np.ndarray, coarse: np.ndarray, used: np.ndarray, sds: np.ndarray
) -> np.ndarray:
    """Return the shares [C, L] of fine levels: the set's, those of all sets, or even.

    Each as far as noise allows, whose standard deviations [C] are those of a number of rows.
    """
    shares = np.zeros(h.shape)
    for k in range(coarse.max() + 1):
        fine = np.flatnonzero((coarse == k) & used)
        fine = fine if len(fine) else np.flatnonzero(coarse == k)
        even = np.full(len(fine), pooled[fine].sum() / len(fine))
        common = project(james_stein(pooled[fine], even, (sds**2).sum() ** 0.5), 1.0)
        for c, rows in enumerate(h[:, fine]):
            shares[c, fine] = project(james_stein(rows, common * rows.sum(), sds[c]), 1.0)
    return shares


def split_tables(numbers: np.ndarray, margins: Margins, pairs: Edges) -> Tables:
    """Return the tables of pairs of columns, whose numbers stand one after the other."""
    shapes = [(len(margins.n), *margins.sizes[list(pair)]) for pair in pairs]
    by_pair = np.split(numbers, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
    return {p: counts.reshape(s) for p, counts, s in zip(pairs, by_pair, shapes, strict=True)}


def dependence(tables: Tables, margins: Margins, size: Callable[[np.ndarray], float]) -> np.ndarray:
    """Return how far the tables [p, p] of all pairs are from independence, by ``size``."""
    score = np.zeros((len(margins.rows),) * 2)
    for (i, j), table in tables.items():
        a, b = margins.rows[i], margins.rows[j]
        independent = a[:, :, None] * b[:, None, :] / margins.n[:, None, None]
        score[i, j] = score[j, i] = size(table - independent)
    return score


def chow_liu(score: np.ndarray, choose: Callable[[np.ndarray], int | np.intp] = np.argmax) -> Edges:
    """Return a tree of the most dependent columns: Prim's algorithm. Chow and Liu (1968).

    Args:
        score: [p, p] how dependent two columns are.
        choose: of the scores of edges that may be next, which one is.
    """
    inside, outside, edges = [0], list(range(1, len(score))), []
    while outside:
        able = [(i, j) for i in inside for j in outside]
        edges.append(able[int(choose(np.array([score[pair] for pair in able])))])
        inside.append(edges[-1][1])
        outside.remove(edges[-1][1])
    return edges


def associations(tables: Tables, margins: Margins, *, step: float, sd: float) -> Tables:
    """Return the two-way tables of each edge that fit the margins.

    Association that noise hides in a cell is that of all cells together, raked to the cell's
    margins: Deming and Stephan (1940).

    Args:
        tables: of each edge of the tree.
        margins: of the columns.
        step: as of :func:`make_margins`.
        sd: standard deviation of the error of each number.
    """
    fitting, total = {}, margins.n.sum()
    for (i, j), table in tables.items():
        a, b = margins.rows[i], margins.rows[j]
        independent = np.outer(a.sum(axis=0), b.sum(axis=0)) / total
        pooled = round_to(table.sum(axis=0), step)
        pooled = james_stein(pooled, independent, sd * len(a) ** 0.5)
        pooled = np.maximum(pooled, 1e-3 * independent) + 1e-9
        by_set = []
        for n, *of_columns, counts in zip(margins.n, a, b, round_to(table, step), strict=True):
            x, y = (rows + 1e-6 * n for rows in of_columns)
            base = _raked(pooled * (n / total), x, y)
            mixed = np.maximum(james_stein(counts, base, sd), 1e-3 * base) + 1e-9
            by_set.append(_raked(mixed, x, y))
        fitting[i, j] = np.stack(by_set)
    return fitting


def _raked(table: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the table with about row sums a and column sums b."""
    for _ in range(RAKINGS):
        table = table * (a / table.sum(axis=1))[:, None]
        table = table * (b / table.sum(axis=0))
    return table


def draw(
    c: int, n: int, margins: Margins, tables: Tables, columns: Columns, *, rng: np.random.Generator
) -> np.ndarray:
    """Return records [R, p] of the c-th set, whose margins and edges are those that were measured.

    Sobol points go through the conditional quantiles of the tree, whose edges come in order with
    their tables; a fine level, and a number in it, are then drawn within each coarse level.
    """
    p = len(columns)
    sobol = qmc.Sobol(3 * p, rng=rng)
    u = sobol.random_base2(int(np.ceil(np.log2(n))))[:n]
    level = np.zeros((n, p), int)
    level[:, 0] = _quantiles(margins.rows[0][c][None], np.zeros(n, int), u[:, 0])
    for k, ((i, j), table) in enumerate(tables.items(), 1):
        level[:, j] = _quantiles(table[c], level[:, i], u[:, k])
    records = np.empty((n, p))
    for j, column in enumerate(columns):
        shares = one_hot(margins.coarse[j]).T * margins.within[j][c]
        fine = _quantiles(shares, level[:, j], u[:, p + j])
        records[:, j] = column.values(fine, u[:, 2 * p + j])
    return records


def _quantiles(weights: np.ndarray, given: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return values k [R] with chances weights[given, k], at the quantiles u."""
    summed = np.cumsum(weights, axis=1)[given]
    value = (u[:, None] * summed[:, -1:] >= summed).sum(axis=1)
    return np.minimum(value, weights.shape[1] - 1)
