"""Labels and groups by a rule: numbers in bins."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.data.schema import Categorical, Schema, parse_schema
from synthfair.errors import InputError

NUMBERS = [0, 5, 9.99, 10, 25]


def ruled_document(rule, **label):
    document = json.loads(make_schema().to_json())
    document["columns"]["paid"] = {"kind": "numeric", "lower": 0, "upper": 100} | label
    return document | {"positive": rule}


def encoded_labels(rule):
    schema = parse_schema(json.dumps(ruled_document(rule)), source="rule")
    table = make_table(5).assign(paid=NUMBERS)
    assert parse_schema(schema.to_json(), source="again").hash == schema.hash
    return encode(table, schema).y.tolist(), schema


@pytest.mark.parametrize(
    ("rule", "y", "decisions"),
    [
        ({"at_least": 10}, [-1, -1, -1, 1, 1], ("below 10", "at least 10")),
        ({"below": 10}, [1, 1, 1, -1, -1], ("at least 10", "below 10")),
        ({"between": [5, 10]}, [-1, 1, 1, -1, -1], ("below 5 or at least 10", "5 to below 10")),
    ],
)
def test_rule_of_a_label_divides_its_numbers(rule, y, decisions):
    labels, schema = encoded_labels(rule)
    assert labels == y
    assert schema.decisions == decisions


@pytest.mark.parametrize(
    "rule", [{}, {"above": 3}, {"at_least": "3"}, {"between": [1]}, {"below": True}, {"between": [2, 1]},
             {"below": 1, "at_least": 0}],
)  # fmt: skip
def test_rule_that_is_none_is_refused(rule):
    with pytest.raises(InputError, match="positive|bins"):
        parse_schema(json.dumps(ruled_document(rule)), source="rule")


def test_rule_of_a_label_of_words_is_refused():
    document = ruled_document({"at_least": 1}, kind="categorical", categories=["a", "b"])
    with pytest.raises(InputError, match="numeric"):
        parse_schema(json.dumps(document), source="rule")


def binned(**changes):
    columns = dict(make_schema().columns)
    columns["town"] = Categorical(kind="categorical", bins=(0, 25, 40, 65), **changes)
    return Schema(**make_schema().model_dump() | {"columns": columns})


def test_bins_of_an_attribute_are_its_groups():
    ages = [0, 24.9, 25, 39, 40, 65]
    table = make_table(6).assign(town=ages)
    assert binned().groups == ("0 to below 25", "25 to below 40", "40 to 65")
    assert encode(table, binned()).s.tolist() == [0, 0, 1, 1, 2, 2]
    named = table.assign(town=["0 to below 25"] * 6)  # as records have it
    assert encode(named, binned()).s.tolist() == [0] * 6
    for outside in (-0.1, 65.1):
        with pytest.raises(InputError, match="town.*row 1"):
            encode(table.assign(town=outside), binned())


@pytest.mark.parametrize("bins", [(0, 1), (0, None, 2), (2, 1, 3), (0, "1", 2), (0, np.nan, 2), 5])
def test_bins_that_do_not_increase_are_refused(bins):
    with pytest.raises(ValueError, match="bins"):
        Categorical(bins=bins)
    with pytest.raises(ValueError, match="categories"):
        Categorical(bins=(0, 1, 2), categories=("a", "b"))


def test_surrogate_of_binned_rows_is_pooled_and_decides_by_the_rule():
    document = ruled_document({"at_least": 50})
    document["columns"]["town"] = {"kind": "categorical", "bins": [0, 30, None]}
    schema = parse_schema(json.dumps(document), source="rule")
    table = make_table(600).assign(
        paid=lambda t: t["income"] + np.arange(600) % 9, town=lambda t: np.arange(600) % 60
    )
    release = sf.distill_table(table, schema, sf.SurrogateConfig(without_epsilon=True)).release
    model = sf.pool_and_train({"a": release}, schema)
    assert sf.evaluate(model, {"a": table}).overall["accuracy"].value > 0.9
    records, *_ = sf.pool_records({"a": release}, schema)
    assert set(records["paid"]) == {"below 50", "at least 50"}


def test_draft_takes_a_rule_of_the_label(tmp_path):
    make_table(200).assign(paid=np.arange(200)).to_csv(tmp_path / "t.csv", index=False)
    argv = ["schema", f"{tmp_path}/t.csv", "--label", "paid", "--sensitive", "town"]
    argv += ["--output", f"{tmp_path}/schema.json", "--positive"]
    assert main([*argv, ">= 100"]) == 0
    document = json.loads((tmp_path / "schema.json").read_text())
    assert document["positive"] == {"at_least": 100}
    del document["draft"]
    schema = parse_schema(json.dumps(document), source="draft")
    assert encode(pd.read_csv(tmp_path / "t.csv"), schema).y.sum() == 0
    for rule in (">= 200", "< 0"):
        with pytest.raises(InputError, match="positive"):
            sf.draft_schema(
                pd.read_csv(tmp_path / "t.csv"), label="paid", positive=rule, sensitive="town"
            )
