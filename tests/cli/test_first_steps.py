"""``split`` and ``schema``, and from one's own file to decisions, as a user types it."""

import json

import pandas as pd
import pytest
from builders import SCHEMA, make_table

from synthfair.cli import main
from synthfair.data.schema import read_schema


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table with another separator, two regions, and two labels that are positive."""
    monkeypatch.chdir(tmp_path)
    table = make_table(800).assign(region=["St. Mary", "north"] * 400)
    table.loc[::3, "paid"] = table.loc[::3, "paid"].replace("yes", "late")
    table.to_csv("loans.csv", index=False, sep=";")
    (tmp_path / "given.json").write_text(SCHEMA.to_json())
    return tmp_path


DRAFT = "schema loans.csv --label paid --positive yes late --sensitive town --output schema.json"


def test_own_table_leads_from_a_draft_to_decisions(folder, capsys):
    split = ["split", "loans.csv", "--schema", "schema.json", "--by", "region", "--output", "cut"]
    assert main(DRAFT.split()) == 0
    assert main(split) == 2  # before a person has reviewed the draft, and deleted its first block
    assert "draft" in capsys.readouterr().err
    document = json.loads((folder / "schema.json").read_text())
    del document["draft"]
    (folder / "schema.json").write_text(json.dumps(document))
    assert read_schema(folder / "schema.json").positives == ("yes", "late")
    assert main(split) == 0
    written, names = capsys.readouterr().out.splitlines(), ["St._Mary", "north"]
    files = {f"cut/client_{name}_{part}.csv" for name in names for part in ("train", "test")}
    assert {*written} == {*files, "cut/schema.json"}
    assert set(pd.read_csv("cut/client_north_train.csv")["region"]) == {"north"}
    for name in names:
        words = f"client --data cut/client_{name}_train.csv --schema cut/schema.json --k-min 10"
        words += f" --release surrogate --output {name}.parquet"
        assert main(words.split()) == 0
    tests = [f"cut/client_{name}_test.csv" for name in names]
    server = [*(f"{name}.parquet" for name in names), "--schema", "cut/schema.json"]
    assert main(["server", *server, "--test", *tests, "--output", "server"]) == 0
    model = ["--model", "server/model.json", "--data"]
    assert main(["evaluate", *model, tests[0], "--output", "again.json"]) == 0
    served = json.loads((folder / "server/metrics.json").read_text())
    again = json.loads((folder / "again.json").read_text())
    assert again["accuracy"] == served["per_client"]["client_St._Mary_test"]["accuracy"]
    assert served["accuracy"]["value"] > served["constant_classifier"]["accuracy"]
    assert main(["predict", *model, "loans.csv", "--output", "scored.csv"]) == 0
    decided = pd.read_csv("scored.csv")["decision"]
    right = pd.read_csv("loans.csv", sep=";")["paid"].eq("no") == decided.eq("no")
    assert (set(decided), right.mean() > 0.7) == ({"no", "positive"}, True)


@pytest.mark.parametrize(("words", "named"), [
    (DRAFT.replace("yes late", "often"), "positive often"),
    (DRAFT.replace("--label paid", "--label income"), "label 'income'"),
    (DRAFT.replace("schema.json", "loans.csv"), "named twice"),
    (DRAFT.replace("loans.csv", "empty.csv"), "empty: "),
    ("split loanapp --by white --clients 2 --output cut", "clients"),
    ("split loanapp --schema given.json --output cut", "--schema"),
    ("split loanapp --by region --output cut", "column 'region'"),
    ("split bad.csv --schema given.json --output cut", "bad.csv: column 'town', row 3: 'z'"),
    ("split loanapp --clients 20 --skew 0.1 --output cut", "clients 1, 7: "),
])  # fmt: skip
def test_first_steps_refuse_by_argument_column_or_row(folder, words, named, capsys):
    make_table().assign(town=["a", "b", "z"] * 40).to_csv("bad.csv", index=False)
    (folder / "empty.csv").write_text("paid,town\n")
    before = sorted(folder.iterdir())
    assert main(words.split()) == 2
    assert named in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
