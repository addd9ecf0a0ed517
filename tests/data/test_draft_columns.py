"""Columns of a draft: what each is taken for by its values, its type or an argument."""

import numpy as np
import pandas as pd
import pytest
from builders import make_table
from hypothesis import given
from hypothesis import strategies as st

import synthfair as sf
from synthfair.data.draft import (
    CODES_QUESTION,
    DECLARED,
    draft_column,
    draft_document,
    find_missing,
    round_bounds,
)
from synthfair.data.encode import tidied

TABLE = make_table()
RNG = np.random.default_rng(0)
N = 1000


def draft(table=TABLE, **settings):
    roles = {"label": "paid", "positive": "yes", "sensitive": "town"}
    return draft_document(table, "small", **roles | settings)


def use_of(entry):
    """How a column is used that has this entry."""
    if entry is None or "unlisted" not in entry:
        return entry and entry["kind"]
    return "grouped"


DIAGNOSES = np.array([f"V{i}" if i % 3 else f"{i}.1" for i in range(700)])
OFTEN = DIAGNOSES[(RNG.pareto(0.5, N) * 10).astype(int) % 700]
DAYS = pd.date_range("2020-01-01", periods=N)
THOUSANDS = [f"{i:,.2f}" for i in range(1500, 2500)]


@pytest.mark.parametrize(
    ("values", "use", "why"),
    [
        (RNG.integers(17, 91, N), "numeric", "74 whole numbers"),
        (RNG.normal(size=N), "numeric", "numbers"),
        (RNG.integers(2, size=N), "categorical", "2 whole numbers"),
        (RNG.choice(["own", "rent", "?"], N), "categorical", "2 values"),
        (RNG.integers(10, size=N), "categorical", f"10 whole numbers: {CODES_QUESTION}"),
        (RNG.integers(11, size=N), "numeric", f"11 whole numbers: {CODES_QUESTION}"),
        (np.arange(N) + 5, None, "identifier"),
        ([f"7590-VH{i}" for i in range(N)], None, "identifiers"),
        (RNG.permutation(10**6)[:N], "numeric", CODES_QUESTION),
        (10**18 + np.arange(N) // 2, None, "identifier"),
        (RNG.permutation(400)[:40], "numeric", CODES_QUESTION),
        (["No"] * N, None, "holds only 'No'"),
        (["No", "?"] * (N // 2), None, "holds only 'No'"),
        ([None] * N, None, "no value"),
        ([7, None] * N, None, "holds only 7;"),
        ([np.int64(7), 7] * N, None, "holds only 7;"),
        (OFTEN, "grouped", "1%"),
        ([f"0{i}" for i in RNG.integers(100, 150, N)], "grouped", CODES_QUESTION),
        (np.resize(["20095", "01003"], N), "categorical", CODES_QUESTION),
        (DAYS.astype(str), None, "dates"),
        (DAYS, None, "dates"),
        (DAYS - DAYS[0], None, "durations"),
        ([f"{i % 24:02}:{i % 60:02}" for i in range(N)], None, "times"),
        ([f"{i % 28 + 1}.{i % 12 + 1}.2025" for i in range(N)], None, "dates"),
        ([*map(str, range(40)), "unknown"] * 9, None, "but for 'unknown'"),
        ([*map(str, range(900)), "-"], None, "but for '-'"),
        ([*map(str, range(40)), *["dead"] * 9] * 9, None, "but for 'dead'"),
        ([f"{i},5" for i in range(N)], "numeric", "numbers"),
        (["unknown"] * N + [f"{i / 10}%" for i in range(N)], None, "free text"),
        (["0-10%", "20-30%", "30-40%"] * 9, "categorical", "3 values"),
        (THOUSANDS, None, "write 63606.07"),
        (["-"] * 5 + THOUSANDS, None, "write 63606.07"),
        ([f"({text})" for text in THOUSANDS], None, "write 63606.07"),
        ([f"€ {i:,}" for i in range(500, 1500)], None, "write 63606.07"),
        ([f"-{text} GBP" for text in THOUSANDS], None, "write 63606.07"),
        ([f"1\u202f{i},50 €" for i in range(100, 999)], None, "write 63606.07"),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_column_is_drafted_by_what_it_holds(values, use, why, as_text):
    column = pd.Series(values, name="x")
    column = column.astype("string").fillna("") if as_text else column
    entry, cause = draft_column(tidied(column.to_frame(), ["", "?"], ["x"])["x"])
    assert use_of(entry) == use
    assert why in cause


def test_column_of_lists_is_ignored():
    assert draft(TABLE.assign(tags=[["a", "b"]] * 120))["ignored"] == ["tags"]


@pytest.mark.parametrize("spelled", [(True, False), ("TRUE", "FALSE"), ("true", "FALSE")])
def test_column_of_truths_is_one_however_they_are_spelled(spelled):
    member = draft(TABLE.assign(member=np.where(TABLE["income"] > 40, *spelled)))["columns"]
    assert member["member"] == {"kind": "categorical", "categories": ["False", "True"]}


def test_codes_are_asked_about_first():
    table = TABLE.assign(relation=np.resize(range(7), 120), note=np.resize(["x", "y"], 120))
    assert next(iter(draft(table)["draft"]["to_review"])) == "columns.relation"


def test_types_and_arguments_say_what_a_column_is():
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


def test_quantities_of_a_public_table_are_no_identifiers():
    table = sf.load_dataset("loanapp")[0]
    for some in (table.sample(60, random_state=0), table):
        for name in ["loanamt", "appinc", "atotinc", "cototinc", "hexp"]:
            assert draft_column(some[name])[0]["kind"] == "numeric" or len(some) == 60


def test_additive_draft_has_splines_of_numbers_that_are_no_codes():
    document = draft(additive=True)
    knots = [0, 20, 40, 60, 80, 100]
    assert document["columns"]["income"]["basis"] == {"kind": "spline", "knots": knots}
    assert "basis" not in document["columns"]["home"]
    rates = draft_column(pd.Series(RNG.random(N)), additive=True)[0]
    assert rates["basis"]["knots"] == [0, 0.2, 0.4, 0.6, 0.8, 1]


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
        ((13, 4356), (0, 5000)),
        ((0, 99999), (0, 100000)),
        ((-3.97, 4.1), (-4, 5)),
        ((1900.5, 1999), (1900, 2000)),
        ((0.0013, 0.0441), (0, 0.05)),
        ((36.1, 41.9), (36, 42)),
        ((0, 1.5e308), (0, 1.5e308)),
        ((5e-324, 1e-323), (5e-324, 1e-323)),
    ],
)
def test_bounds_are_those_of_a_codebook(ends, bounds):
    assert round_bounds(*map(float, ends)) == bounds


def test_missing_marks_are_found():
    table = pd.DataFrame({"a": ["?", "1"], "b": [" ?", "None"], "c": ["NULL", "N/A"], "d": [1, 2]})
    found = find_missing(table, ["unknown"])
    assert found == ["", "NA", "NaN", "?", "N/A", "NULL", "unknown"]
