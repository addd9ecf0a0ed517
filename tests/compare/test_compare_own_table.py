"""``compare`` on a table of one's own, by files: split in every way, known again, and reported."""

import json
import re

import pandas as pd
import pytest
from builders import make_schema, make_table

from synthfair.cli import main
from synthfair.compare import make_grid


@pytest.fixture
def argv(tmp_path):
    table = make_table(600).assign(region=["north", "south", "far east"] * 200)
    schema = make_schema().model_copy(update={"ignored": ("region",)})
    table.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    argv = ["compare", str(tmp_path / "people.csv"), "--schema", str(tmp_path / "schema.json")]
    argv += ["--methods", "constant", "central", "--weights", "0", "--seeds", "2"]
    return [*argv, "--output", str(tmp_path / "found")]


def test_methods_that_read_no_weight_have_one_run_a_seed(tmp_path):
    points = make_grid(["constant", "fedsgd", "fpfl"], [10.0, 100.0], 1, tmp_path)
    found = [(point.folder.name, point.rho_o) for point in points]
    assert found[:2] == [("constant-seed_0", 0.0), ("fedsgd-seed_0", 0.0)]
    assert found[2:] == [("fpfl-rho_10-seed_0", 10.0), ("fpfl-rho_100-seed_0", 100.0)]


def test_by_a_column_to_a_table_and_a_plot(argv, tmp_path, capsys):
    assert main([*argv, "--by", "region", "--min-group-rows", "5"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"central +│ +penalty [ \w]*│ +2 │", shown)  # two seeds, averaged
    said = " ".join(shown.split())
    assert ": Selection rates of town=a and town=b differ by 0." in said
    assert said.endswith("found/report.html")
    assert "report.html. Next: " in said
    page = (tmp_path / "found" / "report.html").read_text()
    assert "data:image/svg+xml" in page
    written = json.loads((tmp_path / "found/central-rho_0-seed_1/metrics.json").read_text())
    assert set(written["per_client"]) == {"client_north", "client_south", "client_far_east"}
    assert written["table"] | {"sha256": 0} == {
        "name": argv[1], "sensitive": "town", "by": "region", "sha256": 0,
    }  # fmt: skip


def test_unlike_clients_of_which_small_ones_are_left_out(argv, capsys):
    argv.remove("central")
    assert main([*argv, "--clients", "5", "--skew", "0.3", "--min-rows", "60"]) == 0
    found = capsys.readouterr()
    assert "have at least 60 rows" in found.err
    assert re.search(r"constant +│ +2 │", found.out)  # also if they differ


def test_another_file_or_split_is_another_comparison(argv, tmp_path, capsys):
    methods = argv.index("--methods")
    quick = [*argv[:methods], "--methods", "constant", *argv[methods + 3 :]]
    assert main(quick) == 0
    assert main(quick) == 0  # nothing is left to be run
    assert main([*quick, "--by", "region"]) == 2
    assert main([*quick, "--min-group-rows", "9"]) == 2
    table = pd.read_csv(argv[1])
    table.iloc[::-1].to_csv(argv[1], index=False)
    assert main(quick) == 2
    assert capsys.readouterr().err.count("is of another table or other settings") == 3


def test_what_cannot_be_run_is_left_out_with_its_reason(argv, tmp_path, capsys):
    argv[argv.index("central")] = "surrogate"  # no pair has 50 of these rows
    few = [*argv, "--clients", "10"]
    assert main(few) == 0
    found = capsys.readouterr()
    assert "surrogate" not in found.out
    assert "left out: surrogate-rho_0-seed_0" in found.err.replace("\n", " ")
    assert "k_min asks for" in found.err.replace("\n", " ")
    few.remove("constant")
    assert main(few) == 2
    assert "no run can be compared" in capsys.readouterr().err


def test_flags_that_exclude_each_other_are_refused(argv, capsys):
    assert main([*argv, "--by", "region", "--clients", "2"]) == 2
    assert (
        "by: gives one client of each value; leave out clients and skew (--by)"
        in capsys.readouterr().err
    )
    assert main(["compare", argv[1], "--output", "x"]) == 2
    assert "or a file with --schema" in capsys.readouterr().err
