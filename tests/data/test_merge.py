"""Several sites' drafts become one schema."""

import json
from itertools import permutations

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
    return pd.DataFrame({"age": age, **drawn, "site": f"s{seed}"})


SITES = [("ab", 61, [0, 1, 2, 3]), ("a", 88, [0, 1]), ("ca", 90, [0]), ("a", 70, [1, 2])]
TABLES = [hospital(i, [*wards], high, stage) for i, (wards, high, stage) in enumerate(SITES)]
DRAFTS = [draft_document(t, "h", label="well", positive="yes", sensitive="sex") for t in TABLES]
REVIEWED = {key: value for key, value in DRAFTS[2].items() if key != "draft"}


def merged_by_command(folder, texts):
    for i, text in enumerate(texts):
        (folder / f"{i}.json").write_text(text)
    drafts = [f"{folder}/{i}.json" for i in range(len(texts))]
    return main(["schema", "merge", *drafts, "--output", f"{folder}/schema.json"])


def test_merge_of_four_drafts_fits_all_tables(tmp_path, capsys):
    """Constant columns are dropped from two of them, and where all have another value."""
    assert merged_by_command(tmp_path, [*map(json.dumps, DRAFTS)]) == 0
    said, path = capsys.readouterr().out, tmp_path / "schema.json"
    document = json.loads(path.read_text())
    asked = document.pop("draft")["to_review"]
    assert {*asked} >= {f"columns.{name}" for name in ("age", "stage", "ward", "sex", "site")}
    assert "ignored in all: site" in said
    path.write_text(json.dumps(document))
    schema = read_schema(path)
    stage, ward, age = (schema.columns[name] for name in ("stage", "ward", "age"))
    assert (stage.categories, ward.categories) == ((0, 1, 2, 3), ("a", "b", "c"))
    assert (age.lower, age.upper) == (0, 90)
    for i, table in enumerate(TABLES):
        assert len(encode(table, schema).y) == 300
        assert f"{i}.json" in said
    assert schema.hash in said
    assert main(["schema", "merge", str(path)]) == 0
    assert schema.hash in capsys.readouterr().out


def test_merge_is_of_the_set_of_documents():
    named = [d | {"name": f"h{i % 3}"} for i, d in enumerate(DRAFTS)]
    merged = [merge_schemas(dict(zip("abcd", p, strict=True))) for p in permutations(named)]
    assert len({json.dumps(document | {"draft": 0}) for document, _ in merged}) == 1


@pytest.mark.parametrize("document", [REVIEWED, DRAFTS[2]])
def test_merge_of_equal_schemas_asks_no_more_than_they_do(document):
    assert merge_schemas({"a": document, "b": document})[0] == document


def without(name):
    return {key: entry for key, entry in REVIEWED["columns"].items() if key != name}


@pytest.mark.parametrize(("change", "keys"), [
    ({"name": "b"}, {"name"}), ({"missing_values": ["?"]}, {"missing_values"}),
    ({"interactions": [["age", "ward"]]}, {"interactions"}),
    ({"columns": without("ward"), "ignored": ["ward"]}, {"columns.ward", "ignored"}),
    ({"columns": without("age")}, {"columns.age", "ignored"}),
    ({"positive": ["yes"], "sensitive": ["sex"]}, {"positive", "sensitive"}),
])  # fmt: skip
def test_merge_asks_where_a_reviewed_schema_differs(change, keys):
    merged, _ = merge_schemas({"a": REVIEWED, "b": REVIEWED | change})
    assert {*merged["draft"]["to_review"]} == keys
    words = [*REVIEWED["missing_values"], *change.get("missing_values", ())]
    assert merged["missing_values"] == words


STAGES, HIGH, REST = ["low", "mid", "high"], {"high": "H"}, ["a", "rest"]
ALL, NONE = ({"missing": m, "out_of_range": o} for m, o in (("category", "clip"), ["refuse"] * 2))


def number(*knots):
    spline = {"kind": "spline", "knots": [*knots]}
    return {"kind": "numeric", "lower": knots[0], "upper": knots[-1], "basis": spline}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("a", "b", "both"), [
    ({"categories": STAGES, "labels": {"low": "L"}}, {"categories": STAGES[::2], "labels": HIGH},
     {"categories": STAGES, "labels": {"low": "L"} | HIGH}),
    ({"categories": REST, "unlisted": "rest"}, {"categories": ["b", "x"], "unlisted": "x"},
     {"categories": ["a", "b", "rest"], "unlisted": "rest"}),
    ({"categories": [1, 2]}, {"categories": ["b", "a"]}, {"categories": ["1", "2", "a", "b"]}),
    ({"categories": [-140, 130]}, number(0, 30, 80), number(-200, 30, 200)),
    ({"bins": [0, 1, 2]}, {"bins": [0, 1, 2], "missing": "category"}, {"missing": "category"}),
    (number(0, 30, 80) | NONE, number(-10, 10, 20, 50) | ALL, number(-10, 30, 80) | ALL),
])  # fmt: skip
def test_merge_of_a_column_allows_and_means_what_each_site_does(a, b, both, order):
    """Of two splines, it has that of fewer pieces; its ends are the bounds of all."""
    columns = [without("ward") | {"ward": {"kind": "categorical"} | v} for v in (a, b)[::order]]
    merged, _ = merge_schemas({f"{i}": REVIEWED | {"columns": c} for i, c in enumerate(columns)})
    assert merged["columns"]["ward"] | both == merged["columns"]["ward"]


AGE = {"kind": "categorical", "categories": ["old", "young"]}
SHARES = AGE | {"unknown": "ignore", "shares": [0.5, 0.5]}


@pytest.mark.parametrize(("change", "words"), [
    ({"label": "age"}, "b: label"), ({"positive": "no"}, "b: positive"),
    ({"sensitive": "ward"}, "b: sensitive"),
    ({"columns": DRAFTS[2]["columns"] | {"age": AGE}}, "b: .*age"),
    ({"columns": without("age") | {"age": {"kind": "categorical", "bins": [0, 9, 99]}}}, "age.bins"),
    ({"columns": without("ward") | {"ward": SHARES}}, "ward.shares"),
])  # fmt: skip
def test_merge_of_what_means_another_thing_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        merge_schemas({"a": DRAFTS[0], "b": DRAFTS[2] | change})


@pytest.mark.parametrize("column", [None, {"kind": "numeric"}, {"kind": "x"}, 5])
def test_merge_of_a_file_that_is_none_is_refused(tmp_path, column):
    other = json.dumps({"label": 1} if column is None else DRAFTS[2] | {"columns": {"age": column}})
    assert merged_by_command(tmp_path, [json.dumps(DRAFTS[0]), other]) == 2
    assert not (tmp_path / "schema.json").exists()
