"""Schemas: what they say of columns, labels and groups, and which documents are refused."""

import json
from functools import partial

import pytest
from builders import make_schema

from synthfair.data.datasets import dataset_schema
from synthfair.data.schema import parse_schema, read_schema
from synthfair.errors import InputError

DOCUMENT = json.loads(make_schema().to_json())


def edited(**changes):
    return json.dumps(DOCUMENT | changes)


def column(name, **changes):
    columns = DOCUMENT["columns"]
    return edited(columns=columns | {name: columns.get(name, {}) | changes})


def parsed(text):
    return parse_schema(text, source="x")


def test_schema_written_is_read_back(schema, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(schema.to_json())
    assert read_schema(path) == schema
    assert read_schema(path).hash == schema.hash


def test_hash_changes_with_every_field(schema):
    others = [
        edited(name="other"), edited(positive="no"), edited(ignored=["note"]),
        edited(label="town", sensitive="paid", positive="a"), edited(missing_values=["?"]),
        edited(interactions=[["age", "home"]]), column("more", **DOCUMENT["columns"]["town"]),
        column("income", upper=101), column("income", out_of_range="refuse"),
        column("income", basis={"kind": "steps", "edges": [50]}), column("home", missing="refuse"),
        column("home", categories=["rent", "own", "other"]),
    ]  # fmt: skip
    hashes = {parsed(text).hash for text in others}
    assert len(hashes | {schema.hash}) == len(others) + 1
    assert schema.with_sensitive("town").hash == schema.hash


def test_encoded_names_of_columns(schema):
    assert schema.encoded_names == (
        "income", "age", "age is missing", "home=own", "home=rent", "home=other", "home is missing",
    )  # fmt: skip


def test_sensitive_attribute_that_is_replaced_becomes_a_feature():
    plain, schema = dataset_schema("law_school"), dataset_schema("law_school", "male")
    assert "male=1" in plain.encoded_names  # and not "male=0"
    assert len(plain.encoded_names) == 10  # of Wu et al.'s 11 inputs one is the attribute
    assert (schema.groups, schema.hash == plain.hash) == ((0, 1), False)
    assert "race=White" in schema.encoded_names
    with pytest.raises(InputError, match="'height'"):
        dataset_schema("adult", "height")


home, town, paid, age = (partial(column, name) for name in ("home", "town", "paid", "age"))
NUMBER = {"kind": "numeric", "lower": 0, "upper": 1}
MANY, WIDE = ({"kind": "categorical", "categories": [*range(n)]} for n in (300, 5000))
TWO_MANY, TWO_WIDE = (DOCUMENT["columns"] | {"u": each, "v": each} for each in (MANY, WIDE))
SPLINE, STEPS = {"kind": "spline"}, {"kind": "steps"}


@pytest.mark.parametrize(("text", "match"), [
    ("{", "not JSON"), ("[" * 100_000, "not JSON"), ("[1]", "JSON object"),
    (edited().replace("100.0", "9" * 5000), "not JSON"), (edited(draft={"warning": "x"}), "draft"),
    (edited().replace('"income"', '"home"'), "'home' appears more than once"),
    # Roles
    (edited(label="income"), "label is 'income'"), (edited(label="home"), "'home' must refuse"),
    (paid(unlisted="no", missing="unlisted"), "'paid' must refuse missing"),
    (paid(unknown="ignore"), "'paid' must refuse unknown"), (edited(positive="maybe"), "'maybe'"),
    (town(missing="category"), "'town' must"), (town(unknown="ignore"), "'town' must"),
    (town(categories=["a", "b\x1b"]), "'town': 'b.x1b'"), (edited(sensitive=["town"]), "least 2"),
    (edited(sensitive="paid"), "'paid' is given twice"), (edited(sensitive=["town", "age"]), "age"),
    (edited(sensitive=["town", "town"]), "'town' is given twice"), (edited(ignored=["age"]), "age"),
    (edited(positive=["yes", "no"]), "not all"), (edited(positive=[]), "positive"),
    # Columns
    (column("income", lower=200), "above lower 200"), (column("income", upper="9"), "'9'"),
    (column("income", upper=5e-324), "upper"), (column("income", upper=1e101), "upper"),
    (home(categories=["own", 1]), "own, 1"), (home(categories=["own", "own"]), "'own' is there"),
    (home(categories=["own"]), "at least 2"), (home(categories=["NA", "rent"]), "'NA'"),
    (home(categories=[2**53 + 1, 1]), "9007199254740993"), (home(unlisted="boat"), "'boat'"),
    (home(missing="unlisted"), "key"), (home(unlisted="own", unknown="ignore"), "unknown and"),
    (town(shares=[0.5, 0.5]), "shares"), (home(unknown="ignore", shares=[0.5, 0.5]), "shares"),
    (town(labels={"c": "x"}), "'c'"), (town(labels={"a": "\n"}), "label"),
    (town(labels={"a": "east", "b": "east"}), "clash.*east"), (town(labels={"a": "a" * 61}), "60"),
    (column("(label)", **NUMBER), "'.label.'"), (column("town=b", **NUMBER), "'town=b'"),
    (column("(intercept)", **NUMBER), "'.intercept.'"),
    (age(basis=SPLINE | {"knots": [0, 90]}), "18"), (age(basis=SPLINE | {"knots": [18, 50]}), "18"),
    (age(basis=SPLINE | {"knots": [18, 50, 50, 90]}), "age.*increase"),
    (age(basis=SPLINE | {"knots": [18, 90], "degree": 4}), "age.*degree"),
    (age(basis=STEPS | {"edges": [18, 20]}), "above 18"),
    (age(basis=STEPS | {"edges": [20, 91]}), "at most 90"),
    (edited(interactions=[["age", "age"]]), "interactions"),
    (edited(interactions=[["age", "town"]]), "interactions"),
    (edited(interactions=[["age", "home"], ["home", "age"]]), "interactions"),
    # Limits
    (edited(columns=TWO_MANY, sensitive=["u", "v"]), "90000 groups; at most 1000"),
    (home(categories=[f"c{i}" for i in range(100_000)]), "at most 10000"),
    (edited(columns={f"x{i}": {} for i in range(100_000)}), "100000 columns; at most"),
    (edited(columns=TWO_WIDE), "10007 .*at most 10000"),
    (edited(columns=TWO_WIDE, interactions=[["u", "v"]]), "25010007 .*at most 10000"),
    (edited(ignored=[f"x{i}" for i in range(100_000)]), "at most 10000"),
    (edited(description="x" * 2**21), "2097152 bytes"),
    (edited(columns={f"x{i}": {} for i in range(1000)}), "980 more$"),
])  # fmt: skip
def test_schema_that_does_not_fit_is_refused_at_once(tmp_path, calls, text, match):
    path = tmp_path / "codebook.json"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s)codebook.json: .*{match}"):
        read_schema(path)
    assert calls() < 2_500_000


@pytest.mark.parametrize(("values", "positive", "decisions", "decided"), [
    (["<", ">", "NO"], ">", ("< or NO", ">"), ("negative", ">")),
    (["<", ">", "NO"], ["<", ">"], ("NO", "< or >"), ("NO", "positive")),
    ([0, 1, 2], 1, ("0 or 2", "1"), ("negative", "1")),
    # A word for several values is a value itself.
    (["positive", "x", "y"], ["x", "y"], ("positive", "x or y"), ("positive", "x or y")),
    (["negative", "x", "y"], "x", ("negative or y", "x"), ("negative or y", "x")),
])  # fmt: skip
def test_decisions_are_values_or_words_for_several(values, positive, decisions, decided):
    document = json.loads(column("paid", categories=values)) | {"positive": positive}
    schema = parsed(json.dumps(document))
    assert (schema.decisions, schema.decided) == (decisions, decided)
    assert parsed(schema.to_json()) == schema


def test_labels_name_groups_and_are_no_part_of_the_hash(schema):
    named = parsed(column("town", labels={"a": "east", "b": "west"}))
    assert named.hash == schema.hash
    assert named.groups == ("a", "b")
    assert named.group_names("town") == ["east", "west"]
    assert [named.pair(1, y) for y in (-1, 1)] == ["west with paid=no", "west with paid=yes"]
    assert named.compared(None, [50, 50], 30)["town"].names == ("east", "west")


def test_labels_of_combinations():
    document = json.loads(dataset_schema("adult", ("race", "sex")).to_json())
    document["columns"]["sex"]["labels"] = {"Female": "women", "Male": "men"}
    both = parsed(json.dumps(document))
    assert both.group_names("race x sex")[:2] == ["race=White x women", "race=White x men"]
    few = [1000, 1000, *[1] * 8]
    assert both.compared(None, few, 30)["race x sex"].names[2] == "race=Asian-Pac-Islander x other"
    document["columns"]["sex"]["labels"] = {"Male": "other"}
    with pytest.raises(InputError, match="'race=White x other'"):
        parsed(json.dumps(document))
