"""Sums by label and by group hide the pairs of few rows, by brute force over all tables."""

import itertools

import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical
from synthfair.surrogate import make, strata
from synthfair.surrogate.make import Plan, read_sums, surrogate_of
from synthfair.surrogate.questions import moment_terms
from synthfair.surrogate.strata import frechet_bounds, make_strata

K = 4


def some_tables(groups, number):
    """Numbers of rows of which some are few, but not all of a group or label."""
    rng = np.random.default_rng(groups)
    rows = rng.integers(0, {2: 12, 3: 7}[groups], size=(100 * number, 2 * groups))
    return [each for each in rows if len(few_cells(each))][:number]


def few_cells(rows):
    """Cells with few rows of groups that have enough."""
    size = np.repeat(rows.reshape(-1, 2).sum(axis=1), 2)
    return np.flatnonzero((rows > 0) & (rows < K) & (size >= K))


@pytest.mark.parametrize("large", [6, 30])
@pytest.mark.parametrize(("groups", "number"), [(2, 40), (3, 6)])
def test_whoever_knows_all_sums_and_the_rule_knows_no_small_cell(
    groups, number, large, monkeypatch
):
    """Of all tables with the same sums whose sets are the same, by brute force."""
    monkeypatch.setattr(strata, "LARGE", large)
    every = np.array(list(itertools.product(range({2: 19, 3: 9}[groups]), repeat=2 * groups)))
    blocks = 0
    for rows in some_tables(groups, number):
        found = make_strata(rows, K)
        told = found.sets.astype(int)
        assert (told @ rows >= K).all()
        alike = every[(every @ told.T == told @ rows).all(axis=1)]
        alike = alike[(alike[:, ~found.sets.any(axis=0)] < 2 * K).all(axis=1)]
        same = [one for one in alike if same_sets(make_strata(one, K), found)]
        blocks += len(found.tilted) > 0
        for cell in few_cells(rows):
            assert len({one[cell] for one in same}) >= K - 1
    assert blocks > number / 8


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
    assert strata.group.tolist() == [2, 2, 0, 1, 2]
    assert not len(make_strata(rows, 50, 4).tilted)


def test_groups_and_labels_with_too_few_rows_are_left_out():
    group = make_strata(np.array([3, 4, 60, 70, 500, 500]), 50)
    assert group.cells.tolist() == [2, 3, 4, 5]
    assert group.left_out.tolist() == [True, True] + [False] * 4
    label = make_strata(np.array([20, 700, 10, 300]), 50)
    assert label.cells.tolist() == [1, 3]
    assert label.left_out.tolist() == [True, False] * 2
    assert not len(make_strata(np.array([30, 30, 0, 0]), 50).cells)


def test_of_a_large_block_cells_with_few_rows_are_left_out():
    rows = np.array([20, 100, 400, 1000])
    assert make_strata(rows, 50).left_out.tolist() == [True, False, False, False]
    assert len(make_strata(rows - [0, 0, 0, 100], 50).tilted)
    boundary = make_strata(rows - [0, 0, 0, 10], 50)  # 1,510 rows, and 1,490 without the 20
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


def plan_and_sums(rows, schema):
    plan = Plan(sf.SurrogateConfig(), schema)
    return plan, read_sums(in_memory(rows), plan.config, schema)


@pytest.fixture(autouse=True, scope="module")
def _few_problems():
    """A tenth, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make, "PROBLEMS", 6)
        yield


@pytest.mark.parametrize("copy", ["town", "paid"])
def test_where_a_column_tells_group_or_label_the_pair_is_left_out(copy):
    rows, schema = hidden(copy)
    plan, sums = plan_and_sums(sf.encode(rows, schema), schema)
    found = surrogate_of(sums, plan)
    assert not len(plan.strata(sums).tilted)
    assert found.left_out == ((1, 1.0),)
    assert not ((found.s == 1) & (found.y == 1)).any()


def test_records_have_the_sums_of_labels_and_of_groups():
    rows, schema = hidden()
    rows = sf.encode(rows, schema)
    plan, sums = plan_and_sums(rows, schema)
    found, cell = surrogate_of(sums, plan), 2 * rows.s + (rows.y > 0)
    assert found.hidden == ((1, 1.0),)
    assert found.left_out == ()
    made, moments = found.rows(schema), moment_terms(plan.columns, rows.x)
    terms = moment_terms(plan.columns, made.x)
    for real, here in ((rows.y, made.y), (rows.s, made.s)):
        for value in np.unique(real):
            mine = here == value
            assert found.weight[mine].sum() == pytest.approx((real == value).sum(), abs=5)
            wanted = moments[real == value].sum(axis=0)
            np.testing.assert_allclose(found.weight[mine] @ terms[mine], wanted, atol=6)
    assert (cell == 3).sum() == 20
