"""The server on files of surrogates: what it writes, warns of, and refuses."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table, some_release, unlike_tables

import synthfair as sf
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.evaluation import encode_tests
from synthfair.release.format import write_release
from synthfair.server import serve
from synthfair.server.page import frontier_lines
from synthfair.server.pooling import make_pool, train_pool


def made(table):
    return sf.distill_table(table, SCHEMA, sf.SurrogateConfig(k_min=5)).release


@pytest.fixture(scope="module")
def releases():
    return {name: made(table) for name, table in unlike_tables().items()}


@pytest.fixture
def folder(tmp_path, releases):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    make_table(400, seed=9).to_csv(tmp_path / "test.csv", index=False)
    return write(tmp_path, releases)


def write(folder, releases):
    for name, release in releases.items():
        write_release(release, folder / f"{name}.parquet")
    return folder


def run(folder, *, tests=("test.csv",), frontier=False, **settings):
    """Of models that read the town; clients are so unlike that the default caps refuse some."""
    caps = {"max_influence": 50.0, "max_spd_influence": 2.0, "group_input": True, "resamples": 20}
    return serve(
        sorted(folder.glob("c?.parquet")), folder / "schema.json", [folder / t for t in tests],
        folder / "server", sf.ServerConfig(**{**caps, **settings}), frontier=frontier, force=True,
    )  # fmt: skip


def test_server_trains_a_fair_model_and_one_without_a_penalty(folder):
    found = []
    for rho in (30.0, 0.0):
        assert run(folder, rho=rho).model.converged
        found.append(json.loads((folder / "server" / "metrics.json").read_text()))
    fair, free = found
    for metric, value in fair["without_penalty"].items():
        assert value == pytest.approx(free[metric], abs=1e-4)
        assert free["without_penalty"][metric] == free[metric]
    assert abs(fair["spd"]["value"]) < abs(free["spd"]["value"]) - 0.05


def test_server_meets_a_gap_that_is_chosen_after_the_upload(folder):
    assert run(folder, max_gap=0.05).point.gap <= 0.05
    asked = json.loads((folder / "server" / "metrics.json").read_text())["server"]
    assert asked["max_gap"] == 0.05
    odds = {"notion": "equalized_odds", "penalty": "selection_rate"}
    assert run(folder, rho=100.0, **odds).point.gap < run(folder, rho=0.0, **odds).point.gap


def test_frontier_is_written_with_and_without_test_rows_or_labels(folder, releases):
    served = run(folder, frontier=True)
    table = pd.read_csv(folder / "server" / "frontier.csv")
    names = ["rho", "accuracy", "gap", "test_accuracy", "test_gap", "converged"]
    assert list(table.columns) == names
    np.testing.assert_allclose(table["gap"], [line.gap for line in served.frontier], atol=1e-6)
    assert table["gap"].min() < table["gap"][0] / 2
    without = run(folder, tests=(), frontier=True)
    assert without.metrics is None
    assert np.isnan(without.frontier[0].test_gap)
    run(folder, tests=())  # an old run leaves nothing in the folder of a new one
    assert {path.name for path in (folder / "server").iterdir()} == {"model.json"}
    pooled, bare = make_pool(releases, SCHEMA), {"t": make_table(300).drop(columns="paid")}
    line, *_ = frontier_lines(pooled, train_pool(pooled, SCHEMA)[0], encode_tests(bare, SCHEMA))
    assert np.isnan(line.test_accuracy)
    assert 0 <= line.test_gap <= 1


@pytest.mark.filterwarnings("error")
def test_server_is_not_stopped_by_rows_that_are_all_alike(folder, releases):
    alike = (
        replace(one, x=np.tile([0.0, 18.0, 1.0], (len(one.y), 1))) for one in releases.values()
    )
    served = run(write(folder, dict(zip(releases, alike, strict=True))), max_influence=100.0)
    assert served.metrics.overall["accuracy"].value == served.metrics.constant_accuracy


def test_server_lets_clients_of_one_label_pass(folder):
    """Without one of them there is nothing to learn; that is no sign of harm."""
    (folder / "c2.parquet").unlink()
    table = make_table(600)
    write(folder, {f"c{i}": made(table[table["paid"] == y]) for i, y in enumerate(("no", "yes"))})
    served = run(folder, max_influence=1.0, max_spd_influence=0.5)
    assert all(moved.alone for moved in served.influences.releases.values())
    assert served.metrics.overall["accuracy"].value > served.metrics.constant_accuracy


def test_server_refuses_exchanged_groups_without_test_rows(folder):
    table = make_table(600, seed=4)
    turned = table.assign(town=table["town"].map({"a": "b", "b": "a"}))
    tables = {"c0": table[::3], "c1": table[1::3], "c2": turned[2::3]}
    write(folder, {name: made(part) for name, part in tables.items()})
    found = run(folder, tests=(), rho=0.0).influences.releases
    spd = [abs(found[name].spd) for name in tables]
    assert spd[2] > max(spd[:2])
    with pytest.raises(InputError, match="c2: changes SPD"):
        run(folder, tests=(), max_spd_influence=(spd[2] + max(spd[:2])) / 2, rho=0.0)


def test_server_names_claims_estimates_and_made_up_pairs(folder, releases):
    assert not any("c0" in line for line in run(folder).warnings)
    write(folder, {"c0": replace(releases["c0"], weight=1e4 * releases["c0"].weight)})
    assert any(line.startswith("c0: claims 3,200,000 rows") for line in run(folder).warnings)
    some = [t[(t["town"] == "a") | (t["paid"] == "no")] for t in unlike_tables().values()]
    write(folder, {f"c{i}": made(table) for i, table in enumerate(some)})
    assert any("town=b with paid=yes (of 2 releases)" in line for line in run(folder).warnings)
    table = make_table(700, seed=3)
    few = table.index[(table.town == "b") & (table.paid == "yes")][10:]
    hiding = sf.distill_table(table.drop(few), SCHEMA, sf.SurrogateConfig(k_min=20)).release
    write(folder, {**releases, "c3": hiding})
    for notion in ("equal_opportunity", "statistical_parity"):
        warned = any("c3: some pair" in line for line in run(folder, notion=notion).warnings)
        assert warned == (notion == "equal_opportunity")


def test_server_warns_where_training_without_a_penalty_has_not_converged(folder, monkeypatch):
    def unfinished(pooled, schema):
        model, point = train_pool(pooled, schema)
        return model.model_copy(update={"converged": pooled.config.rho > 0}), point

    monkeypatch.setattr("synthfair.server.pooling.train_pool", unfinished)
    assert any("without a penalty" in line for line in run(folder, rho=30.0).warnings)


def with_records(folder, path, *flags):
    (folder / "server.toml").write_text("max_influence = 5\nmax_spd_influence = 1")
    files = ["--schema", folder / "schema.json", "--output", folder / "server"]
    config = ["--config", folder / "server.toml", "--records", path]
    return main(
        [*map(str, ["server", *sorted(folder.glob("c?.parquet")), *files, *config]), *flags]
    )


def test_records_are_written_for_any_learner(folder, releases):
    path = folder / "records.parquet"
    assert with_records(folder, path) == 0
    table, weight = sf.pool_records(releases, SCHEMA)
    found = pd.read_parquet(path)
    np.testing.assert_array_equal(found.pop("weight"), weight)
    for mine, theirs in zip(encode(found, SCHEMA), encode(table, SCHEMA), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert with_records(folder, path, "--force") == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("there.parquet", "there.parquet: exists"),
        ("c0.parquet", "c0.parquet: is named twice"),
        ("schema.json", "schema.json: is named twice"),
        ("server/model.json", "model.json: is named twice"),
        ("there.parquet/records.parquet", "there.parquet"),
    ],
)
def test_records_are_refused_before_any_work(folder, capsys, monkeypatch, name, said):
    (folder / "there.parquet").write_text("mine")
    monkeypatch.setattr("synthfair.server.pooling.train_pool", None)
    assert with_records(folder, folder / name, *["--force"] * (name != "there.parquet")) == 2
    assert said in "".join(capsys.readouterr().err.split("\n"))
    assert (folder / "there.parquet").read_text() == "mine"
    assert not (folder / "server" / "model.json").exists()


def test_records_are_none_of_fair_releases_or_with_a_column_weight(folder, releases, capsys):
    columns = {"weight" if k == "paid" else k: c for k, c in SCHEMA.columns.items()}
    schema = SCHEMA.model_copy(update={"columns": columns, "label": "weight"})
    (folder / "weight.json").write_text(schema.to_json())
    for release in releases.values():
        header = release.header.model_copy(update={"table_schema": schema})
        write_release(replace(release, header=header), folder / "c0.parquet")
    for name in ("c1", "c2"):
        (folder / f"{name}.parquet").unlink()
    (folder / "weight.json").rename(folder / "schema.json")
    assert with_records(folder, folder / "r.parquet") == 2
    assert "'weight'" in capsys.readouterr().err
    (folder / "schema.json").write_text(SCHEMA.to_json())
    write(folder, {"c0": some_release()})
    assert with_records(folder, folder / "r.parquet") == 2
    assert "ask for a surrogate" in capsys.readouterr().err
