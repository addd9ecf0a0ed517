"""Groups with too few test rows: named, and left out of gaps where that is asked for."""

import json

import numpy as np
import pytest
from builders import TABLE_OF_3, some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.trained import write_model

TABLE = TABLE_OF_3.drop(index=np.flatnonzero(TABLE_OF_3["town"] == "c")[7:])
"""Groups a and b with hundreds of rows, c with seven."""


def test_small_groups_are_named_with_their_sizes():
    paid = TABLE["paid"][TABLE["town"] == "c"].value_counts()
    few = sf.evaluate(some_model(3), {"all": TABLE}).small_groups
    assert few == {"town=c": (7, paid["yes"], paid["no"])}


def test_small_groups_are_left_out_by_evaluate_which_says_so(tmp_path, capsys):
    write_model(some_model(3), tmp_path / "model.json")
    TABLE.to_csv(tmp_path / "test.csv", index=False)
    argv = ["evaluate", "--model", f"{tmp_path}/model.json", "--data", f"{tmp_path}/test.csv"]
    argv += ["--output", f"{tmp_path}/found.json", "--min-group-rows", "10"]
    assert main(argv) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    rates = [found["by_group"][f"town={town}"]["selection_rate"] for town in "abc"]
    assert found["spd"]["value"] == pytest.approx(abs(rates[0] - rates[1]))
    assert found["spd"]["value"] != pytest.approx(max(rates) - min(rates))
    assert "town=c (7 rows:" in capsys.readouterr().err
