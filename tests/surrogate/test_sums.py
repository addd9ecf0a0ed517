"""The sums over rows against loops, in any order and batches; smooth rates against a loop."""

import numpy as np
import pytest
from builders import SCHEMA, make_table, part

from synthfair.data.batches import in_memory
from synthfair.data.encode import encode
from synthfair.privacy.noise import system_entropy
from synthfair.release.settings import SurrogateConfig
from synthfair.surrogate import sums
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.sums import SUM_GRID, on_grid
from synthfair.surrogate.tables import few_levels, make_margins, make_strata, split_tables

PAIRS = [(0, 1), (0, 2), (1, 2), (2, 0)]
ROWS, COLUMNS = encode(make_table(400), SCHEMA), Columns.of(SCHEMA, private=True)
CELL, LEVELS = 2 * ROWS.s + (ROWS.y > 0), COLUMNS.levels(ROWS)
THETAS = np.random.default_rng(0).normal(size=(3, 9))
FIRST = sums.histograms(COLUMNS, 2)
STRATA = make_strata(np.bincount(CELL), 5)
MARGINS = make_margins(FIRST.of(ROWS, on_grid).reshape(4, -1), STRATA, COLUMNS, step=5, sd=1)
FEW = few_levels(MARGINS, COLUMNS)


def by_cell(values):
    return np.stack([values[cell == CELL].sum(axis=0) for cell in range(4)])


def looped_moments():
    z = ROWS.x[:, :2] - 0.5
    z[:, 1] *= 1 - ROWS.x[:, 2]  # where age is not missing
    return by_cell(np.column_stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2, z])) / SUM_GRID


def looped_rates():
    rates = []
    for x, s in zip(ROWS.x, ROWS.s, strict=True):
        scores = THETAS @ [*x, float(s == 1), 1.0]
        rates.append([1 / (1 + np.exp(-q * z)) - 0.5 for q in (1, 4) for z in scores])
    return by_cell(np.array(rates)) / SUM_GRID


def looped_histograms():
    levels = [np.eye(c.size)[own] for c, own in zip(COLUMNS, LEVELS.T, strict=True)]
    return by_cell(np.hstack(levels))


def looped_tables(margins):
    tables = [np.zeros((4, *margins.sizes[list(pair)])) for pair in PAIRS]
    for cell, levels in zip(CELL, LEVELS, strict=True):
        coarse = [of[level] for of, level in zip(margins.coarse, levels, strict=True)]
        for (i, j), table in zip(PAIRS, tables, strict=True):
            table[cell, coarse[i], coarse[j]] += 1
    return np.concatenate([table.ravel() for table in tables])


SUMS = {
    "moments": (sums.column_moments(COLUMNS, 2), looped_moments(), 200),  # half a step of each row
    "rates": (sums.anchor_rates(THETAS, STRATA, SCHEMA), looped_rates(), 200),
    "histograms": (FIRST, looped_histograms(), 0),
    "pairs": (sums.two_way_tables(COLUMNS, MARGINS, PAIRS), looped_tables(MARGINS), 0),
    "tables": (sums.two_way_tables(COLUMNS, FEW, PAIRS, "tables"), looped_tables(FEW), 0),
}


@pytest.mark.parametrize(("statistic", "expected", "rounding"), SUMS.values(), ids=SUMS)
def test_sum_is_that_of_a_loop_and_adds_up_over_batches(statistic, expected, rounding):
    whole = statistic.of(ROWS, on_grid)
    assert len(whole) == statistic.length
    np.testing.assert_allclose(whole.astype(float), expected.ravel(), rtol=0, atol=rounding)
    cut = np.split(np.random.default_rng(1).permutation(400), [1, 100, 100])
    parts = [statistic.of(part(ROWS, i), on_grid) for i in cut]
    np.testing.assert_array_equal(sum(parts), whole)


def test_moments_of_more_numbers_than_are_multiplied_are_squares(monkeypatch):
    assert sums.squares_and_means(3).tolist() == [0, 3, 5, 6, 7, 8]
    monkeypatch.setattr(sums, "MAX_FACTOR_COLUMNS", 1)
    found = sums.column_moments(COLUMNS, 2).of(ROWS, on_grid).astype(float)
    np.testing.assert_allclose(found, looped_moments()[:, [0, 2, 3, 4]].ravel(), rtol=0, atol=200)
    assert sums.squares_and_means(2).tolist() == [0, 1, 2, 3]


def test_tree_has_the_tables_of_its_edges_whichever_column_is_first():
    answers = sums.TableSums(in_memory(ROWS), sums.SurrogateSpec(SurrogateConfig(), SCHEMA))
    answers._choose = lambda scores: len(scores) - 1
    edges, found = answers.tree(COLUMNS, MARGINS)
    assert edges == [(0, 2), (2, 1)]
    expected = sums.two_way_tables(COLUMNS, MARGINS, edges).of(ROWS, on_grid)
    np.testing.assert_equal(found, split_tables(expected, MARGINS, edges))
    assert sums.TableSums.__init__.__defaults__ == (system_entropy,)
