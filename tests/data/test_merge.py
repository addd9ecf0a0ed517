"""Several sites' drafts become one schema."""

import json
from pathlib import Path

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
    """Rows of one of four hospitals; ``stage`` are the categories that occur there."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(18, high, 300) + 0.5,
        "stage": rng.choice(stage, 300),
        "ward": rng.choice(ward, 300),
        "sex": rng.choice(["f", "m"] if seed else ["f"], 300),
        "well": rng.choice(["no", "yes"], 300),
    })  # fmt: skip


@pytest.fixture
def hospitals(tmp_path):
    """Four tables and their drafts; constant columns are dropped from two of these."""
    for seed, (ward, high, stage) in enumerate(
        ((["a", "b"], 61, [0, 1, 2, 3]), (["a"], 88, [0, 1]), (["c", "a"], 90, [0]), (["a"], 70, [1, 2]))
    ):  # fmt: skip
        table = hospital(seed, ward, high, stage)
        table.to_csv(tmp_path / f"{seed}.csv", index=False)
        document = draft_document(table, "hospital", label="well", positive="yes", sensitive="sex")
        (tmp_path / f"{seed}.json").write_text(json.dumps(document))
    return tmp_path


def test_merge_of_four_drafts_fits_all_tables(hospitals, capsys):
    drafts = [f"{hospitals}/{i}.json" for i in range(4)]
    assert main(["schema", "merge", *drafts, "--output", f"{hospitals}/schema.json"]) == 0
    said = capsys.readouterr().out
    document = json.loads((hospitals / "schema.json").read_text())
    asked = document.pop("draft")["to_review"]
    assert {*asked} == {f"columns.{name}" for name in ("age", "stage", "ward", "sex")}
    (hospitals / "schema.json").write_text(json.dumps(document))
    schema = read_schema(hospitals / "schema.json")
    assert schema.hash in said
    assert schema.columns["stage"].categories == (0, 1, 2, 3)
    assert schema.columns["ward"].categories == ("a", "b", "c")
    assert (schema.columns["age"].lower, schema.columns["age"].upper) == (0, 90)
    for i in range(4):
        assert len(encode(pd.read_csv(hospitals / f"{i}.csv"), schema).y) == 300
        assert f"{i}.json" in said


def test_merge_of_equal_schemas_asks_nothing(hospitals):
    document = json.loads((hospitals / "0.json").read_text()) | {"draft": {}}
    document["columns"]["sex"]["categories"] = ["f", "m"]
    merged, _ = merge_schemas({"a": document, "b": document})
    assert merged == {key: value for key, value in document.items() if key != "draft"}


def test_merge_ignores_a_column_that_a_site_lacks(hospitals):
    one, other = (json.loads((hospitals / f"{i}.json").read_text()) for i in (0, 2))
    del other["columns"]["age"]
    merged, schema = merge_schemas({"a": one, "b": other})
    assert "age" in schema.ignored
    assert "b" in merged["draft"]["to_review"]["age"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "age"}, "b: label"),
        ({"positive": "no"}, "b: positive"),
        ({"sensitive": "ward"}, "b: sensitive"),
        ({"columns": {"age": {"kind": "categorical", "categories": ["old", "young"]}}}, "b: .*age"),
    ],
)
def test_merge_of_what_means_another_thing_is_refused(hospitals, change, words):
    one, other = (json.loads((hospitals / f"{i}.json").read_text()) for i in (0, 2))
    if "columns" in change:
        change = {"columns": other["columns"] | change["columns"]}
    with pytest.raises(InputError, match=words):
        merge_schemas({"a": one, "b": other | change})


def test_merge_of_a_file_that_is_none_is_refused(hospitals):
    Path(hospitals / "x.json").write_text('{"label": 1}')
    argv = ["schema", "merge", f"{hospitals}/0.json", f"{hospitals}/x.json"]
    assert main([*argv, "--output", f"{hospitals}/schema.json"]) == 2
    assert not (hospitals / "schema.json").exists()
