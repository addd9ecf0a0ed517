"""Schemas: what they say of columns, labels and groups, and which documents are refused."""

import json

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
        edited(name="other"),
        edited(positive="no"),
        edited(label="town", sensitive="paid", positive="a"),
        edited(ignored=["note"]),
        edited(missing_values=["?"]),
        edited(interactions=[["age", "home"]]),
        column("income", upper=101),
        column("income", out_of_range="refuse"),
        column("income", basis={"kind": "steps", "edges": [50]}),
        column("home", missing="refuse"),
        column("home", categories=["rent", "own", "other"]),
        column("more", **DOCUMENT["columns"]["town"]),
    ]
    hashes = {parsed(text).hash for text in others}
    assert len(hashes | {schema.hash}) == len(others) + 1
    assert schema.with_sensitive("town").hash == schema.hash
    other = dataset_schema("law_school")
    assert other.with_sensitive("male").hash != other.hash


def test_encoded_names_of_columns(schema):
    assert schema.encoded_names == (
        "income", "age", "age is missing", "home=own", "home=rent", "home=other", "home is missing",
    )  # fmt: skip
    names = dataset_schema("law_school").encoded_names
    assert "male=1" in names
    assert "male=0" not in names
    assert len(names) == 10  # of Wu et al.'s 11 inputs one is the sensitive attribute


def test_sensitive_attribute_that_is_replaced_becomes_a_feature():
    schema = dataset_schema("law_school", "male")
    assert schema.groups == (0, 1)
    assert "race=White" in schema.encoded_names
    with pytest.raises(InputError, match="'height'"):
        dataset_schema("adult", "height")


NUMBER = {"kind": "numeric", "lower": 0, "upper": 1}
MANY = {"kind": "categorical", "categories": [*range(300)]}
WIDE = {"kind": "categorical", "categories": [*range(5000)]}
TWO_MANY = DOCUMENT["columns"] | {"u": MANY, "v": MANY}
TWO_WIDE = DOCUMENT["columns"] | {"u": WIDE, "v": WIDE}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"), ("[" * 100_000, "not JSON"), ("[1]", "JSON object"),
        (edited().replace("100.0", "9" * 5000), "not JSON"),
        (edited().replace('"income"', '"home"'), "'home' appears more than once"),
        (edited(draft={"warning": "x"}), "draft"), (edited(color="red"), "color: unknown key"),
        # Roles
        (edited(label="income"), "label is 'income'"), (edited(label="home"), "'home' must refuse"),
        (column("paid", unlisted="no", missing="unlisted"), "'paid' must refuse missing"),
        (column("paid", unknown="ignore"), "'paid' must refuse unknown"),
        (column("town", missing="category"), "'town' must refuse missing"),
        (column("town", unknown="ignore"), "'town' must refuse unknown"),
        (column("town", categories=["a", "b\x1b"]), "'town': 'b.x1b'"),
        (edited(sensitive="paid"), "'paid' is given twice"),
        (edited(sensitive=["town"]), "at least 2"), (edited(sensitive=["town", "age"]), "'age'"),
        (edited(sensitive=["town", "town"]), "'town' is given twice"),
        (edited(positive="maybe"), "'maybe'"), (edited(positive=["yes", "no"]), "not all"),
        (edited(positive=[]), "positive"), (edited(ignored=["age"]), "age"),
        # Columns
        (column("income", lower=200), "above lower 200"), (column("income", upper="9"), "'9'"),
        (column("income", upper=5e-324), "upper"), (column("income", upper=1e101), "upper"),
        (column("home", categories=["own", 1]), "own, 1"),
        (column("home", categories=["own", "own"]), "'own' is there twice"),
        (column("home", categories=["own"]), "at least 2"),
        (column("home", categories=["NA", "rent"]), "'NA'"),
        (column("home", categories=[2**53 + 1, 1]), "9007199254740993"),
        (column("home", unlisted="boat"), "'boat'"), (column("home", missing="unlisted"), "key"),
        (column("home", unlisted="own", unknown="ignore"), "unknown and unlisted"),
        (column("town", shares=[0.5, 0.5]), "shares"),
        (column("home", unknown="ignore", shares=[0.5, 0.5]), "shares"),
        (column("town", labels={"c": "x"}), "'c'"), (column("town", labels={"a": "\n"}), "label"),
        (column("town", labels={"a": "east", "b": "east"}), "clash.*east"),
        (column("town", labels={"a": "a" * 61}), "at most 60"),
        (column("(label)", **NUMBER), "'.label.'"), (column("town=b", **NUMBER), "'town=b'"),
        (column("(intercept)", **NUMBER), "'.intercept.'"),
        (column("age", basis={"kind": "spline", "knots": [0, 50]}), "age.*18"),
        (column("age", basis={"kind": "spline", "knots": [18, 50, 40, 90]}), "age.*increase"),
        (column("age", basis={"kind": "spline", "knots": [18, 90], "degree": 4}), "age.*degree"),
        (column("age", basis={"kind": "steps", "edges": [18, 20]}), "age.*above 18"),
        (column("age", basis={"kind": "steps", "edges": [20, 91]}), "age.*at most 90"),
        (edited(interactions=[["age", "age"]]), "interactions"),
        (edited(interactions=[["age", "town"]]), "interactions"),
        (edited(interactions=[["age", "home"], ["home", "age"]]), "interactions"),
        # Limits
        (edited(columns=TWO_MANY, sensitive=["u", "v"]), "90000 groups; at most 1000"),
        (column("home", categories=[f"c{i}" for i in range(100_000)]), "at most 10000"),
        (edited(columns={f"x{i}": {} for i in range(100_000)}), "100000 columns; at most"),
        (edited(columns=TWO_WIDE), "10007 .*at most 10000"),
        (edited(columns=TWO_WIDE, interactions=[["u", "v"]]), "25010007 .*at most 10000"),
        (edited(ignored=[f"x{i}" for i in range(100_000)]), "at most 10000"),
        (edited(description="x" * 2**21), "2097152 bytes"),
        (edited(columns={f"x{i}": {} for i in range(1000)}), "980 more$"),
    ],
)  # fmt: skip
def test_schema_that_does_not_fit_is_refused_at_once(tmp_path, calls, text, match):
    path = tmp_path / "codebook.json"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s)codebook.json: .*{match}"):
        read_schema(path)
    assert calls() < 2_500_000


def test_schema_of_the_largest_size_is_read_at_once(calls):
    assert len(parsed(column("home", categories=[f"c{i}" for i in range(9000)])).encoded_names)
    assert calls() < 200_000


@pytest.mark.parametrize(
    ("values", "positive", "decisions", "decided"),
    [
        (["<", ">", "NO"], ">", ("< or NO", ">"), ("negative", ">")),
        (["<", ">", "NO"], ["<", ">"], ("NO", "< or >"), ("NO", "positive")),
        ([0, 1, 2], 1, ("0 or 2", "1"), ("negative", "1")),
        # A word for several values is a value itself.
        (["positive", "x", "y"], ["x", "y"], ("positive", "x or y"), ("positive", "x or y")),
        (["negative", "x", "y"], "x", ("negative or y", "x"), ("negative or y", "x")),
    ],
)
def test_decisions_are_values_of_the_label_or_words_for_several(
    values, positive, decisions, decided
):
    document = json.loads(column("paid", categories=values)) | {"positive": positive}
    schema = parsed(json.dumps(document))
    assert schema.decisions == decisions
    assert schema.decided == decided
    assert parsed(schema.to_json()) == schema


def test_groups_may_hold_what_is_missing_or_not_listed():
    assert parsed(column("town", unlisted="b", missing="unlisted")).groups == ("a", "b")
    assert parsed(column("town", categories=["a\u00a0b", "\u200dc"])).groups


def test_labels_name_groups_and_are_no_part_of_the_hash(schema):
    named = parsed(column("town", labels={"a": "east", "b": "west"}))
    assert named.hash == schema.hash
    assert named.groups == ("a", "b")
    assert named.group_names("town") == ["east", "west"]
    assert named.pair(1, 1).startswith("west with ")
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
