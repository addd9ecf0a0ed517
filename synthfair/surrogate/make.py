"""From a client's rows to its surrogate: what is asked of the rows, and the records of the answers.

    histograms    of each column, at fine public levels; of them, coarse levels of about equal mass
    moments       first and second ones of the numbers
    pairs         two-way tables on the edges of a tree over columns
    anchors       smooth rates of models of random fair problems on records that are drawn so far

each by cell, which is a pair of group and label; or, where a cell has few rows, by label and by
group in its place, see :mod:`synthfair.surrogate.strata`. Records are then drawn through the tree,
and their weights tilted until moments and rates agree, too. How wide the encoding of the columns is
does not matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded, encode_records, expand
from synthfair.data.schema import Schema, shown
from synthfair.errors import InputError
from synthfair.privacy.mechanism import (
    ExponentialMechanism,
    GaussianMechanism,
    NoisySum,
    PrivateChoice,
    SumName,
    require_float64,
)
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import PRIVATE_PROBLEMS, make_guarantee
from synthfair.settings import SurrogateConfig
from synthfair.surrogate.anchors import self_play, smooth_rates
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.marginals import (
    FEWEST_ROWS,
    MOST_ROWS,
    Margins,
    associations,
    chow_liu,
    count_sd,
    dependence,
    draw,
    james_stein,
    make_margins,
    round_to,
    row_counts,
)
from synthfair.surrogate.questions import (
    GRID,
    Question,
    anchor_rates,
    column_moments,
    crossed_levels,
    histograms,
    moment_terms,
    on_grid,
    places,
    squares_and_means,
    table_parts,
    two_way_tables,
)
from synthfair.surrogate.strata import Strata, alone, frechet_bounds, make_strata
from synthfair.surrogate.tilt import FLOOR, tilt_weights, variance_of

PROBLEMS = 60
"""Random fair problems of a surrogate without epsilon."""

RARE = 5.0
"""Without epsilon, all sums are rounded to multiples of this many rows: statistical offices round
tables of frequencies so (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 5)."""

LEAST_WEIGHT = 1e-6
"""Of a record; others are left out."""

REMEDIES = (
    "Lower k_min (at least 5; it is published), make one release of your rows and another"
    " organisation's, or merge small groups (in the schema, by 'unlisted')"
)
"""What a client can do whose pairs of group and label have too few rows."""

NONE = np.empty(0)

Functions = list[tuple[SumName, np.ndarray, np.ndarray]]
"""Names of sums, functions [R, k] of records, and the sums of these over the rows of cells."""


class TooFewRowsError(InputError):
    """No pair of group and label has enough rows, nor have two groups and both labels."""


class Sums(NamedTuple):
    """All that is read of the rows: with noise; or exact, and then private.

    Attributes:
        histograms: [2 G, L] numbers of rows of each cell in each level of each column.
        moments: [2 G, m] sums of z_i z_j, i <= j, and of z, of the numbers z in [-1/2, 1/2].
        edges: [p - 1, 2] columns of the tree's edges.
        pairs: flat, of each edge [P, K_i, K_j] numbers of rows of the P sets that are drawn from.
        thetas: [Q, n] models; computed from records, not from rows.
        rates: [P, 2 Q] sums of sigma(q theta'a) - 1/2, for q = 1 and 4, by set.
        crossed: [p (p + 1) / 2, 2 G, K] numbers of rows of each cell in the few levels of two
            columns; only where there may be a block. They decide whether there is, and enter
            nothing that leaves.
    """

    histograms: np.ndarray
    moments: np.ndarray
    edges: np.ndarray = NONE.reshape(0, 2)
    pairs: np.ndarray = NONE
    thetas: np.ndarray = NONE
    rates: np.ndarray = NONE
    crossed: np.ndarray = NONE


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
        """The records as a model sees them, without weights."""
        return Encoded(encode_records(self.records, schema), self.s, self.y)


class Term(NamedTuple):
    """What weights of records must meet of the sums over a set of cells.

    Attributes:
        name: of the sums.
        of: the set, of :attr:`~synthfair.surrogate.strata.Strata.sets`.
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


class Plan:
    """How sums are used, which everybody may know.

    Args:
        config: settings.
        schema: public.
        errors: standard deviation of the error in each entry of a sum, where it is not that of the
            settings.

    Attributes:
        columns: levels of each.
        step: to multiples of which sums are rounded; 0 where they have noise.
    """

    def __init__(
        self, config: SurrogateConfig, schema: Schema, errors: Mapping[SumName, float] | None = None
    ) -> None:
        """By public rules."""
        self.config, self.schema, self.n_groups = config, schema, len(schema.groups)
        self.columns = Columns.of(schema, private=bool(config.epsilon))
        self.step = 0.0 if config.epsilon else RARE
        self._errors = errors
        if errors is None and config.epsilon:
            mechanisms = make_guarantee(config, schema).mechanisms
            self._errors = {m.name: m.noise for m in mechanisms if isinstance(m, GaussianMechanism)}

    def sd(self, name: SumName) -> float:
        """Of the error in each entry of a sum: noise, or rounding."""
        return RARE / 12**0.5 if self._errors is None else self._errors.get(name, 0.0)

    def margins(self, sums: Sums) -> Margins:
        """Return the one-way tables of the sets that records are drawn from, and all sets.

        Raises:
            TooFewRowsError: there are too few rows; the message says what can be done.
        """
        config, schema, sd = self.config, self.schema, self.sd("histograms")
        rows, least = row_counts(sums.histograms, self.columns), 2
        if self.step:
            rows = np.rint(rows)  # it is an average of the same whole numbers
        while True:
            strata = make_strata(rows, config.k_min, least) if self.step else self._noisy(rows)
            if not len(strata.drawn):
                pairs = [
                    f"{schema.pair(c // 2, 2 * (c % 2) - 1)} has {n:.0f}"
                    for c, n in enumerate(rows)
                ]
                raise TooFewRowsError(
                    f"no pair of {schema.sensitive_name} and {schema.label} has the {config.k_min}"
                    " rows that k_min asks for, nor have two groups and both labels; or all groups"
                    " are left out, as they would tell of the pairs that have not:"
                    f" {shown(pairs)}. {REMEDIES}",
                    "k_min",
                )
            margins = make_margins(sums.histograms, strata, self.columns, step=self.step, sd=sd)
            if not self.step and len(sums.pairs):  # their noise is another than the histograms'
                return make_margins(
                    sums.histograms, strata, self.columns, step=0.0, sd=sd,
                    tables=self.tables(sums, margins), sd_tables=self.sd("pairs"),
                )  # fmt: skip
            if not self._tells(margins, sums):
                return margins
            least += 1

    def tables(self, sums: Sums, margins: Margins) -> dict[tuple[int, int], np.ndarray]:
        """Return the two-way table [C, K_i, K_j] of each edge of the tree."""
        edges = [(int(i), int(j)) for i, j in sums.edges]
        shapes = [(len(margins.n), *margins.sizes[list(edge)]) for edge in edges]
        *parts, _ = np.split(sums.pairs, np.cumsum([int(np.prod(shape)) for shape in shapes]))
        return dict(zip(edges, map(np.reshape, parts, shapes), strict=True))

    def _noisy(self, rows: np.ndarray) -> Strata:
        """Return the strata of noisy numbers of rows: each cell is a set of its own.

        One that noise hides has about as many rows as those of its label and its group lead to.
        """
        config, schema, noise = (
            self.config,
            self.schema,
            count_sd(self.columns, self.sd("histograms")),
        )
        few = rows < max(config.k_min, 3 * noise)
        if few.all():
            raise TooFewRowsError(
                f"no pair of {schema.sensitive_name} and {schema.label} has a noisy number of rows"
                f" that reaches k_min = {config.k_min} and {3 * noise:.0f}, three"
                " standard deviations of its noise. Lower k_min or raise epsilon (both are"
                " published), make one release of your rows and another organisation's, or merge"
                " small groups (in the schema, by 'unlisted')",
                "k_min",
            )
        table = rows.reshape(-1, 2)
        groups, labels = (np.maximum(table.sum(axis=a, keepdims=True), 0.0) for a in (1, 0))
        mixed = james_stein(table, groups * labels / groups.sum(), noise).ravel()
        rows = np.where(few, mixed, rows)
        return alone(rows, rows >= 1)._replace(hidden=few, left_out=np.zeros_like(few))

    def _tells(self, margins: Margins, sums: Sums) -> bool:
        """Return whether one column, or two together, tell the number of rows of a hidden cell.

        Frechet's bounds are added up over the levels of a column that have sums by group, which are
        categories and the coarse levels of a number, and over pairs of few levels of two columns.
        All columns and pairs together must leave half of the numbers 1 to k_min - 1.
        """
        strata, k_min, ends, bounds = margins.strata, self.config.k_min, self.columns.ends, []
        groups, labels = strata.tilted, strata.drawn[-2:]
        if not len(groups):
            return False
        for j, column in enumerate(self.columns):
            levels = sums.histograms[:, ends[j] : ends[j + 1]]
            if not column.categories:
                levels = levels @ margins.one_hot(j)
            bounds.append(frechet_bounds(labels @ levels, groups @ levels))
        bounds += [frechet_bounds(labels @ table, groups @ table) for table in sums.crossed]
        least, most = np.moveaxis(np.array(bounds), 1, 0)
        left = np.minimum(most.min(axis=0), k_min - 1) - np.maximum(least.max(axis=0), 1) + 1
        return bool(left.ravel()[strata.hidden[groups.any(axis=0)]].min() < k_min / 2)

    def records(self, sums: Sums, margins: Margins) -> Surrogate:
        """Records as one-way tables and the tree have them; those of a set have equal weights."""
        strata, c = margins.strata, len(margins.n)
        tables = associations(
            self.tables(sums, margins), margins, step=self.step, sd=self.sd("pairs")
        )
        rng = np.random.default_rng(own_seed(self.config.seed, margins))
        # The records of a label of the block stand once for each of its groups.
        where = places(strata.drawn)[strata.cells]
        copies = np.bincount(where, minlength=c)
        size = np.clip(margins.n, FEWEST_ROWS, MOST_ROWS // copies).astype(int)
        drawn = [draw(i, margins, tables, self.columns, rng, size=int(size[i])) for i in range(c)]
        size = size[where]
        return Surrogate(
            np.concatenate([drawn[i] for i in where]),
            np.repeat(strata.cells // 2, size),
            np.repeat(2.0 * (strata.cells % 2) - 1, size),
            np.repeat((margins.n / copies)[where] / size, size),
            pairs_of(strata.hidden),
            pairs_of(strata.left_out),
            np.nan,
        )

    def models(self, sums: Sums, margins: Margins) -> np.ndarray:
        """[Q, n] of random fair problems on these records."""
        drawn = self.records(sums, margins)
        if len(margins.strata.tilted):  # else groups would be alike
            drawn = weighted(drawn, sums, margins, self)
        seed = own_seed(self.config.seed, margins)
        return self_play(
            drawn.rows(self.schema),
            drawn.weight,
            PRIVATE_PROBLEMS if self.config.epsilon else PROBLEMS,
            n_groups=self.n_groups,
            rng=np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))),
        )


def pairs_of(cells: np.ndarray) -> tuple[tuple[int, float], ...]:
    """(group, label) of these of all cells [2 G]."""
    return tuple((int(cell // 2), 2.0 * (cell % 2) - 1) for cell in np.flatnonzero(cells))


def own_seed(seed: int, margins: Margins) -> int:
    """A seed for each client: errors of clients that draw alike would add up in the pool.

    Of the rows it takes the numbers of rows of cells, which the weights give, too.
    """
    return seed + zlib.crc32(margins.n.tobytes())


def read_sums(
    rows: Batches,
    config: SurrogateConfig,
    schema: Schema,
    *,
    noise: RandomBytes = system_entropy,
    on_stage: Callable[[str], None] | None = None,
) -> Sums:
    """All that a surrogate needs of the rows, which are read three times, or four for a block.

    Guarantee: with ``config.epsilon``, (epsilon, delta)-differential privacy, that of
    :func:`make_guarantee`; without it none, and all sums are rounded to multiples of five rows.
    Unit: one row. Neighbouring relation: config.relation.

    Args:
        rows: encoded by ``schema.plain``, in memory or a stream.
        config: settings.
        schema: of the rows, public; a client may hold one group alone, or one label.
        noise: where its bytes come from; other than the system's, it protects nothing.
        on_stage: called with what is done next, in a few words.

    Raises:
        TooFewRowsError: no cell has ``config.k_min`` rows, nor have two groups and both labels; or
            with epsilon no cell's noisy number is large enough.
    """
    plan, show = Plan(config, schema), on_stage or (lambda _: None)
    columns, n_groups = plan.columns, plan.n_groups
    guarantee = make_guarantee(config, schema) if config.epsilon else None
    mechanisms = guarantee.of_release if guarantee else ()
    sums_of = [one for one in mechanisms if isinstance(one, GaussianMechanism)]
    noisy = {one.name: NoisySum(one, config.relation, noise) for one in sums_of}
    choices = [one for one in mechanisms if isinstance(one, ExponentialMechanism)]
    choose = PrivateChoice(choices[0], noise).choose if choices else np.argmax

    def exact(*questions: Question) -> list[np.ndarray]:
        """Whole numbers; all questions are answered in one reading of the rows."""

        def of(part: Encoded) -> np.ndarray:
            if guarantee:
                require_float64(part.x)
            wholes = [noisy[q.name].terms.whole if guarantee else on_grid for q in questions]
            return np.concatenate([q.of(part, w) for q, w in zip(questions, wholes, strict=True)])

        return np.split(rows.sum(of), np.cumsum([q.length for q in questions])[:-1])

    def answer(question: Question, whole: np.ndarray) -> np.ndarray:
        """The sum, with its noise where there is an epsilon."""
        if guarantee is None:
            return whole.astype(float) * (1.0 if question.counts else GRID)
        unit = round(1 / noisy[question.name].terms.grid) if question.counts else 1
        return noisy[question.name].release(whole.astype(object) * unit)

    # Each column by itself, and how numbers depend on each other.
    show("reading the rows")
    first = [histograms(columns, n_groups)]
    first += [column_moments(columns, n_groups)] * (len(columns.numbers) > 0)
    found = [*map(answer, first, exact(*first)), NONE][:2]
    sums = Sums(*(values.reshape(2 * n_groups, -1) for values in found))
    margins = plan.margins(sums)
    if len(margins.strata.tilted):
        show("reading pairs of columns")
        (crossed,) = exact(crossed_levels(columns, margins, n_groups))
        size = len(columns) * (len(columns) + 1) // 2
        sums = sums._replace(crossed=crossed.reshape(size, 2 * n_groups, -1))
        margins = plan.margins(sums)

    # A tree over columns, by how far their two-way tables are from independence.
    if len(columns) > 1:
        show("reading pairs of columns")
        question = two_way_tables(columns, margins)._replace(name="pairs")
        (whole,) = exact(question)
        part = table_parts(whole, margins)
        near = table_parts(round_to(whole, plan.step), margins)
        scores = dependence(near, margins, lambda off: abs(off).sum())
        edges = chow_liu(scores, choose)
        pairs = answer(question, np.concatenate([part(*edge).ravel() for edge in edges]))
        sums = sums._replace(edges=np.array(edges), pairs=pairs)
        margins = plan.margins(sums)

    # Smooth rates of models that the server's may be like.
    show("choosing models whose rates must agree")
    sums = sums._replace(thetas=plan.models(sums, margins))
    show("reading rates")
    question = anchor_rates(sums.thetas, margins.strata, schema)
    rates = answer(question, *exact(question))
    return sums._replace(rates=rates.reshape(len(margins.n), -1))


def most_numbers(schema: Schema) -> int:
    """Return the most numbers that private records and what is known of them can have."""
    return 2 * len(schema.groups) * (MOST_ROWS * (len(schema.features) + 3) + 4)


def surrogate_of(sums: Sums, plan: Plan) -> Surrogate:
    """The surrogate that sums give; the same ones always give the same. It sees no rows."""
    margins = plan.margins(sums)
    return weighted(plan.records(sums, margins), sums, margins, plan)


def weighted(drawn: Surrogate, sums: Sums, margins: Margins, plan: Plan) -> Surrogate:
    """The records with weights by which moments and rates agree, as far as there are sums.

    Those of a cell are weighted by themselves; those of the block all at once, as each is in two
    sets, that of its label and that of its group.
    """
    weight, worst, strata = drawn.weight.copy(), 0.0, margins.strata
    for here, total, terms in weight_terms(drawn, sums, margins, plan):
        f, target = np.hstack([term.f for term in terms]), np.concatenate([t.mean for t in terms])
        p = tilt_weights(f, target, np.concatenate([np.full(len(t.mean), t.v) for t in terms]))
        weight[here] = np.where(total * p < LEAST_WEIGHT, 0.0, total * p)
        for term in terms:
            noise = plan.config.epsilon and strata.hidden[strata.sets[term.of]].any()
            if term.name == "anchors" and len(term.mean) and not noise:
                worst = max(worst, abs(p @ term.f - term.mean).max() / term.share)
    some = weight > 0
    return drawn._replace(
        records=drawn.records[some], s=drawn.s[some], y=drawn.y[some], weight=weight[some],
        rate_error=worst,
    )  # fmt: skip


def weight_terms(
    drawn: Surrogate, sums: Sums, margins: Margins, plan: Plan
) -> Iterator[tuple[np.ndarray, float, list[Term]]]:
    """The records [r] that are weighted together, their number of real rows, and what is met."""
    strata, columns = margins.strata, plan.columns
    sets, q, ends = strata.sets, len(sums.thetas), columns.ends
    n = np.append(margins.n, round_to(strata.tilted @ strata.rows, plan.step))
    rows, cell = drawn.rows(plan.schema.plain), 2 * drawn.s + (drawn.y > 0)
    wide = rows._replace(x=expand(rows.x, plan.schema))
    own_rates = smooth_rates(wide, sums.thetas, plan.n_groups) if q else rows.x[:, :0]

    # Of histograms, levels that are no values of numbers; in the block coarse ones of these, too.
    level = columns.levels(rows)
    of_category = np.repeat([c.categories > 0 for c in columns], np.diff(ends))
    of_category[ends[1:] - 1] |= [c.missing for c in columns]
    flagged = np.flatnonzero(of_category)
    column = np.searchsorted(ends, flagged, side="right") - 1
    flags = ((ends[:-1] + level)[:, column] == flagged).astype(float)
    functions: Functions = [
        ("column_moments", moment_terms(columns, rows.x), sums.moments),
        ("histograms", flags, sums.histograms[:, flagged]),
    ]
    # Over a group of the block no sum links columns: where these tell labels, it would tell cells.
    (moments, f, by_cell), single = functions[0], squares_and_means(len(columns.numbers))
    of_groups: Functions = [(moments, f[:, single], by_cell[:, single]), functions[1]]
    coarse = Functions()
    for j in np.flatnonzero([not c.categories for c in columns]):
        one_hot = margins.one_hot(j)
        by_cell = sums.histograms[:, ends[j] : ends[j + 1]] @ one_hot
        coarse.append(("histograms", one_hot[level[:, j]], by_cell))

    for part in strata.parts:
        member, block = sets[part][:, cell], len(part) > 1
        here = np.flatnonzero(member.any(axis=0))
        total = float(n[part[part < len(margins.n)]].sum())
        terms = list[Term]()
        for i, inside in zip(part, member[:, here, None], strict=True):
            share, of_rows, of_set = float(n[i]) / total, of_groups, Functions()
            if i < len(margins.n):
                rates, of_rows = own_rates, functions
                if block and q:  # a label, whose rows are scored as one group's
                    as_one = wide._replace(s=np.full_like(wide.s, strata.group[i]))
                    rates = smooth_rates(as_one, sums.thetas, plan.n_groups)
                of_set.append(("anchors", rates, sums.rates[i] if q else NONE))
            if block:  # how many rows there are, too
                of_rows = of_rows + coarse
                terms.append(Term("histograms", i, share, inside * 1.0, n[[i]] / total, total**-2))
            of_set.extend((name, f, sets[i] @ by_cell) for name, f, by_cell in of_rows)
            for name, f, found in of_set:
                sd = plan.sd(name)
                v = variance_of(sd, float(n[i]), noisy=plan.step == 0)
                if block:  # nothing was drawn by group: as close as rounding lets see
                    v = (sd / float(n[i])) ** 2 + FLOOR**2
                mean = round_to(found, plan.step) / total
                terms.append(Term(name, i, share, f[here] * inside, mean, v * share))
        yield here, total, terms
