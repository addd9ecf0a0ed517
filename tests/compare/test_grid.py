"""The grid of a comparison, and ``compare``, which goes on where it stopped."""

import json
import re

import pandas as pd
import pytest
from builders import QUICK, SCHEMA, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.compare import ComparedTable, compared_methods, is_done, make_grid, run_point
from synthfair.data.partition import Split
from synthfair.data.schema import Categorical


@pytest.fixture
def argv(tmp_path):
    table = make_table(600).assign(region=["north", "south", "far east"] * 200)
    schema = SCHEMA.model_copy(update={"ignored": ("region",)})
    table.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    words = f"compare {tmp_path}/people.csv --schema {tmp_path}/schema.json --weights 0 --seeds 2"
    return [*words.split(), "--output", f"{tmp_path}/found", "--methods", "constant"]


def read(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_grid_holds_each_run_once_and_one_a_seed_where_no_weight_is_read(tmp_path):
    points = make_grid(["dp_sgd", "fpfl", "fpfl"], [10.0, 1e1, 1.25], 2, tmp_path)
    names = [point.folder.name for point in points]
    assert names[3:] == ["dp_sgd-seed_1", "fpfl-rho_10-seed_1", "fpfl-rho_1.25-seed_1"]
    assert [(point.rho_o, point.seed) for point in points[:3]] == [(0.0, 0), (10.0, 0), (1.25, 0)]


@pytest.mark.parametrize(("methods", "weights", "seeds", "named"), [
    (["magic"], [1.0], 1, "'magic'"), (["local"], [-1.0], 1, "weights"),
    (["local"], [float("inf")], 1, "weights"), (["local"], [1.0], 10_001, "seeds = 10001"),
])  # fmt: skip
def test_grid_that_cannot_be_run_is_refused(methods, weights, seeds, named, tmp_path):
    with pytest.raises(sf.InputError, match=named):
        make_grid(methods, weights, seeds, tmp_path)


def test_point_is_its_method_on_the_split_of_its_seed(tmp_path):
    columns = SCHEMA.columns | {"home": Categorical(categories=("own", "rent", "other"))}
    schema = SCHEMA.model_copy(update={"columns": columns}).with_sensitive(("town", "home"))
    compared = ComparedTable(make_table(600).fillna({"home": "own"}), schema, "s", Split(clients=3))
    (_, point), by = make_grid(["central"], [10.0], 2, tmp_path), {"groups_by": ("town",)}
    run_point(point, compared, sf.DistillConfig(**by))
    clients = compared_methods.federate(sf.partition(compared.table, clients=3, seed=1), schema)
    config, report = sf.DistillConfig(rho_o=10.0, seed=1, **by), sf.ServerConfig(seed=1, **by)
    expected, _ = compared_methods.run_method("central", clients, config, report)
    written = read(point.folder)
    assert written["accuracy"] == expected.accuracy._asdict()
    assert written["spd"] == expected.spd._asdict()
    assert written["config"] == dict.fromkeys(clients.names, config.model_dump(mode="json"))


def test_point_of_private_releases_has_their_guarantees(tmp_path):
    compared = ComparedTable(make_table(2000), SCHEMA, "s", Split(clients=2))
    (point,) = make_grid(["single_shot"], [1.0], 1, tmp_path)
    run_point(point, compared, config := QUICK.replace(epsilon=8.0, delta=1e-5))
    assert is_done(point, compared, config)
    with pytest.raises(sf.InputError, match="other settings"):  # those of rounds
        is_done(point._replace(method="dp_sgd"), compared, config)
    written = read(point.folder)
    assert [each["epsilon"] for each in written["guarantees"].values()] == [8.0, 8.0]
    assert written["asked"]["amounts"] == [1.0]


def test_compare_writes_clients_by_a_column_and_a_report(argv, tmp_path):
    assert main([*argv, "central", "--by", "region", "--min-group-rows", "5"]) == 0
    written = read(tmp_path / "found/central-rho_0-seed_1")
    assert set(written["per_client"]) == {"client_north", "client_south", "client_far_east"}
    assert written["min_group_rows"] == 5
    assert (written["table"]["name"], written["table"]["by"]) == (argv[1], "region")
    assert (tmp_path / "found" / "report.html").exists()


def test_compare_goes_on_where_it_stopped(argv, tmp_path):
    """The first of two runs is there already; only the second is computed."""
    assert main([*argv, "--seeds", "1"]) == 0
    done = tmp_path / "found/constant-seed_0/metrics.json"
    before = done.stat().st_mtime_ns
    assert read(done.parent)["converged"] is None  # nothing is trained
    assert main(argv) == 0
    assert done.stat().st_mtime_ns == before
    assert (tmp_path / "found/constant-seed_1/metrics.json").exists()


def test_compare_refuses_to_mix_another_file_split_or_setting(argv, tmp_path, capsys):
    assert main(argv) == 0
    for name, text in (("other", "lambda_theta = 0.5"), ("gap", "max_gap = 0.1")):
        (tmp_path / f"{name}.toml").write_text(text)
        assert main([*argv, "--config", f"{tmp_path}/{name}.toml"]) == 2
    assert main([*argv, "--by", "region"]) == main([*argv, "--min-group-rows", "9"]) == 2
    schema = tmp_path / "other.json"
    schema.write_text((tmp_path / "schema.json").read_text().replace("100.0", "200.0"))
    assert main([*argv, "--schema", str(schema)]) == 2
    pd.read_csv(argv[1]).iloc[::-1].to_csv(argv[1], index=False)
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.count("constant-seed_0/metrics.json: is of another") == 5
    assert "gap.toml: max_gap" in said


def test_compare_leaves_out_what_cannot_be_run_with_its_reason(argv, tmp_path, capsys):
    few = [*argv, "surrogate", "--clients", "10"]  # no pair has 50 of these rows
    assert main(few) == 0
    said = capsys.readouterr().err.replace("\n", " ")
    assert re.search("surrogate-rho_0-seed_0.*k_min", said)
    few.remove("constant")
    assert main(few) == 2
