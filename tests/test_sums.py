"""Sums by group and label against NumPy, a cell at a time."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.data.batches import ROWS, BatchesInOrder, in_memory
from synthfair.data.encode import Encoded
from synthfair.surrogate.sums import Anchors, cell_sums, smooth_sums

G, D, EMPTY = 3, 3, (2, 1)


def some_rows(n=240):
    """Rows at 0, 1 and between in each cell but one."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((n, D)) < 0.3, rng.integers(2, size=(n, D)), rng.random((n, D)))
    x = np.rint(x * 2**16) / 2**16  # as far as sums look
    s, y = rng.integers(G, size=n), rng.choice([-1.0, 1.0], n)
    y[s == EMPTY[0]] = -1.0
    return Encoded(x, s, y)


ROWS_HERE = some_rows()
ANCHORS = Anchors(
    np.random.default_rng(1).normal(size=(4, D)),
    np.random.default_rng(2).normal(size=(G, 4)),
    np.ones(4),
)


def cells(rows):
    """Place of each cell, and the features of its rows."""
    for g, label in product(range(G), (0, 1)):
        yield (g, label), rows.x[(rows.s == g) & (rows.y == 2 * label - 1)]


def parts(rows, order, cuts):
    """The rows in another order, cut into batches; some may be empty."""
    rows = Encoded(*(field[order] for field in rows))
    ends = [0, *sorted(cuts), len(order)]
    return [Encoded(*(field[i:j] for field in rows)) for i, j in pairwise(ends)]


def all_arrays(sums):
    """Those of the values of features, too."""
    return [
        array
        for one in vars(sums).values()
        for array in getattr(one, "__dict__", {0: one}).values()
    ]


def test_moments_are_numpys():
    sums = cell_sums(ROWS_HERE, n_groups=G)
    for place, x in cells(ROWS_HERE):
        assert sums.count[place] == len(x)
        if len(x):
            np.testing.assert_allclose(sums.mean()[place], x.mean(axis=0), atol=1e-14)
            covariance = np.cov(x.T, bias=True)
            np.testing.assert_allclose(sums.covariance()[place], covariance, atol=1e-14)


def test_histograms_are_numpys():
    sums = cell_sums(ROWS_HERE, n_groups=G)
    for place, x in cells(ROWS_HERE):
        for j in range(D):
            count, _ = np.histogram(x[:, j], bins=16, range=(0, 1))
            total, _ = np.histogram(x[:, j], bins=16, range=(0, 1), weights=x[:, j])
            np.testing.assert_array_equal(sums.binned[(*place, j)], count)
            np.testing.assert_allclose(sums.within[(*place, j)], total, atol=1e-12)


def test_an_empty_cell_has_no_moments():
    sums = cell_sums(ROWS_HERE, n_groups=G)
    assert sums.count[EMPTY] == 0
    np.testing.assert_array_equal(sums.mean()[EMPTY], 0.5)
    np.testing.assert_array_equal(sums.covariance()[EMPTY], 0.0)


def test_a_constant_feature_has_no_negative_variance():
    for constant in np.random.default_rng(0).random(40):
        rows = Encoded(np.full((77, 1), constant), np.zeros(77, int), np.ones(77))
        assert 0 <= cell_sums(rows, n_groups=2).covariance()[0, 1, 0, 0] < 1e-12


@settings(max_examples=20)
@given(
    st.permutations(range(len(ROWS_HERE.y))), st.lists(st.integers(0, len(ROWS_HERE.y)), max_size=4)
)
def test_sums_add_up_over_any_batches_in_any_order(order, cuts):
    batches = BatchesInOrder(lambda: parts(ROWS_HERE, order, cuts))
    for terms in (
        lambda rows: cell_sums(rows, n_groups=G),
        lambda rows: smooth_sums(rows, ANCHORS, n_groups=G),
    ):
        for found, whole in zip(
            all_arrays(batches.sum(terms)), all_arrays(terms(ROWS_HERE)), strict=True
        ):
            np.testing.assert_array_equal(found, whole)


def test_smooth_sums_are_those_of_a_loop():
    found = smooth_sums(ROWS_HERE, ANCHORS, n_groups=G)
    for (g, label), x in cells(ROWS_HERE):
        rate, moment = np.zeros(4), np.zeros((4, D))
        for row in x - 0.5:
            for j in range(4):
                value = 1 / (1 + np.exp(-(ANCHORS.slope[j] @ row + ANCHORS.offset[g, j])))
                value = np.rint(value * 2**14) / 2**14
                rate[j] += value
                moment[j] += value * row
        np.testing.assert_allclose(found.rate[g, label], rate, atol=1e-11)
        np.testing.assert_allclose(found.moment[g, label], moment, atol=1e-11)


def test_a_large_cell_counts_each_row_once():
    one = Encoded(*(field[:1] for field in ROWS_HERE))
    many = Encoded(*(np.repeat(field, 10_000, axis=0) for field in one))
    found, expected = (smooth_sums(rows, ANCHORS, n_groups=G).rate for rows in (many, one))
    np.testing.assert_allclose(found, 10_000 * expected, rtol=1e-12)


@pytest.mark.parametrize(("differ", "rare"), [(0, False), (1, True), (4, True), (5, False)])
def test_a_feature_is_rare_where_few_rows_differ_however_they_are_cut(differ, rare):
    column = np.full(90, 0.25)
    column[10 : 10 + 7 * differ : 7] = 0.25 + np.arange(1, differ + 1) / 8
    rows = Encoded(column[:, None], np.zeros(90, int), np.ones(90))
    for cuts in ([], [15], [20, 20, 40]):
        batches = BatchesInOrder(lambda cuts=cuts: parts(rows, np.arange(90), cuts))
        few = batches.sum(lambda rows: cell_sums(rows, n_groups=2)).few
        assert few.rare[0, 1, 0] == rare
        assert not rare or few.mode[0, 1, 0] == 0.25
        assert few.more[0, 1, 0] or sorted(few.count[0, 1, 0])[-1] == 90 - differ


def test_rows_in_memory_are_read_in_batches():
    n = ROWS + 5
    rows = Encoded(np.zeros((n, 1)), np.zeros(n, int), np.ones(n))
    assert in_memory(rows).sum(lambda batch: np.array([len(batch.y), 1])).tolist() == [n, 2]
    none = Encoded(*(field[:0] for field in rows))
    assert in_memory(none).sum(lambda batch: cell_sums(batch, n_groups=2)).count.sum() == 0
