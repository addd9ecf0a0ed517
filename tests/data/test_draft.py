"""Drafts of a schema: what each column is taken for, what is asked, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from own_tables import hospital

import synthfair as sf
from synthfair.data.draft import draft_document, laid_out
from synthfair.data.encode import encode
from synthfair.data.schema import parse_schema
from synthfair.data.tables import read_raw_table, read_table
from synthfair.errors import InputError

TABLE = make_table()


def draft(table=TABLE, **settings):
    roles = {"label": "paid", "positive": "yes", "sensitive": "town"}
    return draft_document(table, "small", **roles | settings)


def completed(document):
    without = {key: value for key, value in document.items() if key != "draft"}
    return parse_schema(laid_out(without), source="x")


def review(table, **settings):
    return draft(table, **settings)["draft"]["to_review"]


def test_draft_is_refused_until_it_is_reviewed_and_then_encodes_the_table():
    document = draft()
    assert json.loads(laid_out(document)) == document
    with pytest.raises(InputError, match="draft"):
        parse_schema(laid_out(document), source="x")
    assert {*document["draft"]["to_review"]} == {
        "description",
        "missing_values",
        *(f"columns.{name}" for name in TABLE),
    }
    schema = completed(document)
    np.testing.assert_array_equal(encode(TABLE, schema).y, encode(TABLE, make_schema()).y)
    assert (schema.columns["income"].lower, schema.columns["income"].upper) == (0, 100)


def test_draft_holds_no_number_of_the_rows():
    text = laid_out(draft())
    assert not any(f"{value}" in text for value in TABLE[["income", "age"]].to_numpy().ravel())


def test_draft_of_a_frame_and_of_its_file_are_one(tmp_path):
    table = TABLE.assign(home=TABLE["home"].fillna(" ? "))
    table.to_csv(tmp_path / "t.csv", index=False)
    table = table.rename(columns={"age": " age "})
    document = draft(read_raw_table(tmp_path / "t.csv"))
    assert document == draft(table)
    assert document["columns"]["home"]["missing"] == "category"
    with pytest.warns(UserWarning, match="read off the rows"):
        schema = sf.draft_schema(table, label="paid", positive="yes", sensitive="town")
    assert schema.hash == completed(document | {"name": schema.name}).hash


# Roles


@pytest.mark.parametrize(
    ("table", "settings", "match"),
    [
        (TABLE, {"label": "height"}, "label 'height'"),
        (TABLE, {"sensitive": "height"}, "sensitive 'height'"),
        (TABLE, {"sensitive": "paid"}, "'paid' is given twice"),
        (TABLE, {"sensitive": ["town", "town"]}, "'town' is given twice"),
        (TABLE, {"positive": ["perhaps"]}, "positive perhaps"),
        (TABLE, {"positive": ["yes", "no"]}, "positive yes, no"),
        (TABLE, {"positive": []}, "positive"),
        (TABLE, {"label": "income"}, "'income': holds 120 values"),
        (TABLE, {"sensitive": "income"}, "'income': holds 120 values"),
        (TABLE.assign(town=None), {}, "'town': holds 0 values"),
        (TABLE.assign(paid="yes"), {}, "'paid': holds 1 values"),
        (TABLE.assign(paid=np.resize(["NO", "no", "yes"], 120)), {}, "'paid': 'NO' and 'no'"),
        (TABLE.assign(paid=np.resize(["no t", "not", "yes"], 120)), {}, "'no t' and 'not'"),
        (TABLE.assign(town=np.resize(["F", "f", "m"], 120)), {}, "'town': 'F' and 'f'"),
        (TABLE.rename(columns={"income": 3}), {}, "column 3"),
        (pd.concat([TABLE, TABLE[["income"]]], axis=1), {}, "'income' appears more than once"),
        (TABLE.iloc[:0], {}, "no rows"),
    ],
)
def test_roles_and_tables_that_cannot_be_are_refused(table, settings, match):
    with pytest.raises(InputError, match=match):
        draft(table, **settings)


@pytest.mark.parametrize("positive", [["1"], ["1.0"], ["1", "1"], ["1", "1.0"], 1.0, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_positive_names_a_number(positive, as_text):
    table = TABLE.assign(paid=(TABLE["paid"] == "yes").astype(float))
    assert draft(table.astype(str) if as_text else table, positive=positive)["positive"] == 1


def test_positive_of_several_counts_each_once():
    table = TABLE.assign(paid=np.resize(["a", "b", "c"], 120))
    assert draft(table, positive=["a", "b", "a"])["positive"] == ["a", "b"]


def test_rows_without_group_are_a_group_and_those_without_label_are_left_out():
    table = TABLE.assign(town=["a", "b", "?"] * 40)
    assert "'unknown'" in review(table)["columns.town"]
    schema = completed(draft(table))
    assert schema.groups == ("a", "b", "unknown")
    s = encode(table.replace("?", None), schema).s
    np.testing.assert_array_equal(s, [0, 1, 2] * 40)
    assert "40 rows" in review(TABLE.assign(paid=["yes", "no", ""] * 40))["columns.paid"]
    assert draft(TABLE.assign(town="a"))["columns"]["town"]["categories"] == ["a"]


# Whole tables


def test_large_table_is_drafted_and_encoded_in_few_calls(tmp_path, calls):
    """20,000 rows of 50 columns, of which three have 700 codes: one or two calls a value."""
    path = tmp_path / "hospital.csv"
    hospital(20_000).to_csv(path, index=False, sep=";")
    roles = {"label": "readmitted", "sensitive": "race", "positive": ["<30", ">30"]}
    document = draft(read_raw_table(path), **roles)
    schema = completed(document)
    encoded = encode(read_table(path, schema), schema)
    assert calls() < 3_000_000
    assert document["ignored"] == ["encounter_id", "examide"]
    grouped = [name for name, entry in document["columns"].items() if "unlisted" in entry]
    assert grouped == ["race", "diag_1", "diag_2", "diag_3"]
    assert encoded.x.shape == (20_000, len(schema.encoded_names))
    assert len(np.unique(encoded.s)) == 6
    x = encode(hospital(9).assign(diag_1="new"), schema).x
    assert (x[:, schema.encoded_names.index("diag_1=other")] == 1).all()


ROWS = pd.DataFrame(
    [
        ["39", " State-gov", " Male", " <=50K", "Bo"],
        ["50", " Private", " Female", " >50K", "Al"],
        ["38", " Private", " Male", " <=50K", "Cy"],
        ["53", " State-gov", " Female", " >50K", "Di"],
    ]
)


@pytest.mark.parametrize("typed", [False, True])
def test_header_that_is_a_row_is_refused(typed):
    """It would be published. Of five names one is a number, three are values of their columns."""
    rows = ROWS.iloc[1:].set_axis(ROWS.iloc[0], axis=1)
    rows = rows.assign(**{"39": rows["39"].astype(int)}) if typed else rows
    with pytest.raises(InputError, match="4 of its 5 names"):
        draft(rows)


def test_header_may_hold_less_than_half_of_numbers_and_values():
    named = ROWS.set_axis(["1990", "Private", "sex", "income", "name"], axis=1)
    roles = {"label": "income", "positive": " >50K", "sensitive": "sex"}
    assert draft(named, **roles)["positive"] == ">50K"
    with pytest.raises(InputError, match="3 of its 5 names"):
        draft(named.rename(columns={"name": "2e3"}), **roles)


@pytest.mark.parametrize("first", [0, 1999])
def test_header_may_count_up(first):
    names = [str(first + i) for i in range(4)]
    table = pd.DataFrame(np.tile([[0, 1], [1, 0]], (2, 2)), columns=names)
    roles = {"label": names[0], "positive": 0, "sensitive": names[1]}
    assert draft(table, **roles)["label"] == names[0]
    with pytest.raises(InputError, match="4 of its 4 names"):
        draft(table.rename(columns={names[3]: "7"}), **roles)
