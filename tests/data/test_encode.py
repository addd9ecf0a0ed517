"""Rows as numbers: by hand, as properties, and what is refused, left out or taken for missing."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders import SCHEMA, TABLE, joined, make_table, with_column

import synthfair as sf
from synthfair.data.encode import Clipping, encode, encode_inputs, encode_own, records_table

ROWS = encode(TABLE, SCHEMA)


def block_of(table, schema, name):
    """The encoded columns of one feature."""
    names = schema.encoded_names
    at = [names.index(each) for each in schema.encoded_blocks[name]]
    return encode(table, schema).x[:, at]


def test_rows_are_each_its_own_in_any_order_of_rows_and_columns():
    turned = encode(TABLE.iloc[::-1, ::-1], SCHEMA)
    np.testing.assert_equal([each[::-1] for each in turned], [*ROWS])


def test_rows_by_hand():
    rows = make_table(2).assign(income=["250", "25"], age=[None, "54"], home=["rent", None])
    x, s, y = encode(rows.assign(town=["b", "a"], paid=["yes", "no"]), SCHEMA)
    wanted = [[1.0, 0, 1, 0, 1, 0, 0], [0.25, 0.5, 0, 0, 0, 0, 1]]  # 250 is clipped to 100
    np.testing.assert_array_equal(x, wanted)
    assert [*s, *y] == [1, 0, 1.0, -1.0]


def with_value(name, value):
    table = TABLE.astype(object)
    table.loc[3, name] = value
    return table


@pytest.mark.parametrize(("table", "match"), [
    (TABLE.drop(columns="age"), "'age' is missing"), (TABLE.assign(shoe=1), "'shoe' is not in"),
    (TABLE.head(0), "no rows"), (TABLE.assign(paid=None), "no row has a label"),
    (with_value("home", "boat"), "'home', row 4: 'boat'.*own, rent, other"),
    (with_value("town", None), "'town', row 4: a missing value"),
    (with_value("age", 17), "'age', row 4: '?17.*from 18 to 90"),
    (with_value("age", 90.5), "'age', row 4: '?90.5"), (with_value("age", "old"), "'old'"),
    (TABLE.assign(town="z"), "row 1: 'z' .*399 more rows"), (TABLE.assign(**{" age": 1}), "'age' appears"),
])  # fmt: skip
def test_table_that_does_not_fit_is_refused_with_column_row_and_value(table, match):
    with pytest.raises(sf.InputError, match=match):
        encode(table, SCHEMA)


@pytest.mark.parametrize(
    "text", [" 12", "12 ", "+12", "1.2e1", "12.", "012", "12,0", "0,125", "1,2500"]
)
def test_number_may_be_written_in_many_ways(text):
    table = make_table(2).assign(income=["1", text])
    plain = table.assign(income=[1, float(text.replace(",", "."))])
    np.testing.assert_equal(encode(table, SCHEMA), encode(plain, SCHEMA))


@pytest.mark.parametrize("text", ["inf", "nan", "0x12", "1,234", "1_2", "True", "--1", np.inf])
def test_number_that_is_not_finite_is_refused(text):
    with pytest.raises(sf.InputError, match="'income', row 2"):
        encode(make_table(2).assign(income=["1", text]), SCHEMA)


def test_numbers_are_categories_by_value():
    codes = with_column(SCHEMA, "home", categories=("01003", "20095"), missing="refuse")
    digits = make_table(2).assign(home=["01003", "20095"])
    for kind in (int, float, str):
        assert block_of(digits.astype({"home": kind}), codes, "home").tolist() == [[0], [1]]


@pytest.mark.parametrize("categories", [("False", "True"), ("TRUE", "FALSE"), (0, 1)])
@pytest.mark.parametrize("spelled", [("True", "False"), ("TRUE", "FALSE"), (1, 0), (True, False)])
def test_truths_are_one_however_they_are_spelled(categories, spelled):
    schema = with_column(SCHEMA, "home", categories=categories, missing="refuse")
    is_true = np.arange(400) % 3 == 0
    (second,) = block_of(TABLE.assign(home=np.where(is_true, *spelled)), schema, "home").T
    np.testing.assert_array_equal(second == (str(categories[1]).lower() in ("true", "1")), is_true)


def test_label_of_several_positive_values():
    schema = with_column(SCHEMA, "paid", categories=("<30", ">30", "NO"))
    schema = schema.model_copy(update={"positive": ("<30", ">30")})
    assert encode(make_table(3).assign(paid=["NO", ">30", "<30"]), schema).y.tolist() == [-1, 1, 1]


def test_inputs_need_no_labels_and_no_groups():
    table = TABLE.drop(columns="paid").assign(id=1)
    np.testing.assert_equal(encode_inputs(table, SCHEMA), (ROWS.x, ROWS.s))
    blind = encode_inputs(table.drop(columns="town"), SCHEMA, groups=False)
    np.testing.assert_equal(blind, (ROWS.x, 0 * ROWS.s))
    with pytest.raises(sf.InputError, match="'id'"):
        encode_inputs(table, SCHEMA, extra_columns=False)


# Values that are not listed


def test_unlisted_values_and_missing_ones_stand_for_one_that_is_listed():
    schema = with_column(SCHEMA, "home", unlisted="other", missing="unlisted")
    schema = with_column(schema, "town", unlisted="b")
    table = make_table(5).assign(home=["boat", None, "rent", "own", "x"], town=list("azbyb"))
    wanted = [[0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(block_of(table, schema, "home"), wanted)
    np.testing.assert_array_equal(encode(table, schema).s, [0, 1, 1, 1, 1])


@pytest.mark.parametrize(("shares", "expected"), [
    (None, [1 / 3] * 3), ((0.5, 0.25, 0.25), [0.5, 0.25, 0.25]),
])  # fmt: skip
def test_unknown_category_counts_as_each_by_its_share(shares, expected):
    """And never as the first, which of two categories has no indicator."""
    table = make_table(2).assign(home=["castle", "own"])
    schema = with_column(SCHEMA, "home", unknown="ignore", shares=shares, missing="refuse")
    assert block_of(table, schema, "home").tolist() == [pytest.approx(expected), [1, 0, 0]]
    two = with_column(schema, "home", categories=("ill", "own"), shares=shares and (0.2, 0.8))
    assert block_of(table, two, "home").tolist() == [[0.8 if shares else 0.5], [1]]
    with pytest.warns(UserWarning, match="t: column 'home': 1 of 2 values"):
        encode_own(table, schema, source="t")
    encode(table, schema, clipping=(seen := Clipping()))
    encode(table, schema, clipping=seen)
    assert (seen.rows, seen.unknown) == (4, {"home": 2})


def test_unknown_category_counts_as_missing_where_that_has_an_indicator():
    schema = with_column(SCHEMA, "home", unknown="ignore")
    table = make_table(4).assign(home=["castle", "own", None, "rent"])
    wanted = [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    np.testing.assert_array_equal(block_of(table, schema, "home"), wanted)
    # A surrogate's records have no such value: it would count as another.
    with pytest.raises(sf.InputError, match="'castle'"):
        sf.distill_table(table, schema, sf.SurrogateConfig())


# Rows without a label, and values that are clipped


def test_rows_without_a_label_are_left_out_and_counted():
    seen, table = Clipping(), TABLE.astype(object)
    table.loc[[3, 200], "paid"] = [None, " "]
    table.loc[7] = ""  # an empty line of a spreadsheet
    rest = encode(TABLE.drop(index=[3, 7, 200]), SCHEMA)
    parts = [encode(table[cut], SCHEMA, clipping=seen) for cut in (slice(9), slice(9, None))]
    np.testing.assert_equal(joined(*parts), rest)
    assert (seen.rows, seen.unlabelled) == (397, 3)
    with pytest.warns(UserWarning, match="3 rows have no label"):
        encode_own(table, SCHEMA, source="t")
    table.loc[9, "age"] = 300
    with pytest.raises(sf.InputError, match="'age', row 5: '300'"):
        encode(table[5:], SCHEMA)


@pytest.mark.parametrize(("n", "is_said"), [(20, False), (21, True)])
def test_clipped_values_are_counted_over_parts_and_said_above_a_twentieth(n, is_said):
    seen, schema = Clipping(), with_column(SCHEMA, "age", out_of_range="clip")
    table = TABLE.assign(income=np.where(np.arange(400) < n, 101.0, 0.0), age=[17, None] * 200)
    for part in (table[:10], table[10:]):
        encode(part, schema, clipping=seen)
    expected = {"age": (18.0, 90.0, 0.5, 0.0), "income": (0.0, 100.0, 0.0, n / 400)}
    assert [*seen.clipped().items()] == [*expected.items()]  # the most clipped first
    assert any("'income'" in sentence for sentence in seen.warnings()) == is_said


# Frames are read as files of them


def not_yet_read(table):
    """A frame as polars has it."""
    return SimpleNamespace(collect=lambda: pa.Table.from_pandas(table))


@pytest.mark.parametrize("spelled", ["?", " ? ", None])
@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_pandas, not_yet_read])
def test_frame_reads_what_the_schema_calls_missing(kind, spelled):
    schema = SCHEMA.model_copy(update={"missing_values": ("", "?", "-9")})
    table = TABLE.assign(home=TABLE["home"].where(TABLE["home"].notna(), spelled))
    table = table.rename(columns={"town": " town"}).assign(paid=" " + table["paid"])
    for age in (TABLE["age"].fillna(-9), TABLE["age"].astype("string").fillna(" -9 ")):
        np.testing.assert_equal(encode(kind(table.assign(age=age)), schema), ROWS)


# Records


def test_records_are_rows_again_with_nan_where_missing():
    place = TABLE["home"].map({"own": 0, "rent": 1, "other": 2}).fillna(3)
    records = np.column_stack([TABLE["income"], TABLE["age"], place])
    for schema in (SCHEMA.model_copy(update={"positive": "no"}), SCHEMA):
        table = records_table(records, ROWS.s, ROWS.y, schema)
        np.testing.assert_equal(encode(table, schema), ROWS)
    missing = table["home"][table["home"].isna()]
    assert [type(value) for value in missing] == [float] * TABLE["home"].isna().sum()
