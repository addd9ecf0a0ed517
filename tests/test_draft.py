import io
import json

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table, needs_data
from hypothesis import given
from hypothesis import strategies as st
from own_tables import hospital

import synthfair as sf
from synthfair.data.column_draft import draft_column, round_bounds
from synthfair.data.draft import draft_table, find_missing, propose, require_rows_and_header
from synthfair.data.encode import encode
from synthfair.data.schema import parse_schema
from synthfair.data.tables import read_raw_table, read_table
from synthfair.errors import InputError


def draft(table=None, **changes):
    settings = {"name": "small", "label": "paid", "sensitive": "town"} | changes
    return draft_table(make_table() if table is None else table, **settings)


def completed(found):
    return parse_schema(found.to_json(reviewed=True), source="x")


def test_a_draft_is_refused_until_its_block_is_deleted():
    with pytest.raises(InputError, match="still marked a draft"):
        parse_schema(draft(positive=["yes"]).to_json(), source="x")


def test_a_draft_tells_what_it_read_off_the_rows():
    notes = json.loads(draft().to_json())["draft"]
    assert notes["read_off_private_rows"] == {
        "income": ["lower", "upper"],
        "age": ["lower", "upper", "missing"],
        "home": ["categories", "missing"],
        "town": ["categories"],
        "paid": ["categories"],
    }
    assert set(notes["to_complete"]) == {"description", "positive"}


def test_no_number_of_the_rows_is_in_a_draft():
    text = draft().to_json()
    assert not any(
        f"{value}" in text for value in make_table()[["income", "age"]].to_numpy().ravel()
    )


def test_a_completed_draft_encodes_the_table():
    with pytest.raises(InputError, match="positive"):
        completed(draft())
    schema = completed(draft(positive=["yes"]))
    assert encode(make_table(), schema).x.shape == (120, len(make_schema().encoded_names))
    assert (schema.columns["income"].lower, schema.columns["income"].upper) == (0, 100)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"label": "height"}, "'height': must be one of income, age, home, town, paid"),
        ({"sensitive": "height"}, "'height': must be one of"),
        ({"sensitive": "paid"}, "is the label"),
        ({"positive": ["perhaps"]}, "'perhaps': 'paid' holds no, yes"),
        ({"positive": ["yes", "no"]}, "these are all values"),
        ({"label": "income"}, "'income': holds 120 values, and needs from 2 to 30"),
        ({"sensitive": "income"}, "'income': holds 120 values"),
        ({"table": make_table().head(0)}, "has no rows"),
        ({"table": make_table().assign(town=None)}, "'town': holds 0 values"),
    ],
)
def test_roles_that_cannot_be(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        draft(**changes)


@pytest.mark.parametrize("text", ["1", "1.0"])
def test_positive_names_a_number_by_value(text):
    table = make_table().assign(paid=lambda t: (t["paid"] == "yes").astype(float))
    assert draft(table, positive=[text]).positive == 1


RNG = np.random.default_rng(0)
N = 1000
DIAGNOSES = np.array([f"V{i}" if i % 3 else f"{i}.1" for i in range(700)])
BANDS = ["0-10%", "20-30%", "30-40%"]
THOUSANDS = [f"{i:,.2f}" for i in range(1500, 2500)]
IDENTIFIERS = RNG.integers(2 * 10**5, size=40_000)
OFTEN = DIAGNOSES[(RNG.pareto(0.5, N) * 10).astype(int) % 700]


@pytest.mark.parametrize(
    ("name", "values", "use", "question"),
    [
        ("age", RNG.integers(17, 91, N), "numeric", ""),
        ("age", RNG.normal(size=N), "numeric", ""),
        ("won", RNG.integers(2, size=N), "categories", ""),
        ("won", RNG.random(N) > 0.5, "categories", ""),
        ("home", RNG.choice(["own", "rent", "?"], N), "categories", ""),
        ("visits", RNG.integers(7, size=N), "categories", "7 whole numbers: are they codes"),
        ("source_id", RNG.integers(25, size=N), "categories", "25 whole numbers: are they"),
        ("stay", RNG.integers(14, size=N), "numeric", ""),
        ("row", np.arange(N) + 5, "ignored", "1000 rows, 100% distinct: an identifier?"),
        ("patient_nbr", RNG.integers(10**6, size=N), "ignored", "100% distinct: an identifier?"),
        ("customerID", [f"7590-{i}" for i in range(N)], "ignored", "identifiers, or free text?"),
        ("pay", RNG.permutation(10**6)[:N], "numeric", "100% distinct: a quantity, or an id"),
        ("drug", ["No"] * N, "ignored", "holds one value, 'No'"),
        ("drug", [None] * N, "ignored", "holds no value"),
        ("drug", ["No", "?"] * (N // 2), "ignored", "holds one value, 'No'"),
        ("diagnosis", OFTEN, "grouped", "values; those of at least 1% of the rows"),
        ("zip_code", RNG.integers(200, size=N) // 4, "grouped", "50 values; those of at least 1%"),
        ("zip_code", RNG.integers(400, size=N), "ignored", "values in 1000 rows: identifiers"),
        ("home_ZIP", RNG.integers(200, size=N) // 4, "grouped", "50 values; those of at least 1%"),
        ("zipcode", RNG.integers(200, size=N) // 4, "grouped", "50 values; those of at least 1%"),
        ("Postcode", RNG.integers(200, size=N) // 4, "grouped", "50 values; those of at least 1%"),
        ("postal", RNG.integers(200, size=N) // 4, "grouped", "50 values; those of at least 1%"),
        ("zips", RNG.integers(200, size=N) // 4, "numeric", ""),  # a number of zips
        ("day", pd.date_range("2020-01-01", periods=N).astype(str), "ignored", "1000 dates"),
        ("day", pd.date_range("2020-01-01", periods=N), "ignored", "1000 dates"),
        ("rate", [f"{i},5" for i in range(N)], "ignored", "a decimal comma; write 1.5 for 1,5"),
        ("age", [*map(str, range(40)), "unknown"] * 9, "grouped", "numbers, but for 'unknown'"),
        ("id_student", RNG.integers(3000, size=N), "ignored", "% distinct: an identifier?"),
        ("idStudent", RNG.integers(3000, size=N), "ignored", "% distinct: an identifier?"),
        ("ID number", RNG.integers(3000, size=N), "ignored", "% distinct: an identifier?"),
        ("student", IDENTIFIERS, "ignored", "% distinct: an identifier?"),
        ("student", IDENTIFIERS[:N], "numeric", "% distinct: a quantity, or an identifier?"),
        ("bill", np.where(RNG.random(40_000) < 0.05, 0, IDENTIFIERS), "numeric", "a quantity, or"),
        ("account", 10**18 + np.arange(N) // 2, "ignored", "50% distinct, some above 9007199"),
        ("account", 10**18 + np.arange(N) // 250, "ignored", "0% distinct, some above 9007199"),
        ("force", RNG.normal(size=N) * 1e18, "numeric", ""),
        ("score", RNG.permutation(400)[:40], "numeric", "a quantity, or an identifier?"),
        ("income", [f"{i:,.2f}" for i in range(500, 1500)], "ignored", "thousands separators"),
        ("income", [f"€ {i:,}" for i in range(500, 1500)], "ignored", "or a currency; write"),
        ("income", ["-"] * 5 + THOUSANDS, "ignored", "for 63,606.07 in the file, but for '-'; if"),
        ("income", [f"({one})" for one in THOUSANDS], "ignored", "brackets or a currency; write"),
        ("income", [f"EUR {one}" for one in THOUSANDS], "ignored", "brackets or a currency"),
        ("income", [f"EUR {i}.50" for i in range(1500, 2500)], "ignored", "brackets or a currency"),
        ("income", [f"-{one} GBP" for one in THOUSANDS], "ignored", "brackets or a currency"),
        ("income", [t.replace(",", "\u00a0") for t in THOUSANDS], "ignored", "thousands separat"),
        ("income", [t.replace(",", "\u202f") for t in THOUSANDS], "ignored", "thousands separat"),
        ("income", [f"1\u202f{i},50 €" for i in range(100, 999)], "ignored", "a decimal comma"),
        ("income", [*map(str, range(900)), "-"], "ignored", "numbers, but for '-'"),
        ("rate", ["unknown"] * 3 + [f"{i / 10}%" for i in range(N)], "ignored", "for 'unknown'"),
        ("rate", ["unknown"] * N + [f"{i / 10}%" for i in range(N)], "ignored", "free text?"),
        ("rate", [f"{i / 10} %" for i in range(N)], "ignored", "percent sign; write 63.6 for"),
        ("rate", ["63.6%", "5%"] * 9, "categories", "percent sign; write 63.6 for"),
        ("band", [*BANDS, "20-Oct"] * 9, "categories", "'20-Oct' among ranges: has a spreadsheet"),
        ("band", ["0%", "10%", "20-Oct"] * 9, "categories", "a date of a range, 20-Oct of 10-20?"),
        (
            "band",
            ["0-4", "9-May", "14-Oct", "15-19", "20+"] * 9,
            "categories",
            "among ranges: has a",
        ),
        ("band", BANDS * 9, "categories", ""),
        ("code", ["CAT 1", "may", "20-Oct"] * 9, "categories", ""),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_columns_are_drafted_by_what_they_hold(name, values, use, question, as_text):
    column = pd.Series(values, name=name)
    column = column.astype("string").fillna("") if as_text else column
    found = draft_column(column, missing_values=["", "?"])
    assert found.use == use
    assert bool(found.question) == bool(question)
    assert question in found.question


def test_a_range_that_became_a_date_is_asked_about_among_groups_too():
    found = draft(make_table().assign(town=["0-10", "20-Oct", "20-30"] * 40))
    assert "'20-Oct' among ranges" in found.to_complete["columns.town"]


def test_whole_numbers_in_ranges_that_overlap_are_drafted_as_one():
    table = make_table().assign(
        PAY_1=np.resize(np.arange(4), 120), PAY_2=np.resize(np.arange(11), 120)
    )
    found = draft(table).columns
    assert found["PAY_1"].entry == found["PAY_2"].entry
    assert found["PAY_1"].entry["upper"] == 10


def test_columns_of_one_scale_are_drafted_alike():
    """PAY_5 happens to lack a value; BILL_1 has other bounds than BILL_2, and so is by itself."""
    scale, n = np.arange(-2, 9), 120
    table = make_table(n).assign(
        PAY_0=np.resize(scale, n),
        PAY_5=np.resize(np.delete(scale, 3), n),
        PAY_x=np.resize(np.delete(scale, 3), n),
        BILL_1=np.resize([0, 1], n),
        BILL_2=np.resize(np.arange(30), n),
    )
    found = draft(table).columns
    assert found["PAY_0"].entries == found["PAY_5"].entries
    assert {name: column.use for name, column in found.items() if "_" in name} == {
        "PAY_0": "numeric",
        "PAY_5": "numeric",
        "PAY_x": "categories",
        "BILL_1": "categories",
        "BILL_2": "numeric",
    }


QUANTITIES = {
    "adult": ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"],
    "bank": ["balance", "day", "duration", "campaign"],
    "loanapp": ["loanamt", "appinc", "atotinc", "cototinc", "hexp"],
}


@needs_data
@pytest.mark.parametrize("name", QUANTITIES)
@pytest.mark.parametrize("n_rows", [60, 500, 5000, None])
def test_no_quantity_of_the_public_tables_is_taken_for_an_identifier(name, n_rows):
    table = sf.load_dataset(name)[0]
    some = table.sample(min(n_rows or len(table), len(table)), random_state=0)
    found = [draft_column(some[column]) for column in QUANTITIES[name]]
    assert not any(one.use == "ignored" and "identifier" in one.question for one in found)
    if n_rows is None:
        assert {one.use for one in found} == {"numeric"}


def test_alternatives_are_at_hand():
    found = draft_column(pd.Series(RNG.integers(7, size=N), name="visits"))
    assert found.others == {
        "numeric": {"kind": "numeric", "lower": 0, "upper": 10, "out_of_range": "clip"}
    }


@pytest.mark.parametrize("values", [["red", "blue", "teal"], [1, 2, 9]])
def test_rare_categories_may_be_merged(values):
    counts = [N - 101, 96, 5]
    found = draft_column(pd.Series(np.repeat(values, counts), name="paint"))
    assert found.use == "categories"
    assert found.others["grouped"]["categories"][:-1] == sorted(values[:2])
    frequent = draft_column(pd.Series(np.repeat(values[:2], counts[:2]), name="paint"))
    assert "grouped" not in frequent.entries


@pytest.mark.parametrize("codes", [False, True])
def test_a_grouped_column_takes_rare_and_new_values(codes):
    rare = RNG.permutation(np.repeat([*range(20), *range(100, 300)], [*[40] * 20, *[1] * 200]))
    table = make_table(N).assign(zip_code=rare if codes else [f"c{value}" for value in rare])
    found = draft(table, positive=["yes"])
    schema = completed(found)
    assert len(schema.columns["zip_code"].categories) == 21
    new = table.assign(zip_code=10**5 if codes else "new")
    x, _, _ = encode(new, schema)
    assert (x[:, schema.encoded_names.index(f"zip_code={-1 if codes else 'other'}")] == 1).all()


@given(
    st.tuples(*[st.floats(-1e300, 1e300, allow_subnormal=False)] * 2)
    .map(sorted)
    .filter(lambda ends: ends[1] - ends[0] > 1e-9 * max(map(abs, ends)) > 1e-200)
)
def test_bounds_are_round_and_hold_the_values(ends):
    low, high = ends
    lower, upper = round_bounds(low, high)
    assert lower <= low < high <= upper
    assert upper - lower <= 10 * (high - low)


@pytest.mark.parametrize(
    ("ends", "bounds"),
    [
        ((0, 1), (0, 1)),
        ((13, 4356), (0, 5000)),
        ((0, 99999), (0, 100000)),
        ((-3.97, 4.1), (-5, 5)),
        ((1900.5, 1999), (1900, 2000)),
        ((0.0013, 0.0441), (0, 0.05)),
        ((-20, -15), (-20, -15)),
        ((36.1, 41.9), (36, 42)),
        ((0, 1.5e308), (0, 1.5e308)),
        ((5e-324, 1e-323), (5e-324, 1e-323)),
    ],
)
def test_bounds_look_like_those_of_a_codebook(ends, bounds):
    assert round_bounds(*ends) == bounds


def test_marks_of_missing_values_are_found():
    table = pd.DataFrame({"a": ["?", "1"], "b": [" ?", "None"], "c": ["NULL", "N/A"], "d": [1, 2]})
    assert find_missing(table, ["unknown"]) == (
        "", "NA", "NaN", " ?", "?", "N/A", "NULL", "unknown",
    )  # fmt: skip


def test_rows_without_group_or_label():
    table = make_table().assign(town=["a", "b", "?"] * 40)
    found = draft(table, positive=["yes"])
    assert "40 rows have no group" in found.to_complete["columns.town"]
    assert "'?'" in found.to_complete["missing_values"]
    schema = completed(found)
    assert schema.groups == ("a", "b", "unknown")
    s = encode(table.replace("?", None), schema).s
    np.testing.assert_array_equal(s, [0, 1, 2] * 40)
    found = draft(make_table().assign(paid=["yes", "no", ""] * 40))
    assert "40 rows have no label" in found.to_complete["columns.paid"]


def test_one_group_of_several_may_be_here():
    found = draft(make_table().assign(town="a"))
    assert found.to_complete["columns.town"] == "holds only 'a'; list all values that can occur"


def test_a_draft_takes_a_line_for_each_column():
    text = draft(hospital(), label="readmitted", sensitive="race").to_json()
    assert len(text.splitlines()) < 2 * hospital().shape[1] + 60
    assert max(len(line) for line in text.splitlines() if '"warning"' not in line) < 400


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_as_people_have_it_from_file_to_numbers(tmp_path, separator):
    path = tmp_path / "hospital.csv"
    hospital(7000).to_csv(path, index=False, sep=separator)
    found = draft(
        read_raw_table(path), label="readmitted", sensitive="race", positive=["<30", ">30"]
    )
    assert set(found.ignored) == {"encounter_id", "patient_nbr", "examide"}
    assert set(found.to_complete) == {
        "description",
        "missing_values",
        "columns.race",
        *(f"columns.diag_{i}" for i in (1, 2, 3)),
        *(f"columns.{name}" for name in ("admission_type_id", "discharge_id", "procedures")),
        *(f"ignored.{name}" for name in found.ignored),
    }
    schema = completed(found)
    encoded = encode(read_table(path, schema), schema)
    assert len(encoded.y) == 7000
    assert len(np.unique(encoded.s)) == 6
    assert 0.3 < (encoded.y > 0).mean() < 0.6


def test_drafting_and_encoding_a_large_table_takes_seconds(tmp_path, work):
    """10^5 rows of 50 columns, of which three have 700 codes; it takes about a tenth of this."""
    path = tmp_path / "hospital.csv"
    hospital(100_000).to_csv(path, index=False)
    table = read_raw_table(path)
    assert table.shape == (100_000, 50)
    schema = completed(draft(table, label="readmitted", sensitive="race", positive=["<30", ">30"]))
    encoded = encode(read_table(path, schema), schema)
    assert work() < 12_000
    assert encoded.x.shape == (100_000, len(schema.encoded_names))


@pytest.mark.parametrize(
    ("columns", "label", "sensitive"),
    [
        (["age", "sex", "outcome"], "outcome", "sex"),
        (["race", "sex", "Class"], "Class", None),  # two could be
        (["home", "applicant-gender", "paid"], None, "applicant-gender"),
        (["embrace", "classic", "last"], None, None),  # no words of their own
    ],
)
def test_a_role_is_proposed_by_the_only_name_that_says_so(columns, label, sensitive):
    rows = pd.DataFrame({name: ["a", "b"] for name in columns})
    assert (propose(rows, "label"), propose(rows, "sensitive")) == (label, sensitive)
    draft = draft_table(rows, name="mine")
    assert (draft.label, draft.sensitive) == (label, sensitive)
    assert {"label", "sensitive"} <= set(draft.to_complete)


def test_a_name_of_many_values_is_no_reason():
    assert propose(pd.DataFrame({"y": [f"{i}" for i in range(100)]}), "label") is None


def test_blanks_around_a_mark_make_one_question(monkeypatch, capsys):
    from synthfair.cli.schema_questions import _Questions

    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\nn\n"))
    found = _Questions().which_mean_missing(["", "NA", "NaN", " ?", "?", "n/a", " NA"], ())
    assert found == ["", "NA", "NaN", " ?", "?"]


def test_a_number_named_as_a_column_of_releases_is_to_be_renamed():
    rows = pd.DataFrame({"y": np.arange(100.0) / 3, "s": ["a", "b"] * 50})
    asked = draft_table(rows, name="mine").to_complete
    assert "rename" in asked["columns.y"]
    assert "columns.s" not in asked  # its categories have names of their own


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
    said = "mine: the first line looks like a row, not a header; add a header .4 of its 5 names"
    with pytest.raises(InputError, match=said):
        draft_table(rows, name="mine", label="no such column")


@pytest.mark.parametrize("first", [0, 1999])
def test_names_that_count_up_are_a_header(first):
    table = pd.DataFrame(np.tile([0, 1], (4, 2)), columns=[str(first + i) for i in range(4)])
    require_rows_and_header(table, source="pixels")
    with pytest.raises(InputError, match="looks like a row"):
        require_rows_and_header(table.rename(columns={str(first + 3): "7"}), source="pixels")


def test_a_header_may_hold_some_numbers_and_values():
    named = ROWS.set_axis(["1990", "Private", "sex", "income", "name"], axis=1)
    assert draft_table(named, name="mine").label is None
    with pytest.raises(InputError, match="3 of its 5 names"):
        draft_table(named.rename(columns={"name": "2e3"}), name="mine")


def test_a_role_that_differs_in_blanks_alone_has_a_hint():
    with pytest.raises(InputError, match="label 'paid': must be .*; blanks count: .* has ' paid'"):
        draft(make_table().rename(columns={"paid": " paid"}))


def test_roles_that_are_left_open_are_named_in_the_error():
    text = draft_table(make_table(), name="mine").to_json(reviewed=True)
    with pytest.raises(InputError, match="mine.json: label, positive, sensitive: null, as a draft"):
        parse_schema(text, source="mine.json")


def test_a_name_that_releases_use_is_said_beside_the_columns_own_question():
    table = make_table(60).assign(row=[f"{i % 7}" for i in range(60)], y=np.arange(60.0) / 7)
    found = draft_table(table, name="t").to_complete
    keys = [key for key, said in found.items() if "releases have a column of this name" in said]
    assert keys
    for key in keys:
        column = key.split(".", 1)[1]
        alone = draft_table(table.rename(columns={column: "z"}), name="t").to_complete
        question = alone.get(key.replace(column, "z"), "")
        assert found[key].startswith(question.replace("'z'", repr(column)))
