"""Sums by label and by group hide the pairs of few rows: borders, and brute force over tables."""

import itertools

import numpy as np
import pytest
from builders import SCHEMA, make_table, part, schema_with

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.records import read_sums, surrogate_of, tells
from synthfair.surrogate.sums import SurrogateSpec, TableSums, moment_terms, smooth_rates
from synthfair.surrogate.tables import frechet_bounds, make_margins, make_strata

ALL = [0, 1, 2, 3, 4, 5]
BORDERS = {
    # rows of cells; those with records, hidden and left out; groups in the block
    "cells of k_min": ([50, 0, 50, 900], [0, 2, 3], [], [], 0),
    "cell below": ([49, 80, 90, 300, 50, 600], ALL, [0], [], 2),
    "group below": ([24, 25, 60, 70, 500, 500], [2, 3, 4, 5], [], [0, 1], 0),
    "group of k_min": ([24, 26, 60, 70, 500, 500], ALL, [0, 1], [], 2),
    "label below: one joins": ([20, 80, 29, 300, 400, 600], ALL, [0, 2], [], 3),
    "label of k_min": ([20, 80, 30, 300, 400, 600], ALL, [0, 2], [], 2),
    "label below, nobody joins": ([20, 700, 29, 300], [1, 3], [], [0, 2], 0),
    "label of k_min, nobody else": ([20, 700, 30, 300], [0, 1, 2, 3], [0, 2], [], 2),
    "group below, beside a block": ([20, 9, 20, 80, 90, 300], [2, 3, 4, 5], [2], [0, 1], 2),
    "one group": ([30, 30, 0, 0], [], [], [0, 1], 0),
    "up to the largest with few": ([49, 500, 49, 300, 100, 100], ALL, [0, 2], [], 3),
    # a table of 60 k_min rows has no block, whether the cell counts or not
    "large": ([20, 100, 400, 2500], [1, 2, 3], [], [0], 0),
    "large with the cell alone": ([20, 100, 400, 2499], [2, 3], [], [0, 1], 0),
    "large with the cell, at the border": ([20, 100, 400, 2480], [2, 3], [], [0, 1], 0),
    "not large": ([20, 100, 400, 2479], [0, 1, 2, 3], [0], [], 2),
}


@pytest.mark.parametrize(("rows", "cells", "hidden", "left_out", "block"), BORDERS.values(),
                         ids=BORDERS)  # fmt: skip
def test_strata_at_the_border_of_k_min(rows, cells, hidden, left_out, block):
    strata = make_strata(np.array(rows), 50)
    masks = strata.drawn.any(axis=0), strata.hidden, strata.left_out
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [cells, hidden, left_out]
    assert len(strata.tilted) == block
    assert (strata.sets @ rows >= 50).all()


def test_strata_join_labels_and_score_as_the_largest_group():
    strata = make_strata(rows := np.array([20, 80, 20, 300, 400, 600]), 50)
    assert strata.group.tolist() == [2, 2]
    assert not len(make_strata(rows, 50, least=4).tilted)


K = 4
TABLES = {
    "pairs": [[3, 9, 8, 2], [1, 9, 8, 9], [2, 3, 3, 8], [3, 2, 9, 3], [1, 3, 9, 9], [2, 8, 1, 9]],
    "equal groups": [[1, 3, 4, 0, 4, 0], [1, 5, 4, 2, 3, 3]],
    "labels": [[3, 5, 1, 4, 2, 4], [1, 1, 6, 2, 5, 5]],
}


def tables_with(sets, rows):
    """All tables with the same sums over sets; of a cell without sums up to K + 1."""
    tops = np.where(sets, (sets @ rows)[:, None], 0).max(axis=0, initial=0)
    tops = np.where(sets.any(axis=0), tops, K + 1)
    every = np.array([*itertools.product(*(range(int(top) + 1) for top in tops))])
    return every[(every @ sets.T == sets @ rows).all(axis=1)]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("large", [5, 60])
def test_strata_tell_no_small_cell(kind, large, monkeypatch):
    """Whoever knows all sums and the rule: by brute force over the tables of the same sets."""
    monkeypatch.setattr("synthfair.surrogate.tables.MIN_LARGE_RATIO", large)
    for rows in np.array(TABLES[kind]):
        strata = make_strata(rows, K)
        sets = strata.sets.astype(int)
        assert (sets @ rows >= K).all()
        every = tables_with(sets, rows)
        same = [each for each in every if np.array_equal(make_strata(each, K).sets, strata.sets)]
        for cell in np.flatnonzero((rows > 0) & (rows < K)):
            values = {int(each[cell]) for each in same}
            assert len(values) >= K - 1 if sets[:, cell].any() else values >= {*range(1, K)}


def test_frechet_bounds_hold_and_add_up_over_levels():
    rng = np.random.default_rng(1)
    for _ in range(50):
        cells = rng.poisson(rng.uniform(0, 9, size=(3, 2, 4)))
        least, most = frechet_bounds(cells.sum(axis=0), cells.sum(axis=1))
        assert ((least <= cells.sum(axis=-1)) & (cells.sum(axis=-1) <= most)).all()
    bounds = frechet_bounds(np.array([[30, 3], [70, 0]]), np.array([[60, 1], [40, 2]]))
    assert bounds.tolist() == [[[1, 30], [2, 10]], [[31, 60], [32, 40]]]


TWIN = Categorical(categories=("u", "v"))


@pytest.mark.parametrize(("most", "told"), [(24, True), (25, False)])
@pytest.mark.parametrize("crossed", [False, True], ids=["by a column", "by two"])
def test_levels_tell_a_hidden_cell_that_may_have_fewer_than_half_of_k_min(most, told, crossed):
    """At level u ten hidden rows are among ``most`` of their group; at v nobody has their label.

    Of the other hidden cell nothing is told.
    """
    counts = np.array([[10, 0], [most - 10, 100], [45, 0], [200, 300], [200, 0], [100, 100]])
    assert is_told(counts, crossed=crossed) is told


@pytest.mark.parametrize(("least", "told"), [(26, True), (25, False)])
@pytest.mark.parametrize("crossed", [False, True], ids=["by a column", "by two"])
def test_levels_tell_a_hidden_cell_that_must_have_more_than_half_of_k_min(least, told, crossed):
    """At level u nobody has the other label, so that all of the group are hidden rows."""
    counts = [[least, 40 - least], [0, 100], [0, 45], [0, 500], [200, 0], [0, 200]]
    assert is_told(np.array(counts), crossed=crossed) is told


def is_told(counts, *, crossed):
    """Whether these rows tell, of a column, or of two where the column itself tells nothing."""
    spec = SurrogateSpec(sf.SurrogateConfig(k_min=50), schema_with(t=TWIN))
    strata, columns = make_strata(counts.sum(axis=1), 50), Columns.of(spec.schema, private=False)
    assert np.flatnonzero(strata.hidden).tolist() == [0, 2]
    mixed = np.column_stack([counts.sum(axis=1), np.zeros(len(counts), int)])
    one_way, pairs = (mixed, [counts]) if crossed else (counts, [])
    margins = make_margins(one_way.astype(float), strata, columns, step=5.0, sd=1.4)
    return tells(margins, one_way, pairs, spec)


ALONE = [0, 2, 3, 4]
"""Of z_0^2, z_0 z_1, z_1^2, z_0, z_1 those of one number: no other is summed over a group."""


@pytest.fixture(scope="module")
def block():
    """Rows of two towns, of which one has twenty that are paid, and their sums."""
    table, spec = make_table(900), SurrogateSpec(sf.SurrogateConfig(), SCHEMA)
    few = table.index[(table.town == "b") & (table.paid == "yes")][20:]
    rows = sf.encode(table.drop(index=few), SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 6)
        return rows, spec, read_sums(TableSums(in_memory(rows), spec), spec)


def test_block_has_the_sums_of_labels_and_of_groups(block):
    rows, spec, sums = block
    surrogate = surrogate_of(sums, spec)
    assert (surrogate.hidden, surrogate.left_out) == (((1, 1.0),), ())
    for variance in sums.margins.variance:  # a label's sum is rounded once, not by cell
        np.testing.assert_allclose(variance, 25 / 12)
    made, moments = surrogate.rows(SCHEMA), moment_terms(spec.columns, rows.x)
    terms, every = moment_terms(spec.columns, made.x), np.arange(moments.shape[1])
    for real, drawn, linked in ((rows.y, made.y, every), (rows.s, made.s, ALONE)):
        for value in np.unique(real):
            mine, weight = drawn == value, surrogate.weight[drawn == value]
            assert weight.sum() == pytest.approx((real == value).sum(), abs=5)
            expected = moments[real == value].sum(axis=0)[linked]
            np.testing.assert_allclose(weight @ terms[mine][:, linked], expected, atol=6)
    # Rates by label, of rows that are all scored as of the larger group.
    errors = []
    for value, summed in zip((-1.0, 1.0), sums.rates, strict=True):
        real, drawn = (part(of, of.y == value) for of in (rows, made))
        exact, rates = (
            smooth_rates(of._replace(s=0 * of.s), sums.thetas, 2) for of in (real, drawn)
        )
        np.testing.assert_allclose(summed, exact.sum(axis=0), atol=1e-3)
        n, weight = 5 * np.rint(len(real.y) / 5), surrogate.weight[made.y == value]
        errors.append(np.abs(weight @ rates - 5 * np.rint(summed / 5)).max() / n)
    assert surrogate.rate_error == pytest.approx(max(errors), rel=1e-3)


def test_block_does_not_see_how_products_differ_by_group_or_exact_numbers(block):
    _, spec, sums = block
    moved = np.delete(np.eye(sums.moments.shape[1]), ALONE, axis=0).sum(axis=0)
    by_group = np.array([[50.0], [50.0], [-50.0], [-50.0]])  # of each label they are the same
    strata = sums.margins.strata  # nor how many rows they have, but for rounding
    unseen = 5 * np.rint(strata.tilted @ strata.rows / 5) - strata.tilted @ strata.rows
    assert unseen.any()
    strata = strata._replace(rows=strata.rows + np.ravel([0 * unseen, unseen], order="F"))
    other = sums._replace(moments=sums.moments + by_group * moved,
                          margins=sums.margins._replace(strata=strata))  # fmt: skip
    found, expected = surrogate_of(other, spec), surrogate_of(sums, spec)
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-9)
