"""Several sites' drafts become one schema."""

import json

import numpy as np
import pandas as pd
import pytest

from synthfair.cli import main
from synthfair.data.draft import draft_document
from synthfair.data.encode import encode
from synthfair.data.merge import merge_schemas
from synthfair.data.schema import read_schema
from synthfair.errors import InputError


def hospital(seed, ward, high, stage):
    """Rows of a hospital; the first has one sex alone."""
    rng = np.random.default_rng(seed)
    sexes, age = ["f", "m"] if seed else ["f"], rng.integers(18, high, 300) + 0.5
    values = {"stage": stage, "ward": ward, "sex": sexes, "well": ["no", "yes"]}
    drawn = {name: rng.choice(among, 300) for name, among in values.items()}
    return pd.DataFrame({"age": age, **drawn})


SITES = [("ab", 61, [0, 1, 2, 3]), ("a", 88, [0, 1]), ("ca", 90, [0]), ("a", 70, [1, 2])]
TABLES = [hospital(i, [*wards], high, stage) for i, (wards, high, stage) in enumerate(SITES)]
ROLES = {"label": "well", "positive": "yes", "sensitive": "sex"}
DRAFTS = [draft_document(table, "hospital", **ROLES) for table in TABLES]


def merged_by_command(folder, texts):
    for i, text in enumerate(texts):
        (folder / f"{i}.json").write_text(text)
    drafts = [f"{folder}/{i}.json" for i in range(len(texts))]
    return main(["schema", "merge", *drafts, "--output", f"{folder}/schema.json"])


def test_merge_of_four_drafts_fits_all_tables(tmp_path, capsys):
    """Constant columns are dropped from two of them."""
    assert merged_by_command(tmp_path, [*map(json.dumps, DRAFTS)]) == 0
    said, path = capsys.readouterr().out, tmp_path / "schema.json"
    document = json.loads(path.read_text())
    asked = document.pop("draft")["to_review"]
    assert {*asked} == {f"columns.{name}" for name in ("age", "stage", "ward", "sex")}
    path.write_text(json.dumps(document))
    schema = read_schema(path)
    stage, ward, age = (schema.columns[name] for name in ("stage", "ward", "age"))
    assert (stage.categories, ward.categories) == ((0, 1, 2, 3), ("a", "b", "c"))
    assert (age.lower, age.upper) == (0, 90)
    for i, table in enumerate(TABLES):
        assert len(encode(table, schema).y) == 300
        assert f"{i}.json" in said
    assert schema.hash in said


def test_merge_of_equal_schemas_asks_nothing():
    document = {key: value for key, value in DRAFTS[1].items() if key != "draft"}
    assert merge_schemas({"a": document, "b": document})[0] == document


def test_merge_ignores_a_column_that_a_site_lacks():
    without = {name: entry for name, entry in DRAFTS[2]["columns"].items() if name != "age"}
    without["ward"] = {"kind": "categorical", "categories": [1, 2]}
    other = DRAFTS[2] | {"columns": without, "missing_values": ["?"]}
    merged, schema = merge_schemas({"a": DRAFTS[0], "b": other})
    assert "age" in schema.ignored
    assert schema.columns["ward"].categories == ("1", "2", "a", "b")
    assert schema.missing_values == (*DRAFTS[0]["missing_values"], "?")
    assert "b" in merged["draft"]["to_review"]["age"]


@pytest.mark.parametrize("order", [1, -1])
def test_merge_allows_what_some_site_allows(order):
    """Of two splines, that of fewer pieces; its ends are the bounds of all, codes among them."""
    ages = [
        {"lower": 0.0, "upper": 80.0, "missing": "refuse", "out_of_range": "refuse"},
        {"lower": -10.0, "upper": 50.0, "missing": "category", "out_of_range": "clip"},
    ]
    for age, knots in zip(ages, ([0.0, 30.0, 80.0], [-10.0, 10.0, 20.0, 50.0]), strict=True):
        age["basis"] = {"kind": "spline", "knots": knots}
    codes = {"kind": "categorical", "categories": [-140, 130]}
    sites = {
        str(i): DRAFTS[2] | {"columns": DRAFTS[2]["columns"] | {"age": {"kind": "numeric"} | age}}
        for i, age in enumerate([*ages[::order], codes])
    }
    age = merge_schemas(sites)[1].columns["age"]
    assert (age.lower, age.upper, age.missing, age.out_of_range) == (-200, 200, "category", "clip")
    assert age.basis.knots == (-200, 30, 200)


AGE = {"kind": "categorical", "categories": ["old", "young"]}


@pytest.mark.parametrize(("change", "words"), [
    ({"label": "age"}, "b: label"), ({"positive": "no"}, "b: positive"),
    ({"sensitive": "ward"}, "b: sensitive"),
    ({"columns": DRAFTS[2]["columns"] | {"age": AGE}}, "b: .*age"),
])  # fmt: skip
def test_merge_of_what_means_another_thing_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        merge_schemas({"a": DRAFTS[0], "b": DRAFTS[2] | change})


@pytest.mark.parametrize("column", [None, {"kind": "numeric"}, {"kind": "x"}, 5])
def test_merge_of_a_file_that_is_none_is_refused(tmp_path, column):
    other = json.dumps({"label": 1} if column is None else DRAFTS[2] | {"columns": {"age": column}})
    assert merged_by_command(tmp_path, [json.dumps(DRAFTS[0]), other]) == 2
    assert not (tmp_path / "schema.json").exists()
