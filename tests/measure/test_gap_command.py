"""gap plan, perturb and aggregate as users run them, and the page that shows what they measured."""

import io
import json

import pandas as pd
import pytest
from builders import SCHEMA, make_table, some_model

import synthfair as sf
from synthfair.cli import main
from synthfair.measure.collection import NO_VALUE, Collection, perturb_records
from synthfair.trained import write_model

TABLE = make_table(4000)
MODEL = some_model().model_copy(update={"theta": (5.0, *[0.0] * 6, 0.0, -2.5)})


def gap(capsys, words, *more):
    """What the command prints, and says."""
    capsys.readouterr()
    assert main(["gap", *words.split(), *more]) == 0
    return capsys.readouterr()


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """The working folder, with the plan of a value and that of a model's rate, which is there."""
    monkeypatch.chdir(tmp_path)
    gap(capsys, "plan --groups f m --epsilon 6 --clients 1000 --range 0 2 --output gap.json")
    rates = "plan --epsilon 8 --precision 0.1 --shares 0.3 0.4 0.3 --mechanism laplace"
    gap(capsys, f"{rates} --output rates.json", "--groups", "a", "b", NO_VALUE)
    write_model(MODEL, tmp_path / "model.json")
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path


def aggregated(capsys, folder, words):
    said = gap(capsys, f"aggregate {words} --confidence 0.99 --output found/gaps.json")
    return json.loads((folder / "found" / "gaps.json").read_text()), " ".join(said.err.split())


def test_gap_of_records_is_measured_rejects_counted_and_shown_on_a_page(folder, capsys):
    perturb = "perturb gap.json --group f --value 0.5"
    lines = gap(capsys, f"{perturb} --header").out + gap(capsys, perturb).out
    public = Collection.read(folder / "gap.json")
    more = perturb_records(public, ["f", "m"] * 500, [1.8, 0.8] * 500)
    pd.DataFrame(more).to_csv("more.csv", index=False)
    (folder / "r.csv").write_text(f"{lines}{'0' * 32},{public.fingerprint},f,3\n")
    found, said = aggregated(capsys, folder, "gap.json r.csv more.csv")
    assert (found["reports"], found["rejected"]) == (1002, {"value not possible": 1})
    assert "row 3" in said
    (measured,) = found["gaps"]
    assert abs(measured["value"] + 1) < measured["high"] - measured["low"] < 0.5
    assert main(["report", "found", "--output", "r.html"]) == 0
    page = (folder / "r.html").read_text()
    assert all(f"{measured[key]:z.4f}" in page for key in ("value", "low", "high"))


def test_gap_of_a_models_rate_is_that_of_the_persons_in_a_table(folder, capsys):
    """Within twice the half-width of 99 %: false alarm 3e-7."""
    own = "perturb rates.json --model model.json --rate true_positive_rate --table"
    (folder / "r.csv").write_text(gap(capsys, f"{own} t.csv").out)
    found, _ = aggregated(capsys, folder, "rates.json r.csv")
    assert (found["reports"], found["groups"][2]["mean"]) == (4000, None)  # of "(no value)"
    x, s, y = sf.encode(TABLE, SCHEMA)
    first, second = ((MODEL.scores(x, s) > 0)[(s == g) & (y > 0)].mean() for g in (0, 1))
    (measured,) = found["gaps"]
    assert abs(measured["value"] - second + first) < measured["high"] - measured["low"] < 0.3
    TABLE[TABLE["town"] == "a"].to_csv("a.csv", index=False)
    assert gap(capsys, f"{own} a.csv --one-person").out.count("\n") == 1


@pytest.mark.usefixtures("folder")
def test_gap_of_a_record_from_standard_input_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"group": "f", "value": 0.5}'))
    assert gap(capsys, "perturb gap.json").out.count("\n") == 1


def test_gap_of_reports_that_contradict_the_plan_is_warned_of(folder, capsys):
    """Means far outside the range, though each report is possible."""
    mark = Collection.read(folder / "rates.json").fingerprint
    lines = [f"{i:032x},{mark},{'ab'[i % 2]},9\n" for i in range(4000)]
    (folder / "r.csv").write_text("".join(lines))
    found, said = aggregated(capsys, folder, "rates.json r.csv")
    assert [line[0] for line in found["warnings"]] == ["(", "a", "b", "v"]
    assert "contradict" in said


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "said"), [
    ("perturb gap.json --group f", "group and value"), ("perturb gap.json --one-person", "one-person"),
    ("perturb gap.json --model model.json", "rate"), ("perturb gap.json --group x --value 1", "'x'"),
    ("perturb gap.json --model model.json --table t.csv --rate true_positive_rate", NO_VALUE),
    ("perturb rates.json --model model.json --table t.csv --rate true_positive_rate --one-person", "row 1"),
    ("aggregate gap.json nowhere.csv --confidence 1", "confidence"),
    ("aggregate gap.json t.csv --output t.csv --force", "twice"),
])  # fmt: skip
def test_gap_of_wrong_use_ends_with_2_and_sends_nothing(words, said, capsys):
    capsys.readouterr()
    assert main(["gap", *words.split()]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out
