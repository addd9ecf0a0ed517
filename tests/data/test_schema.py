"""Schemas: what they say of columns, labels and groups, and which documents are refused."""

import json

import pytest
from builders import make_schema

from synthfair.data.datasets import SOURCES, dataset_schema
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


def labelled(name, race=(), sex=()):
    """Adult's schema of two attributes whose groups have names for people."""
    document = json.loads(dataset_schema("adult", name).to_json())
    document["columns"]["race"]["labels"] = dict(race)
    document["columns"]["sex"]["labels"] = dict(sex)
    return parsed(json.dumps(document))


def test_schema_written_is_read_back(schema, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(schema.to_json())
    assert read_schema(path) == schema
    assert read_schema(path).hash == schema.hash


def test_hash_changes_with_every_field(schema):
    others = [
        edited(name="other"),
        edited(description="other"),
        edited(positive="no"),
        edited(label="town", sensitive="paid", positive="a"),
        edited(ignored=["note"]),
        edited(missing_values=["?"]),
        edited(interactions=[["age", "home"]]),
        column("income", upper=101),
        column("income", lower=-1),
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


@pytest.mark.parametrize("name", SOURCES)
def test_sensitive_attribute_must_be_categorical(name):
    with pytest.raises(InputError, match="'height'"):
        dataset_schema(name, "height")


MANY = {"kind": "categorical", "categories": [*range(300)]}
WIDE = {"kind": "categorical", "categories": [*range(5000)]}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (edited().replace("100.0", "9" * 5000), "not JSON"),
        (edited().replace('"income"', '"home"'), "'home' appears more than once"),
        ("[1]", "JSON object"),
        (edited(draft={"warning": "x"}), "draft"),
        (edited(color="red"), "color: unknown key"),
        (edited(label="income"), "label is 'income'"),
        (edited(label="home"), "'home' must refuse missing"),
        (column("paid", unlisted="no", missing="unlisted"), "'paid' must refuse missing"),
        (column("town", missing="category"), "'town' must refuse missing"),
        (column("town", unknown="ignore"), "'town' must refuse unknown"),
        (column("paid", unknown="ignore"), "'paid' must refuse unknown"),
        (edited(sensitive="paid"), "'paid' is given twice"),
        (edited(sensitive=["town"]), "at least 2"),
        (edited(sensitive=["town", "town"]), "'town' is given twice"),
        (edited(sensitive=["town", "income"]), "'income'"),
        (edited(sensitive=["town", "nowhere"]), "'nowhere'"),
        (
            edited(
                columns=DOCUMENT["columns"] | {"one": MANY, "other": MANY},
                sensitive=["one", "other"],
            ),
            "90000 groups; at most 1000",
        ),
        (column("town", categories=["a", "b\x1b"]), "'town': 'b.x1b'"),
        (edited(positive="maybe"), "'maybe'"),
        (edited(positive=["yes", "no"]), "not all"),
        (edited(positive=[]), "positive"),
        (edited(positive=["yes", "yes"]), "positive"),
        (edited(ignored=["age"]), "age"),
        (column("income", lower=200), "above lower 200"),
        (column("income", lower=-1.7e308, upper=1.7e308), "upper"),
        (column("income", upper=5e-324), "upper"),
        (column("income", upper=1e101), "upper"),
        (column("income", upper="100"), "income.*upper.*'100'"),
        (column("income", upper=None), "income.*upper"),
        (column("home", categories=["own", 1]), "own, 1"),
        (column("home", categories=["own", "own"]), "'own' is there twice"),
        (column("home", categories=["own"]), "at least 2"),
        (column("home", categories=["NA", "rent"]), "'NA'"),
        (column("home", categories=[2**53 + 1, 1]), "9007199254740993"),
        (column("home", kind="ordinal"), "ordinal"),
        (column("home", unlisted="boat"), "'boat'"),
        (column("home", missing="unlisted"), "unlisted"),
        (column("home", unlisted="own", unknown="ignore"), "unknown and unlisted"),
        (column("town", shares=[0.5, 0.5]), "shares"),
        (column("home", unknown="ignore", shares=[0.5, 0.5]), "shares"),
        (column("home", unknown="ignore", shares=[2.0, 0.0, 0.0]), "shares"),
        (column("town", labels={"c": "north"}), "'c'"),
        (column("town", labels={"a": "east", "b": "east"}), "east"),
        (column("town", labels={"a": ""}), "at least 1"),
        (column("town", labels={"a": "a\nb"}), "on one line"),
        (column("town", labels={"a": "a" * 61}), "at most 60"),
        (column("(label)", kind="numeric", lower=0, upper=1), "'\\(label\\)'"),
        (column("town=b", kind="numeric", lower=0, upper=1), "'town=b'"),
        (column("(intercept)", kind="numeric", lower=0, upper=1), "'\\(intercept\\)'"),
        (column("age", basis={"kind": "spline", "knots": [0, 50]}), "age.*18"),
        (column("age", basis={"kind": "spline", "knots": [18, 50, 40, 90]}), "age.*increase"),
        (column("age", basis={"kind": "spline", "knots": [18, 90], "degree": 4}), "age.*degree"),
        (column("age", basis={"kind": "steps", "edges": [18, 20]}), "age.*above 18"),
        (column("age", basis={"kind": "steps", "edges": [20, 91]}), "age.*at most 90"),
        (column("age", basis={"kind": "steps", "edges": []}), "age.*edges"),
        (column("age", basis={"kind": "trees"}), "age.*basis"),
        (edited(interactions=[["age", "age"]]), "interactions"),
        (edited(interactions=[["age", "town"]]), "interactions"),
        (edited(interactions=[["age", "nothing"]]), "interactions"),
        (edited(interactions=[["age", "home"], ["home", "age"]]), "interactions"),
    ],
)
def test_schema_that_does_not_fit_is_refused(text, match):
    with pytest.raises(InputError, match=f"(?s)codebook.json: .*{match}"):
        parse_schema(text, source="codebook.json")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (column("home", categories=[f"c{i}" for i in range(100_000)]), "at most 10000"),
        (edited(columns={f"x{i}": {} for i in range(100_000)}), "100000 columns; at most"),
        (edited(columns=DOCUMENT["columns"] | {"u": WIDE, "v": WIDE}), "10007 .*at most 10000"),
        (
            edited(columns=DOCUMENT["columns"] | {"u": WIDE, "v": WIDE}, interactions=[["u", "v"]]),
            "25010007 .*at most 10000",
        ),
        (edited(ignored=[f"x{i}" for i in range(100_000)]), "at most 10000"),
        (edited(description="x" * 2**21), "2097152 bytes"),
        (edited(columns={f"x{i}": {} for i in range(1000)}), "980 more$"),
    ],
)
def test_schema_that_is_huge_is_refused_at_once(tmp_path, calls, text, limit):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(InputError, match=limit):
        read_schema(path)
    assert calls() < 2_500_000


def test_schema_of_the_largest_size_is_read_at_once(calls):
    assert len(parsed(column("home", categories=[f"c{i}" for i in range(9000)])).encoded_names)
    assert calls() < 200_000


def test_schema_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="nowhere.json"):
        read_schema(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("values", "positive", "decisions", "decided"),
    [
        (["no", "yes"], "yes", ("no", "yes"), ("no", "yes")),
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
    assert parsed(column("town", labels={"a": "east"})).group_names("town") == ["east", "town=b"]


def test_labels_of_combinations():
    both = labelled(("race", "sex"), sex={"Female": "women", "Male": "men"})
    assert both.group_names("race x sex")[:2] == ["race=White x women", "race=White x men"]
    few = [1000, 1000, *[1] * 8]
    assert both.compared(None, few, 30)["race x sex"].names[2] == "race=Asian-Pac-Islander x other"
    with pytest.raises(InputError, match="clash: .*'sex=Female x other'"):
        labelled(("sex", "race"), race={"Other": "other"})
