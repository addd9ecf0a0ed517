"""What sums say of a table's columns, and records of it, by closed forms, SciPy and brute force."""

import itertools

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from scipy.optimize import minimize

from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.sums import (
    anchor_rates,
    column_moments,
    histograms,
    on_grid,
    two_way_tables,
)
from synthfair.surrogate.tables import (
    MAX_COARSE_LEVELS,
    TREE_LEVELS,
    Margins,
    associations,
    chow_liu,
    dependence,
    draw,
    few_levels,
    halve,
    james_stein,
    make_margins,
    make_strata,
    project,
    row_counts,
    settle_rows,
    split_tables,
)


def test_projected_is_the_nearest_that_is_not_negative():
    """By SciPy's quadratic programme."""
    rng = np.random.default_rng(0)
    for size in (2, 5, 9):
        counts = rng.normal(2, 5, size)
        counts += max(0, 1 - counts.sum() / size)
        start = np.full(size, counts.sum() / size)
        same = {"type": "eq", "fun": lambda x, counts=counts: x.sum() - counts.sum()}
        wanted = minimize(
            lambda x, counts=counts: ((x - counts) ** 2).sum(),
            start,
            bounds=[(0, None)] * size,
            constraints=[same],
            tol=1e-12,
        ).x
        np.testing.assert_allclose(project(counts, counts.sum()), wanted, atol=1e-5)


@pytest.mark.parametrize("total", [0.5, 8.0])
def test_projected_has_the_total_whatever_the_counts(total):
    for counts in ([-3.0, -4.0, -2.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1e9, -1.0, 3.0]):
        found = project(np.array(counts), total)
        assert found.sum() == pytest.approx(total)
        assert (found >= 0).all()


def test_what_noise_explains_is_that_of_others_and_what_it_does_not_stays():
    other = np.linspace(1, 3, 40)
    own = other + 0.9 * np.resize([-1.0, 1.0], 40)
    np.testing.assert_allclose(james_stein(own, other, 1.0), other)
    np.testing.assert_allclose(james_stein(own, other, 1e-9), own)
    far = other + 9 * np.resize([-1.0, 1.0], 40)
    part = (james_stein(far, other, 1.0) - other) / (far - other)
    assert part == pytest.approx(np.full(40, part[0]))  # James and Stein's 1 - k/81, k of 40 or so
    assert 1 - 1.1 / 81 < part[0] < 1


def spanning_trees(p):
    """All sets of p - 1 pairs that connect p columns."""
    for edges in itertools.combinations(itertools.combinations(range(p), 2), p - 1):
        root = list(range(p))
        for i, j in edges:
            root = [root[i] if one == root[j] else one for one in root]
        if len(set(root)) == 1:
            yield edges


@pytest.mark.parametrize("p", [2, 3, 5])
def test_the_tree_has_the_largest_sum_of_all(p):
    score = np.random.default_rng(0).random((p, p))
    score += score.T
    edges = chow_liu(score)
    best = max(sum(score[pair] for pair in tree) for tree in spanning_trees(p))
    assert sum(score[pair] for pair in edges) == pytest.approx(best)
    for at, (i, j) in enumerate(edges):  # in order, from the root on
        before = {0, *(k for _, k in edges[:at])}
        assert i in before
        assert j not in before


THREE = Categorical(categories=("a", "b", "c"))
CHAIN = Schema(
    name="chain",
    label="y",
    positive=1,
    sensitive="s",
    columns={f"c{i}": THREE for i in range(4)}
    | {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))},
)


def chain_rows(n=20_000):
    """A tree over four columns, other in each cell: c0 - c2, c2 - c1, c2 - c3."""
    rng = np.random.default_rng(5)
    s, y = rng.integers(0, 2, n), rng.integers(0, 2, n)
    c2 = (rng.random((n, 1)) > [0.3, 0.7]).sum(axis=1)
    levels = {f"c{i}": np.where(rng.random(n) < 0.8 - 0.2 * s * (i < 2), c2, i % 3) for i in (0, 1)}
    levels |= {"c2": c2, "c3": np.where(rng.random(n) < 0.6, (c2 + y) % 3, rng.integers(0, 3, n))}
    names = {name: np.array(list("abc"))[levels[name]] for name in ("c0", "c1", "c2", "c3")}
    table = pd.DataFrame(names | {"s": np.where(s, "v", "u"), "y": y})
    return encode(table, CHAIN), np.stack([levels[f"c{i}"] for i in range(4)], axis=1)


def strata_of(first, columns, k_min=5):
    return make_strata(np.rint(row_counts(first, columns)), k_min)


PAIRS = [*itertools.combinations(range(4), 2)]


def tables_of(rows, columns, margins, pairs):
    counted = two_way_tables(columns, margins, pairs).of(rows, on_grid)
    return split_tables(counted, margins, pairs)


@pytest.fixture(scope="module")
def chain():
    """Rows, their columns, one-way tables without noise, and all two-way tables."""
    rows, levels = chain_rows()
    columns = Columns.of(CHAIN, private=True)
    first = histograms(columns, 2).of(rows, on_grid).reshape(4, -1).astype(float)
    strata = strata_of(first, columns)
    margins = make_margins(first, strata, columns, step=0.0, sd=0.0)
    tables = tables_of(rows, columns, margins, PAIRS)
    edges = chow_liu(dependence(tables, margins, lambda off: abs(off).sum()))
    tables = associations(tables_of(rows, columns, margins, edges), margins, step=0.0, sd=0.0)
    return rows, levels, columns, margins, tables


def test_a_table_that_is_a_tree_is_drawn_again(chain):
    """Pairs off the tree, too: shares of the rows within what 4,096 independent draws would be."""
    rows, levels, columns, margins, tables = chain
    assert {frozenset(edge) for edge in tables} == {frozenset(e) for e in [(0, 2), (1, 2), (2, 3)]}
    for cell in range(4):
        real = levels[2 * rows.s + (rows.y > 0) == cell]
        size = min(len(real), 4096)
        drawn = draw(cell, size, margins, tables, columns, rng=np.random.default_rng(1))
        assert len(drawn) == size
        for i, j in itertools.combinations(range(4), 2):
            wanted, found = (
                np.bincount(3 * one[:, i].astype(int) + one[:, j].astype(int), minlength=9)
                for one in (real, drawn)
            )
            error = (wanted * (1 / len(real) + 1 / len(drawn)) / len(real)) ** 0.5
            difference = np.abs(wanted / len(real) - found / len(drawn))
            assert (difference < 4 * error + 1e-3).all()
            off = error[difference > 1.5 * error]
            assert (i, j) not in tables or not len(off)  # on the tree Sobol points are nearer


def test_two_way_tables_have_the_one_way_tables(chain):
    _, _, _, margins, tables = chain
    rng = np.random.default_rng(0)
    noisy = {edge: t + rng.normal(0, 30, t.shape) for edge, t in tables.items()}
    for (i, j), found in associations(noisy, margins, step=0.0, sd=30.0).items():
        assert (found > 0).all()
        np.testing.assert_allclose(found.sum(axis=2), margins.rows[i], rtol=1e-4, atol=0.02)
        np.testing.assert_allclose(found.sum(axis=1), margins.rows[j], rtol=1e-4, atol=0.02)


def odds_ratio(table):
    return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])


def test_association_that_noise_hides_in_a_cell_is_that_of_all_cells():
    """Raking keeps the odds ratio: of a small cell without association, and a large one with it."""
    half, coarse = np.array([[20.0, 20.0], [2000.0, 2000.0]]), np.arange(2)
    strata = make_strata(np.full(4, 100), 5)
    margins = Margins(strata, half.sum(axis=1), (coarse,) * 2, rows=(half,) * 2)
    table = np.array([[[10.0, 10], [10, 10]], [[1500.0, 500], [500, 1500]]])
    pooled = odds_ratio(table.sum(axis=0))
    for sd, own in [(12.0, pooled), (0.01, 1.0)]:
        found = associations({(0, 1): table}, margins, step=0.0, sd=sd)[0, 1]
        assert odds_ratio(found[0]) == pytest.approx(own, rel=0.02)
        assert odds_ratio(found[1]) == pytest.approx(9.0, rel=0.05)


def test_coarse_levels_are_few_in_order_and_of_rows_that_are_many():
    columns = Columns.of(make_schema(), private=False)
    rows = encode(make_table(5000), make_schema())
    first = histograms(columns, 2).of(rows, on_grid).reshape(4, -1)
    margins = make_margins(first, strata_of(first, columns), columns, step=5.0, sd=1.4)
    for column, coarse, counts in zip(columns, margins.coarse, margins.rows, strict=True):
        assert len(np.unique(coarse)) == coarse.max() + 1 <= MAX_COARSE_LEVELS + column.missing
        np.testing.assert_allclose(counts.sum(axis=1), margins.n)
        if not column.categories:
            assert (np.diff(coarse) >= 0).all()
            assert counts.sum(axis=0).max() < 0.3 * 5000
    for column, within, coarse in zip(columns, margins.within, margins.coarse, strict=True):
        shares = np.stack([np.bincount(coarse, one, minlength=coarse.max() + 1) for one in within])
        np.testing.assert_allclose(shares, 1.0)
        assert within.shape == (4, column.size)


def test_few_levels_are_unions_of_coarse_ones_with_the_same_rows():
    columns = Columns.of(make_schema(), private=True)
    rows = encode(make_table(5000), make_schema())
    first = histograms(columns, 2).of(rows, on_grid).reshape(4, -1).astype(float)
    margins = make_margins(first, strata_of(first, columns), columns, step=0.0, sd=1.0)
    few = few_levels(margins, columns)
    assert margins.sizes.max() > TREE_LEVELS + 1
    for own, coarse, fewer, counts in zip(
        margins.rows, margins.coarse, few.coarse, few.rows, strict=True
    ):
        assert counts.shape[1] == fewer.max() + 1 <= TREE_LEVELS + 1  # and a missing value
        union = {int(k): set(fewer[coarse == k]) for k in coarse}
        assert all(len(levels) == 1 for levels in union.values())
        of = np.array([union[k].pop() for k in range(own.shape[1])])
        wanted = np.stack([own[:, of == k].sum(axis=1) for k in range(counts.shape[1])], axis=1)
        np.testing.assert_allclose(counts, wanted)


ONE = CHAIN.model_copy(update={"columns": {k: CHAIN.columns[k] for k in ("c0", "s", "y")}})


@pytest.mark.parametrize(
    ("lost", "expected", "least", "most"),
    [
        (-20.0, 40.0, 9.0, 25.0),  # of 25 or so, noise of sd 20 may explain that there are none
        (0.0, 4000.0, 0.0, 60.0),  # of 4,000 it may not
        (4100.0, 4000.0, 4000.0, 4200.0),
    ],
)
def test_a_level_keeps_what_noise_may_have_taken(lost, expected, least, most):
    """Rows of level c at one label of a group, with noise; the other cells have as expected."""
    first = np.array([[4000.0, 4000.0, expected]] * 4)
    first[3, 2] = lost
    columns = Columns.of(ONE, private=True)
    margins = make_margins(first, strata_of(first, columns), columns, step=0.0, sd=20.0)
    assert least <= margins.rows[0][3, 2] <= most


@pytest.mark.parametrize(
    ("sd_tables", "share"), [(1.0, 0.75), (3.0, 0.25), (1e-6, 1.0), (1e9, 0.0)]
)
def test_margins_of_a_histogram_and_of_a_table_are_averaged_by_inverse_variance(sd_tables, share):
    """An entry of the histogram has the variance 9, and one of three levels' sum 3 sd_tables^2."""
    two = ("c0", "c1", "s", "y")
    schema = CHAIN.model_copy(update={"columns": {k: CHAIN.columns[k] for k in two}})
    columns = Columns.of(schema, private=True)
    rows = np.array([[9e6, 4e6, 2e6], [2e6, 7e6, 3e6], [3e6, 2e6, 8e6], [5e6, 8e6, 1e6]])
    of_table = rows + np.array([[6e4, -5e4, -1e4], [-3e4, 1e4, 2e4]] * 2)
    table = of_table[:, :, None] * np.array([0.5, 0.3, 0.2])
    first = np.hstack([rows, table.sum(axis=1)])
    margins = make_margins(first, strata_of(first, columns), columns, step=0.0, sd=3.0)
    margins = settle_rows(margins, step=0.0, tables={(0, 1): table}, sd_tables=sd_tables)
    np.testing.assert_allclose(margins.rows[0], rows + share * (of_table - rows), rtol=1e-5)


@pytest.mark.parametrize(("at", "level"), [(19, 16), (31, 28), (9, 8)])
def test_many_rows_at_one_level_are_kept_where_the_noise_of_a_half_is_larger(at, level):
    """A level of 5 sd, and no other rows but at level 2; one of 2 sd is what noise gives."""
    counts = np.zeros(32)
    counts[[2, at]] = 3000, 50
    found = halve(counts, 3050.0, 10.0)
    assert found.sum() == pytest.approx(3050)
    assert found[level : level + 4].sum() == pytest.approx(50)
    assert found[at] == found.max(initial=0, where=np.arange(32) > 2)
    counts[at] = 20
    assert halve(counts, 3020.0, 10.0)[level : level + 4].sum() == 0


def test_numbers_that_one_row_has_change_no_record():
    """Nor do the mistakes between whole numbers: what is rounded, or too few, is as if not there."""
    number = {"k": Numeric(lower=0, upper=9), "s": CHAIN.columns["s"], "y": CHAIN.columns["y"]}
    schema = CHAIN.model_copy(update={"columns": number})
    columns = Columns.of(schema, private=False)

    def drawn(*rest):
        values = np.concatenate([np.repeat([0, 4, 9], [300, 295, 10]), rest])[:, None]
        rows = Encoded(values / 9, np.zeros(len(values), int), np.ones(len(values)))
        first = histograms(columns, 2).of(rows, on_grid).reshape(4, -1)
        margins = make_margins(first, strata_of(first, columns), columns, step=5.0, sd=1.4)
        return draw(0, 500, margins, {}, columns, rng=np.random.default_rng(0))

    np.testing.assert_array_equal(drawn(4.03, 6), drawn(4, 4))
    assert not np.array_equal(drawn(6, 6, 6), drawn(4, 4, 4))
    assert (drawn(6, 6, 6) % 1 == 0).all()


def plain_sums(rows, columns, margins, thetas):
    """What the sums are, by loops over rows and cells."""
    levels, cell = columns.levels(rows), 2 * rows.s + (rows.y > 0)
    z = rows.x[:, :2] - 0.5
    z[:, 1] *= 1 - rows.x[:, 2]  # where age is not missing
    products = np.column_stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2, z])
    a = np.column_stack([rows.x, rows.s == 1, np.ones(len(cell))]) @ thetas.T
    rates = 1 / (1 + np.exp(-np.hstack([a, 4 * a]))) - 0.5
    coarse = np.stack([c[own] for c, own in zip(margins.coarse, levels.T, strict=True)], axis=1)
    pairs = {pair: np.zeros((4, *margins.sizes[list(pair)])) for pair in [(0, 1), (0, 2), (1, 2)]}
    for (i, j), table in pairs.items():
        for one, at in zip(cell, coarse, strict=True):
            table[one, at[i], at[j]] += 1
    return (
        [np.stack([sums[cell == c].sum(axis=0) for c in range(4)]) for sums in (products, rates)],
        [[np.bincount(own[cell == c]) for own in levels.T] for c in range(4)],
        pairs,
    )


def test_sums_are_those_of_loops_and_add_up_over_batches_in_any_order():
    schema = make_schema()
    rows, columns = encode(make_table(400), schema), Columns.of(schema, private=True)
    first = histograms(columns, 2).of(rows, on_grid).reshape(4, -1)
    strata = strata_of(first, columns)
    margins = make_margins(first, strata, columns, step=5, sd=1)
    rng = np.random.default_rng(0)
    thetas, edges = rng.normal(size=(3, 9)), [(0, 1), (0, 2), (1, 2), (2, 0)]
    questions = [column_moments(columns, 2), anchor_rates(thetas, strata, schema)]
    questions += [histograms(columns, 2), two_way_tables(columns, margins, edges)]
    few, crossed_pairs = few_levels(margins, columns), [(0, 1), (0, 2), (1, 2)]
    questions += [two_way_tables(columns, few, crossed_pairs, "tables")]
    whole = [question.of(rows, on_grid) for question in questions]
    assert [len(one) for one in whole] == [question.length for question in questions]
    (moments, rates), counts, pairs = plain_sums(rows, columns, margins, thetas)
    for found, wanted in zip(whole[:2], (moments, rates), strict=True):
        np.testing.assert_allclose(
            found.astype(float) * 2.0**-20, wanted.ravel(), atol=400 * 2.0**-20
        )
    for one, wanted in zip(whole[2].reshape(4, -1), counts, strict=True):
        for own, right in zip(np.split(one, columns.ends[1:-1]), wanted, strict=True):
            np.testing.assert_array_equal(own[: len(right)], right)
            assert not own[len(right) :].any()
    tables = split_tables(whole[3], margins, edges)
    for pair, wanted in pairs.items():
        np.testing.assert_array_equal(tables[pair], wanted)
    np.testing.assert_array_equal(tables[2, 0], pairs[0, 2].swapaxes(1, 2))
    _, _, crossed = plain_sums(rows, columns, few, thetas)
    tables = split_tables(whole[4], few, crossed_pairs)
    for pair, wanted in crossed.items():
        np.testing.assert_array_equal(tables[pair], wanted)
    cut = np.split(rng.permutation(400), [1, 100, 100])
    for question, all_rows in zip(questions, whole, strict=True):
        parts = [question.of(Encoded(*(f[i] for f in rows)), on_grid) for i in cut]
        np.testing.assert_array_equal(sum(parts), all_rows)
