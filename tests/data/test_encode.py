"""Rows as numbers: by hand, as properties, and what is refused, left out or taken for missing."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders import SCHEMA, TABLE, make_table, with_column
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.pandas import column, data_frames, range_indexes

import synthfair as sf
from synthfair.data.encode import (
    Clipping,
    content_sha256,
    encode,
    encode_inputs,
    encode_own,
    labelled,
    records_table,
)
from synthfair.errors import InputError

ROWS = encode(TABLE, SCHEMA)
VALID = data_frames(
    [
        column("income", elements=st.floats(-50, 150)),
        column("age", elements=st.one_of(st.floats(18, 90), st.just(np.nan))),
        column("home", dtype=object, elements=st.sampled_from(["own", "rent", "other", None])),
        column("town", dtype=object, elements=st.sampled_from(["a", "b"])),
        column("paid", dtype=object, elements=st.sampled_from(["no", "yes"])),
    ],
    index=range_indexes(min_size=1, max_size=8),
)


def block_of(table, schema, name):
    """The encoded columns of one feature."""
    names = schema.encoded_names
    at = [names.index(each) for each in schema.encoded_blocks[name]]
    return encode(table, schema).x[:, at]


@settings(max_examples=25)
@given(VALID)
def test_rows_lie_in_the_unit_cube_and_are_each_its_own(table):
    """And no order of rows or columns matters."""
    x, s, y = encode(table, SCHEMA)
    assert x.shape == (len(table), len(SCHEMA.encoded_names))
    assert ((x >= 0) & (x <= 1)).all()
    assert (x[:, 3:].sum(axis=1) == 1).all()
    turned = encode(table.iloc[::-1, ::-1], SCHEMA)
    np.testing.assert_equal([each[::-1] for each in turned], [x, s, y])


def test_rows_by_hand():
    rows = pd.DataFrame(
        {
            "income": ["250", "25"],
            "age": [None, "54"],
            "home": ["rent", None],
            "town": ["b", "a"],
            "paid": ["yes", "no"],
        }
    )
    x, s, y = encode(rows, SCHEMA)
    wanted = [[1.0, 0, 1, 0, 1, 0, 0], [0.25, 0.5, 0, 0, 0, 0, 1]]  # 250 is clipped to 100
    np.testing.assert_array_equal(x, wanted)
    assert [*s, *y] == [1, 0, 1.0, -1.0]


def with_value(name, value):
    table = TABLE.astype(object)
    table.loc[3, name] = value
    return table


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (TABLE.drop(columns="age"), "column 'age' is missing"),
        (TABLE.assign(shoe=1), "column 'shoe' is not in schema"),
        (TABLE.assign(**{" age": 1}), "'age' appears more than once"),
        (TABLE.head(0), "no rows"),
        (TABLE.assign(paid=None), "no row has a label"),
        (with_value("home", "boat"), "'home', row 4: 'boat'.*own, rent, other"),
        (with_value("home", "OWN"), "'home', row 4: 'OWN'"),
        (with_value("town", None), "'town', row 4: a missing value"),
        (with_value("paid", "maybe"), "'paid', row 4: 'maybe'"),
        (with_value("age", 17), "'age', row 4: '?17.*from 18 to 90"),
        (with_value("age", 90.5), "'age', row 4: '?90.5"),
        (with_value("age", "old"), "'age', row 4: 'old'.*finite number"),
        (with_value("income", np.nan), "'income', row 4: a missing value"),
        (TABLE.assign(income=pd.Timestamp("2020-01-01")), "'income', row 1: .*number"),
        (TABLE.assign(town="z"), "399 more rows"),
    ],
)
def test_table_that_does_not_fit_is_refused_with_column_row_and_value(table, match):
    with pytest.raises(InputError, match=match):
        encode(table, SCHEMA)


@pytest.mark.parametrize("text", [" 12", "12 ", "+12", "1.2e1", "12.", "012", "12,0"])
def test_numbers_may_be_written_in_many_ways(text):
    table, plain = (make_table(3).assign(income=["1", each, "3"]) for each in (text, "12"))
    np.testing.assert_equal(encode(table, SCHEMA), encode(plain, SCHEMA))


@pytest.mark.parametrize(
    "text", ["twelve", "inf", "nan", "0x12", "1,234", "1_2", "True", "--1", np.inf]
)
def test_number_that_is_not_finite_is_refused(text):
    with pytest.raises(InputError, match="'income', row 2"):
        encode(make_table(3).assign(income=["1", text, "3"]), SCHEMA)


def test_numbers_are_categories_by_value():
    table, schema = sf.load_dataset("loanapp")
    one = encode(table.head(50), schema)
    np.testing.assert_array_equal(one.x, encode(table.head(50).astype("string"), schema).x)
    codes = with_column(SCHEMA, "home", categories=("01003", "20095", "x"), missing="refuse")
    digits = make_table(2).assign(home=["01003", "20095"])
    for kind in (int, float):
        np.testing.assert_equal(encode(digits.astype({"home": kind}), codes), encode(digits, codes))


@pytest.mark.parametrize("categories", [("False", "True"), ("TRUE", "FALSE"), (0, 1)])
@pytest.mark.parametrize(
    "spelled", [("True", "False"), ("TRUE", "FALSE"), ("1", "0"), (True, False)]
)
def test_truths_are_one_however_they_are_spelled(categories, spelled):
    schema = with_column(SCHEMA, "home", categories=categories, missing="refuse")
    is_true = np.arange(400) % 3 == 0
    (second,) = block_of(TABLE.assign(home=np.where(is_true, *spelled)), schema, "home").T
    np.testing.assert_array_equal(second == (str(categories[1]).lower() in ("true", "1")), is_true)
    three = with_column(SCHEMA, "home", categories=("true", "false", "x"))
    with pytest.raises(InputError, match="'TRUE'"):
        encode(TABLE.assign(home="TRUE"), three)


def test_label_of_several_positive_values():
    schema = with_column(SCHEMA, "paid", categories=("<30", ">30", "NO"))
    schema = schema.model_copy(update={"positive": ("<30", ">30")})
    table = make_table(4).assign(paid=["NO", ">30", "<30", "NO"])
    np.testing.assert_array_equal(encode(table, schema).y, [-1, 1, 1, -1])


def test_inputs_need_no_labels_and_no_groups():
    x, s = encode_inputs(TABLE.drop(columns="paid"), SCHEMA)
    np.testing.assert_equal((x, s), (ROWS.x, ROWS.s))
    x, s = encode_inputs(TABLE.drop(columns=["paid", "town"]).assign(id=1), SCHEMA, groups=False)
    np.testing.assert_equal((x, s), (ROWS.x, 0 * ROWS.s))
    with pytest.raises(InputError, match="'id'"):
        encode_inputs(TABLE.assign(id=1), SCHEMA, extra_columns=False)


# Values that are not listed


def test_unlisted_values_and_missing_ones_stand_for_one_that_is_listed():
    schema = with_column(SCHEMA, "home", unlisted="other", missing="unlisted")
    schema = with_column(schema, "town", unlisted="b")
    table = make_table(5).assign(home=["boat", None, "rent", "own", "x"], town=list("azbyb"))
    wanted = [[0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(block_of(table, schema, "home"), wanted)
    np.testing.assert_array_equal(encode(table, schema).s, [0, 1, 1, 1, 1])
    with pytest.raises(InputError, match="'town', row 2: a missing value"):
        encode(table.assign(town=["a", None, "b", "a", "b"]), schema)
    codes = with_column(SCHEMA, "home", categories=(1, 2, -1), unlisted=-1, missing="refuse")
    found = block_of(make_table(4).assign(home=["1", "2.0", "77", "-1"]), codes, "home")
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])


@pytest.mark.parametrize(
    ("categories", "shares", "expected"),
    [
        (("ill", "well"), None, [0.5]),
        (("ill", "well"), (0.2, 0.8), [0.8]),
        (("a", "b", "c"), None, [1 / 3] * 3),
        (("a", "b", "c"), (0.5, 0.25, 0.25), [0.5, 0.25, 0.25]),
    ],
)
def test_unknown_category_counts_as_each_by_its_share(categories, shares, expected):
    """And never as the first, which of two categories has no indicator."""
    schema = with_column(
        SCHEMA, "home", categories=categories, unknown="ignore", shares=shares, missing="refuse"
    )
    table = make_table(2).assign(home=["castle", categories[0]])
    assert block_of(table, schema, "home")[0].tolist() == pytest.approx(expected)
    with pytest.warns(UserWarning, match="t: column 'home': 1 of 2 values"):
        encode_own(table, schema, source="t")


def test_unknown_category_counts_as_missing_where_that_has_an_indicator():
    schema = with_column(SCHEMA, "home", unknown="ignore")
    table = make_table(4).assign(home=["castle", "own", None, "rent"])
    wanted = [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    np.testing.assert_array_equal(block_of(table, schema, "home"), wanted)
    # A surrogate's records have no such value: it would count as another.
    with pytest.raises(InputError, match="'castle'"):
        sf.distill_table(table, schema, sf.SurrogateConfig())


# Rows without a label, and values that are clipped


def test_rows_without_a_label_are_left_out_and_counted():
    empty, table = [3, 7, 200], TABLE.astype(object)
    table.loc[empty, "paid"] = ["", None, " "]
    table.loc[7] = ""  # an empty line of a spreadsheet
    seen = Clipping()
    np.testing.assert_equal(
        encode(table, SCHEMA, clipping=seen), encode(TABLE.drop(index=empty), SCHEMA)
    )
    assert (seen.rows, seen.unlabelled) == (397, 3)
    assert list(labelled(table, SCHEMA).index) == list(TABLE.index.drop(empty))
    with pytest.warns(UserWarning, match="3 rows have no label"):
        encode_own(table, SCHEMA, source="t")
    table.loc[9, "age"] = 300
    with pytest.raises(InputError, match="'age', row 10: '300'"):
        encode(table, SCHEMA)


@pytest.mark.parametrize(("n", "is_said"), [(20, False), (21, True)])
def test_clipped_values_are_counted_over_parts_and_said_above_a_twentieth(n, is_said):
    seen = Clipping()
    table = TABLE.assign(income=np.where(np.arange(400) < n, 101.0, 0.0))
    for part in (table[:10], table[10:]):
        encode(part, SCHEMA, clipping=seen)
    assert seen.clipped()["income"] == (0.0, 100.0, 0.0, n / 400)
    assert any("'income'" in sentence for sentence in seen.warnings()) == is_said


# Frames are read as files of them


class Polars:
    """A frame that is not read yet, as polars has it."""

    def __init__(self, table):
        self.table = table

    def collect(self):
        return self

    def to_pandas(self):
        return self.table


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_pandas, Polars])
def test_frame_of_any_library_is_read(kind):
    np.testing.assert_equal(encode(kind(TABLE), SCHEMA), ROWS)


@pytest.mark.parametrize("spelled", ["?", " ? ", None])
@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_pandas, Polars])
def test_frame_reads_what_the_schema_calls_missing(kind, spelled):
    schema = SCHEMA.model_copy(update={"missing_values": ("", "?", "-9")})
    table = TABLE.assign(home=TABLE["home"].where(TABLE["home"].notna(), spelled))
    table = table.rename(columns={"town": " town"}).assign(paid=" " + table["paid"])
    for age in (TABLE["age"].fillna(-9), TABLE["age"].astype("string").fillna(" -9 ")):
        np.testing.assert_equal(encode(kind(table.assign(age=age)), schema), ROWS)


# Records, and order


def test_records_are_rows_again_with_nan_where_missing():
    place = TABLE["home"].map({"own": 0, "rent": 1, "other": 2}).fillna(3)
    records = np.column_stack([TABLE["income"], TABLE["age"], place])
    table = records_table(records, ROWS.s, ROWS.y, SCHEMA)
    np.testing.assert_equal(encode(table, SCHEMA), ROWS)
    missing = table["home"][table["home"].isna()]
    assert [type(value) for value in missing] == [float] * TABLE["home"].isna().sum()


def test_content_is_one_in_any_order_and_batches_and_another_with_other_rows():
    whole = content_sha256([ROWS])
    turned = sf.Encoded(*(field[::-1] for field in ROWS))
    parts = [sf.Encoded(*(field[cut] for field in turned)) for cut in (slice(9), slice(9, None))]
    assert content_sha256(parts) == whole
    others = [ROWS._replace(y=-ROWS.y), ROWS._replace(s=1 - ROWS.s), ROWS._replace(x=ROWS.x / 2)]
    others += [
        sf.Encoded(*(field[1:] for field in ROWS)),
        sf.Encoded(*(f[[0, *range(400)]] for f in ROWS)),
    ]
    assert len({whole, *(content_sha256([rows]) for rows in others)}) == 6
