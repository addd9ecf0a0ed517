import json
import re

import pytest
from builders import make_schema
from pydantic import ValidationError

from synthfair.data.datasets import SOURCES, dataset_schema
from synthfair.data.schema import Categorical, Numeric, Schema, parse_schema, read_schema
from synthfair.errors import InputError


def edited(**changes):
    return json.dumps(json.loads(make_schema().to_json()) | changes)


def column(name, **changes):
    columns = json.loads(make_schema().to_json())["columns"]
    return edited(columns=columns | {name: columns[name] | changes})


def test_json_round_trip_keeps_everything(schema, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(schema.to_json())
    assert read_schema(path) == schema
    assert read_schema(path).hash == schema.hash


def test_the_hash_changes_with_every_field(schema):
    town = json.loads(schema.to_json())["columns"]["town"]
    others = [
        *(edited(**{key: "other"}) for key in ("name", "description")),
        *(edited(positive="no"), edited(label="town", sensitive="paid", positive="a")),
        *(edited(ignored=["note"]), edited(missing_values=["?"])),
        *(
            column("income", **c)
            for c in ({"upper": 101}, {"lower": -1}, {"out_of_range": "refuse"})
        ),
        *(column("home", missing="refuse"), column("home", categories=["rent", "own", "other"])),
        edited(columns=json.loads(schema.to_json())["columns"] | {"more": town}),
    ]
    hashes = {parse_schema(text, source="x").hash for text in others}
    assert len(hashes | {schema.hash}) == len(others) + 1
    other = dataset_schema("law_school")
    assert other.with_sensitive("male").hash != other.hash


def test_encoded_names(schema):
    assert schema.encoded_names == (
        "income", "age", "age is missing", "home=own", "home=rent", "home=other", "home is missing",
    )  # fmt: skip


def test_two_categories_share_one_column():
    schema = dataset_schema("law_school")
    assert "male=1" in schema.encoded_names
    assert "male=0" not in schema.encoded_names


def test_the_paper_counts_11_inputs():
    assert len(dataset_schema("law_school").encoded_names) == 10  # and the sensitive attribute
    assert len(dataset_schema("dutch_numbers").encoded_names) == 10


def test_with_sensitive_turns_the_old_one_into_a_feature():
    schema = dataset_schema("law_school", "male")
    assert schema.groups == (0, 1)
    assert "race=White" in schema.encoded_names


@pytest.mark.parametrize("name", SOURCES)
def test_another_sensitive_attribute_must_be_categorical(name):
    with pytest.raises(InputError, match="'height' .* must be a categorical column: "):
        dataset_schema(name, "height")


def test_a_column_that_may_miss_values_makes_no_groups():
    with pytest.raises(InputError, match="'workclass' must refuse missing values"):
        dataset_schema("adult", "workclass")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "must hold a JSON object"),
        (edited(draft={"warning": "x"}), "still marked a draft"),
        (edited(color="red"), "color: unknown key"),
        (edited(label="income"), "label is 'income', which must be a categorical column"),
        (edited(label="home"), "must refuse missing values"),
        (edited(sensitive="paid"), "'paid' is given twice"),
        (edited(positive="maybe"), "'maybe': must be some, not all, of 'paid': no, yes"),
        (edited(positive=["yes", "no"]), "must be some, not all"),
        (edited(positive=[]), "must be some, not all"),
        (edited(positive=["yes", "yes"]), "must be some, not all"),
        (column("home", unlisted="boat"), "unlisted is 'boat', which must be one of"),
        (column("home", missing="unlisted"), "needs the key unlisted"),
        (column("paid", unlisted="no", missing="unlisted"), "'paid' must refuse missing"),
        (edited(ignored=["age"]), "also ignored"),
        (column("income", lower=200), "above lower 200"),
        (column("income", lower=-1.7e308, upper=1.7e308), "must be 1e-100 to"),
        (column("income", upper="100"), "income.*upper.*valid number; got '100'"),
        (column("income", upper=None), "income.*upper"),
        (column("home", categories=["own", 1]), "categories own, 1: must be all numbers or all"),
        (column("home", categories=["own", "own"]), "repeat"),
        (column("home", categories=["own"]), "at least 2"),
        (column("home", kind="ordinal"), "ordinal"),
        (column("home", categories=["NA", "rent"]), "'NA'.*also missing_values"),
        (column("home", categories=[2**53 + 1, 1]), "beyond 2.53"),
        (edited().replace("100.0", "9" * 5000), "not JSON"),
        ("[" * 100_000, "not JSON"),
        (edited().replace('"income"', '"home"'), "key 'home' appears more than once"),
    ],
)
def test_bad_schemas_are_refused_with_the_reason(text, complaint):
    with pytest.raises(InputError, match=f"(?s)codebook.json: .*{complaint}"):
        parse_schema(text, source="codebook.json")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (column("home", categories=[f"c{i}" for i in range(100_000)]), "at most 10000 items"),
        (edited(columns={f"x{i}": {} for i in range(100_000)}), "100000 columns; at most"),
        (
            edited(
                columns=json.loads(make_schema().to_json())["columns"]
                | {f"x{i}": {"categories": [*range(5000)], "kind": "categorical"} for i in (1, 2)}
            ),
            "encode to 10007 columns; at most 10000",
        ),
        (edited(ignored=[f"x{i}" for i in range(100_000)]), "at most 10000 items"),
        (edited(description="x" * 2**21), "larger than the 2097152 bytes"),
    ],
)
def test_huge_schemas_are_refused_at_once(tmp_path, calls, text, complaint):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_schema(path)
    assert calls() < 2_500_000


def test_of_many_problems_the_first_are_named():
    text = edited(columns={f"x{i}": {} for i in range(1000)})
    with pytest.raises(InputError, match=r"(?s)columns.x0: .*columns.x19: .*x: and 980 more$"):
        parse_schema(text, source="x")


def test_the_largest_schema_is_read_at_once(tmp_path, calls):
    path = tmp_path / "schema.json"
    path.write_text(column("home", categories=[f"c{i}" for i in range(9000)]))
    assert len(read_schema(path).encoded_names) == 9004
    assert calls() < 200_000


@pytest.mark.parametrize(
    ("positive", "decisions"),
    [
        (">30", ("<30 or NO", ">30")),
        (["<30", ">30"], ("NO", "<30 or >30")),
        (["NO"], ("<30 or >30", "NO")),
    ],
)
def test_a_label_of_three_values_has_one_positive_or_two(positive, decisions):
    text = json.loads(column("paid", categories=["<30", ">30", "NO"])) | {"positive": positive}
    schema = parse_schema(json.dumps(text), source="x")
    assert schema.decisions == decisions
    assert parse_schema(schema.to_json(), source="x") == schema


def test_groups_may_hold_what_is_missing_or_not_listed():
    schema = parse_schema(column("town", unlisted="b", missing="unlisted"), source="x")
    assert schema.groups == ("a", "b")
    assert schema.with_sensitive("town").hash == schema.hash != make_schema().hash


@pytest.mark.parametrize("name", ["(label)", "g=b", "(intercept)"])
def test_names_that_encode_alike_are_refused(name):
    number, choice = Numeric(lower=0, upper=1), Categorical(categories=("a", "b"))
    with pytest.raises(ValidationError, match=f"clash.*'{re.escape(name)}'"):
        Schema(
            name="x", label="l", positive="a", sensitive="g",
            columns={name: number, "l": choice, "g": choice},
        )  # fmt: skip


@pytest.mark.parametrize("upper", [5e-324, 1e101, 0.0])
def test_bounds_that_are_no_scale_are_refused(upper):
    with pytest.raises(ValidationError, match="must be 1e-100 to 1e"):
        Numeric(lower=0.0, upper=upper)


def test_unreadable_schema(tmp_path):
    with pytest.raises(InputError, match="nowhere.json: cannot read"):
        read_schema(tmp_path / "nowhere.json")


LABELS = {"a": "east", "b": "west"}


def test_labels_name_groups_and_are_no_part_of_the_hash(schema):
    named = parse_schema(column("town", labels=LABELS), source="x")
    assert named.hash == schema.hash
    assert named.groups == ("a", "b")
    assert named.group_names("town") == ["east", "west"]
    assert named.pair(1, 1).startswith("west with ")
    assert named.compared(None, [50, 50], 30)["town"].names == ("east", "west")
    some = parse_schema(column("town", labels={"a": "east"}), source="x")
    assert some.group_names("town") == ["east", "town=b"]
    adult = json.loads(dataset_schema("adult", ("race", "sex")).to_json())
    adult["columns"]["sex"]["labels"] = {"Female": "women", "Male": "men"}
    both = parse_schema(json.dumps(adult), source="x")
    assert both.group_names("race x sex")[:2] == ["race=White x women", "race=White x men"]
    few = [1000, 1000, *[1] * 8]
    assert both.compared(None, few, 30)["race x sex"].names[2] == "race=Asian-Pac-Islander x other"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"c": "north"}, "labels: 'c' must be one of a, b"),
        ({"a": "east", "b": "east"}, "names of groups clash: ['east']"),
        ({"a": ""}, "at least 1 character"),
        ({"a": "a\nb"}, "must be on one line, without control characters"),
        ({"a": "a" * 61}, "at most 60 characters"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, said):
    with pytest.raises(InputError, match=re.escape(said)):
        parse_schema(column("town", labels=labels), source="x")


def test_names_of_groups_are_such_as_may_be_shown():
    """A no-break space and a joiner may, an escape code not."""
    assert parse_schema(column("town", categories=["a\u00a0b", "\u200dc"]), source="x").groups
    with pytest.raises(InputError, match=r"column 'town': 'b.x1b' holds control characters"):
        parse_schema(column("town", categories=["a", "b\x1b"]), source="x")


def test_labels_are_not_those_of_small_combinations():
    adult = json.loads(dataset_schema("adult", ("sex", "race")).to_json())
    adult["columns"]["race"]["labels"] = {"Other": "other"}
    with pytest.raises(InputError, match=r"names of groups clash: .*'sex=Female x other'"):
        parse_schema(json.dumps(adult), source="x")


def test_a_schema_without_labels_is_written_as_before(schema):
    assert "labels" not in json.dumps(schema.model_dump(mode="json"))
