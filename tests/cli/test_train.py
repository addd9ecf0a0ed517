"""python -m synthfair train."""

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table

from synthfair.cli import main
from synthfair.privacy.ledger import Ledger
from synthfair.trained import read_model, write_model

TRAIN = "train t.csv --schema schema.json --rounds 12 --output out"
PRIVATE = "--clip 1 --epsilon 2 --delta"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_table(200).assign(who=np.arange(200) // 3).to_csv("t.csv", index=False)
    schema = SCHEMA.model_copy(update={"ignored": ("who",)})
    (tmp_path / "schema.json").write_text(schema.to_json())
    return tmp_path


def train(more):
    return main(f"{TRAIN} {more}".split())


def test_train_with_users_of_a_column_books_a_model_of_its_settings(folder, capsys):
    assert train("--user-column who --hidden 3") == 0
    assert "users 54 rounds 12" in " ".join(capsys.readouterr().out.split())  # of 160 rows
    assert len(read_model(folder / "out" / "model.json").hidden) == 1
    assert len(pd.read_csv(folder / "out" / "rounds.csv")) == 12
    assert Ledger(folder / "t.csv.ledger.jsonl").spent().releases == 1


def test_train_says_the_condition_of_an_epsilon(folder, capsys):
    assert train(f"--method two_phase --batch 80 --rounds 2 {PRIVATE} 1e-3") == 0
    assert "Conditional on the phase-1 teacher" in capsys.readouterr().out


def test_train_refine_goes_on_from_a_model_of_this_schema(folder, capsys):
    refine = "--method refine --clients 3 --test t.csv --rho 5"
    assert train(f"{refine} --rounds 2") == 0
    assert "refine has not come to the optimum" in capsys.readouterr().err
    again = f"{refine} --rounds 8 --force --again --start"
    assert train(f"{again} out/model.json") == 0
    model = read_model(folder / "out" / "model.json")
    assert model.converged
    record = pd.read_csv(folder / "out" / "rounds.csv")
    assert record["step"][0] == 0  # the first exchange is at the start
    assert record["objective"].is_monotonic_decreasing
    other = model.schema_.model_copy(update={"name": "other"})
    write_model(model.model_copy(update={"schema_": other}), folder / "other.json")
    assert train(f"{again} other.json") == 2
    assert "of this schema" in " ".join(capsys.readouterr().err.split())
    assert train("--hidden 3 --clients 3 --again --output net") == 0
    assert train(f"{again} net/model.json") == 2
    assert "a linear model" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("more", "named"), [
    ("--clients 2 --rows-per-user 3", "give one of"), ("--alpha -1", "alpha"),
    ("--method fedavg --alpha 0.1 --kappa 2", "alpha, kappa"),
    ("--method dp_sgd --secure", "secure"), (f"--rows-per-user 2 {PRIVATE} 0.5", "delta = 0.5"),
])  # fmt: skip
def test_train_refuses_by_key(folder, more, named, capsys):
    assert train(more) == 2
    assert named in capsys.readouterr().err
    assert not (folder / "out").exists()
