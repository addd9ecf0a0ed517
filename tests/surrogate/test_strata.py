"""Sums by label and by group hide the pairs of few rows, by brute force over all tables."""

import itertools

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical
from synthfair.surrogate.records import read_sums, surrogate_of
from synthfair.surrogate.sums import (
    SurrogateSpec,
    TableSums,
    moment_terms,
    squares_and_means,
)
from synthfair.surrogate.tables import frechet_bounds, make_strata

K = 4


TABLES = {
    "pairs": [[3, 9, 8, 2], [1, 9, 8, 9], [2, 3, 3, 8], [3, 2, 9, 3], [1, 3, 9, 9], [2, 8, 1, 9]],
    "equal groups": [[1, 3, 4, 0, 4, 0], [1, 5, 4, 2, 3, 3]],
    "larger groups with few": [[3, 7, 3, 5, 4, 4], [1, 7, 5, 3, 4, 4]],
    "who joins": [[3, 7, 4, 4, 5, 5], [1, 6, 4, 4, 8, 2]],
    "labels": [[3, 5, 1, 4, 2, 4], [1, 1, 6, 2, 5, 5]],
}
"""Numbers of rows of which some are few."""


MANY = {"larger groups with few", "who joins"}
"""Those with so many tables of the same sums that they take seconds."""


@pytest.mark.parametrize(
    ("kind", "large"),
    [
        pytest.param(kind, large, marks=[pytest.mark.slow] * (kind in MANY and large != 5))
        for kind in TABLES
        for large in (5, 7, 60)
    ],
)
def test_whoever_knows_all_sums_and_the_rule_knows_no_small_cell(kind, large, monkeypatch):
    """Of all tables with the same sums whose sets are the same, by brute force."""
    monkeypatch.setattr("synthfair.surrogate.tables.MIN_LARGE_RATIO", large)
    for rows in np.array(TABLES[kind]):
        found, few = make_strata(rows, K), np.flatnonzero((rows > 0) & (rows < K))
        sets = found.sets.astype(int)
        assert (sets @ rows >= K).all()
        same = [one for one in tables_with(sets, rows) if same_sets(make_strata(one, K), found)]
        for cell in few:
            values = {int(one[cell]) for one in same}
            hidden = found.sets.any(axis=0)[cell]
            assert len(values) >= K - 1 if hidden else values >= {*range(1, K)}


def tables_with(sets, rows):
    """All tables with the same sums over sets; of a cell without sums up to K + 1."""
    told = sets.any(axis=0)
    tops = np.where(
        told, [max((s @ rows for s in sets if s[c]), default=0) for c in range(len(rows))], K + 1
    )
    every = np.array(list(itertools.product(*(range(int(top) + 1) for top in tops))))
    return every[(every @ sets.T == sets @ rows).all(axis=1)]


def same_sets(one, other):
    return np.array_equal(one.sets, other.sets)


def test_no_sum_over_a_small_cell_is_a_difference_of_sums():
    rng = np.random.default_rng(0)
    blocks = 0
    for _ in range(300):
        rows = np.rint(rng.lognormal(3.5, 1.2, size=2 * rng.integers(2, 6))).astype(int)
        strata = make_strata(rows, 50)
        sets, blocks = strata.sets.astype(float), blocks + bool(len(strata.tilted))
        for cell in np.flatnonzero((rows > 0) & (rows < 50)) if len(sets) else ():
            one = np.eye(len(rows))[cell]
            combined = np.linalg.lstsq(sets.T, one, rcond=None)[0] @ sets
            assert np.abs(combined - one).max() > 0.1
    assert blocks > 100


def test_without_small_cells_each_is_a_set():
    strata = make_strata(np.array([60, 0, 50, 900]), 50)
    assert strata.drawn.tolist() == np.eye(4, dtype=bool)[[0, 2, 3]].tolist()
    assert strata.cells.tolist() == [0, 2, 3]
    assert not len(strata.tilted)


def test_groups_join_until_each_label_has_enough_rows():
    rows = np.array([20, 80, 20, 300, 400, 600])
    strata = make_strata(rows, 50)
    assert strata.drawn.tolist() == [[True, False] * 3, [False, True] * 3]
    assert len(strata.tilted) == 3
    assert strata.hidden.tolist() == [True, False] * 2 + [False] * 2
    assert strata.group.tolist() == [2, 2]
    assert not len(make_strata(rows, 50, 4).tilted)


def test_groups_and_labels_with_too_few_rows_are_left_out():
    group = make_strata(np.array([3, 4, 60, 70, 500, 500]), 50)
    assert group.cells.tolist() == [2, 3, 4, 5]
    assert group.left_out.tolist() == [True, True] + [False] * 4
    label = make_strata(np.array([20, 700, 10, 300]), 50)
    assert label.cells.tolist() == [1, 3]
    assert label.left_out.tolist() == [True, False] * 2
    assert not len(make_strata(np.array([30, 30, 0, 0]), 50).cells)


def test_all_groups_up_to_the_largest_with_few_rows_are_in_the_block():
    assert len(make_strata(np.array([49, 500, 49, 300, 100, 100]), 50).tilted) == 3


def test_of_a_large_table_cells_with_few_rows_are_left_out():
    rows = np.array([20, 100, 400, 2500])
    assert make_strata(rows, 50).left_out.tolist() == [True, False, False, False]
    assert len(make_strata(rows - [0, 0, 0, 100], 50).tilted)
    boundary = make_strata(rows - [0, 0, 0, 10], 50)  # 3,010 rows, and 2,990 without the 20
    assert boundary.cells.tolist() == [2, 3]


def test_bounds_of_numbers_of_rows():
    rng = np.random.default_rng(1)
    for _ in range(50):
        cells = rng.poisson(rng.uniform(0, 9, size=(3, 2, 4)))
        least, most = frechet_bounds(cells.sum(axis=0), cells.sum(axis=1))
        assert (least <= cells.sum(axis=-1)).all()
        assert (cells.sum(axis=-1) <= most).all()
    found = frechet_bounds(np.array([[30], [70]]), np.array([[60], [40]]))
    assert found.tolist() == [[[0, 30], [0, 10]], [[30, 60], [30, 40]]]


def hidden(copy="home"):
    """Rows of two towns, of which one has twenty that are paid; a column says no more, or all."""
    rows = make_table(900)
    few = rows.index[(rows.town == "b") & (rows.paid == "yes")][20:]
    rows = rows.drop(index=few).reset_index(drop=True).assign(twin="u")
    schema = make_schema()
    columns = {"twin": Categorical(categories=("u", "v")), **schema.columns}
    return rows.assign(twin=np.where(rows[copy] == rows[copy].iloc[0], "u", "v")), (
        schema.model_copy(update={"columns": columns})
    )


def spec_and_sums(rows, schema):
    spec = SurrogateSpec(sf.SurrogateConfig(), schema)
    return spec, read_sums(TableSums(in_memory(rows), spec), spec)


@pytest.fixture(autouse=True, scope="module")
def _few_problems():
    """A tenth, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthfair.surrogate.records.PROBLEMS", 6)
        yield


@pytest.mark.parametrize("copy", ["town", "paid"])
def test_where_a_column_tells_group_or_label_the_pair_is_left_out(copy):
    rows, schema = hidden(copy)
    spec, sums = spec_and_sums(sf.encode(rows, schema), schema)
    found = surrogate_of(sums, spec)
    assert not len(sums.margins.strata.tilted)
    assert found.left_out == ((1, 1.0),)
    assert not ((found.s == 1) & (found.y == 1)).any()


def test_records_have_the_sums_of_labels_and_of_groups():
    rows, schema = hidden()
    rows = sf.encode(rows, schema)
    spec, sums = spec_and_sums(rows, schema)
    found = surrogate_of(sums, spec)
    assert found.hidden == ((1, 1.0),)
    assert found.left_out == ()
    made, moments = found.rows(schema), moment_terms(spec.columns, rows.x)
    terms, every = moment_terms(spec.columns, made.x), np.arange(moments.shape[1])
    alone = squares_and_means(len(spec.columns.numbers))
    for real, here, some in ((rows.y, made.y, every), (rows.s, made.s, alone)):
        for value in np.unique(real):
            mine = here == value
            assert found.weight[mine].sum() == pytest.approx((real == value).sum(), abs=5)
            wanted = moments[real == value].sum(axis=0)[some]
            np.testing.assert_allclose(found.weight[mine] @ terms[mine][:, some], wanted, atol=6)
