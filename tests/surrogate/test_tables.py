"""One-way and two-way tables, and draws from them, by closed forms and brute force."""

import itertools

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table, schema_with
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.csgraph import minimum_spanning_tree

from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical, Numeric
from synthfair.surrogate import tables as tab
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.sums import histograms, on_grid, two_way_tables

COUNTS = arrays(float, st.integers(1, 9), elements=st.floats(-1e3, 1e3).map(lambda n: round(n, 6)))


@given(counts=COUNTS, total=st.floats(0.5, 1e4))
def test_projection_is_the_nearest_point_and_has_the_total(counts, total):
    """By the conditions of the optimum: what is positive is shifted alike, the rest is below."""
    found = tab.project(counts, total)
    assert found.sum() == pytest.approx(total)
    assert (found >= 0).all()
    if counts.sum() > 1:
        near = tab.project(counts, counts.sum())
        shift = (counts - near)[near > 0]
        assert np.ptp(shift) < 1e-6
        assert (counts[near == 0] <= shift.mean() + 1e-6).all()


def test_james_stein_moves_what_noise_explains():
    """The closed form 1 - k sd^2 / |difference|^2, which is 1 - 1/81 of differences of 9 sd."""
    other, signs = np.linspace(1, 3, 40), np.resize([-1.0, 1.0], 40)
    np.testing.assert_allclose(tab.james_stein(other + 0.9 * signs, other, 1.0), other)
    found = tab.james_stein(other + 9 * signs, other, 1.0)
    np.testing.assert_allclose(found, other + (1 - 1 / 81) * 9 * signs)


def test_tree_has_the_largest_sum_of_all():
    """By SciPy's spanning tree of the least sum."""
    score = np.random.default_rng(0).random((9, 9))
    score += score.T
    edges = tab.chow_liu(score)
    least = minimum_spanning_tree(np.triu(3 - score, 1)).sum()
    assert sum(score[pair] for pair in edges) == pytest.approx(3 * 8 - least)
    for place, (i, j) in enumerate(edges):  # in order, from the root on
        before = {0, *(k for _, k in edges[:place])}
        assert (i in before, j in before) == (True, False)


TWO, THREE = (Categorical(categories=tuple(letters)) for letters in ("ab", "abc"))
NUMBER = Numeric(lower=0, upper=1)


def margins_of(first, columns, *, step=0.0, sd=0.0):
    strata = tab.make_strata(np.rint(tab.row_counts(first, columns)), 5)
    return tab.make_margins(first, strata, columns, step=step, sd=sd)


def first_of(rows, columns):
    return histograms(columns, 2).of(rows, on_grid).reshape(4, -1).astype(float)


@pytest.fixture(scope="module")
def chain():
    """Levels by cell, margins and tables of a tree c0 - c2, c2 - c1, c2 - c3, other in each cell."""
    schema, n = schema_with(c0=THREE, c1=THREE, c2=THREE, c3=THREE), 20_000
    rng = np.random.default_rng(5)
    s, y = rng.integers(0, 2, n), rng.integers(0, 2, n)
    c2 = (rng.random((n, 1)) > [0.3, 0.7]).sum(axis=1)
    c0, c1 = (np.where(rng.random(n) < 0.8 - 0.2 * s, c2, i) for i in (0, 1))
    c3 = np.where(rng.random(n) < 0.6, (c2 + y) % 3, rng.integers(0, 3, n))
    levels = np.stack([c0, c1, c2, c3], axis=1)
    table = pd.DataFrame(np.array(list("abc"))[levels], columns=["c0", "c1", "c2", "c3"])
    rows = encode(table.assign(town=np.where(s, "b", "a"), paid=np.where(y, "yes", "no")), schema)
    columns, pairs = Columns.of(schema, private=True), [*itertools.combinations(range(4), 2)]
    margins = margins_of(first_of(rows, columns), columns)

    def tables_of(pairs):
        counted = two_way_tables(columns, margins, pairs).of(rows, on_grid)
        return tab.split_tables(counted, margins, pairs)

    edges = tab.chow_liu(tab.dependence(tables_of(pairs), margins, lambda off: abs(off).sum()))
    tables = tab.associations(tables_of(edges), margins, step=0.0, sd=0.0)
    return [levels[2 * s + y == cell] for cell in range(4)], columns, margins, tables


def test_draw_has_the_tables_of_a_tree(chain):
    """Pairs off the tree, too: shares of the rows within what 4,096 independent draws would be."""
    by_cell, columns, margins, tables = chain
    assert {frozenset(edge) for edge in tables} == {frozenset(e) for e in [(0, 2), (1, 2), (2, 3)]}
    for cell, real in enumerate(by_cell):
        size = min(len(real), 4096)
        drawn = tab.draw(cell, size, margins, tables, columns, rng=np.random.default_rng(1))
        for i, j in itertools.combinations(range(4), 2):
            pairs = [(3 * of[:, i] + of[:, j]).astype(int) for of in (real, drawn)]
            wanted, found = (np.bincount(pair, minlength=9) / len(pair) for pair in pairs)
            error = (wanted * (1 / len(real) + 1 / size)) ** 0.5
            on_tree = (i, j) in tables  # Sobol points are nearer there
            assert (abs(wanted - found) < (1.5 if on_tree else 4) * error + 1e-3).all()


def test_draw_of_a_number_is_even_where_its_rows_are():
    columns, x = Columns.of(schema_with(c0=NUMBER), private=True), (np.arange(4096) + 0.5) / 4096
    rows = Encoded(x[:, None], np.zeros(4096, int), np.ones(4096))
    margins = margins_of(first_of(rows, columns), columns)
    drawn = tab.draw(0, 4096, margins, {}, columns, rng=np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(drawn[:, 0]), x, atol=0.004)


def test_associations_keep_the_margins(chain):
    _, _, margins, tables = chain
    rng = np.random.default_rng(0)
    noisy = {edge: table + rng.normal(0, 30, table.shape) for edge, table in tables.items()}
    for (i, j), found in tab.associations(noisy, margins, step=0.0, sd=30.0).items():
        assert (found > 0).all()
        np.testing.assert_allclose(found.sum(axis=2), margins.rows[i], rtol=1e-4, atol=0.02)
        np.testing.assert_allclose(found.sum(axis=1), margins.rows[j], rtol=1e-4, atol=0.02)


@pytest.mark.parametrize(("sd", "hidden"), [(12.0, True), (0.01, False)])
def test_associations_that_noise_hides_are_those_of_all_cells(sd, hidden):
    """Raking keeps the odds ratio: of a small cell without association, and a large one with it."""

    def odds_ratio(table):
        return table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])

    half, coarse = np.array([[20.0, 20.0], [2000.0, 2000.0]]), np.arange(2)
    strata = tab.make_strata(np.full(4, 100), 5)
    margins = tab.Margins(strata, half.sum(axis=1), (coarse,) * 2, rows=(half,) * 2)
    table = np.array([[[10.0, 10], [10, 10]], [[1500.0, 500], [500, 1500]]])
    small, large = tab.associations({(0, 1): table}, margins, step=0.0, sd=sd)[0, 1]
    expected = odds_ratio(table.sum(axis=0)) if hidden else 1.0
    assert odds_ratio(small) == pytest.approx(expected, rel=0.02)
    assert odds_ratio(large) == pytest.approx(9.0, rel=0.05)


@pytest.mark.parametrize(("private", "step", "sd"), [
    (False, 5.0, 1.4), (True, 0.0, 1.0), (True, 0.0, 0.0),
])  # fmt: skip
def test_coarse_levels_are_few_in_order_and_have_all_rows(private, step, sd, monkeypatch):
    columns = Columns.of(SCHEMA, private=private)
    rows = encode(make_table(5000), SCHEMA)
    first = first_of(rows, columns)
    margins = margins_of(first, columns, step=step, sd=sd)
    few = tab.few_levels(margins, columns)
    assert margins.sizes.max() > tab.TREE_LEVELS + 1
    for j, column in enumerate(columns):
        coarse, fewer, counts = margins.coarse[j], few.coarse[j], margins.rows[j]
        assert len(np.unique(coarse)) == coarse.max() + 1 <= tab.MAX_COARSE_LEVELS + column.missing
        assert few.sizes[j] == fewer.max() + 1 <= tab.TREE_LEVELS + 1  # and a missing value
        np.testing.assert_allclose(counts.sum(axis=1), margins.n)
        np.testing.assert_allclose(few.rows[j].sum(axis=1), margins.n)
        if not column.categories:
            assert (np.diff(coarse) >= 0).all()
            last = [coarse[-1] - coarse[-2], fewer[-1] - fewer[-2]]
            assert last == [1, 1] or not column.missing  # by itself
            assert counts.sum(axis=0).max() < 0.3 * 5000
        for level in range(coarse.max() + 1):
            assert len({*fewer[coarse == level]}) == 1  # fewer levels are unions of coarse ones
            np.testing.assert_allclose(margins.within[j][:, coarse == level].sum(axis=1), 1.0)
        if sd == 0:  # without noise they are the histogram
            histogram = first[:, columns.ends[j] : columns.ends[j + 1]]
            np.testing.assert_allclose(counts[:, coarse] * margins.within[j], histogram)
    monkeypatch.setattr(tab, "MAX_TABLE_ENTRIES", 4 * 3 * 3 / 2 * 3**2)  # of four cells, by pair
    assert margins_of(first, columns, step=step, sd=sd).sizes.max() <= 3


KEPT = [(-20.0, 40.0, 9.0, 25.0), (0.0, 4000.0, 0.0, 60.0), (4100.0, 4000.0, 4000.0, 4200.0)]
"""Of 25 rows or so, noise of sd 20 may explain that there are none; of 4,000 it may not."""


@pytest.mark.parametrize(("noisy", "expected", "least", "most"), KEPT)
def test_level_keeps_what_noise_may_have_taken(noisy, expected, least, most):
    """Rows of level c at one label of a group, with noise; the other cells have as expected."""
    first = np.array([[4000.0, 4000.0, expected]] * 4)
    first[3, 2] = noisy
    columns = Columns.of(schema_with(c0=THREE), private=True)
    assert least <= margins_of(first, columns, sd=20.0).rows[0][3, 2] <= most


@pytest.mark.parametrize(("sd", "share"), [(1.0, 0.9), (3.0, 0.5), (1e-6, 1.0), (1e9, 0.0)])
def test_margins_and_tables_are_averaged_by_inverse_variance(sd, share):
    """An entry of the histogram has the variance 9, and a sum of each of two tables 2 sd^2."""
    columns = Columns.of(schema_with(c0=THREE, c1=TWO, c2=TWO), private=True)
    rows = np.array([[9e6, 4e6, 2e6], [2e6, 7e6, 3e6], [3e6, 2e6, 8e6], [5e6, 8e6, 1e6]])
    of_table = rows + np.array([[6e4, -5e4, -1e4], [-3e4, 1e4, 2e4]] * 2)
    table = of_table[:, :, None] * np.array([0.6, 0.4])
    tables = {(0, 1): table, (2, 0): table.swapaxes(1, 2)}
    margins = margins_of(np.hstack([rows, *[table.sum(axis=1)] * 2]), columns, sd=3.0)
    margins = tab.settle_rows(margins, step=0.0, tables=tables, sd_tables=sd)
    np.testing.assert_allclose(margins.rows[0], rows + share * (of_table - rows), rtol=1e-5)


@pytest.mark.parametrize(("place", "level"), [(19, 16), (31, 28), (9, 8)])
def test_peak_of_5_sd_is_kept_where_a_half_has_more_noise(place, level):
    """There are no other rows but at level 2; a peak of 2 sd is what noise gives."""
    counts = np.zeros(32)
    counts[[2, place]] = 3000, 50
    found = tab.halve(counts, 3050.0, 10.0)
    assert found.sum() == pytest.approx(3050)
    assert found[level : level + 4].sum() == pytest.approx(50)
    assert found[place] == found.max(initial=0, where=np.arange(32) > 2)
    counts[place] = 20
    assert tab.halve(counts, 3020.0, 10.0)[level : level + 4].sum() == 0


def test_margins_depend_on_rounded_numbers_alone():
    """A row less in a level, and one more in the next or another cell, where no number shows it."""
    columns, seen = Columns.of(SCHEMA, private=False), 0
    first = first_of(encode(make_table(300, seed=1), SCHEMA), columns)
    expected = margins_of(first, columns, step=5.0, sd=1.4)

    def rounded(first):
        parts = np.split(first, columns.ends[1:-1], axis=1)
        summed = [h @ tab.one_hot(of) for h, of in zip(parts, expected.coarse, strict=True)]
        numbers = [first, first.sum(axis=0), *summed, *(h.sum(axis=0).cumsum() for h in parts)]
        return np.rint(np.concatenate([*map(np.ravel, numbers)]) / 5)

    for level, (cell, ahead) in itertools.product(range(columns.ends[1] - 1), [(0, 1), (1, 0)]):
        other = first.copy()
        other[0, level] -= 1
        other[cell, level + ahead] += 1
        if np.array_equal(rounded(other), rounded(first)):
            found, seen = margins_of(other, columns, step=5.0, sd=1.4), seen + 1
            for name in ("n", "coarse", "within", "rows"):
                np.testing.assert_equal(getattr(found, name), getattr(expected, name))
    assert seen > 20


def test_rows_of_a_hidden_cell_are_as_those_of_its_label_and_its_group():
    """Where noise hides its own: in proportion to both shares of a level, over that of all rows."""
    first = 1e4 * np.array([[5, 3, 2], [2, 3, 5], [4, 4, 2], [2, 2, 6], [6, 2, 2], [0, 0, 0]])
    first[5] = 20, 5, 5
    strata = tab.alone(rows := first.sum(axis=1), rows > 0)._replace(hidden=np.arange(6) == 5)
    columns = Columns.of(schema_with(c0=THREE), private=True)
    found = tab.make_margins(first, strata, columns, step=0.0, sd=20.0).rows[0]
    alike = first[1::2].sum(axis=0) * first[4:].sum(axis=0) / first.sum(axis=0)
    np.testing.assert_allclose(found[5], 30 * alike / alike.sum(), rtol=1e-3)
    # Others are moved to those of all rows, as if the noise had half of its variance.
    base = np.outer(rows, first.sum(axis=0) / rows.sum())
    off = first - base
    moved = base + (1 - 3 * 20**2 / 2 / (off**2).sum(axis=1, keepdims=True)) * off
    np.testing.assert_allclose(found[:5], moved[:5], rtol=1e-7)
