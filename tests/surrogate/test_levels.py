"""Public levels of columns: each value has one, and records of levels are rows of the schema."""

import numpy as np
import pytest
from builders import invented_rows, schema_with

from synthfair.data.bases import Steps
from synthfair.data.encode import encode, encode_records, records_table
from synthfair.data.schema import Categorical, Numeric
from synthfair.surrogate.levels import Columns

SHORT = {"whole": (0, 20), "age": (0, 47), "degrees": (-40, 60), "one": (0, 1)}
NUMBERS = SHORT | {"halves": (-1.5, 2.5), "many whole": (0, 300), "money": (0, 99_999)}
NUMBERS |= {"debt": (-9000, 250_000.5), "tiny": (1e-5, 3e-5)}
STEPS = Steps(edges=(1.0, 1500.0, 7300.0, 10_000.0))
FEATURES = {n: Numeric(lower=low, upper=high) for n, (low, high) in NUMBERS.items()} | {
    "money": Numeric(lower=0, upper=99_999, basis=STEPS),
    "unknown": Numeric(lower=0, upper=40, missing="category"),
    "binary": Categorical(categories=("a", "b")),
    "answer": Categorical(categories=(0, 1), missing="category"),
    "many": Categorical(categories=tuple(f"c{i}" for i in range(30)), missing="category"),
}
ADDITIVE = schema_with(**FEATURES)
SCHEMA = ADDITIVE.plain


@pytest.fixture(params=[False, True], ids=["exact", "private"])
def columns(request):
    return Columns.of(ADDITIVE, private=request.param)


@pytest.mark.parametrize(
    ("name", "private", "bins", "whole"),
    [("whole", False, 120, 21), ("age", False, 94, 48), ("one", True, 32, 2), ("age", True, 47, 48),
     ("many whole", False, 128, 2), ("halves", True, 32, 2)],
)  # fmt: skip
def test_levels_of_a_number_are_as_many_and_as_wide_as_documented(name, private, bins, whole):
    """Bins of equal width, a level of no width for each whole number of a short range, or bound."""
    lower, upper = NUMBERS[name]
    column = Columns.of(SCHEMA, private=private)[list(FEATURES).index(name)]
    width = np.sort(column.width)
    np.testing.assert_allclose(width, [0.0] * whole + [(upper - lower) / bins] * bins)
    assert (column.low[0], column.low[-1]) == (lower, upper)
    assert (np.diff(column.low) >= 0).all()


@pytest.mark.parametrize(("name", "private"), [("debt", False), ("debt", True), ("money", True)])
def test_levels_of_a_skewed_number_grow_with_its_size(name, private):
    """Where they have noise, steps make no more of them."""
    column = Columns.of(ADDITIVE, private=private)[list(FEATURES).index(name)]
    edges = np.sinh(np.linspace(*np.arcsinh(NUMBERS[name]), 33 if private else 129))
    np.testing.assert_allclose(np.unique(column.low), edges)


def levels_of(columns, name, values):
    """The column, and the levels of rows that have these values in it."""
    table = invented_rows(SCHEMA, len(values)).assign(**{name: values})
    place = list(FEATURES).index(name)
    return columns[place], columns.levels(encode(table, SCHEMA))[:, place]


@pytest.mark.parametrize("name", NUMBERS)
def test_level_of_a_number_holds_it(columns, name):
    """A bound has a level of its own, and so has a whole number of a short range."""
    column, (lower, upper) = columns[list(FEATURES).index(name)], NUMBERS[name]
    values = [*column.low, *(column.low + column.width), *np.linspace(lower, upper, 397)]
    values = np.clip([*values, *range(-50, 90)], lower, upper)
    _, level = levels_of(columns, name, values)
    low, width = column.low[level], column.width[level]
    rounding = 1e-9 * (upper - lower) + 1e-6 * (upper - lower > 1)
    assert ((low - rounding <= values) & (values <= low + width + rounding)).all()
    single = values % 1 == 0 if name in SHORT else np.isin(values, (lower, upper))
    assert not width[single].any()


def test_levels_begin_at_each_step():
    """Then records keep what a model of the steps sees."""
    values = [*STEPS.edges, *np.nextafter(STEPS.edges, 0)]
    column, level = levels_of(Columns.of(ADDITIVE, private=False), "money", values)
    np.testing.assert_array_equal(column.low[level[:4]], STEPS.edges)
    np.testing.assert_array_equal(level[:4] - 1, level[4:])


def test_records_have_their_levels_and_are_rows_of_the_schema(columns):
    rng = np.random.default_rng(0)
    levels = np.stack([rng.permutation(np.arange(2000) % c.size) for c in columns], axis=1)
    share = rng.uniform(0.01, 0.99, levels.shape)
    values = [c.values(*of) for c, *of in zip(columns, levels.T, share.T, strict=True)]
    records, s, y = np.stack(values, axis=1), np.arange(2000) % 2, rng.choice([-1.0, 1.0], 2000)
    table = records_table(records, s, y, SCHEMA)
    rows = encode(table, SCHEMA)  # refuses what is out of range
    np.testing.assert_array_equal(columns.levels(rows), levels)
    np.testing.assert_array_equal(rows.x, encode_records(records, SCHEMA))
    np.testing.assert_array_equal([rows.s, rows.y], [s, y])
