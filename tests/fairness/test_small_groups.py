"""Groups with too few test rows: named, and left out of gaps where that is asked for."""

import json

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.evaluation import small_group_warnings
from synthfair.trained import input_names, write_model

SCHEMA = make_schema(3)
INPUTS = input_names(SCHEMA, intercept=True)
MODEL = sf.TrainedModel(
    schema=SCHEMA, version="0", loss="logistic", intercept=True, inputs=INPUTS,
    theta=tuple(np.linspace(-1, 1, len(INPUTS))), gradient_norm=None, converged=None,
)  # fmt: skip


def table():
    """Groups a and b with hundreds of rows, c with seven."""
    rows = make_table(600, n_groups=3)
    c = np.flatnonzero(rows["town"] == "c")
    return rows.drop(index=c[7:]).reset_index(drop=True)


def test_a_small_group_is_named_with_its_numbers():
    evaluation = sf.evaluate(MODEL, {"all": table()})
    assert list(evaluation.small_groups) == ["town=c"]
    said = small_group_warnings(evaluation, SCHEMA)[0]
    c = table()[lambda rows: rows["town"] == "c"]["paid"].value_counts()
    assert f"town=c (7 rows: {c['yes']} with label yes, {c['no']} with no)" in said
    assert "min_group_rows = 30" in said
    written = evaluation.model_dump(mode="json")["small_groups"]
    assert written == {"town=c": {"n": 7, "positive": c["yes"], "negative": c["no"]}}


def test_large_groups_are_not_named_unless_more_is_asked_for():
    tables = {"all": make_table(600, n_groups=3)}
    assert small_group_warnings(sf.evaluate(MODEL, tables), SCHEMA) == ()
    config = sf.ServerConfig(min_group_rows=500)
    assert len(sf.evaluate(MODEL, tables, config).small_groups) == 3


def test_evaluate_leaves_them_out_and_says_so(tmp_path, capsys):
    write_model(MODEL, tmp_path / "model.json")
    table().to_csv(tmp_path / "test.csv", index=False)
    argv = [
        "evaluate",
        "--model",
        str(tmp_path / "model.json"),
        "--data",
        str(tmp_path / "test.csv"),
    ]
    found = {}
    for least in ("0", "10"):
        output = ["--output", str(tmp_path / f"{least}.json"), "--min-group-rows", least]
        assert main([*argv, *output]) == 0
        found[least] = json.loads((tmp_path / f"{least}.json").read_text())
    assert found["10"]["min_group_rows"] == 10
    assert found["0"]["spd"]["value"] != found["10"]["spd"]["value"]
    rates = found["10"]["by_group"]
    gap = rates["town=a"]["selection_rate"] - rates["town=b"]["selection_rate"]
    assert found["10"]["spd"]["value"] == pytest.approx(abs(gap))
    assert found["10"]["spd"]["low"] <= abs(gap) <= found["10"]["spd"]["high"]
    said = " ".join(capsys.readouterr().err.split())
    assert "town=c (7 rows:" in said
    assert "gaps leave out groups with fewer than 10 rows" in said
