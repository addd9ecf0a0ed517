"""Sums by label and by group hide the pairs of few rows, by brute force over all tables."""

import itertools

import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.data.batches import in_memory
from synthfair.data.schema import Categorical
from synthfair.surrogate import make
from synthfair.surrogate.make import Plan, read_sums, surrogate_of
from synthfair.surrogate.questions import moment_terms
from synthfair.surrogate.strata import count_bounds, make_strata

K = 4


def tables(groups, number):
    rng = np.random.default_rng(groups)
    rows = rng.integers(0, {2: 9, 3: 6}[groups], size=(40 * number, 2 * groups))
    few = (rows > 0) & (rows < K)
    return rows[few.any(axis=1) & (few.sum(axis=1) < groups)][:number]


@pytest.mark.parametrize(("groups", "number"), [(2, 60), (3, 6)])
def test_whoever_knows_all_sums_knows_no_small_cell_to_less_than_k_min(groups, number):
    every = np.array(list(itertools.product(range({2: 17, 3: 9}[groups]), repeat=2 * groups)))
    compared = 0
    for rows in tables(groups, number):
        strata = make_strata(rows, K, [range(groups)])
        if not len(strata.drawn):
            assert max(rows[::2].sum(), rows[1::2].sum()) < K
            continue
        told = strata.sets.astype(int)
        assert (told @ rows >= K).all()
        same = every[(every @ told.T == told @ rows).all(axis=1)]
        for cell in np.flatnonzero(strata.few):
            compared += 1
            assert np.ptp(same[:, cell]) >= K - 1  # of a group that has joined another, 0 to K - 1
    assert compared > number / 2


def test_no_sum_over_a_small_cell_is_a_difference_of_sums():
    rng = np.random.default_rng(0)
    for _ in range(300):
        rows = np.rint(rng.lognormal(3.5, 1.2, size=2 * rng.integers(2, 6))).astype(int)
        strata = make_strata(rows, 50, [range(len(rows) // 2)])
        sets = strata.sets.astype(float)
        for cell in np.flatnonzero(strata.few) if len(sets) else ():
            one = np.eye(len(rows))[cell]
            combined = np.linalg.lstsq(sets.T, one, rcond=None)[0] @ sets
            assert np.abs(combined - one).max() > 0.1


def test_without_small_cells_each_is_a_set():
    strata = make_strata(np.array([60, 0, 50, 900]), 50, [range(2)])
    assert strata.drawn.tolist() == np.eye(4, dtype=bool)[[0, 2, 3]].tolist()
    assert strata.cells.tolist() == [0, 2, 3]
    assert not len(strata.tilted)


def test_groups_join_until_each_label_has_enough_rows():
    strata = make_strata(np.array([20, 80, 20, 300, 500, 600]), 50, [range(3)])
    assert strata.drawn.tolist() == [[True, False] * 3, [False, True] * 3]
    assert len(strata.tilted) == 3


def test_small_groups_and_labels_count_as_the_next_larger_ones():
    group = make_strata(np.array([3, 4, 60, 70, 500, 500]), 50, [range(3)])
    assert group.cells.tolist() == [4, 5, 2, 3]
    assert not len(group.tilted)
    assert group.drawn[2:].astype(int).tolist() == [[1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]
    label = make_strata(np.array([20, 700, 10, 300]), 50, [range(2)])
    assert label.cells.tolist() == [1, 3]
    assert label.drawn.all()
    assert not len(make_strata(np.array([30, 30, 0, 0]), 50, [range(2)]).drawn)


def test_groups_of_two_attributes_are_sets_of_their_intersections():
    """Women and men of two races: s = 0, 1 and 2, 3."""
    rows = np.array([20, 90, 70, 80, 300, 300, 100, 100])
    strata = make_strata(rows, 50, [[0, 0, 1, 1], [0, 1, 0, 1]])
    inside = strata.drawn[-2:].any(axis=0)
    assert inside.tolist() == [True] * 4 + [False] * 4  # both are women
    races = [[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0]]
    assert strata.tilted.astype(int).tolist() == races


def test_bounds_hold_the_truth_whatever_was_rounded():
    rng = np.random.default_rng(1)
    for _ in range(200):
        large = np.array([20, 1, 1])[:, None, None] * np.array([5, 1])[:, None]
        cells = rng.poisson(large * rng.uniform(0, 2, size=(3, 2, 4)))
        labels, groups = (5 * np.rint(cells.sum(axis=a) / 5) for a in (0, 1))
        low, high = count_bounds(labels, groups, 5.0)
        assert (low <= cells.sum(axis=-1)).all()
        assert (cells.sum(axis=-1) <= high).all()
    exact = count_bounds(np.array([[30], [70]]), np.array([[60], [40]]), 0.0)
    assert exact.tolist() == [[[0, 30], [0, 10]], [[30, 60], [30, 40]]]  # Frechet's


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
def test_where_a_column_tells_group_or_label_there_are_sums_by_label_alone(copy):
    rows, schema = hidden(copy)
    plan, sums = plan_and_sums(sf.encode(rows, schema), schema)
    strata = plan.strata(sums)
    assert not len(strata.tilted)
    assert len(strata.drawn) == 2
    assert np.unique(surrogate_of(sums, plan).s).tolist() == [0]  # all count as the larger town's


def test_records_have_the_sums_of_labels_and_of_groups():
    rows, schema = hidden()
    rows = sf.encode(rows, schema)
    plan, sums = plan_and_sums(rows, schema)
    found, cell = surrogate_of(sums, plan), 2 * rows.s + (rows.y > 0)
    assert found.few == ((1, 1.0),)
    made, moments = found.rows(schema), moment_terms(plan.columns, rows.x)
    terms = moment_terms(plan.columns, made.x)
    for real, here in ((rows.y, made.y), (rows.s, made.s)):
        for value in np.unique(real):
            mine = here == value
            assert found.weight[mine].sum() == pytest.approx((real == value).sum(), abs=5)
            wanted = moments[real == value].sum(axis=0)
            np.testing.assert_allclose(found.weight[mine] @ terms[mine], wanted, atol=6)
    stands_for = np.bincount(2 * made.s + (made.y > 0), found.weight, minlength=4)
    assert stands_for[3] < 50
    assert (stands_for[:3] > 49).all()
    assert np.bincount(cell).tolist()[3] == 20
