"""Labels and groups by a rule: numbers in bins."""

import json

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.data.draft import draft_document
from synthfair.data.encode import encode
from synthfair.data.schema import Categorical, parse_schema
from synthfair.errors import InputError

WORDS = {"kind": "categorical", "categories": ["a", "b"]}


def schema_of(rule="yes", **columns):
    """The schema of a rule and of other columns; of a rule the label is a number."""
    document = json.loads(make_schema().to_json()) | {"positive": rule}
    number = {"kind": "numeric", "lower": 0, "upper": 100}
    document["columns"] |= ({"paid": number} if rule != "yes" else {}) | columns
    return parse_schema(json.dumps(document), source="rule")


@pytest.mark.parametrize(("rule", "y", "decisions"), [
    ({"at_least": 10}, [-1, -1, -1, 1, 1], ("below 10", "at least 10")),
    ({"below": 10}, [1, 1, 1, -1, -1], ("at least 10", "below 10")),
    ({"between": [5, 10]}, [-1, 1, 1, -1, -1], ("below 5 or at least 10", "5 to below 10")),
])  # fmt: skip
def test_rule_of_a_label_divides_its_numbers(rule, y, decisions):
    schema = schema_of(rule)
    assert parse_schema(schema.to_json(), source="again").hash == schema.hash
    assert encode(make_table(5).assign(paid=[0, 5, 9.99, 10, 25]), schema).y.tolist() == y
    assert schema.decisions == decisions


@pytest.mark.parametrize(("rule", "columns"), [
    ({}, {}), ({"above": 3}, {}), ({"at_least": "3"}, {}), ({"between": [1]}, {}),
    ({"below": True}, {}), ({"between": [2, 1]}, {}), ({"below": 1, "at_least": 0}, {}),
    ({"at_least": 1}, {"paid": WORDS}),
])  # fmt: skip
def test_rule_that_is_none_or_of_words_is_refused(rule, columns):
    with pytest.raises(InputError, match="positive|bins|numeric"):
        schema_of(rule, **columns)


def test_bins_of_an_attribute_are_its_groups():
    binned = schema_of(town={"kind": "categorical", "bins": [0, 25, 40, 65]})
    table = make_table(6).assign(town=[0, 24.9, 25, 39, 40, 65])
    assert binned.groups == ("0 to below 25", "25 to below 40", "40 to 65")
    assert encode(table, binned).s.tolist() == [0, 0, 1, 1, 2, 2]
    named = table.assign(town="0 to below 25")  # as records have it
    assert encode(named, binned).s.tolist() == [0] * 6
    for outside in (-0.1, 65.1):
        with pytest.raises(InputError, match="town.*row 1"):
            encode(table.assign(town=outside), binned)


@pytest.mark.parametrize("bins", [
    (0, 1), (0, 9, 9 + 1e-14), (0, None, 2), (0, 10**30, 1), (0, "1", 2), (0, np.nan, 2), 5,
])  # fmt: skip
def test_bins_that_do_not_increase_are_refused(bins):
    with pytest.raises(ValueError, match="bins"):
        Categorical(bins=bins)
    with pytest.raises(ValueError, match="categories"):
        Categorical(bins=(0, 1, 2), categories=("a", "b"))


def test_draft_takes_a_rule_of_the_label():
    table = make_table(200).assign(paid=np.arange(200))
    for rule, sign in ((">= 1e2", 1), ("< 100", -1)):
        with pytest.warns(UserWarning, match="read off"):
            schema = sf.draft_schema(table, label="paid", positive=rule, sensitive="town")
        assert encode(table, schema).y.tolist() == [-sign] * 100 + [sign] * 100
    days = table.assign(paid=["<30", ">30"] * 100)  # a value that looks like a rule
    assert draft_document(days, "t", label="paid", positive="<30", sensitive="town")
    for rule in (">= 200", "< 0", "> 100", "<=100"):
        with pytest.raises(InputError, match="positive"):
            sf.draft_schema(table, label="paid", positive=rule, sensitive="town")
