"""The demonstration on a real table; README quotes the end of what it prints."""

import runpy
import shutil

import pandas as pd
import pytest
from comparison import EXAMPLE, same_text

import synthfair as sf
from synthfair.cli.first_steps import demo
from synthfair.compare import demonstrate
from synthfair.data.datasets import configs_folder

ROOT = configs_folder().parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """Its outcomes and its folder, and how many stages were shown of how many."""
    folder, shown = tmp_path_factory.mktemp("demo") / "found", []
    return demonstrate(folder, lambda *stage: shown.append(stage[:2])), folder, shown


def test_demonstration_closes_a_visible_gap_for_a_few_points_of_accuracy(demonstration):
    """And its answer is surely yes: 1,354 test rows are enough."""
    outcomes, folder, shown = demonstration
    found = {(o.method, o.rho_o): o.evaluation for o in outcomes}
    methods = ["central", "each region alone", "surrogates"]
    assert list(found) == [(method, rho) for rho in (0, 100) for method in methods]
    assert all(outcome.converged for outcome in outcomes)
    for method in methods:
        plain, fair = found[method, 0], found[method, 100]
        assert plain.spd.low > 0.1 > fair.spd.high
        assert plain.accuracy.value - fair.accuracy.value < 0.07
        assert fair.accuracy.low > fair.constant_accuracy + 0.03
    assert min(group.n for group in found["surrogates", 100].by_group.values()) >= 500
    assert shown == [(done, 10) for done in range(11)]
    assert len(pd.read_csv(folder / "client_west_train.csv")) == 884  # four fifths


def test_readme_quotes_the_answer_of_the_demonstration(demonstration, monkeypatch, capsys):
    outcomes, folder, _ = demonstration
    monkeypatch.setattr("synthfair.compare.demonstrate", lambda *_, **__: outcomes)
    demo(output=folder)
    said = capsys.readouterr().out.partition("intervals.")[2].partition("\nWrote")[0]
    claimed = README.split("```text\n")[1].split("```")[0]
    assert same_text(claimed, said, tolerance=EXAMPLE)
    assert (folder / "report.html").exists()


def test_demonstration_writes_to_its_own_folder_alone(demonstration, tmp_path, monkeypatch):
    """It gets as far as reading the table."""
    monkeypatch.delattr("synthfair.compare.demonstration.load_dataset")
    (tmp_path / "mine.csv").touch()
    with pytest.raises(sf.InputError, match="is not empty"):
        demonstrate(tmp_path, lambda *_: None)
    shutil.copytree(demonstration[1], tmp_path / "again")
    with pytest.raises(NameError, match="load_dataset"):
        demonstrate(tmp_path / "again", lambda *_: None)


def test_picture_of_readme_is_that_of_the_demonstration(demonstration):
    """If not: python docs/tools/demo_picture.py synthfair-demo."""
    drawn = runpy.run_path(str(ROOT / "docs/tools/demo_picture.py"))["drawn"](demonstration[1])
    committed = (ROOT / "docs/assets/demo.svg").read_text(encoding="utf-8")
    assert same_text(committed, drawn, tolerance=3)
