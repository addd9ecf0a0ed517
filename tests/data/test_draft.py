import json

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from hypothesis import given
from hypothesis import strategies as st
from own_tables import hospital

import synthfair as sf
from synthfair.data.draft import (
    DECLARED,
    draft_column,
    draft_document,
    find_missing,
    laid_out,
    round_bounds,
)
from synthfair.data.encode import encode, tidied
from synthfair.data.schema import parse_schema
from synthfair.data.tables import read_raw_table, read_table
from synthfair.errors import InputError


def draft(table=None, positive=("yes",), *, label="paid", sensitive="town", **settings):
    table = make_table() if table is None else table
    roles = {"label": label, "positive": positive, "sensitive": sensitive}
    return draft_document(table, "small", **roles, **settings)


def completed(document):
    without = {key: value for key, value in document.items() if key != "draft"}
    return parse_schema(laid_out(without), source="x")


def use_of(entry):
    """How a column is used that has this entry."""
    if entry is None or "unlisted" not in entry:
        return entry and entry["kind"]
    return "grouped"


def test_a_draft_is_refused_until_its_block_is_deleted():
    with pytest.raises(InputError, match="still marked a draft"):
        parse_schema(laid_out(draft()), source="x")


def test_a_draft_says_what_to_review_and_why_each_column_is_taken_so():
    notes = draft()["draft"]
    assert "bounds and categories were read off the rows" in notes["warning"]
    assert notes["to_review"] == {
        "description": "say what the rows are, and where bounds and categories come from",
        "missing_values": "does each of them mean that a value is missing?",
        "columns.income": "numbers",
        "columns.age": "numbers",
        "columns.home": "3 values",
        "columns.town": "2 values: can others occur?",
        "columns.paid": "2 values",
    }


def test_no_number_of_the_rows_is_in_a_draft():
    text = laid_out(draft())
    assert not any(
        f"{value}" in text for value in make_table()[["income", "age"]].to_numpy().ravel()
    )


def test_a_completed_draft_encodes_the_table():
    schema = completed(draft())
    assert encode(make_table(), schema).x.shape == (120, len(make_schema().encoded_names))
    assert (schema.columns["income"].lower, schema.columns["income"].upper) == (0, 100)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"label": "height"}, "label 'height': must be one of income, age, home, town, paid"),
        ({"sensitive": "height"}, "'height': must be one of"),
        ({"sensitive": "paid"}, "'paid' is given twice"),
        ({"sensitive": ["town", "town"]}, "'town' is given twice"),
        ({"positive": ["perhaps"]}, "positive perhaps: must be some, .* values of 'paid': no, yes"),
        ({"positive": ["yes", "no"]}, "positive yes, no: must be some, but not all"),
        ({"label": "income"}, "'income': holds 120 values; choose a column of 2 to 30 values"),
        ({"sensitive": "income"}, "'income': holds 120 values"),
        ({"positive": []}, "positive : must be some"),
        ({"table": make_table().assign(town=None)}, "'town': holds 0 values"),
        (
            {"table": make_table().assign(paid="yes")},
            "'paid': holds 1 values; choose a column of 2",
        ),
    ],
)
def test_roles_that_cannot_be(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        draft(**changes)


@pytest.mark.parametrize("positive", [["1"], ["1.0"], ["1", "1"], ["1", "1.0"], 1.0, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_positive_names_a_number(positive, as_text):
    table = make_table().assign(paid=lambda t: (t["paid"] == "yes").astype(float))
    assert draft(table.astype(str) if as_text else table, positive=positive)["positive"] == 1


def test_a_value_that_is_given_twice_counts_once():
    table = make_table().assign(paid=np.resize(["a", "b", "c"], 120))
    assert draft(table, positive=["a", "b", "a"])["positive"] == ["a", "b"]


RNG = np.random.default_rng(0)
N = 1000
DIAGNOSES = np.array([f"V{i}" if i % 3 else f"{i}.1" for i in range(700)])
DAYS = pd.date_range("2020-01-01", periods=N)
THOUSANDS = [f"{i:,.2f}" for i in range(1500, 2500)]
OFTEN = DIAGNOSES[(RNG.pareto(0.5, N) * 10).astype(int) % 700]


@pytest.mark.parametrize(
    ("name", "values", "use", "why"),
    [
        ("age", RNG.integers(17, 91, N), "numeric", "74 whole numbers"),
        ("age", RNG.normal(size=N), "numeric", "numbers"),
        ("won", RNG.integers(2, size=N), "categorical", "2 whole numbers"),
        ("home", RNG.choice(["own", "rent", "?"], N), "categorical", "2 values"),
        ("owner", RNG.integers(2, size=N), "categorical", "2 whole numbers"),
        ("visits", RNG.integers(7, size=N), "categorical", "7 whole numbers: codes, or a"),
        ("source_id", RNG.integers(25, size=N), "numeric", "25 whole numbers: codes, or a"),
        ("stay", RNG.integers(14, size=N), "numeric", "14 whole numbers"),
        ("row", np.arange(N) + 5, None, "1000 values in 1000 rows: an identifier?"),
        ("customerID", [f"7590-VH{i}" for i in range(N)], None, "identifiers, or free text?"),
        ("pay", RNG.permutation(10**6)[:N], "numeric", "codes, or a quantity?"),
        ("drug", ["No"] * N, None, "holds only 'No'; list all that can occur"),
        ("drug", [None] * N, None, "holds no value"),
        ("drug", ["No", "?"] * (N // 2), None, "holds only 'No'"),
        ("diagnosis", OFTEN, "grouped", "values; those of at least 1% of the rows"),
        ("zip", [f"0{i}" for i in RNG.integers(100, 150, N)], "grouped", "codes, or a quantity?"),
        ("day", DAYS.astype(str), None, "dates, times or durations"),
        ("day", DAYS, None, "dates, times or durations"),
        ("age", [*map(str, range(40)), "unknown"] * 9, None, "numbers, but for 'unknown'"),
        ("student", RNG.integers(2 * 10**5, size=N), "numeric", "codes, or a quantity?"),
        ("account", 10**18 + np.arange(N) // 2, None, "above 2^53: an identifier?"),
        ("score", RNG.permutation(400)[:40], "numeric", "codes, or a quantity?"),
        ("income", [*map(str, range(900)), "-"], None, "numbers, but for '-'"),
        ("age", [*map(str, range(40)), *["dead"] * 9] * 9, None, "numbers, but for 'dead'"),
        ("rate", [f"{i},5" for i in range(N)], "numeric", "numbers"),
        ("rate", ["unknown"] * N + [f"{i / 10}%" for i in range(N)], None, "free text?"),
        ("band", ["0-10%", "20-30%", "30-40%"] * 9, "categorical", "3 values"),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_columns_are_drafted_by_what_they_hold(name, values, use, why, as_text):
    column = pd.Series(values, name=name)
    column = column.astype("string").fillna("") if as_text else column
    entry, cause = draft_column(tidied(column.to_frame(), ["", "?"], [name])[name])
    assert use_of(entry) == use
    assert why in cause


@pytest.mark.parametrize(
    "texts",
    [
        ["-"] * 5 + THOUSANDS,
        [f"({text})" for text in THOUSANDS],
        [f"€ {i:,}" for i in range(500, 1500)],
        [f"EUR {i}.50" for i in range(1500, 2500)],
        [f"-{text} GBP" for text in THOUSANDS],
        [text.replace(",", "\u00a0") for text in THOUSANDS],
        [f"1\u202f{i},50 €" for i in range(100, 999)],
        [f"{i / 10} %" for i in range(N)],
    ],
)
def test_numbers_as_people_write_them_are_no_text(texts):
    entry, cause = draft_column(pd.Series(texts))
    assert entry is None
    assert cause.startswith("numbers, but for ")
    assert "write 63606.07" in cause
    assert not any(text in cause for text in texts if text != "-")


def test_a_type_and_arguments_say_what_a_column_is():
    won = pd.Series(RNG.random(N) > 0.5)
    listed = pd.CategoricalDtype(list("abc"))
    for column, settings, values in [
        (won, {}, ["False", "True"]),
        (won.map({True: "b", False: "c"}).astype(listed), {}, list("abc")),
        (won.astype(int), {"categories": [0, 1, 2]}, [0, 1, 2]),
    ]:
        found = draft_column(column, **settings)
        assert found == ({"kind": "categorical", "categories": values}, DECLARED)
    visits = pd.Series(RNG.integers(7, size=N))
    assert draft_column(visits, quantities=True)[0]["upper"] == 6
    entry, cause = draft_column(visits.astype(str), bounds=(0, 10))
    assert (entry["lower"], entry["upper"], cause) == (0, 10, DECLARED)


@pytest.mark.parametrize("n_rows", [60, 500, None])
def test_no_quantity_of_a_public_table_is_taken_for_an_identifier(n_rows):
    table = sf.load_dataset("loanapp")[0]
    some = table.sample(n_rows or len(table), random_state=0)
    columns = ["loanamt", "appinc", "atotinc", "cototinc", "hexp"]
    found = [draft_column(some[column]) for column in columns]
    assert not any(entry is None and "identifier" in cause for entry, cause in found)
    if n_rows is None:
        assert {use_of(entry) for entry, _ in found} == {"numeric"}


def test_a_grouped_column_takes_rare_and_new_values():
    rare = np.repeat([*range(20), *range(100, 300)], [*[40] * 20, *[1] * 200])
    rare = np.random.default_rng(0).permutation(rare)
    table = make_table(N).assign(zip_code=[f"c{value}" for value in rare])
    schema = completed(draft(table))
    assert len(schema.columns["zip_code"].categories) == 21
    x, _, _ = encode(table.assign(zip_code="new"), schema)
    assert (x[:, schema.encoded_names.index("zip_code=other")] == 1).all()


@given(
    st.tuples(*[st.floats(-1e300, 1e300, allow_subnormal=False)] * 2)
    .map(sorted)
    .filter(lambda ends: ends[1] - ends[0] > 1e-9 * max(map(abs, ends)) > 1e-200)
)
def test_bounds_are_round_and_hold_the_values(ends):
    low, high = ends
    lower, upper = round_bounds(low, high)
    assert lower <= low < high <= upper
    assert upper - lower <= 3 * (high - low)


@pytest.mark.parametrize(
    ("ends", "bounds"),
    [
        ((0, 1), (0, 1)),
        ((13, 4356), (0, 5000)),
        ((0, 99999), (0, 100000)),
        ((-3.97, 4.1), (-4, 5)),
        ((1900.5, 1999), (1900, 2000)),
        ((0.0013, 0.0441), (0, 0.05)),
        ((-20, -15), (-20, -15)),
        ((36.1, 41.9), (36, 42)),
        ((0, 1.5e308), (0, 1.5e308)),
        ((5e-324, 1e-323), (5e-324, 1e-323)),
    ],
)
def test_bounds_look_like_those_of_a_codebook(ends, bounds):
    assert round_bounds(*map(float, ends)) == bounds


def test_marks_of_missing_values_are_found():
    table = pd.DataFrame({"a": ["?", "1"], "b": [" ?", "None"], "c": ["NULL", "N/A"], "d": [1, 2]})
    found = find_missing(table, ["unknown"])
    assert found == ["", "NA", "NaN", "?", "N/A", "NULL", "unknown"]


def test_rows_without_group_or_label():
    table = make_table().assign(town=["a", "b", "?"] * 40)
    found = draft(table)
    review = found["draft"]["to_review"]["columns.town"]
    assert review == "rows without a group become the group 'unknown'"
    schema = completed(found)
    assert schema.groups == ("a", "b", "unknown")
    s = encode(table.replace("?", None), schema).s
    np.testing.assert_array_equal(s, [0, 1, 2] * 40)
    found = draft(make_table().assign(paid=["yes", "no", ""] * 40))
    assert found["draft"]["to_review"]["columns.paid"] == (
        "2 values; 40 rows without a label are left out"
    )


def test_one_group_of_several_may_be_here():
    found = draft(make_table().assign(town="a"))
    assert found["columns"]["town"]["categories"] == ["a"]
    assert found["draft"]["to_review"]["columns.town"] == "1 values: can others occur?"


def test_a_draft_takes_a_line_for_each_column():
    document = draft(hospital(), ["<30"], label="readmitted", sensitive="race")
    text = laid_out(document)
    assert json.loads(text) == document
    assert len(text.splitlines()) < 2 * hospital().shape[1] + 20
    assert max(len(line) for line in text.splitlines() if '"warning"' not in line) < 400


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_as_people_have_it_from_file_to_numbers(tmp_path, separator):
    path = tmp_path / "hospital.csv"
    hospital(7000).to_csv(path, index=False, sep=separator)
    found = draft(
        read_raw_table(path), label="readmitted", sensitive="race", positive=["<30", ">30"]
    )
    assert found["ignored"] == ["encounter_id", "examide"]
    grouped = [name for name, entry in found["columns"].items() if use_of(entry) == "grouped"]
    assert grouped == ["race", "diag_1", "diag_2", "diag_3"]
    schema = completed(found)
    encoded = encode(read_table(path, schema), schema)
    assert len(encoded.y) == 7000
    assert len(np.unique(encoded.s)) == 6
    assert 0.3 < (encoded.y > 0).mean() < 0.6


def test_drafting_and_encoding_a_large_table_takes_few_calls(tmp_path, calls):
    """20,000 rows of 50 columns, of which three have 700 codes: one or two calls a value."""
    path = tmp_path / "hospital.csv"
    hospital(20_000).to_csv(path, index=False)
    table = read_raw_table(path)
    assert table.shape == (20_000, 50)
    schema = completed(draft(table, label="readmitted", sensitive="race", positive=["<30", ">30"]))
    encoded = encode(read_table(path, schema), schema)
    assert calls() < 3_000_000
    assert encoded.x.shape == (20_000, len(schema.encoded_names))


ROWS = pd.DataFrame(
    [
        ["39", " State-gov", " Male", " <=50K", "Bo"],
        ["50", " Private", " Female", " >50K", "Al"],
        ["38", " Private", " Male", " <=50K", "Cy"],
        ["53", " State-gov", " Female", " >50K", "Di"],
    ]
)


@pytest.mark.parametrize("typed", [False, True])
def test_a_row_that_was_taken_for_the_header_is_no_draft(typed):
    """Of five names one is a number, three are values of their columns, and one is neither."""
    rows = ROWS.iloc[1:].set_axis(ROWS.iloc[0], axis=1)
    if typed:
        rows = rows.assign(**{"39": rows["39"].astype(int)})
    said = "small: the first line looks like a row, not a header; add a header .4 of its 5 names"
    with pytest.raises(InputError, match=said):
        draft(rows)


@pytest.mark.parametrize("first", [0, 1999])
def test_names_that_count_up_are_a_header(first):
    table = pd.DataFrame(
        np.tile([[0, 1], [1, 0]], (2, 2)), columns=[str(first + i) for i in range(4)]
    )
    roles = {"label": str(first), "positive": 0, "sensitive": str(first + 1)}
    assert draft(table, **roles)["label"] == str(first)
    with pytest.raises(InputError, match="looks like a row"):
        draft(table.rename(columns={str(first + 3): "7"}), **roles)


def test_a_header_may_hold_some_numbers_and_values():
    named = ROWS.set_axis(["1990", "Private", "sex", "income", "name"], axis=1)
    roles = {"label": "income", "positive": " >50K", "sensitive": "sex"}
    assert draft(named, **roles)["positive"] == ">50K"
    with pytest.raises(InputError, match="3 of its 5 names"):
        draft(named.rename(columns={"name": "2e3"}), **roles)


def test_an_additive_draft_has_a_spline_of_each_number_that_is_no_code():
    found = draft(additive=True)
    basis = {"kind": "spline", "knots": [0, 20, 40, 60, 80, 100]}
    assert found["columns"]["income"]["basis"] == basis
    assert "basis" not in found["columns"]["home"]
    assert len(completed(found).encoded_names) > len(completed(draft()).encoded_names)
    drawn = np.random.default_rng(0).random(N)
    rates = draft_column(pd.Series(drawn), additive=True)[0]
    assert rates["basis"]["knots"] == [0, 0.2, 0.4, 0.6, 0.8, 1]
