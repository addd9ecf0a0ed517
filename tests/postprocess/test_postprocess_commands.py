"""thresholds and weights as a user runs them, and what comes after them."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, some_model
from report_runs import tables
from scipy.special import expit
from score_rows import histogram_of

import synthfair as sf
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.postprocess import RowWeights, ScoreHistogram, choose_decision
from synthfair.postprocess.histogram import Origin
from synthfair.postprocess.thresholds import NoisyShare
from synthfair.privacy.noise import laplace_variance
from synthfair.report.result_tables import alpha_warning
from synthfair.trained import read_model, write_model

CLAIM = {"epsilon": 1.0, "relation": "add_or_remove", "aggregators": 2}


def origin(claim):
    return {"origin": {"clients": 3, "guarantees": [claim]}}


@pytest.fixture
def folder(tmp_path):
    """A model, a table, and the histogram and the counts of its scores."""
    table = make_table(n=600)
    model = some_model().model_copy(update={"theta": (5.0, *[0.0] * 6, 1.6, -2.5)})
    rows = sf.encode(table, model.schema_)
    fields = {"schema_hash": model.schema_.hash, "groups": model.schema_.groups}
    scores = model.scores(rows.x, rows.s)
    counted = histogram_of(scores, rows.s, rows.y, model=model.sha256, **fields)
    plain = histogram_of(scores, rows.s, rows.y, 1, model=None, **fields)
    write_model(model, tmp_path / "model.json")
    counted.write(tmp_path / "histogram.json")
    plain.write(tmp_path / "counts.json")
    table.assign(who=[f"{i:04d}" for i in range(600)]).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.json").write_text(model.schema_.to_json())
    table.to_csv(tmp_path / "plain.csv", index=False)
    return tmp_path


def thresholds(folder, *more, output="fair.json"):
    return main(["thresholds", f"{folder}/histogram.json", "--notion", "equalized_odds",
                 "--model", f"{folder}/model.json", "--output", f"{folder}/{output}", *more])  # fmt: skip


def evaluated(folder, model):
    argv = ["evaluate", "--model", f"{folder}/{model}", "--data", f"{folder}/plain.csv", "--force"]
    assert main([*argv, "--output", f"{folder}/run/metrics.json"]) == 0
    return json.loads((folder / "run" / "metrics.json").read_text())


def test_from_a_histogram_to_decisions_and_a_report(folder, capsys):
    before = evaluated(folder, "model.json")
    assert thresholds(folder, "--alpha", "0.05") == 0
    said = capsys.readouterr().out
    for word in ("accuracy", "gap", "one decision for everybody", "equalized_odds, alpha = 0.05"):
        assert word in said
    after = evaluated(folder, "fair.json")
    assert after["equalized_odds_difference"]["value"] <= 0.05 + 1e-9
    assert before["equalized_odds_difference"]["value"] > 0.1
    assert after["method"] == "thresholds"
    assert main(["report", f"{folder}/run", "--output", f"{folder}/report.html"]) == 0


def test_a_randomised_rule_needs_ids_as_they_stand_in_the_file(folder, capsys):
    assert thresholds(folder, "--alpha", "0", "--randomized") == 0
    assert evaluated(folder, "fair.json")["equalized_odds_difference"]["value"] < 1e-6
    argv = ["predict", "--model", f"{folder}/fair.json", "--data"]
    assert main([*argv, f"{folder}/plain.csv"]) == 2
    assert "--id" in capsys.readouterr().err
    argv.append(f"{folder}/t.csv")
    assert main([*argv, "--id", "who", "--output", f"{folder}/a.csv"]) == 0
    table = pd.read_csv(folder / "t.csv", dtype={"who": str}).iloc[::-1]
    table.to_parquet(folder / "t.csv")
    assert main([*argv, "--id", "who", "--output", f"{folder}/b.csv"]) == 0
    first, second = (pd.read_csv(folder / name)["decision"] for name in ("a.csv", "b.csv"))
    assert (first.to_numpy() == second.to_numpy()[::-1]).all()
    page = f"{folder}/report.html"
    assert main(["report", f"{folder}/run", "--output", page]) == 0


@pytest.mark.parametrize("notion", ["statistical_parity", "equalized_odds"])
def test_tables_without_labels_are_evaluated_and_reported(notion, folder, capsys):
    assert thresholds(folder, "--alpha", "0.05", "--notion", notion) == 0
    labelled = evaluated(folder, "fair.json")
    make_table(n=600).drop(columns="paid").to_csv(folder / "plain.csv", index=False)
    capsys.readouterr()
    found, printed = evaluated(folder, "fair.json"), " ".join(capsys.readouterr().out.split())
    assert found["spd"] == labelled["spd"]
    assert "accuracy, equal opportunity and equalized odds need them" in printed
    for group in ("a", "b"):
        rate = labelled["by_group"][f"town={group}"]["selection_rate"]
        assert f"selection rate, town={group} │ {rate:.3f} [" in printed
    assert main(["report", f"{folder}/run", "--output", f"{folder}/report.html"]) == 0
    page = " ".join((folder / "report.html").read_text().split())
    assert "Accuracy is not known without labels." in page
    undefined = "cannot be compared: there are no labels." in page
    assert undefined == (notion == "equalized_odds")


def test_a_wanted_gap_that_needs_labels_is_said_not_to_be_measured(folder, capsys):
    make_table(n=100).drop(columns="paid").to_csv(folder / "bare.csv", index=False)
    argv = ["evaluate", "--model", f"{folder}/model.json", "--data", f"{folder}/bare.csv"]
    argv += ["--max-gap", "0.001", "--notion"]
    for notion, measured in (("equalized_odds", False), ("statistical_parity", True)):
        assert main([*argv, notion]) == 0
        said = " ".join("".join(capsys.readouterr()).split())
        assert ("cannot be compared: there are no labels; at most" in said) is not measured
        assert "at most 0.001 was asked" in said


def test_evaluate_takes_the_tables_that_predict_takes(folder, capsys):
    argv = ["evaluate", "--model", f"{folder}/model.json", "--force"]
    argv += ["--output", f"{folder}/m.json", "--data"]
    found = []
    for more in (["plain.csv"], ["t.csv", "--id", "who"]):
        assert main([*argv, f"{folder}/{more[0]}", *more[1:]]) == 0
        found.append(json.loads((folder / "m.json").read_text())["accuracy"])
    assert found[0] == found[1]
    for more, complaint in (
        ([], "'who'"),
        (["--id", "town"], f"{folder}/t.csv: id column 'town': is a column of the schema"),
        (["--id", "whose"], "id column 'whose': the table has no such column"),
    ):
        assert main([*argv, f"{folder}/t.csv", *more]) == 2
        assert complaint in capsys.readouterr().err


def test_thresholds_of_surrogates_are_those_of_their_records_by_weight(folder, capsys):
    model, files, cells = read_model(folder / "model.json"), [], {}
    for seed, epsilon in ((1, {}), (2, {"epsilon": 8.0, "delta": 1e-3})):
        config = sf.SurrogateConfig(k_min=5, **epsilon)
        release = sf.distill_table(make_table(600, seed=seed), model.schema_, config).release
        files.append(f"{folder}/site_{seed}.parquet")
        sf.write_release(release, files[-1])
        # Scores by the coefficients of the table's columns, without a histogram's functions.
        records, weight = sf.pool_records({"one": release}, model.schema_)
        rows = sf.encode(records, model.schema_)
        share = np.floor(101 * expit(model.rows(rows.x, rows.s) @ np.array(model.theta)))
        for key in zip(rows.s, (rows.y > 0).astype(int), share, weight, strict=True):
            cells[key[:3]] = cells.get(key[:3], 0.0) + key[3]
    found = sf.postprocess.surrogate_histogram(files, model)
    expected = np.zeros((2, 2, 101))
    for (s, y, share), weight in cells.items():
        expected[s, y, int(share)] = weight
    above = [np.cumsum(counts[..., ::-1], axis=-1) for counts in (found.array(), expected)]
    assert abs(above[0] - above[1]).max() <= 1
    assert expected.max() > 5

    argv = ["thresholds", *files, "--notion", "statistical_parity", "--alpha", "0.05", "--model"]
    assert main([*argv, f"{folder}/model.json", "--output", f"{folder}/fair.json"]) == 0
    assert "no client was asked again" in " ".join(capsys.readouterr().out.split())
    decision = read_model(folder / "fair.json").decision
    assert decision == choose_decision(found, "statistical_parity", 0.05).decision
    claims = {one and (one.epsilon, one.delta) for one in decision.origin.guarantees}
    assert claims == {(8.0, 0.001), None}
    assert (decision.origin.clients, decision.origin.surrogates) == (len(files), True)
    assert abs(evaluated(folder, "fair.json")["spd"]["value"]) < 0.12
    assert abs(evaluated(folder, "model.json")["spd"]["value"]) > 0.2


def test_files_that_are_no_surrogates_give_no_thresholds(folder, capsys):
    assert main(["thresholds", f"{folder}/histogram.json", f"{folder}/counts.json", "--notion",
                 "equalized_odds", "--model", f"{folder}/model.json",
                 "--output", f"{folder}/fair.json"]) == 2  # fmt: skip
    assert "histogram.json: " in capsys.readouterr().err
    assert not (folder / "fair.json").exists()


def test_a_gap_above_alpha_by_more_than_its_error_is_warned_of(folder, capsys):
    chosen = choose_decision(ScoreHistogram.read(folder / "histogram.json"), "equalized_odds", 0.05)
    gap, alpha = chosen.gap.value, chosen.decision.alpha
    assert gap <= alpha
    for error, excess, warned in ((0.01, 0.009, False), (0.01, 0.011, True), (0, 1e-12, False)):
        wide = chosen._replace(gap=NoisyShare(alpha + excess, error))
        assert (alpha_warning(wide) is not None) == warned
    assert thresholds(folder) == 0
    assert "warning" not in capsys.readouterr().err
    # Counts below 0 of a group's high scores: they are taken as 0 to choose, and count to estimate.
    counts = [[[500, 0], [0, 500]], [[500, 0], [-300, 800]]]
    write_altered(folder, counts=counts, variance=1.0)
    assert thresholds(folder, "--force") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: the estimated gap is 0.6000, above alpha = 0.02" in said


def test_the_same_counts_give_the_same_coins_whatever_else_is_altered(folder):
    def key(alpha="0", **changes):
        counted = ScoreHistogram.read(folder / "histogram.json").model_copy(update=changes)
        counted.write(folder / "histogram.json")
        assert thresholds(folder, "--alpha", alpha, "--randomized", "--force") == 0
        return read_model(folder / "fair.json").decision.key

    first = key()
    for changes in (
        {"alpha": "1e-9"},
        {"origin": Origin(clients=17, guarantees=(None,))},
        {"variance": 1e-9},
    ):
        assert key(**changes) == first
    (low, *others), *groups = ScoreHistogram.read(folder / "histogram.json").counts
    counts = (((low[0] + 1, *low[1:]), *others), *groups)
    assert key(counts=counts) != first


def test_the_guarantee_of_the_histogram_stands_in_the_model_file_and_the_report(folder, capsys):
    claim = {
        "epsilon": 0.75,
        "delta": 0.0,
        "unit": "row",
        "relation": "add_or_remove",
        "adversary": "all_but_one",
        "aggregators": 2,
        "rows_per_user": 1,
    }
    write_altered(folder, **origin(claim), variance=2 * laplace_variance(Fraction(4, 3)))
    assert thresholds(folder) == 0
    shown = capsys.readouterr().out
    assert "0.75" in shown
    assert "one row" in shown
    said = json.loads((folder / "fair.json").read_text())["decision"]["origin"]
    assert said["guarantees"] == [claim]
    assert evaluated(folder, "fair.json")["counts"] == said
    assert "counts" not in evaluated(folder, "model.json")
    evaluated(folder, "fair.json")
    assert main(["report", f"{folder}/run", "--output", f"{folder}/report.html"]) == 0
    page = (folder / "report.html").read_text()
    (rows,) = tables(page, "What each release guarantees and discloses")
    counts = [row[1:] for row in rows if row[0] == "counts over all clients"]
    assert ("privacy", "(epsilon = 0.75, delta = 0)-differential privacy of one row") in counts
    assert any(name == "not covered" and "collude" in words for name, words in counts)


def test_the_command_says_that_counted_rows_should_not_be_trained_on(folder, capsys):
    assert thresholds(folder) == 0
    assert "trained on the rows counted" in " ".join(capsys.readouterr().out.split())


def write_altered(folder, **changes):
    path = folder / "histogram.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "2" * 64}, "another model's"),
        ({"schema_hash": "2" * 64}, "schema_hash 222"),
        ({"groups": ["a", "c"]}, "groups ('a', 'c'): is another model's, not ('a', 'b')"),
        ({"groups": ["a", "b", "c"]}, "counts must be"),
        ({"counts": [[[1.5, 2], [1, 2]], [[1, 2], [1, 2]]]}, "counts.0.0.0"),
        ({"counts": [[[1, 2], [1]], [[1, 2], [1, 2]]]}, "counts must be"),
        ({"counts": [[[2**60, 2], [1, 2]], [[1, 2], [1, 2]]]}, "counts.0.0.0"),
        ({"counts": [[[0, 0], [1, 2]], [[1, 2], [1, 2]]]}, "group 'a' and label -1: counted 0"),
        ({"variance": -1}, "variance"),
        ({"variance": 1e9}, "three standard deviations of the noise"),
        ({"more": 0}, "more: unknown key"),
        (origin(CLAIM), "variance: 0; the guarantee's is 3.68"),
        (origin(CLAIM | {"epsilon": 0.5}) | {"variance": 3.68}, "the guarantee's is 15.6"),
        (origin(CLAIM | {"relation": "replace"}) | {"variance": 3.68}, "guarantee's is 15.6"),
        (origin({"epsilon": 1.0, "relation": "replace"}), "the guarantee's is 0"),
        (origin({"epsilon": 1.0}), "origin.guarantees.0.relation: missing"),
        (origin({"guarantee": "rho-zCDP"}), "origin.guarantees.0.epsilon: missing"),
        (origin(CLAIM | {"epsilon": True}), "origin.guarantees.0.epsilon"),
    ],
)
def test_hostile_histograms_leave_nothing(folder, changes, complaint, capsys):
    write_altered(folder, **changes)
    assert thresholds(folder) == 2
    assert complaint in capsys.readouterr().err
    assert not (folder / "fair.json").exists()


@pytest.mark.parametrize("read", [ScoreHistogram.read, RowWeights.read])
def test_no_more_of_a_file_is_read_than_it_may_have(folder, read):
    with (folder / "large.json").open("wb") as file:
        file.truncate(ScoreHistogram.max_file_bytes + 1)  # no room on the disk
    with pytest.raises(InputError, match=f"larger than the {ScoreHistogram.max_file_bytes} bytes"):
        read(folder / "large.json")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--alpha", "1"], "alpha = 1.0: must be from 0 to below 1"),
        (["--output", "FOLDER/model.json", "--force"], "is named twice"),
        (["--output", "FOLDER/schema.json"], "exists"),
        (["--model", "FOLDER/histogram.json"], "not a model file"),
        (["--weights", "published"], "give --notion and --model, or one file of counts and"),
    ],
)
def test_flags_that_cannot_be(folder, more, complaint, capsys):
    more = [word.replace("FOLDER", str(folder)) for word in more]
    assert thresholds(folder, *more) == 2
    assert complaint in capsys.readouterr().err


def test_weights_are_made_shown_and_trained_with(folder, capsys):
    argv = ["thresholds", f"{folder}/counts.json", "--weights", "kamiran_calders"]
    assert main([*argv, "--output", f"{folder}/w.json"]) == 0
    found = RowWeights.read(folder / "w.json")
    shown = capsys.readouterr().out
    assert all(f"{weight:.4g}" in shown for pair in found.weights for weight in pair)
    argv = ["train", f"{folder}/plain.csv", "--schema", f"{folder}/schema.json", "--rounds", "3"]
    argv += ["--weights", f"{folder}/w.json", "--output", f"{folder}/trained"]
    assert main([*argv, "--method", "fedsgd"]) == 2
    assert "weights: not read by fedsgd" in capsys.readouterr().err
    assert main([*argv, "--method", "fedavg"]) == 0
    metrics = json.loads((folder / "trained" / "metrics.json").read_text())
    assert metrics["weights"]["weights"] == json.loads((folder / "w.json").read_text())["weights"]
    assert metrics["asked"] == {"by": "row_weights", "amounts": [], "client_gap": None}
    page = f"{folder}/report.html"
    assert main(["report", f"{folder}/trained", "--output", page]) == 0


def test_weights_of_nobody_are_refused(folder, capsys):
    counted = ScoreHistogram.read(folder / "counts.json")
    changed = (counted.counts[0], (counted.counts[1][0], (-2,)))
    counted.model_copy(update={"counts": changed}).write(folder / "bad.json")
    argv = ["thresholds", f"{folder}/bad.json", "--weights", "published"]
    assert main([*argv, "--output", f"{folder}/none.json"]) == 2
    assert "rows with group 'b' and label +1: counted -2" in capsys.readouterr().err


def test_names_of_groups_from_files_are_only_shown(folder, capsys):
    schema = make_schema()
    assert schema.groups == ("a", "b")
    write_altered(folder, groups=["a", "[red]b\x1b[0m"])
    argv = ["thresholds", f"{folder}/histogram.json", "--weights", "published"]
    assert main([*argv, "--output", f"{folder}/shown.json"]) == 0
    assert "\x1b" not in capsys.readouterr().out
