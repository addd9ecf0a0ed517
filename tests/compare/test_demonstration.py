"""The demonstration on a real table, in few steps; README shows its table."""

import json
import re
import shutil

import pandas as pd
import pytest
from comparison import EXAMPLE, same_text
from printed import plain_text

import synthfair as sf
from synthfair.cli.first_steps import demo
from synthfair.compare import demonstrate
from synthfair.data.datasets import configs_folder
from synthfair.report.result_tables import outcomes_table

README = (configs_folder().parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """Its outcomes and its folder, and how many stages were shown of how many."""
    folder, shown = tmp_path_factory.mktemp("demo") / "found", []
    fair = sf.DistillConfig(rho_o=30.0, steps=40)
    return demonstrate(folder, lambda *stage: shown.append(stage[:2]), fair=fair), folder, shown


def test_demonstration_nearly_halves_the_gap_at_two_points_of_accuracy(demonstration):
    """A few rows more or less, of 399, as machines decide them."""
    outcomes, _, shown = demonstration
    methods = ["central", "each lender alone", "fair releases", "surrogates"]
    found = {(o.method, o.rho_o): o.evaluation for o in outcomes}
    assert list(found) == [(method, rho) for rho in (0, 30) for method in methods]
    spd = {key: evaluation.spd.value for key, evaluation in found.items()}
    accuracy = {key: evaluation.accuracy.value for key, evaluation in found.items()}
    for method in ("central", "surrogates"):
        assert spd[method, 0] > 0.1
        assert abs(spd[method, 30]) < 0.7 * spd[method, 0]
    assert spd["each lender alone", 30] > spd["surrogates", 30] - 0.02
    assert accuracy["surrogates", 30] > accuracy["surrogates", 0] - 0.025
    assert accuracy["surrogates", 30] > outcomes[-1].evaluation.constant_accuracy + 0.02
    assert {*shown} == {(done, 14) for done in range(15)}


def test_demonstration_files_are_what_the_models_were_made_of(demonstration):
    outcomes, folder, _ = demonstration
    schema = sf.read_schema(folder / "schema.json")
    releases = [folder / "surrogate" / f"{lender}.parquet" for lender in ("suburbs", "city")]
    pooled = sf.read_releases(releases, schema)
    model = sf.pool_and_train(pooled, schema, sf.ServerConfig(rho=30.0))
    written = json.loads((folder / "surrogate/fair/metrics.json").read_text())
    assert sf.read_model(folder / "surrogate/fair/model.json").theta == model.theta
    assert written["spd"]["value"] == outcomes[-1].evaluation.overall["spd"].value
    assert len(pd.read_csv(folder / "client_suburbs_train.csv")) == 1345


def test_readme_shows_the_table_of_the_demonstration(demonstration, monkeypatch, capsys):
    """But for fair releases, made in fewer steps here; and another number is seen."""
    outcomes, folder, _ = demonstration
    others = [one for one in outcomes if one.method != "fair releases"]

    def rows(text):
        return "\n".join(re.findall("^[┃│] (?!fair).*|.* test rows;.*", text, re.MULTILINE))

    shown = rows(plain_text(outcomes_table(others), width=80))
    assert len(shown.splitlines()) == 9
    assert same_text(rows(README), shown, tolerance=EXAMPLE)
    for number, wrong in ((" 0.92 [0.89", " 0.86 [0.89"), (" 0.07 [", " 0.15 [")):
        assert not same_text(rows(README).replace(number, wrong), shown, tolerance=EXAMPLE)

    # The command's last lines.
    monkeypatch.setattr("synthfair.compare.demonstrate", lambda *_, **__: outcomes)
    monkeypatch.setattr("sys.platform", "linux")
    demo(output=folder)
    said = capsys.readouterr().out.partition("intervals.")[2].replace(str(folder), "synthfair-demo")
    claimed = README.split("95 % intervals.\n")[1].split("```")[0]
    last, found = (re.sub("probably (met|missed)", "", text) for text in (claimed, said))
    assert same_text(last, found, tolerance=EXAMPLE)
    assert (folder / "report.html").exists()


def test_demonstration_writes_to_its_own_folder_alone(demonstration, tmp_path, monkeypatch):
    """It gets as far as reading the table; the rest takes a minute."""
    monkeypatch.delattr("synthfair.compare.demonstration.load_dataset")
    (tmp_path / "mine.csv").touch()
    with pytest.raises(sf.InputError, match="is not empty"):
        demonstrate(tmp_path, lambda *_: None)
    shutil.copytree(demonstration[1], tmp_path / "again")
    with pytest.raises(NameError, match="load_dataset"):
        demonstrate(tmp_path / "again", lambda *_: None)
