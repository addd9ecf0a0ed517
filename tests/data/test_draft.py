"""Drafts of a schema: what each column is taken for, what is asked, and what is refused."""

import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from hypothesis import assume, given
from hypothesis import strategies as st

import synthfair as sf
from synthfair.data.draft import draft_column, draft_document, find_missing, laid_out, round_bounds
from synthfair.data.encode import encode, tidied
from synthfair.data.schema import parse_schema
from synthfair.data.tables import read_raw_table

TABLE, RNG, N = make_table(), np.random.default_rng(0), 1000


def draft(table=TABLE, **settings):
    roles = {"label": "paid", "positive": "yes", "sensitive": "town"}
    return draft_document(table, "small", **roles | settings)


def completed(document):
    without = {key: value for key, value in document.items() if key != "draft"}
    return parse_schema(laid_out(without), source="x")


def review(table):
    return draft(table)["draft"]["to_review"]


def use_of(entry):
    """How a column is used that has this entry."""
    return "grouped" if entry and "unlisted" in entry else entry and entry["kind"]


def test_draft_is_refused_until_it_is_reviewed_and_then_encodes_the_table():
    document = draft()
    assert json.loads(laid_out(document)) == document
    with pytest.raises(sf.InputError, match="draft"):
        parse_schema(laid_out(document), source="x")
    assert {*document["draft"]["to_review"]} >= {f"columns.{name}" for name in TABLE}
    schema = completed(document)
    np.testing.assert_array_equal(encode(TABLE, schema).y, encode(TABLE, make_schema()).y)
    assert (schema.columns["income"].lower, schema.columns["income"].upper) == (0, 100)


def test_draft_holds_no_number_of_the_rows():
    text = laid_out(draft())
    assert not any(f"{value}" in text for value in TABLE[["income", "age"]].to_numpy().ravel())


def test_draft_of_a_frame_and_of_its_file_are_one(tmp_path):
    table = TABLE.assign(home=TABLE["home"].fillna(" ? "))
    table.to_csv(tmp_path / "t.csv", index=False)
    document = draft(read_raw_table(tmp_path / "t.csv"))
    assert document == draft(table.rename(columns={"age": " age "}))
    assert document["columns"]["home"]["missing"] == "category"
    with pytest.warns(UserWarning, match="read off the rows"):
        schema = sf.draft_schema(table, label="paid", positive="yes", sensitive="town")
    assert schema.columns == completed(document).columns


@pytest.mark.parametrize(("table", "settings", "match"), [
    (TABLE, {"label": "height"}, "'height'"), (TABLE, {"sensitive": "paid"}, "'paid' is given"),
    (TABLE, {"positive": ["perhaps"]}, "perhaps"), (TABLE, {"positive": []}, "positive"),
    (TABLE, {"positive": ["yes", "no"]}, "yes, no"), (TABLE, {"label": "age"}, "'age': holds"),
    (TABLE.assign(town=None), {}, "'town': holds 0"), (TABLE.iloc[:0], {}, "no rows"),
    (TABLE.assign(paid="yes"), {}, "'paid': holds 1 values"), (TABLE, {"sensitive": "age"}, "hand"),
    (TABLE.assign(paid=["NO", "no", "yes"] * 40), {}, "'paid': 'NO' and 'no'"),
    (TABLE.assign(paid=["no t", "not", "yes"] * 40), {}, "'no t' and 'not'"),
    (TABLE.assign(town=["F", "f", "m"] * 40), {}, "'town': 'F' and 'f'"),
    (TABLE.rename(columns={"income": 3}), {}, "column 3"),
])  # fmt: skip
def test_roles_and_tables_that_cannot_be_are_refused(table, settings, match):
    with pytest.raises(sf.InputError, match=match):
        draft(table, **settings)


def test_rows_without_group_are_a_group_and_those_without_label_are_left_out():
    schema = completed(draft(TABLE.assign(town=["a", "b", "?"] * 40)))
    assert schema.groups == ("a", "b", "unknown")
    s = encode(TABLE.assign(town=["a", "b", None] * 40), schema).s
    np.testing.assert_array_equal(s, [0, 1, 2] * 40)
    assert "40 rows" in review(TABLE.assign(paid=["yes", "no", ""] * 40))["columns.paid"]
    assert draft(TABLE.assign(town="a"))["columns"]["town"]["categories"] == ["a"]


# Columns

DIAGNOSES = np.array([f"V{i}" if i % 3 else f"{i}.1" for i in range(700)])
OFTEN = DIAGNOSES[(RNG.pareto(0.5, N) * 10).astype(int) % 700]
DAYS = pd.date_range("2020-01-01", periods=N)
CODES = "whole numbers: codes, or"
THOUSANDS = [f"{i:,.2f}" for i in range(1500, 2500)]


@pytest.mark.parametrize(("values", "use", "why"), [
    (RNG.integers(17, 91, N), "numeric", "74 whole"), (DAYS, None, "dates"),
    (RNG.integers(2, size=N), "categorical", "2 whole"), (["No"] * N, None, "only 'No'"),
    (RNG.integers(10, size=N), "categorical", CODES), (["9", "01"] * N, "categorical", "codes"),
    (RNG.integers(11, size=N), "numeric", CODES), (RNG.permutation(10**6)[:N], "numeric", CODES),
    (np.arange(N) + 5, None, "identifier"), (10**18 + np.arange(N) // 2, None, "identifier"),
    ([f"7590-VH{i}" for i in range(N)], None, "identifiers"), ([None], None, "no value"),
    (RNG.choice(["own", "rent", "?"], N), "categorical", "2 values"), (OFTEN, "grouped", "1%"),
    ([np.int64(7), 7] * N, None, "only 7;"), (DAYS - DAYS[0], None, "durations"),
    ([f"0{i}" for i in RNG.integers(100, 150, N)], "grouped", "codes"),
    ([f"{i % 28 + 1}.{i % 12 + 1}.2025" for i in range(N)], None, "dates"),
    ([*map(str, range(40)), "unknown"] * 9, None, "but for 'unknown'"),
    ([*map(str, range(40)), *["dead"] * 9] * 9, None, "but for 'dead'"),
    ([f"{i},5" for i in range(N)], "numeric", "numbers"),
    (["unknown"] * N + [f"{i / 10}%" for i in range(N)], None, "free text"),
    (["0-10%", "20-30%", "30-40%"] * 9, "categorical", "3 values"),
    ([*map(str, range(80)), *"abcdef"], None, "but for 6 texts"),
    (np.arange(N) * 7, None, "identifier"), ([0.5, 1, 2] * N, "numeric", "numbers"),
    (["-"] * 5 + THOUSANDS, None, "write 63606.07"),
    ([f"€ {i:,}" for i in range(500, 1500)], None, "but for 1000 texts: name"),
    ([f"1\u202f{i},50 EUR" for i in range(100, 999)], None, "write 63606.07"),
])  # fmt: skip
@pytest.mark.parametrize("as_text", [True, False])
def test_column_is_drafted_by_what_it_holds(values, use, why, as_text):
    column = pd.Series(values, name="x")
    column = column.astype("string").fillna("") if as_text else column
    entry, cause = draft_column(tidied(column.to_frame(), ["", "?"], ["x"])["x"])
    assert use_of(entry) == use
    assert why in cause


def test_column_of_many_values_lists_those_of_a_hundredth_of_the_rows():
    """A rare one may be a person's own."""
    counts = pd.Series(OFTEN).value_counts()
    frequent = sorted(counts.index[counts >= N / 100])
    assert 1 < len(frequent) < 30
    assert draft_column(pd.Series(OFTEN))[0]["categories"] == [*frequent, "other"]


def test_column_of_codes_is_asked_about_first_and_one_of_lists_ignored():
    table = TABLE.assign(relation=[*range(6)] * 20, tags=[["a", "b"]] * 120)
    assert next(iter(review(table))) == "columns.relation"
    assert draft(table)["ignored"] == ["tags"]


@pytest.mark.parametrize("spelled", [(True, False), ("TRUE", "FALSE"), ("true", "FALSE")])
def test_column_of_truths_is_one_however_they_are_spelled(spelled):
    entry, _ = draft_column(pd.Series(np.where(TABLE["income"] > 40, *spelled)))
    assert entry == {"kind": "categorical", "categories": ["False", "True"]}


def test_column_is_what_its_type_and_arguments_say():
    won, listed = pd.Series(RNG.random(N) > 0.5), pd.CategoricalDtype(list("abc"))
    texts, kind = won.map({True: "b", False: "c"}).astype(listed), {"kind": "categorical"}
    assert draft_column(texts)[0] == kind | {"categories": list("abc")}
    found, _ = draft_column(won.astype(int), categories=[0, 1, 2])
    assert found == kind | {"categories": [0, 1, 2]}
    visits = pd.Series(RNG.integers(7, size=N))
    assert draft_column(visits, quantities=True)[0]["upper"] == 6
    entry, _ = draft_column(visits.astype(str), bounds=(0, 10))
    assert (entry["lower"], entry["upper"]) == (0, 10)


def test_additive_draft_has_splines_of_numbers_that_are_no_codes():
    columns = draft(TABLE.assign(rate=TABLE["income"] / 100), additive=True)["columns"]
    assert columns["income"]["basis"] == {"kind": "spline", "knots": [0, 20, 40, 60, 80, 100]}
    assert columns["rate"]["basis"]["knots"] == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert "basis" not in columns["home"]


FLOATS = st.floats(-1e300, 1e300, allow_subnormal=False)


@given(low=FLOATS, high=FLOATS)
def test_bounds_are_round_and_hold_the_values(low, high):
    assume(high - low > 1e-9 * max(abs(low), abs(high)) > 1e-200)
    lower, upper = round_bounds(low, high)
    assert lower <= low < high <= upper
    assert upper - lower <= 3 * (high - low)


def test_missing_marks_are_found():
    table = pd.DataFrame({"a": ["?", "1"], "b": [" ?", "None"], "c": ["NULL", "N/A"], "d": [1, 2]})
    assert find_missing(table, ["unknown"]) == ["", "NA", "NaN", "?", "N/A", "NULL", "unknown"]


# Whole tables


PEOPLE = [["50", " Private", " F", " >50K", "Al"], ["38", " Private", " M", " <=50K", "Cy"]]


@pytest.mark.parametrize(("names", "n_like_values"), [
    (["39", " Private", " M", " <=50K", "Bo"], 4), (["1990", "Private", "sex", "income", "2e3"], 3),
    (["1990", "Private", "sex", "income", "name"], None),
    (["1999", "2000", "2001", "2002", "2003"], None), (["1999", "2000", "2001", "2002", "7"], 5),
])  # fmt: skip
@pytest.mark.parametrize("typed", [False, True])
def test_header_that_is_a_row_is_refused(names, n_like_values, typed):
    """It would be published. Names that count up are none, nor with less than half such names."""
    rows = pd.DataFrame(PEOPLE * 3, columns=names)
    rows = rows.astype({names[0]: int}) if typed else rows
    roles = {"label": names[3], "positive": ">50K", "sensitive": names[2]}
    refused = pytest.raises(sf.InputError, match=f"{n_like_values} of its 5 names")
    with refused if n_like_values else nullcontext():
        assert draft(rows, **roles)["positive"] == ">50K"
