"""thresholds as a user runs it, from counts or surrogates, and what comes after it."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table, some_model
from scipy.special import expit
from score_rows import histogram_of

import synthfair as sf
from synthfair.cli import main
from synthfair.postprocess import RowWeights, ScoreHistogram, choose_decision, surrogate_histogram
from synthfair.postprocess.thresholds import NoisyShare
from synthfair.privacy.noise import laplace_variance
from synthfair.report.result_tables import alpha_warning
from synthfair.trained import read_model, write_model

TABLE = make_table(600)
MODEL = some_model().model_copy(update={"theta": (5.0, *[0.0] * 6, 1.6, -2.5)})
ROWS = sf.encode(TABLE, SCHEMA)
SCORES = MODEL.scores(ROWS.x, ROWS.s)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder: a model, a table, and counts of its rows."""
    for name, n_bins, model in (("histogram", 11, MODEL.sha256), ("counts", 1, None)):
        counted = histogram_of(SCORES, ROWS.s, ROWS.y, n_bins, model=model, schema_hash=SCHEMA.hash)
        counted.write(tmp_path / f"{name}.json")
    write_model(MODEL, tmp_path / "model.json")
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def thresholds(*more, counts=("histogram.json",)):
    return main(["thresholds", *counts, "--notion", "equalized_odds", "--model", "model.json",
                 "--output", "fair.json", *more])  # fmt: skip


def evaluated(model, folder, *data):
    argv = ["evaluate", "--model", model, *(data or ("--data", "t.csv")), "--force"]
    assert main([*argv, "--output", "run/metrics.json"]) == 0
    return json.loads((folder / "run" / "metrics.json").read_text())


def write_altered(folder, **changes):
    path = folder / "histogram.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_thresholds_of_a_histogram_meet_alpha_and_have_its_guarantee(folder):
    claim = {"epsilon": 0.5, "delta": 0.0, "unit": "row", "relation": "add_or_remove",
             "adversary": "all_but_one", "aggregators": 2, "rows_per_user": 1}  # fmt: skip
    origin = {"clients": 3, "guarantees": [claim]}
    write_altered(folder, origin=origin, variance=2 * laplace_variance(2))
    name, before = "equalized_odds_difference", evaluated("model.json", folder)
    assert thresholds("--alpha", "0.05") == 0
    after = evaluated("fair.json", folder)
    assert after[name]["value"] <= 0.05 + 1e-9 < 0.1 < before[name]["value"]
    assert (after["method"], after["counts"]["guarantees"]) == ("thresholds", [claim])
    assert main(["report", "run", "--output", "report.html"]) == 0


def test_randomized_thresholds_need_ids_as_they_stand_in_the_file(folder, capsys):
    assert thresholds("--alpha", "0", "--randomized") == 0
    ids = [f"{i:04d}" for i in range(600)]
    TABLE.assign(who=ids).to_csv("ids.csv", index=False)
    found = evaluated("fair.json", folder, "--data", "ids.csv", "--id", "who")
    assert found["equalized_odds_difference"]["value"] < 1e-6
    argv = ["predict", "--model", "fair.json", "--output", "out.csv", "--data"]
    assert main([*argv, "t.csv"]) == 2
    assert "--id" in capsys.readouterr().err
    assert main([*argv, "ids.csv", "--id", "who"]) == 0
    drawn = read_model("fair.json").decision.decide(SCORES, ROWS.s, ids)
    assert (pd.read_csv("out.csv")["decision"] == np.where(drawn, "yes", "no")).all()


def test_thresholds_of_surrogates_are_those_of_their_records_by_weight(folder):
    files, expected = [], np.zeros((2, 2, 101))
    for seed, epsilon in ((1, {}), (2, {"epsilon": 8.0, "delta": 1e-3})):
        config = sf.SurrogateConfig(k_min=5, **epsilon)
        release = sf.distill_table(make_table(600, seed=seed), SCHEMA, config).release
        files.append(f"site_{seed}.parquet")
        sf.write_release(release, files[-1])
        # Scores by the coefficients of the table's columns, without a histogram's functions.
        records, weight = sf.pool_records({"one": release}, SCHEMA)
        x, s, y = sf.encode(records, SCHEMA)
        share = 101 * expit(MODEL.rows(x, s) @ np.array(MODEL.theta))
        np.add.at(expected, (s, (y > 0).astype(int), share.astype(int)), weight)
    found = surrogate_histogram(files, MODEL)
    above = [np.cumsum(counts[..., ::-1], axis=-1) for counts in (found.array(), expected)]
    assert abs(above[0] - above[1]).max() <= 1

    assert thresholds("--alpha", "0.05", counts=files) == 0
    decision = read_model(folder / "fair.json").decision
    assert decision == choose_decision(found, "equalized_odds", 0.05).decision
    claims = {one and (one.epsilon, one.delta) for one in decision.origin.guarantees}
    assert claims == {(8.0, 0.001), None}
    origin = decision.origin
    assert (origin.clients, origin.surrogates, origin.unpaired) == (2, True, 0)
    assert thresholds("--force", counts=("histogram.json", "counts.json")) == 2


def test_thresholds_with_a_gap_above_alpha_by_more_than_its_error_are_warned_of(folder, capsys):
    chosen = choose_decision(ScoreHistogram.read(folder / "histogram.json"), "equalized_odds", 0.05)
    for error, excess, warned in ((0.01, 0.009, False), (0.01, 0.011, True), (0, 1e-12, False)):
        wide = chosen._replace(gap=NoisyShare(0.05 + excess, error))
        assert (alpha_warning(wide) is not None) == warned
    # Counts below 0 are taken as 0 to choose, and count as they are to estimate.
    write_altered(folder, counts=[[[500, 0], [0, 500]], [[500, 0], [-300, 800]]], variance=1.0)
    assert thresholds() == 0
    assert "0.6000" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "flags", "said"), [
    ({"model": "2" * 64}, [], "another model's"), ({"variance": -1}, [], "variance"),
    ({}, ["--alpha", "1"], "alpha"), ({}, ["--output", "model.json", "--force"], "twice"),
    ({}, ["--output", "schema.json"], "exists"), ({}, ["--model", "histogram.json"], "model"),
    ({}, ["--weights", "published"], "--weights"),
])  # fmt: skip
def test_thresholds_that_cannot_be_write_nothing(folder, changes, flags, said, capsys):
    write_altered(folder, **changes)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert thresholds(*flags) == 2
    assert said in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_thresholds_make_weights_that_are_trained_with(folder):
    argv = ["thresholds", "counts.json", "--weights", "kamiran_calders", "--output", "w.json"]
    assert main(argv) == 0
    weights = RowWeights.read(folder / "w.json").weights
    argv = ["train", "t.csv", "--schema", "schema.json", "--rounds", "3", "--weights", "w.json"]
    assert main([*argv, "--output", "trained", "--method", "fedavg"]) == 0
    found = json.loads((folder / "trained" / "metrics.json").read_text())
    assert found["weights"]["weights"] == [list(pair) for pair in weights]
    assert found["asked"]["by"] == "row_weights"
