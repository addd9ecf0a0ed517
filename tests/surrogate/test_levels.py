"""Public levels of columns: each value has one, and records of levels are rows of the schema."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from synthfair.data.bases import Steps
from synthfair.data.encode import Encoded, encode, encode_records, records_table
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.surrogate.levels import Columns

ROLES = {"s": Categorical(categories=("u", "v")), "y": Categorical(categories=(0, 1))}
NUMBERS = {
    "whole": (0, 20),
    "age": (0, 47),
    "degrees": (-40, 60),
    "one": (0, 1),
    "halves": (-1.5, 2.5),
    "many whole": (0, 300),
    "money": (0, 99_999),
    "debt": (-9000, 250_000.5),
    "tiny": (1e-5, 3e-5),
}
STEPS = Steps(edges=(1.0, 1500.0, 7300.0, 10_000.0))
FEATURES = {n: Numeric(lower=low, upper=high) for n, (low, high) in NUMBERS.items()} | {
    "money": Numeric(lower=0, upper=99_999, basis=STEPS),
    "unknown": Numeric(lower=0, upper=40, missing="category"),
    "binary": Categorical(categories=("a", "b")),
    "answer": Categorical(categories=(0, 1), missing="category"),
    "many": Categorical(categories=tuple(f"c{i}" for i in range(30)), missing="category"),
}
ADDITIVE = Schema(name="any", label="y", positive=1, sensitive="s", columns=FEATURES | ROLES)
SCHEMA = ADDITIVE.plain
both = pytest.mark.parametrize("columns", [Columns.of(ADDITIVE, private=p) for p in (False, True)])


def rows_of(**values):
    """Encoded rows with these values, and the first value allowed of other columns."""
    n = len(next(iter(values.values())))
    first = {
        name: [column.lower if isinstance(column, Numeric) else column.categories[0]] * n
        for name, column in SCHEMA.columns.items()
    }
    return encode(pd.DataFrame(first | values), SCHEMA)


def random_records(columns, n=2000, seed=0):
    """Records with every level of every column, and the levels."""
    rng = np.random.default_rng(seed)
    levels = np.stack([rng.permutation(np.arange(n) % column.size) for column in columns], axis=1)
    share = rng.uniform(0.01, 0.99, levels.shape)
    made = [c.values(*of) for c, *of in zip(columns, levels.T, share.T, strict=True)]
    return np.stack(made, axis=1), levels


@both
@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_has_one_level_that_holds_it(columns, name):
    at, (lower, upper) = list(FEATURES).index(name), NUMBERS[name]
    edges = [*columns[at].low, *(columns[at].low + columns[at].width)]
    rng = np.random.default_rng(0)
    values = np.clip([*edges, *rng.uniform(lower, upper, 400), *rng.normal(size=99)], lower, upper)
    values = np.append(values, np.clip(np.arange(np.ceil(lower), 90), lower, upper))
    found = columns.levels(rows_of(**{name: values}))[:, at]
    low, width = columns[at].low[found], columns[at].width[found]
    slack = 1e-9 * (upper - lower) + 1e-6 * (upper - lower > 1)
    assert (low - slack <= values).all()
    assert (values <= low + width + slack).all()
    assert not width[np.isin(values, (lower, upper))].any()


@both
def test_levels_cover_the_range_without_a_gap_or_an_overlap(columns):
    for column, own in zip(columns, FEATURES.values(), strict=True):
        if not column.categories:
            ends = column.low + column.width
            assert column.low[0] == own.lower
            assert ends[-1] == pytest.approx(own.upper, rel=1e-12)
            np.testing.assert_allclose(ends[:-1], column.low[1:], rtol=1e-9, atol=1e-12)
            alone = column.width == 0
            assert alone[[0, -1]].all()  # atoms at both bounds
            assert not (alone[:-1] & alone[1:]).any()
            assert len(np.unique(column.low[alone])) == alone.sum()


@both
def test_a_whole_number_of_a_short_range_is_a_level_of_its_own(columns):
    for name in ("whole", "age", "degrees", "one"):
        at, (lower, upper) = list(FEATURES).index(name), NUMBERS[name]
        values = np.arange(lower, upper + 1)
        found = columns.levels(rows_of(**{name: values}))[:, at]
        np.testing.assert_array_equal(columns[at].low[found], values)
        assert not columns[at].width[found].any()


def test_no_level_has_a_step_within():
    """Then records keep what a model of the steps sees; with an epsilon, few bins have less noise."""
    columns, at = Columns.of(ADDITIVE, private=False), list(FEATURES).index("money")
    assert set(STEPS.edges) < {*columns[at].low}
    below = np.nextafter(STEPS.edges, 0)
    found = columns.levels(rows_of(money=np.append(STEPS.edges, below)))[:, at]
    np.testing.assert_array_equal(columns[at].low[found[:4]], STEPS.edges)
    np.testing.assert_array_equal(found[:4] - 1, found[4:])


@both
def test_a_record_has_the_levels_that_it_was_drawn_from(columns):
    records, levels = random_records(columns)
    rows = Encoded(encode_records(records, SCHEMA), *np.zeros((2, len(records)), int))
    np.testing.assert_array_equal(columns.levels(rows), levels)
    for at, column in enumerate(FEATURES.values()):
        if isinstance(column, Numeric):
            here = records[:, at][~np.isnan(records[:, at])]
            assert column.lower <= here.min() <= here.max() <= column.upper


@both
def test_records_are_rows_of_the_schema_and_encode_as_these(columns):
    records, _ = random_records(columns)
    rng = np.random.default_rng(1)
    s, y = rng.integers(0, 2, len(records)), rng.choice([-1.0, 1.0], len(records))
    table = records_table(records, s, y, SCHEMA)
    found = encode(table, SCHEMA)
    np.testing.assert_array_equal(found.x, encode_records(records, SCHEMA))
    np.testing.assert_array_equal(found.s, s)
    np.testing.assert_array_equal(found.y, y)
    assert table.isna().any().sum() == 3
    assert {*table["many"].dropna()} == {f"c{i}" for i in range(30)}


@given(x=arrays(float, (3, len(SCHEMA.encoded_names)), elements=st.floats(width=64)), private=...)
def test_whatever_a_row_holds_it_is_in_one_level_of_each_column(x, private: bool):
    columns = Columns.of(SCHEMA, private=private)
    with np.errstate(all="ignore"):
        found = columns.levels(Encoded(x, np.zeros(3, int), np.ones(3)))
    assert found.shape == (3, len(columns))
    assert (found >= 0).all()
    assert (found < [column.size for column in columns]).all()
