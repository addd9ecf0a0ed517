"""The surrogate of a table: records that are drawn from sums over its rows, in this order.

1. *Histograms* of each column at fine public levels, and *moments* of the numbers, by cell: a cell
   is a pair of group and label.
2. *Strata*: the sets of cells that records are drawn from. Where a cell has few rows, there are
   sums by label and by group in its place, see :mod:`synthfair.surrogate.tables`.
3. *Margins*: of the histograms, coarse levels of about equal mass, and what noise leaves of them.
4. *Pairs*: two-way tables on the edges of a tree over the columns.
5. *Records*: drawn through the tree.
6. *Anchors*: smooth rates of the models of random fair problems on these records.
7. *Weights* of the records, tilted until their moments and rates agree with the rows'.

How wide the encoding of the columns is does not matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize

from synthfair.data.encode import Encoded, encode_records, expand
from synthfair.data.schema import Schema, shown
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.privacy.guarantee import PRIVATE_PROBLEMS
from synthfair.privacy.mechanism import SumName
from synthfair.release.format import MIN_RECORD_WEIGHT
from synthfair.surrogate.fair import GlobalProblem, Price
from synthfair.surrogate.sums import (
    Answers,
    SurrogateSpec,
    anchor_rates,
    column_moments,
    histograms,
    inputs,
    moment_terms,
    smooth_rates,
    squares_and_means,
    two_way_tables,
)
from synthfair.surrogate.tables import (
    Edges,
    Margins,
    Strata,
    Tables,
    alone,
    associations,
    draw,
    few_levels,
    frechet_bounds,
    james_stein,
    make_margins,
    make_strata,
    one_hot,
    round_to,
    row_counts,
    settle_rows,
    split_tables,
)

PROBLEMS = 60
"""Random fair problems of a surrogate without epsilon."""

REMEDIES = (
    "Lower k_min (at least 5; it is published), make one release of your rows and another"
    " organisation's, or merge small groups (in the schema, by 'unlisted')"
)
"""What a client can do whose pairs of group and label have too few rows."""

MIN_RECORDS, MAX_RECORDS = 64, 4096
"""Records that stand for a cell, or for a label of the block."""

NOISE_FACTOR = 100.0
"""Factor by which the variance of noise counts more than a row's divergence, or weights would chase
it."""

MIN_SD = 0.005
"""The least standard deviation with which any mean is met."""

MAX_TILT_STEPS, MAX_PROBLEM_ITERATIONS = 60, 40
"""Steps of Newton's method, which takes some ten, and iterations of L-BFGS for a random problem."""

MAX_PROBLEM_ROWS = 1500
"""Records that a random problem is solved on."""

MAX_THETA_NORM = 60.0
"""Norm of a model; a longer one is of a problem without a solution worth matching."""

EMPTY = np.empty(0)


class TooFewRowsError(InputError):
    """An error: no pair of group and label, nor two groups and both labels, have enough rows."""


class Surrogate(NamedTuple):
    """A client's surrogate, and how near it came.

    Attributes:
        records: [R, p] features as of :func:`synthfair.data.encode.encode_records`.
        s: [R] groups.
        y: [R] labels, -1 or +1.
        weight: [R] numbers of real rows that each record stands for.
        hidden: (group, label) of the cells with rows, but fewer than ``k_min``, of which sums by
            label and by group know; with epsilon, of those that noise hides. Private without.
        left_out: those of which no sum knows. Private.
        rate_error: largest difference, over models and sets of cells that noise does not hide,
            between the mean of a smooth rate over the records and over the real rows; with epsilon,
            over the noisy ones. Private.
    """

    records: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    hidden: tuple[tuple[int, float], ...]
    left_out: tuple[tuple[int, float], ...]
    rate_error: float

    def rows(self, schema: Schema) -> Encoded:
        """Return the records as a model sees them, without weights."""
        return Encoded(encode_records(self.records, schema), self.s, self.y)


class Sums(NamedTuple):
    """The sums over rows that records are drawn from, with noise; or exact, and then private.

    Attributes:
        histograms: [2 G, L] numbers of rows of each cell in each level of each column.
        moments: [2 G, m] sums of z_i z_j, i <= j, and of z, of the numbers z in [-1/2, 1/2].
        margins: the strata, and one-way tables of those that records are drawn from.
        edges: of the tree over the columns.
        drawn: records of the tree's two-way tables; those of a set have equal weights.
        thetas: [Q, n] models; computed from these records, not from rows.
        rates: [P, 2 Q] sums of sigma(q theta'a) - 1/2, for q = 1 and 4, by set.
    """

    histograms: np.ndarray
    moments: np.ndarray
    margins: Margins
    edges: Edges
    drawn: Surrogate
    thetas: np.ndarray = EMPTY
    rates: np.ndarray = EMPTY


def read_sums(
    answers: Answers, spec: SurrogateSpec, on_stage: Callable[[str], None] = lambda _: None
) -> Sums:
    """Return all sums that a surrogate needs of the rows, and the records that most of them give.

    Raises:
        TooFewRowsError: no cell has ``k_min`` rows, nor have two groups and both labels; or with
            epsilon no cell's noisy number is large enough.
    """
    config, schema, columns, n_groups = spec.config, spec.schema, spec.columns, spec.n_groups
    # Each column by itself, and how numbers depend on each other.
    on_stage("reading the rows")
    statistics = [histograms(columns, n_groups)]
    statistics += [column_moments(columns, n_groups)] * (len(columns.numbers) > 0)
    read = [*answers.sums(*statistics), EMPTY][:2]
    counts, moments = (values.reshape(2 * n_groups, -1) for values in read)
    # The sets of cells that records are drawn from, and their one-way tables.
    margins = find_margins(answers, counts, spec)
    # A tree over columns, by how far their two-way tables are from independence.
    edges, tables = Edges(), Tables()
    if len(columns) > 1:
        on_stage("reading pairs of columns")
        edges, tables = answers.tree(columns, margins)
        if not spec.step:  # their noise is another than the histograms'
            margins = settle_rows(margins, step=0.0, tables=tables, sd_tables=spec.sd("pairs"))
    # Records of all that is known by now. Errors of clients that draw alike would add up in the
    # pool: of the rows, seeds take the numbers of rows of cells, which the weights give, too.
    seed = config.seed + zlib.crc32(margins.n.tobytes())
    sums = Sums(counts, moments, margins, edges, _draw_records(tables, margins, spec, seed))
    # Smooth rates of models that the server's may be like.
    on_stage("choosing models whose rates must agree")
    # In a block groups are alike before records have their weights.
    played = surrogate_of(sums, spec) if len(margins.strata.tilted) else sums.drawn
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    problems = PRIVATE_PROBLEMS if config.epsilon else PROBLEMS
    thetas = self_play(played.rows(schema), played.weight, problems, n_groups=n_groups, rng=rng)
    thetas = answers.rated_models(thetas)
    on_stage("reading rates")
    (rates,) = answers.sums(anchor_rates(thetas, margins.strata, schema))
    return sums._replace(thetas=thetas, rates=rates.reshape(len(margins.n), -1))


def surrogate_of(sums: Sums, spec: SurrogateSpec) -> Surrogate:
    """Return the records with weights by which moments and rates agree, as far as there are sums.

    The same sums always give the same. Records of a cell are weighted by themselves; those of the
    block all at once, as each is in two sets, that of its label and that of its group.
    """
    drawn, strata, worst = sums.drawn, sums.margins.strata, 0.0
    weight = drawn.weight.copy()
    for here, total, terms in weight_terms(drawn, sums, spec):
        f, target = np.hstack([term.f for term in terms]), np.concatenate([t.mean for t in terms])
        p = tilt_weights(f, target, np.concatenate([np.full(len(t.mean), t.v) for t in terms]))
        weight[here] = np.where(total * p < MIN_RECORD_WEIGHT, 0.0, total * p)
        for term in terms:
            is_noise = spec.config.epsilon and strata.hidden[strata.sets[term.of]].any()
            if term.name == "anchors" and not is_noise:
                worst = max(worst, abs(p @ term.f - term.mean).max() / term.share)
    kept = weight > 0
    records, s, y, weight = (values[kept] for values in (drawn.records, drawn.s, drawn.y, weight))
    return Surrogate(records, s, y, weight, drawn.hidden, drawn.left_out, worst)


def most_numbers(schema: Schema) -> int:
    """Return the most numbers that private records and what is known of them can have."""
    return 2 * len(schema.groups) * (MAX_RECORDS * (len(schema.features) + 3) + 4)


# Strata and margins


def find_margins(answers: Answers, counts: np.ndarray, spec: SurrogateSpec) -> Margins:
    """Return the margins of histograms; a block grows until columns do not tell its small cells."""
    schema, columns, k_min = spec.schema, spec.columns, spec.config.k_min
    rows, least, crossed = row_counts(counts, columns), 2, []
    if spec.step:
        rows = np.rint(rows)  # it is an average of the same whole numbers
    while True:
        strata = make_strata(rows, k_min, least) if spec.step else _private_strata(rows, spec)
        if not len(strata.drawn):
            names = (schema.pair(cell // 2, 2 * (cell % 2) - 1) for cell in range(len(rows)))
            pairs = [f"{name} has {n:.0f}" for name, n in zip(names, rows, strict=True)]
            raise TooFewRowsError(
                f"no pair of {schema.sensitive_name} and {schema.label} has the {k_min} rows that"
                " k_min asks for, nor have two groups and both labels; or all groups are left out,"
                f" as they would tell of the pairs that have not: {shown(pairs)}. {REMEDIES}",
                "k_min",
            )
        margins = make_margins(counts, strata, columns, step=spec.step, sd=spec.sd("histograms"))
        block = len(strata.tilted) > 0
        if block and not crossed and not tells(margins, counts, crossed, spec):
            # The rows of each cell, in the few levels of every two columns and of each.
            few = few_levels(margins, columns)._replace(strata=alone(rows, rows >= 0), n=rows)
            pairs = [*combinations_with_replacement(range(len(columns)), 2)]
            (numbers,) = answers.sums(two_way_tables(columns, few, pairs, "tables"))
            tables = split_tables(numbers, few, pairs).values()
            crossed = [table.reshape(len(rows), -1) for table in tables]
        if not block or not tells(margins, counts, crossed, spec):
            return margins
        least += 1


def _private_strata(rows: np.ndarray, spec: SurrogateSpec) -> Strata:
    """Return the strata of noisy numbers of rows: each cell is a set of its own.

    One that noise hides has about as many rows as those of its label and its group lead to.
    """
    config, schema = spec.config, spec.schema
    noise = spec.sd("histograms") / sum(1 / column.size for column in spec.columns) ** 0.5
    few = rows < max(config.k_min, 3 * noise)
    if few.all():
        raise TooFewRowsError(
            f"no pair of {schema.sensitive_name} and {schema.label} has a noisy number of rows"
            f" that reaches k_min = {config.k_min} and {3 * noise:.0f}, three standard deviations"
            f" of its noise, which is less with a larger epsilon. {REMEDIES}",
            "k_min",
        )
    table = rows.reshape(-1, 2)
    groups, labels = (np.maximum(table.sum(axis=a, keepdims=True), 0.0) for a in (1, 0))
    mixed = james_stein(table, groups * labels / groups.sum(), noise).ravel()
    rows = np.where(few, mixed, rows)
    return alone(rows, rows >= 1)._replace(hidden=few, left_out=np.zeros_like(few))


def tells(
    margins: Margins, counts: np.ndarray, crossed: Sequence[np.ndarray], spec: SurrogateSpec
) -> bool:
    """Return whether one column, or two together, tell the number of rows of a hidden cell.

    Frechet's bounds are added up over the levels of a column that have sums by group, which are
    categories and the coarse levels of a number, and over pairs of few levels of two columns.
    All columns and pairs together must leave half of the numbers 1 to k_min - 1.

    Args:
        margins: with a block.
        counts: [2 G, L] histograms.
        crossed: numbers of rows [2 G, K] of each cell in the few levels of two columns. They decide
            whether there is a block, and enter nothing that leaves.
        spec: public.
    """
    strata, k_min, ends = margins.strata, spec.config.k_min, spec.columns.ends
    groups, labels, tables = strata.tilted, strata.drawn[-2:], [*crossed]
    for j, column in enumerate(spec.columns):
        levels = counts[:, ends[j] : ends[j + 1]]
        tables.append(levels if column.categories else levels @ one_hot(margins.coarse[j]))
    bounds = np.array([frechet_bounds(labels @ table, groups @ table) for table in tables])
    possible = np.minimum(bounds[:, 1].min(axis=0), k_min - 1)
    possible = possible - np.maximum(bounds[:, 0].max(axis=0), 1) + 1
    return bool(possible.ravel()[strata.hidden[groups.any(axis=0)]].min() < k_min / 2)


# Records and their weights


def _draw_records(tables: Tables, margins: Margins, spec: SurrogateSpec, seed: int) -> Surrogate:
    """Return records as one-way tables and the tree have them; those of a set weigh the same."""
    strata, c, rng = margins.strata, len(margins.n), np.random.default_rng(seed)
    tables = associations(tables, margins, step=spec.step, sd=spec.sd("pairs"))
    # The records of a label of the block stand once for each of its groups.
    where = strata.place[strata.cells]
    copies = np.bincount(where, minlength=c)
    size = np.clip(margins.n, MIN_RECORDS, MAX_RECORDS // copies).astype(int)
    drawn = [draw(i, int(size[i]), margins, tables, spec.columns, rng=rng) for i in range(c)]
    records, size = np.concatenate([drawn[i] for i in where]), size[where]
    of_cells = strata.cells // 2, 2.0 * (strata.cells % 2) - 1, (margins.n / copies)[where] / size
    s, y, weight = (np.repeat(values, size) for values in of_cells)
    return Surrogate(records, s, y, weight, _pairs(strata.hidden), _pairs(strata.left_out), np.nan)


def _pairs(cells: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return (group, label) of the cells in a mask [2 G]."""
    return tuple((int(cell // 2), 2.0 * (cell % 2) - 1) for cell in np.flatnonzero(cells))


class Term(NamedTuple):
    """The conditions that sums over a set of cells put on weights of records.

    Attributes:
        name: of the sums.
        of: the set, of :attr:`~synthfair.surrogate.tables.Strata.sets`.
        share: of the set in the rows of all records that are weighted together.
        f: [r, k] functions of these records, 0 outside the set.
        mean: [k] of the functions, over the real rows.
        v: variance of the errors of each mean, as far as they count.
    """

    name: SumName
    of: int
    share: float
    f: np.ndarray
    mean: np.ndarray
    v: float


def weight_terms(
    records: Surrogate, sums: Sums, spec: SurrogateSpec
) -> Iterator[tuple[np.ndarray, float, list[Term]]]:
    """Yield records [r] that are weighted together, their number of real rows, and the terms."""
    margins, columns, strata = sums.margins, spec.columns, sums.margins.strata
    sets, ends = strata.sets, columns.ends
    n = np.append(margins.n, round_to(strata.tilted @ strata.rows, spec.step))
    rows, cell = records.rows(spec.schema.plain), 2 * records.s + (records.y > 0)
    wide = expand(rows.x, spec.schema)

    # Of histograms, levels that are no values of numbers; in the block coarse ones of these, too.
    flags, counts, coarse, level = [], [], [], columns.levels(rows)
    for j, column in enumerate(columns):
        histogram = sums.histograms[:, ends[j] : ends[j + 1]]
        first = 0 if column.categories else column.size - column.missing
        flags.append(level[:, [j]] == np.arange(first, column.size))
        counts.append(histogram[:, first:])
        if not column.categories:
            few = one_hot(margins.coarse[j])
            coarse.append(("histograms", few[level[:, j]], histogram @ few))
    functions = [
        ("column_moments", moment_terms(columns, rows.x), sums.moments),
        ("histograms", np.hstack(flags).astype(float), np.hstack(counts)),
    ]
    # Over a group of the block no sum links columns: where these tell labels, it would tell cells.
    (moments, f, by_cell), single = functions[0], squares_and_means(len(columns.numbers))
    of_groups = [(moments, f[:, single], by_cell[:, single]), functions[1]]

    for indices in strata.components:
        member, block = sets[indices][:, cell], len(indices) > 1
        here = np.flatnonzero(member.any(axis=0))
        total = float(n[indices[indices < len(margins.n)]].sum())
        terms = list[Term]()
        for i, inside in zip(indices, member[:, here, None], strict=True):
            share, of_set = float(n[i]) / total, []
            of_rows = functions if i < len(margins.n) else of_groups
            if i < len(margins.n) and len(sums.thetas):
                scored = Encoded(wide[here], np.full(len(here), strata.group[i]), rows.y[here])
                rates = smooth_rates(scored, sums.thetas, spec.n_groups)
                of_set.append(("anchors", rates, sums.rates[i]))
            if block:  # how many rows there are, too
                of_rows = of_rows + coarse
                terms.append(Term("histograms", i, share, inside * 1.0, n[[i]] / total, total**-2))
            of_set += [(name, f[here], sets[i] @ by_cell) for name, f, by_cell in of_rows]
            for name, f, summed in of_set:
                v = variance_of(spec.sd(name), float(n[i]), noisy=spec.step == 0)
                if block:  # nothing was drawn by group: as close as rounding lets see
                    v = (spec.sd(name) / float(n[i])) ** 2 + MIN_SD**2
                mean = round_to(summed, spec.step) / total
                terms.append(Term(name, i, share, f * inside, mean, v * share))
        yield here, total, terms


def variance_of(sd: float, rows: float, *, noisy: bool) -> float:
    """Return that of a mean over a cell's rows, whose sum is noisy or rounded; and by sampling."""
    return (NOISE_FACTOR if noisy else 1.0) * (sd / rows) ** 2 + MIN_SD**2 + 1 / (4 * rows)


def _solve(a: np.ndarray, variance: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return x [m] of (a'a + diag(variance)) x = b, a [R, m]; if R <= m by Woodbury's rule."""
    if len(a) > len(b):
        return solve(a.T @ a + np.diag(variance), b, assume_a="pos")
    small = a / variance
    inside = solve(np.eye(len(a)) + small @ a.T, small @ b, assume_a="pos")
    return b / variance - small.T @ inside


def tilt_weights(f: np.ndarray, target: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return weights p [R], of sum 1, that bring means of f near to targets.

        min over p    KL(p || 1/R) + sum_j (sum_r p_r f_rj - target_j)^2 / (2 variance_j)

    is solved by p_r = exp(lambda'f_r) / Z, with lambda the minimum of the convex dual

        log mean_r exp(lambda'(f_r - target)) + sum_j variance_j lambda_j^2 / 2,

    that Newton's method finds. Entropy balancing (Hainmueller 2012), with targets that have errors.

    Args:
        f: [R, m] functions of each record.
        target: [m] their means over the real rows.
        variance: [m] of the errors of these, positive.
    """
    f, multiplier = f - target, np.zeros(f.shape[1])

    def dual(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z = f @ x
        p = np.exp(z - z.max())
        value = np.log(p.mean()) + z.max() + (variance * x**2).sum() / 2
        p = p / p.sum()
        return float(value), p @ f + variance * x, p

    value, gradient, p = dual(multiplier)
    for _ in range(MAX_TILT_STEPS):
        step, length = -_solve(p[:, None] ** 0.5 * (f - p @ f), variance, gradient), 1.0
        fall = gradient @ step
        while dual(multiplier + length * step)[0] > value + 1e-4 * length * fall and length > 1e-6:
            length /= 2
        multiplier, before = multiplier + length * step, value
        value, gradient, p = dual(multiplier)
        if before - value < 1e-11:
            break
    return p


def self_play(
    rows: Encoded, weight: np.ndarray, n_problems: int, *, n_groups: int, rng: np.random.Generator
) -> np.ndarray:
    """Return models [Q, n] of random fair problems on records: what other clients may lead to.

    Each problem weighs the cells anew, by a Dirichlet distribution, and has a penalty, the squared
    differences of the groups' smooth selection rates or mean scores, with a weight of its own,
    log-uniform from 1 to 100. A model that is not worth matching is 0.

    Args:
        rows: records of all cells.
        weight: [R] of these.
        n_problems: Q.
        n_groups: number of groups.
        rng: draws the problems.
    """
    a, cell = inputs(rows, n_groups), 2 * rows.s + (rows.y > 0)
    thetas, both = np.zeros((n_problems, a.shape[1])), len(np.unique(rows.y)) > 1
    for q in range(n_problems):
        chosen = rng.choice(len(a), min(len(a), MAX_PROBLEM_ROWS), replace=False)
        share = rng.dirichlet(np.ones(2 * n_groups)) + 0.02
        mass = np.bincount(cell[chosen], weight[chosen], minlength=2 * n_groups)
        w = weight[chosen] * (share / np.maximum(mass, 1e-300))[cell[chosen]]
        s, y = rows.s[chosen], rows.y[chosen]
        if not both:  # without both labels there is nothing to learn
            y = np.where(rng.random(len(chosen)) < rng.uniform(0.3, 0.7), 1.0, -1.0)
        # Of one group alone there is nothing to compare.
        price = Price(10 ** rng.uniform(0, 2) * (len(np.unique(s)) > 1))
        kind = SelectionRatePenalty if rng.random() < 0.7 else CovariancePenalty
        ridge = np.full(a.shape[1], 1 / a.shape[1] ** 2)
        problem = GlobalProblem(a[chosen], s, y, w, kind(n_groups), ridge)
        most = {"maxiter": MAX_PROBLEM_ITERATIONS}
        end = minimize(problem.slope, problem.zero, (price,), "L-BFGS-B", jac=True, options=most)
        if np.linalg.norm(end.x) < MAX_THETA_NORM:  # not where there is a not-a-number
            thetas[q] = end.x
    return thetas
