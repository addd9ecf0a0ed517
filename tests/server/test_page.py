"""The whole job of a server, from files to files."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, TABLE, flipped, make_table, some_pool

import synthfair as sf
from synthfair.errors import InputError
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.server import measure_influence, page, serve
from synthfair.server.pooling import make_pool, train_pool

QUICK = {"resamples": 5, "max_influence": 5.0, "max_spd_influence": 2.0}


def inputs(folder, releases):
    """Signed releases, the schema, test tables and a trusted one; their paths, as serve takes them."""
    (folder / "schema.json").write_text(SCHEMA.to_json())
    make_table(600, seed=77).to_csv(folder / "trusted.csv", index=False)
    for i, (name, release) in enumerate(releases.items()):
        make_keys(folder / f"{name}.key")
        key = read_signing_key(folder / f"{name}.key")
        sf.write_release(release, folder / f"{name}.parquet", key=key)
        make_table(2000, seed=20 + i).to_csv(folder / f"{name}_test.csv", index=False)
    paths = [folder / f"{name}.parquet" for name in releases]
    return paths, folder / "schema.json", [folder / f"{name}_test.csv" for name in releases]


@pytest.fixture(scope="module")
def served(surrogates, tmp_path_factory):
    """With all that can be asked for, of three surrogates of which one has reversed labels."""
    folder, few = tmp_path_factory.mktemp("server"), dict([*surrogates.items()][:3])
    few["c0"] = replace(few["c0"], y=-few["c0"].y)
    header = few["c1"].header.model_copy(update={"hides_pairs": True})
    few["c1"] = replace(few["c1"], header=header)
    config = sf.ServerConfig(max_client_gap=0.2, **QUICK)
    named = {"records": folder / "records.parquet", "trusted": folder / "trusted.csv"}
    paths = inputs(folder, few)
    result = serve(*paths, folder / "out", config, keys=[folder], **named)
    pooled = make_pool(few, SCHEMA, config, trusted=make_table(600, seed=77))
    return folder, result, json.loads((folder / "out" / "metrics.json").read_text()), pooled


def test_metrics_say_what_was_asked_and_who_sent_what(served):
    _, result, found, _ = served
    assert found["signed_by"] == {name: name for name in ("c0", "c1", "c2")}
    assert (found["asked"]["client_gap"], found["max_influence"]) == (0.2, 5.0)
    assert (found["resamples"], found["hides_pairs"], found["left_out"]) == (5, ["c1"], [])
    assert (found["rho"], found["warnings"]) == (result.point.price.rho, [*result.warnings])
    listed = {name: moved._asdict() for name, moved in result.influences.releases.items()}
    assert found["influence"]["releases"] == listed


def test_metrics_are_those_of_the_written_model(served):
    folder, _, found, _ = served
    model, right = sf.read_model(folder / "out" / "model.json"), []
    for i in range(3):
        x, s, y = sf.encode(make_table(2000, seed=20 + i), SCHEMA)
        right.append(np.mean((model.scores(x, s) > 0) == (y > 0)))
        assert found["per_client"][f"c{i}_test"]["accuracy"]["value"] == pytest.approx(right[-1])
    assert found["accuracy"]["value"] == pytest.approx(np.mean(right))


def test_weights_of_trust_are_in_metrics_and_records(served):
    folder, result, found, pooled = served
    expected = measure_influence(pooled, result.model, {}, price=result.point.price).releases
    for name, moved in found["influence"]["releases"].items():
        assert moved["weight"] == float(f"{pooled.trust[name]:.2g}")
        assert moved["scores"] == pytest.approx(expected[name].scores)
    assert found["influence"]["releases"]["c0"]["weight"] < 0.1
    assert any(said.startswith("c0 (") for said in result.warnings)
    records = pq.read_table(folder / "records.parquet").to_pandas()
    np.testing.assert_allclose(records.weight, pooled.weight, rtol=1e-9)


def test_model_without_a_penalty_is_so_whatever_was_asked(surrogates):
    few = dict([*surrogates.items()][:2])
    free = sf.pool_and_train(few, SCHEMA, sf.ServerConfig(rho=0.0, group_input=True))
    for asked in ({"min_ratio": 0.95}, {"max_client_gap": 0.05}, {"rho": 50.0}):
        pooled = make_pool(few, SCHEMA, sf.ServerConfig(group_input=True, **asked))
        model, point = train_pool(pooled, SCHEMA)
        found = page._without_penalty(pooled, model, point, SCHEMA)
        assert np.linalg.norm(np.subtract(model.theta, free.theta)) > 0.1
        np.testing.assert_allclose(found.theta, free.theta, atol=1e-4)


def test_frontier_has_the_gap_of_its_notion(surrogates):
    config = sf.ServerConfig(notion="equal_opportunity", group_input=True)
    pooled = make_pool(dict([*surrogates.items()][:2]), SCHEMA, config)
    model, _ = train_pool(pooled, SCHEMA)
    line = page.frontier_lines(pooled, model, {"test": sf.encode(TABLE, SCHEMA)})[0]
    theta = tuple(pooled.problem().solve(line.rho).theta.tolist())
    found = sf.evaluate(model.model_copy(update={"theta": theta}), TABLE)
    assert line.test_gap == pytest.approx(abs(found.equal_opportunity_difference.value))


@pytest.fixture
def paths(tmp_path):
    releases = some_pool(3)
    config = releases["c0"].header.config.replace(max_gap=0.07)
    header = releases["c0"].header.model_copy(update={"config": config})
    return inputs(tmp_path, releases | {"c0": replace(releases["c0"], header=header)})


def test_files_are_the_same_for_the_same_inputs_and_the_model_in_any_order(paths, tmp_path):
    releases, schema, tests = paths
    config, models = sf.ServerConfig(**QUICK, min_group_rows=9999), []
    for name, each in (("one", releases), ("two", releases), ("three", releases[::-1])):
        models.append((found := serve(each, schema, tests, tmp_path / name, config)).model)
    assert found.metrics.asked.max_gap == 0.07
    assert any("9999 test rows" in line for line in found.warnings)
    for name in ("model.json", "metrics.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    np.testing.assert_allclose(models[2].theta, models[0].theta, rtol=1e-6)


def test_files_of_a_pool_that_is_refused_are_not_written(paths, tmp_path):
    releases, schema, tests = paths
    output, config = tmp_path / "out", sf.ServerConfig(resamples=5)
    with pytest.raises(InputError, match="c1.parquet: signed with the unknown key"):
        serve(*paths, output, config, keys=[tmp_path / "c0.pub"])
    sf.write_release(flipped(some_pool()["c0"]), tmp_path / "bad.parquet")
    pool = [*releases, tmp_path / "bad.parquet"]
    with pytest.raises(InputError, match="bad: .*max_influence"):
        serve(pool, schema, tests, output, config)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("income\n1\n")
    with pytest.raises(InputError, match="wrong.csv"):
        serve(releases, schema, [*tests, wrong], output, config)
    assert not output.exists()
    output.mkdir()
    (output / "model.json").write_text("precious")
    with pytest.raises(InputError, match="model.json: exists"):
        serve(*paths, output, config)
    assert (output / "model.json").read_text() == "precious"
    allowed = serve(pool, schema, tests, output, config.replace(max_influence=1e3), force=True)
    assert allowed.influences.releases["bad"].outlier
