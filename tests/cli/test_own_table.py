"""From one's own CSV file to a release: draft, review, client, as a user types it."""

import json
import re

import pandas as pd
import pytest
from builders import make_table
from own_tables import hospital

from synthfair.cli import main
from synthfair.data.schema import parse_schema, read_schema

ROLES = ["--label", "readmitted", "--positive", "<30", ">30", "--sensitive", "race"]


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


def drafted(data, *roles):
    """The schema that is drafted of a table, by a person who deletes its first block."""
    schema = data.with_name("schema.json")
    assert main(["schema", str(data), *roles, "--output", str(schema)]) == 0
    document = json.loads(schema.read_text())
    del document["draft"]
    schema.write_text(json.dumps(document))
    return schema


def test_a_draft_whose_block_is_deleted_makes_a_release(table, capsys):
    schema = table.with_name("schema.json")
    argv = ["schema", str(table), *ROLES, "--output", str(schema)]
    assert main(argv) == 0
    assert "a draft; review it" in capsys.readouterr().out
    to_review = json.loads(schema.read_text())["draft"]["to_review"]
    assert to_review["columns.admission_type_id"] == "8 whole numbers: codes, or a quantity?"
    assert release(table, schema) == 2
    assert "still marked a draft" in capsys.readouterr().err
    assert main(argv) == 2
    assert "exists" in capsys.readouterr().err
    assert release(table, drafted(table, *ROLES, "--force")) == 0


@pytest.mark.parametrize(
    ("make", "roles", "separator"),
    [
        (make_table(400, n_groups=4), [], ","),
        (make_table(400), ["--additive"], ","),
        (
            make_table(400).assign(
                site_id=range(400), grade=3, home=lambda t: t["home"].fillna("?")
            ),
            [],
            "\t",
        ),
        (
            make_table(400).assign(paid=lambda t: (t["paid"] == "yes").astype(int)),
            ["--positive", "1"],
            "|",
        ),
    ],
)
def test_drafts_of_unlike_tables_make_releases(tmp_path, make, roles, separator):
    data = tmp_path / "mine.csv"
    make.to_csv(data, index=False, sep=separator)
    roles = ["--label", "paid", "--sensitive", "town", *roles]
    roles += [] if "--positive" in roles else ["--positive", "yes"]
    schema = drafted(data, *roles)
    income = json.loads(schema.read_text())["columns"]["income"]
    assert ("basis" in income) == ("--additive" in roles)
    assert release(data, schema) == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--positive", "often"], "positive often: must be some, but not all, values of 'readmi"),
        (["--label", "cost"], "positive <30: must divide label 'cost'"),
        (["--output", "TABLE"], "is named twice"),
    ],
)
def test_schema_refuses(table, capsys, flags, complaint):
    given = {"--label": "readmitted", "--positive": "<30", "--sensitive": "race"}
    given |= {"--output": str(table.with_name("new.json"))}
    given |= {flags[0]: flags[1].replace("TABLE", str(table))}
    assert main(["schema", str(table), *(word for pair in given.items() for word in pair)]) == 2
    assert complaint in capsys.readouterr().err
    assert [path.name for path in table.parent.iterdir()] == ["stays.csv"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("age,sex,paid\n", "stays: the table has no rows"),
        ("39,m,yes\n50,m,yes\n38,f,no\n", "stays: the first line looks like a row, not a"),
    ],
)
def test_no_draft_without_rows_or_header(table, capsys, text, complaint):
    table.write_text(text)
    output = table.with_name("schema.json")
    how = ["--label", "paid", "--positive", "yes", "--sensitive", "sex"]
    assert main(["schema", str(table), "--output", str(output), *how]) == 2
    assert complaint in capsys.readouterr().err
    assert not output.exists()


def test_a_table_with_another_separator_goes_everywhere(tmp_path, capsys):
    """split, client, server, predict and evaluate read it; none is told the separator."""
    data = tmp_path / "loans.csv"
    make_table(400).assign(region=["n", "s"] * 200).to_csv(data, index=False, sep=";")
    schema = drafted(data, "--label", "paid", "--sensitive", "town", "--positive", "yes")
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


def test_decisions_of_a_label_with_several_positive_values(tmp_path):
    data = tmp_path / "stays.csv"
    make_table(400).assign(
        paid=lambda t: ["late" if i % 3 and p == "yes" else p for i, p in enumerate(t["paid"])]
    ).to_csv(data, index=False)
    flags = ["--label", "paid", "--sensitive", "town", "--positive", "yes", "late"]
    schema = drafted(data, *flags)
    assert read_schema(schema).positives == ("yes", "late")
    assert release(data, schema) == 0
    found = [f"{data}.parquet", "--schema", str(schema), "--test", str(data)]
    assert main(["server", *found, "--output", f"{tmp_path}/server"]) == 0
    model = ["--model", f"{tmp_path}/server/model.json", "--data", str(data)]
    assert main(["predict", *model, "--output", f"{tmp_path}/scored.csv"]) == 0
    assert set(pd.read_csv(tmp_path / "scored.csv")["decision"]) == {"no", "positive"}
    assert parse_schema(schema.read_bytes(), source="x").decisions == ("no", "yes or late")
