"""gap plan, perturb and aggregate as users run them, and the page that shows what they measured."""

import html
import io
import json

import pandas as pd
import pytest
from builders import SCHEMA, make_table, some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.measure.collection import NO_VALUE, Collection, perturb_records
from synthfair.trained import write_model

MODEL = some_model().model_copy(update={"theta": (5.0, *[0.0] * 6, 0.0, -2.5)})


def gap(capsys, *words):
    """What the command prints, and says."""
    capsys.readouterr()
    assert main(["gap", *words]) == 0
    return capsys.readouterr()


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """The working folder, with the plan of a value and that of a model's rate, which is there."""
    monkeypatch.chdir(tmp_path)
    gap(capsys, "plan", "--groups", "f", "m", "--epsilon", "6", "--clients", "1000",
        "--range", "0", "2", "--output", "gap.json")  # fmt: skip
    gap(capsys, "plan", "--groups", "a", "b", NO_VALUE, "--epsilon", "8", "--precision", "0.1",
        "--shares", "0.3", "0.4", "0.3", "--mechanism", "laplace", "--output", "rates.json")  # fmt: skip
    write_model(MODEL, tmp_path / "model.json")
    make_table(4000).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path


def aggregated(capsys, folder, *words):
    said = gap(capsys, "aggregate", *words, "--output", "found/gaps.json", "--force")
    return json.loads((folder / "found" / "gaps.json").read_text()), " ".join(said.err.split())


def test_gap_of_records_is_measured_rejects_counted_and_shown_on_a_page(folder, capsys):
    lines = [gap(capsys, "perturb", "gap.json", "--group", "fm"[i % 2], "--value", "0.5",
                 *["--header"][i:]).out for i in range(4)]  # fmt: skip
    reports = perturb_records(Collection.read(folder / "gap.json"), ["f", "m"] * 500,
                              [1.8, 0.8] * 500)  # fmt: skip
    pd.DataFrame(reports).to_csv("more.csv", index=False)
    mark = reports[0].collection
    (folder / "r.csv").write_text(f"{''.join(lines)}{'0' * 32},{mark},f,3\n")
    found, said = aggregated(
        capsys, folder, "gap.json", "r.csv", "more.csv", "--confidence", "0.99"
    )
    assert (found["reports"], found["confidence"]) == (1004, 0.99)
    assert found["rejected"] == {"value not possible": 1}
    assert "row 5" in said
    (measured,) = found["gaps"]
    assert (measured["first"], measured["second"]) == ("f", "m")
    assert measured["low"] < -1 < measured["high"] < -0.5
    assert main(["report", "found", "--output", "r.html"]) == 0
    page = html.unescape((folder / "r.html").read_text())
    for number in (*(f"{measured[key]:z.4f}" for key in ("value", "low", "high")), "1,004 reports"):
        assert number in page


def test_gap_of_a_models_rate_is_that_of_the_persons_in_a_table(folder, capsys):
    own = ["rates.json", "--model", "model.json", "--rate", "true_positive_rate", "--table"]
    (folder / "r.csv").write_text(gap(capsys, "perturb", *own, "t.csv").out)
    found, _ = aggregated(capsys, folder, "rates.json", "r.csv")
    assert found["reports"] == 4000
    assert found["groups"][2] | {"share": 0, "error": 0} == {
        "name": NO_VALUE, "share": 0, "error": 0, "mean": None, "low": None, "high": None
    }  # fmt: skip
    x, s, y = sf.encode(make_table(4000), SCHEMA)
    selected = MODEL.scores(x, s) > 0
    rates = [selected[(s == g) & (y > 0)].mean() for g in (0, 1)]
    (measured,) = found["gaps"]
    width = measured["high"] - measured["low"]
    assert measured["low"] - width < rates[1] - rates[0] < measured["high"] + width < 0.5
    table = make_table(50)
    table[table["town"] == "a"].to_csv("a.csv", index=False)
    assert gap(capsys, "perturb", *own, "a.csv", "--one-person").out.count("\n") == 1


def test_gap_of_a_record_from_standard_input_is_not_in_the_list_of_processes(
    folder, capsys, monkeypatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"group": "f", "value": 0.5}'))
    assert gap(capsys, "perturb", "gap.json").out.count("\n") == 1


def test_gap_of_reports_that_contradict_the_plan_is_warned_of(folder, capsys):
    """Means far outside the range, though each report is possible."""
    mark = Collection.read(folder / "rates.json").fingerprint
    lines = [f"{i:032x},{mark},{'ab'[i % 2]},9\n" for i in range(4000)]
    (folder / "r.csv").write_text("".join(lines))
    found, said = aggregated(capsys, folder, "rates.json", "r.csv")
    assert [line[0] for line in found["warnings"]] == ["(", "a", "b", "v"]
    assert "contradict" in said
    assert main(["report", "found", "--output", "r.html"]) == 0
    assert found["warnings"][0] in html.unescape((folder / "r.html").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan --groups f m --epsilon 1", "two of"), ("plan --groups f --epsilon 1 --clients 9", "groups"),
        ("perturb gap.json --group f", "group and value"), ("perturb gap.json --one-person", "one-person"),
        ("perturb gap.json --model model.json", "rate"), ("perturb gap.json --group x --value 1", "'x'"),
        ("perturb gap.json --model model.json --table t.csv --rate true_positive_rate", NO_VALUE),
        ("perturb rates.json --model model.json --table t.csv --rate true_positive_rate --one-person", "row 1"),
        ("aggregate nowhere.json r.csv", "nowhere.json"), ("aggregate gap.json nowhere.csv", "nowhere.csv"),
        ("aggregate gap.json nowhere.csv --confidence 1", "confidence"),
        ("aggregate gap.json t.csv --output t.csv --force", "twice"),
    ],
)  # fmt: skip
def test_gap_of_wrong_use_ends_with_2_and_sends_nothing(folder, words, said, capsys):
    capsys.readouterr()
    assert main(["gap", *words.split()]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out
