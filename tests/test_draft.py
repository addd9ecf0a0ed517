import json

import pytest
from conftest import make_schema, make_table

from synthfair.data.draft import draft_schema
from synthfair.data.encode import encode
from synthfair.data.schema import parse_schema
from synthfair.errors import InputError


def draft(**changes):
    settings = {"name": "small", "label": "paid", "sensitive": "town"} | changes
    return json.loads(draft_schema(make_table(), **settings))


def test_a_draft_is_refused_until_its_block_is_deleted():
    with pytest.raises(InputError, match="still marked a draft"):
        parse_schema(json.dumps(draft()), source="x")


def test_a_draft_tells_what_it_read_off_the_rows():
    found = draft()
    assert found["columns"]["income"]["lower"] is None
    assert found["draft"]["read_off_private_rows"] == [
        "columns.age.missing",
        "columns.home.categories",
        "columns.home.missing",
        "columns.town.categories",
        "columns.paid.categories",
    ]
    assert "columns.income.lower" in found["draft"]["to_complete"]
    assert "positive" in found["draft"]["to_complete"]


def test_nothing_else_of_the_rows_is_in_a_draft():
    text = draft_schema(make_table(), name="small", label="paid", sensitive="town")
    numbers = make_table()[["income", "age"]].stack()
    assert not any(f"{value}" in text for value in numbers)


def test_a_completed_draft_encodes_the_table():
    found = draft(positive="yes")
    del found["draft"]
    with pytest.raises(InputError, match="columns.income.numeric.lower"):
        parse_schema(json.dumps(found), source="x")
    found["columns"]["income"] |= {"lower": 0, "upper": 100}
    found["columns"]["age"] |= {"lower": 18, "upper": 90}
    schema = parse_schema(json.dumps(found), source="x")
    assert encode(make_table(), schema).x.shape == (120, len(make_schema().encoded_names))


@pytest.mark.parametrize(
    "changes", [{"label": "height"}, {"sensitive": "height"}, {"positive": "perhaps"}]
)
def test_unknown_roles(changes):
    with pytest.raises(InputError, match="'height'|'perhaps'"):
        draft(**changes)


def test_positive_names_a_number_by_value():
    table = make_table().assign(paid=lambda t: (t["paid"] == "yes").astype(float))
    for text in ("1", "1.0"):
        found = draft_schema(table, name="x", label="paid", sensitive="town", positive=text)
        assert json.loads(found)["positive"] == 1
