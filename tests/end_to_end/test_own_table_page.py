"""docs/own-table.md: its table, its schema and its commands are real."""

import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd

from synthfair.cli import main
from synthfair.data.datasets import configs_folder
from synthfair.data.draft import MAX_CATEGORIES, MAX_CODES, MIN_SHARE
from synthfair.data.encode import encode
from synthfair.data.schema import (
    MAX_COLUMNS,
    Categorical,
    Numeric,
    Schema,
    parse_schema,
    read_schema,
)
from synthfair.data.tables import read_table

PAGE = (configs_folder().parent / "docs" / "own-table.md").read_text(encoding="utf-8")


def block(language):
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return found


def test_the_page_walks_from_its_table_to_decisions(tmp_path, monkeypatch):
    """Its five commands, on 1,200 rows whose values are drawn from its six."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    few = pd.read_csv(io.StringIO(block("text")), sep=";", dtype=str)
    table = few.apply(lambda column: rng.choice(column, 1200))
    table = table.assign(id=range(1200), income=rng.uniform(0, 90, 1200).round(1))
    table.to_csv("loans.csv", index=False, sep=";")
    draft, later = (
        found.replace("\\\n", "").splitlines()
        for found in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[:2]
    )
    assert main(shlex.split(draft[0])[3:]) == 0
    document = json.loads(Path("schema.json").read_text())
    del document["draft"]
    Path("schema.json").write_text(json.dumps(document))
    found = read_schema(tmp_path / "schema.json")
    assert found.positives == ("yes",)
    assert found.groups == ("female", "male", "unknown")
    for line in later:
        assert main(shlex.split(line)[3:]) == 0
    assert len(pd.read_csv(tmp_path / "scored.csv")) == 1200


def test_the_schema_of_the_page_fits_its_table(tmp_path):
    schema = parse_schema(block("json"), source="the page")
    (tmp_path / "loans.csv").write_text(block("text"))
    encoded = encode(read_table(tmp_path / "loans.csv", schema), schema)
    assert encoded.s.tolist() == [0, 1, 0, 2, 1, 0]
    assert encoded.y.tolist() == [1, -1, 1, -1, 1, -1]
    named = dict(zip(schema.encoded_names, encoded.x.T, strict=True))
    assert named["purpose=other"].tolist() == [0, 1, 0, 0, 1, 0]
    assert named["age is missing"].tolist() == [0, 1, 0, 0, 0, 0]
    assert named["home is missing"].tolist() == [0, 0, 0, 0, 0, 1]


def test_the_page_names_every_key_and_its_example_has_each():
    keys = {key for model in (Schema, Numeric, Categorical) for key in model.model_fields}
    table = PAGE.split("| key | meaning |")[1].split("\n\n")[0]
    documented = {
        name
        for row in table.splitlines()
        for name in re.findall("`(.*?)`", row.split("|")[1] if "|" in row else "")
    }
    assert documented == keys
    assert all(f'"{key}"' in block("json") for key in keys)


def test_the_page_names_the_limits():
    assert PAGE.count(f"{MAX_COLUMNS:,}") == 4
    assert f"up to {MAX_CODES} values" in PAGE
    assert f"more than {MAX_CATEGORIES} values" in PAGE
    assert f"at least {MIN_SHARE:.0%}".replace("%", " %") in PAGE
