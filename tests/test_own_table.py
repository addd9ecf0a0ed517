"""From one's own CSV file to a release: draft, answers, client, as a user types it."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys

import pandas as pd
import pytest
from conftest import make_table
from own_tables import hospital

from synthfair.cli import main
from synthfair.data.schema import parse_schema, read_schema

ROLES = ["--label", "readmitted", "--sensitive", "race"]


@pytest.fixture
def table(tmp_path):
    """2,000 rows of 20 columns, some of each kind."""
    rows = hospital(2000).drop(columns=[f"drug_{i}" for i in range(3, 33)])
    rows.to_csv(tmp_path / "stays.csv", index=False, sep=";")
    return tmp_path / "stays.csv"


def release(data, schema):
    """The kind of release that is made at once; which one does not matter to how rows are read."""
    argv = ["--data", str(data), "--schema", str(schema), "--output", f"{data}.parquet"]
    argv += ["--release", "surrogate"]
    return main(["client", *argv])


def answers(monkeypatch, *lines):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))


def test_a_draft_whose_block_is_deleted_makes_a_release(table, capsys):
    schema = table.with_name("schema.json")
    argv = ["schema", str(table), *ROLES, "--positive", "<30", ">30", "--output", str(schema)]
    assert main(argv) == 0
    assert "a draft; review it" in capsys.readouterr().out
    assert release(table, schema) == 2
    assert "still marked a draft" in capsys.readouterr().err
    document = json.loads(schema.read_text())
    del document["draft"]
    schema.write_text(json.dumps(document))
    assert release(table, schema) == 0
    assert main([*argv]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "roles", "separator"),
    [
        (make_table(400, n_groups=4), ["--label", "paid", "--sensitive", "town"], ","),
        (make_table(400), ["--label", "paid", "--sensitive", "town", "--additive"], ","),
        (
            make_table(400).assign(
                site_id=range(400), grade=3, home=lambda t: t["home"].fillna("?")
            ),
            ["--label", "paid", "--sensitive", "town"],
            "\t",
        ),
        (
            make_table(400).assign(paid=lambda t: (t["paid"] == "yes").astype(int)),
            ["--label", "paid", "--sensitive", "town", "--positive", "1"],
            "|",
        ),
    ],
)
def test_drafts_of_unlike_tables_make_releases(tmp_path, capsys, make, roles, separator):
    data = tmp_path / "mine.csv"
    make.to_csv(data, index=False, sep=separator)
    if "--positive" not in roles:
        roles = [*roles, "--positive", "yes"]
    assert main(["schema", str(data), *roles]) == 0
    document = json.loads(capsys.readouterr().out)
    assert ("basis" in document["columns"]["income"]) == ("--additive" in roles)
    del document["draft"]
    (tmp_path / "schema.json").write_text(json.dumps(document))
    assert release(data, tmp_path / "schema.json") == 0


def test_enter_takes_every_proposal_and_leaves_a_draft(table, monkeypatch, capsys):
    """Nobody has said that it is public. Of three labels none is proposed: Enter asks again."""
    schema = table.with_name("schema.json")
    answers(monkeypatch, *[""] * 60, "<30; >30", "", "")
    assert main(["schema", str(table), *ROLES, "--interactive", "--output", str(schema)]) == 0
    said = capsys.readouterr()
    assert "a draft; review it" in said.out
    for words in ("'?' mean", "'diag_1': ", "8 whole numbers: codes", "left out", "positive, of"):
        assert words in " ".join(said.err.split())
    written = json.loads(schema.read_text())
    assert set(written["draft"]["to_review"]) > {"description", "columns.diag_1"}
    assert written["positive"] == ["<30", ">30"]


def test_a_draft_needs_two_columns_or_a_person(table, capsys):
    assert main(["schema", str(table), "--label", "readmitted"]) == 2
    assert "--label and --sensitive: name two columns; or be asked" in capsys.readouterr().err


def test_interactive_asks_for_the_label_until_one_is_named(table, monkeypatch, capsys):
    schema = table.with_name("schema.json")
    answers(monkeypatch, "", "", "readmitted", "race", *[""] * 60, "<30", "", "")
    assert main(["schema", str(table), "--interactive", "--output", str(schema)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("Which column is the label, of encounter_id, ") == 3
    assert (
        said.count("Which column is the sensitive attribute, or which are, of encounter_id, ") == 1
    )
    assert said.count("'?' mean that a value is missing") == 1
    written = json.loads(schema.read_text())
    assert (written["label"], written["sensitive"]) == ("readmitted", "race")


def test_blanks_around_a_mark_make_one_question(tmp_path, monkeypatch, capsys):
    data, schema = tmp_path / "loans.csv", tmp_path / "schema.json"
    marks = [" ?", "?", "n/a", " NA"] * 75
    make_table(300).assign(home=marks).to_csv(data, index=False)
    answers(monkeypatch, "y", "n", "n", *[""] * 60)
    flags = ["--label", "paid", "--sensitive", "town", "--interactive", "--output", str(schema)]
    assert main(["schema", str(data), *flags]) == 0
    assert json.loads(schema.read_text())["missing_values"] == ["", "NA", "NaN", " ?", "?"]


def test_answers_make_a_schema_that_client_accepts(tmp_path, monkeypatch, capsys):
    data, schema = tmp_path / "loans.csv", tmp_path / "schema.json"
    rows = make_table(300).assign(
        kind=lambda t: [i % 4 for i in range(300)],
        row=range(300),
        home=lambda t: t["home"].fillna("?"),
    )
    rows.to_csv(data, index=False)
    answers(
        monkeypatch,
        "height", "paid",  # label: asked again after a column that there is not
        "town",
        "y",  # '?' is missing
        "0 80",  # income
        "120 18", "18", "18 120",  # age: asked again
        "boat; tent",  # home
        "c",  # town
        "",  # paid
        "numeric", "0 3",  # kind: not codes
        "ignore",  # row
        "maybe", "yes",
        "Loans; bounds are ours.",
        "y",
    )  # fmt: skip
    assert main(["schema", str(data), "--interactive", "--output", str(schema)]) == 0
    said = capsys.readouterr()
    assert "complete; give the same file" in said.out
    for words in (
        "'height': must be one of",
        "must be two numbers, the second above the first",
        "row': left out, or numeric",
        "maybe",
    ):
        assert words in said.err
    found = json.loads(schema.read_text())
    assert found == {
        "name": "loans",
        "description": "Loans; bounds are ours.",
        "label": "paid",
        "positive": "yes",
        "sensitive": "town",
        "columns": {
            "income": {"kind": "numeric", "lower": 0, "upper": 80, "out_of_range": "clip"},
            "age": {
                "kind": "numeric", "lower": 18, "upper": 120,
                "out_of_range": "clip", "missing": "category",
            },
            "home": {
                "kind": "categorical",
                "categories": ["other", "own", "rent", "boat", "tent"],
                "missing": "category",
            },
            "town": {"kind": "categorical", "categories": ["a", "b", "c"]},
            "paid": {"kind": "categorical", "categories": ["no", "yes"]},
            "kind": {"kind": "numeric", "lower": 0, "upper": 3, "out_of_range": "clip"},
        },
        "ignored": ["row"],
        "missing_values": ["", "NA", "NaN", "?"],
    }  # fmt: skip
    assert release(data, schema) == 0


def test_what_is_no_schema_stays_a_draft(tmp_path, monkeypatch, capsys):
    """A feature named s would clash with the groups; the answers are not lost."""
    data, schema = tmp_path / "loans.csv", tmp_path / "schema.json"
    make_table(300).rename(columns={"income": "s"}).to_csv(data, index=False)
    answers(monkeypatch, *[""] * 60)
    flags = ["--label", "paid", "--sensitive", "town", "--interactive", "--output", str(schema)]
    assert main(["schema", str(data), *flags]) == 0
    assert "encoded column names clash: ['s']" in " ".join(capsys.readouterr().err.split())
    assert "draft" in json.loads(schema.read_text())


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--interactive"], "--interactive: needs --output"),
        (["--interactive", "--output", "TABLE"], "is named twice"),
        (["--interactive", "--output", "NEW"], "the answers end before the questions"),
        (
            [*ROLES[:3], "age", "--positive", "often"],
            "positive often: must be some, but not all, values of 'readmitted': <30, >30",
        ),
        (
            ["--label", "cost", "--sensitive", "race"],
            "label 'cost': numbers; choose a column of 2 to 30",
        ),
    ],
)
def test_schema_refuses(table, monkeypatch, capsys, flags, complaint):
    answers(monkeypatch, "")
    places = {"TABLE": str(table), "NEW": str(table.with_name("new.json"))}
    assert main(["schema", str(table), *(places.get(flag, flag) for flag in flags)]) == 2
    assert complaint in capsys.readouterr().err
    assert [path.name for path in table.parent.iterdir()] == ["stays.csv"]


def test_columns_without_a_question_may_be_treated_otherwise(tmp_path, monkeypatch, capsys):
    data, schema = tmp_path / "loans.csv", tmp_path / "schema.json"
    rows = make_table(300).assign(
        home=["own"] * 150 + ["rent"] * 148 + ["boat"] * 2, visits=[i % 12 for i in range(300)]
    )
    rows.to_csv(data, index=False)
    answers(
        monkeypatch,
        "ignore",  # income
        "",  # age
        "grouped", "tent",  # home: rare values are one, and another is listed
        "ignore", "ignore;",  # town: is not left out, but may have a group of that name
        "",  # paid
        "categories", "ignore",  # visits: first not a quantity, then left out
        "yes",
        "Loans; bounds are ours.",
        "y",
    )  # fmt: skip
    flags = ["--label", "paid", "--sensitive", "town", "--interactive", "--output", str(schema)]
    assert main(["schema", str(data), *flags]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "'income': public bounds, or ignore (" in said
    assert (
        "'home': boat, own, rent; further values that can occur, or grouped, or ignore (none)"
        in said
    )
    found = json.loads(schema.read_text())
    assert "'ignore': must be categories; write 'ignore;' for a value of that name" in said
    assert found["columns"]["town"]["categories"] == ["a", "b", "ignore"]
    assert found["ignored"] == ["income", "visits"]
    assert found["columns"]["home"] == {
        "kind": "categorical",
        "categories": ["own", "rent", "other", "tent"],
        "unlisted": "other",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("age,sex,paid\n", "stays.csv: the table has no rows"),
        ("39,m,yes\n50,m,yes\n38,f,no\n", "stays.csv: the first line looks like a row, not a"),
    ],
)
@pytest.mark.parametrize("interactive", [False, True])
def test_no_draft_without_rows_or_header(table, capsys, text, complaint, interactive):
    table.write_text(text)
    output = table.with_name("schema.json")
    how = ["--interactive"] if interactive else ["--label", "paid", "--sensitive", "sex"]
    argv = ["schema", str(table), "--output", str(output), *how]
    assert main(argv) == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert not output.exists()


def test_ctrl_c_between_two_answers_leaves_nothing(table):
    command = ["schema", str(table), *ROLES, "--interactive", "--output", f"{table}.json"]
    with subprocess.Popen(
        [sys.executable, "-m", "synthfair", *command],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as asked:
        os.write(asked.stdin.fileno(), b"\n" * 6)
        said = b""
        while b"'admission_type_id'" not in said:
            assert select.select([asked.stderr], [], [], 60)[0]
            said += os.read(asked.stderr.fileno(), 2**16)
        asked.send_signal(signal.SIGINT)
        assert asked.wait(60) == 130
        said += asked.stderr.read()
    assert b"Traceback" not in said
    assert said.endswith(b"interrupted\n")
    assert [path.name for path in table.parent.iterdir()] == ["stays.csv"]


def test_a_table_with_another_separator_goes_everywhere(tmp_path, capsys):
    """split, client, server, predict and evaluate read it; none is told the separator."""
    data, schema = tmp_path / "loans.csv", tmp_path / "schema.json"
    make_table(400).assign(region=["n", "s"] * 200).to_csv(data, index=False, sep=";")
    argv = ["schema", str(data), "--label", "paid", "--sensitive", "town", "--positive", "yes"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    schema.write_text(json.dumps({k: v for k, v in document.items() if k != "draft"}))
    cut = ["split", str(data), "--schema", str(schema), "--by", "region"]
    assert main([*cut, "--output", f"{tmp_path}/cut"]) == 0
    assert release(data, schema) == 0
    found = [f"{data}.parquet", "--schema", str(schema), "--test", str(data)]
    assert main(["server", *found, "--output", f"{tmp_path}/server"]) == 0
    model = ["--model", f"{tmp_path}/server/model.json", "--data", str(data)]
    assert main(["evaluate", *model, "--output", f"{tmp_path}/m.json", "--max-gap", "1e-4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"differ by 0\.\d+ \(95 %: .*\); at most 0.0001 was asked: .*missed", said)
    assert main(["predict", *model, "--output", f"{tmp_path}/scored.csv"]) == 0
    assert set(pd.read_csv(tmp_path / "scored.csv")["decision"]) == {"yes", "no"}


def test_decisions_of_a_label_with_several_positive_values(tmp_path, capsys):
    data, schema = tmp_path / "stays.csv", tmp_path / "schema.json"
    make_table(400).assign(
        paid=lambda t: ["late" if i % 3 and p == "yes" else p for i, p in enumerate(t["paid"])]
    ).to_csv(data, index=False)
    flags = ["--label", "paid", "--sensitive", "town", "--positive", "yes", "late"]
    assert main(["schema", str(data), *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    schema.write_text(json.dumps({k: v for k, v in document.items() if k != "draft"}))
    assert read_schema(schema).positives == ("yes", "late")
    assert release(data, schema) == 0
    found = [f"{data}.parquet", "--schema", str(schema), "--test", str(data)]
    assert main(["server", *found, "--output", f"{tmp_path}/server"]) == 0
    model = ["--model", f"{tmp_path}/server/model.json", "--data", str(data)]
    assert main(["predict", *model, "--output", f"{tmp_path}/scored.csv"]) == 0
    assert set(pd.read_csv(tmp_path / "scored.csv")["decision"]) == {"no", "yes or late"}
    assert parse_schema(schema.read_bytes(), source="x").decisions == ("no", "yes or late")
