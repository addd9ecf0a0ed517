import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.pandas import column, data_frames, range_indexes

from synthfair.data.encode import encode, encode_inputs
from synthfair.data.schema import Categorical
from synthfair.errors import InputError

SCHEMA = make_schema()
VALID = data_frames(
    [
        column("income", elements=st.floats(0, 100)),
        column("age", elements=st.one_of(st.floats(18, 90), st.just(np.nan))),
        column("home", dtype=object, elements=st.sampled_from(["own", "rent", "other", None])),
        column("town", dtype=object, elements=st.sampled_from(["a", "b"])),
        column("paid", dtype=object, elements=st.sampled_from(["no", "yes"])),
    ],
    index=range_indexes(min_size=1, max_size=8),
)


@settings(max_examples=25)
@given(VALID)
def test_encoding_lies_in_the_unit_cube(table):
    x, s, y = encode(table, SCHEMA)
    assert x.shape == (len(table), len(SCHEMA.encoded_names))
    assert ((x >= 0) & (x <= 1)).all()
    assert set(s) <= {0, 1}
    assert set(y) <= {-1.0, 1.0}


def test_known_rows():
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


def test_columns_may_come_in_any_order():
    table = make_table()
    one, other = encode(table, SCHEMA), encode(table[table.columns[::-1]], SCHEMA)
    np.testing.assert_array_equal(one.x, other.x)


def with_value(name, value):
    table = make_table().astype(object)
    table.loc[3, name] = value
    return table


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (make_table().drop(columns="age"), "column 'age' is missing"),
        (make_table().assign(shoe=1), "column 'shoe' is not in schema; .* under 'ignored'"),
        (make_table().head(0), "has no rows"),
        (with_value("home", "boat"), "column 'home', row 4: 'boat'.*one of own, rent, other"),
        (with_value("town", None), "column 'town', row 4: a missing value"),
        (with_value("paid", "maybe"), "column 'paid', row 4: 'maybe'.*one of no, yes"),
        (with_value("age", 17), "column 'age', row 4: '?17.*from 18 to 90"),
        (with_value("age", "old"), "column 'age', row 4: 'old'.*a finite number"),
        (
            make_table().assign(income=pd.Timestamp("2020-01-01")),
            "column 'income', row 1: .*number",
        ),
        (with_value("income", np.inf), "column 'income', row 4: '?inf.*a finite number"),
        (with_value("income", np.nan), "column 'income', row 4: a missing value"),
    ],
)
def test_bad_tables_are_refused_with_file_column_row_and_value(table, complaint):
    with pytest.raises(InputError, match=f"rows.csv: {complaint}"):
        encode(table, SCHEMA, source="rows.csv")


def test_all_bad_rows_are_counted():
    with pytest.raises(InputError, match="119 more rows"):
        encode(make_table().assign(town="z"), SCHEMA)


def test_numbers_match_categories_by_value():
    from synthfair.data.datasets import dataset_schema, load_dataset

    table, schema = load_dataset("loanapp")
    one = encode(table.head(50), schema)
    as_text = table.head(50).astype("string")  # "1.0" is the category 1
    np.testing.assert_array_equal(one.x, encode(as_text, schema).x)
    assert schema == dataset_schema("loanapp")


def test_labels_may_be_absent_for_prediction():
    x, s = encode_inputs(make_table().drop(columns="paid"), SCHEMA)
    full = encode(make_table(), SCHEMA)
    np.testing.assert_array_equal(x, full.x)
    np.testing.assert_array_equal(s, full.s)


def test_values_that_are_not_listed_may_stand_for_one_that_is():
    home = Categorical(categories=("own", "rent", "other"), unlisted="other", missing="unlisted")
    town = Categorical(categories=("a", "b"), unlisted="b")
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"home": home, "town": town}})
    table = make_table(5).assign(home=["boat", None, "rent", "own", "x"], town=list("azbyb"))
    x, s, _ = encode(table, schema)
    wanted = [[0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(x[:, -3:], wanted)
    np.testing.assert_array_equal(s, [0, 1, 1, 1, 1])
    with pytest.raises(InputError, match="'town', row 2: a missing value"):
        encode(table.assign(town=["a", None, "b", "a", "b"]), schema)


def test_codes_that_are_not_listed_may_stand_for_one_that_is():
    code = Categorical(categories=(1, 2, -1), unlisted=-1)
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"home": code}})
    x, _, _ = encode(make_table(4).assign(home=["1", "2.0", "77", "-1"]), schema)
    np.testing.assert_array_equal(x[:, -3:], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])


def test_several_values_of_a_label_are_positive():
    paid = Categorical(categories=("<30", ">30", "NO"))
    columns = SCHEMA.columns | {"paid": paid}
    schema = SCHEMA.model_copy(update={"columns": columns, "positive": ("<30", ">30")})
    table = make_table(4).assign(paid=["NO", ">30", "<30", "NO"])
    np.testing.assert_array_equal(encode(table, schema).y, [-1, 1, 1, -1])


def test_an_error_shows_a_few_of_many_categories():
    home = Categorical(categories=tuple(f"c{i}" for i in range(700)))
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"home": home}})
    with pytest.raises(InputError, match=r"one of c0, .*, c19, \.\.\. \(700 in all\)$"):
        encode(make_table().assign(home="x"), schema)
