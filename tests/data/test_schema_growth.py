"""Schemas that grow: which is within which, and releases of one read by the other."""

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, TABLE, make_table, with_column

import synthfair as sf
from synthfair.cli import main
from synthfair.data.bases import Steps
from synthfair.data.schema import Numeric, differences, is_within
from synthfair.errors import InputError
from synthfair.server import read_releases

GROWN = with_column(SCHEMA, "home", categories=("own", "parents", "rent", "other"))
WIDER = with_column(SCHEMA, "age", upper=120.0)
REFUSES = with_column(SCHEMA, "age", missing="refuse")
LISTED = with_column(SCHEMA, "home", unlisted="other")
STEPS = with_column(SCHEMA, "age", basis=Steps(edges=(50.0,)))
SURROGATE = sf.SurrogateConfig(k_min=10)


def with_first(schema, *first):
    """The schema with some columns before the others."""
    columns = {name: schema.columns[name] for name in (*first, *schema.columns)}
    return schema.model_copy(update={"columns": columns})


@pytest.mark.parametrize(
    ("released", "given", "within"),
    [
        (SCHEMA, GROWN, True),
        (GROWN, SCHEMA, False),
        (SCHEMA, WIDER, True),
        (WIDER, SCHEMA, False),
        (SCHEMA, with_column(SCHEMA, "income", out_of_range="refuse"), True),
        (REFUSES, SCHEMA, True),
        (SCHEMA, REFUSES, False),
        (LISTED, LISTED, True),
        (LISTED, with_column(GROWN, "home", unlisted="other"), False),
        (LISTED, SCHEMA, False),
        (SCHEMA, STEPS, True),
        (STEPS, SCHEMA, False),
        (SCHEMA, SCHEMA.model_copy(update={"positive": "no"}), False),
        (SCHEMA, with_column(SCHEMA, "paid", categories=("no", "later", "yes")), True),
        (SCHEMA, SCHEMA.model_copy(update={"name": "x", "missing_values": ("?",)}), True),
        (with_column(SCHEMA, "home", missing="refuse").with_sensitive("home"), SCHEMA, False),
        (with_first(SCHEMA, "home"), SCHEMA, True),
    ],
)
def test_schema_is_within_another_that_allows_as_much(released, given, within):
    assert is_within(released, given) == within


def test_differences_name_column_key_and_values():
    other = with_column(SCHEMA, "age", lower=0.0)
    other = other.model_copy(update={"columns": other.columns | {"home": other.columns["income"]}})
    found = "; ".join(differences(other, SCHEMA))
    assert "column 'age': lower: 0.0 in the release, 18.0 in the schema given" in found
    assert "column 'home': kind: 'numeric' in the release, 'categorical'" in found
    (line,) = differences(GROWN, SCHEMA)
    assert "['parents'] in the release alone, none in the schema given" in line


def test_differences_are_few_whatever_the_release_holds():
    many = {f"{i}{'x' * 900}": Numeric(lower=0, upper=1) for i in range(300)}
    lines = differences(SCHEMA.model_copy(update={"columns": SCHEMA.columns | many}), SCHEMA)
    assert len(lines) == 11
    assert max(map(len, lines)) <= 500


@pytest.fixture(scope="module")
def sent():
    return sf.distill_table(TABLE, SCHEMA, SURROGATE)


@pytest.fixture
def path(sent, tmp_path):
    sf.write_release(sent.release, tmp_path / "r.parquet")
    return tmp_path / "r.parquet"


@pytest.mark.parametrize(
    "given",
    [
        GROWN,
        with_column(GROWN, "town", categories=("c", "b", "a")),
        with_first(with_column(SCHEMA, "home", categories=("rent", "other", "own")), "home", "age"),
    ],
    ids=["new category", "groups in another order", "columns in another order"],
)
def test_records_keep_their_values_by_another_schema(sent, path, given):
    """Positions are mapped once: a release that was read by a schema is of it."""
    before, weight = sf.pool_records([sent], SCHEMA)
    for releases in ([sent], [path], read_releases([path], given)):
        after, same = sf.pool_records(releases, given)
        pd.testing.assert_frame_equal(before, after[list(before)])
        np.testing.assert_array_equal(weight, same)


def test_releases_of_a_schema_and_of_the_grown_one_pool(sent, path):
    rows = make_table(400, seed=1).replace({"home": {"other": "parents"}})
    newer = sf.distill_table(rows, GROWN, SURROGATE)
    records, _ = sf.pool_records([sent, newer], GROWN)
    assert set(records["home"].dropna()) == {"own", "rent", "other", "parents"}
    sf.write_release(newer.release, path.with_name("b.parquet"))
    files = [path, path.with_name("b.parquet")]
    assert sf.pool_and_train(files, GROWN).theta == sf.pool_and_train([sent, newer], GROWN).theta
    with pytest.raises(InputError, match=r"'home': categories: \['parents'\]"):
        sf.pool_records([sent, newer], SCHEMA)


def test_fair_release_fits_its_own_schema_alone(fair_release):
    with pytest.raises(InputError, match=r"client 0: .*'home': categories: .*\['parents'\]"):
        sf.pool_and_train([fair_release], GROWN)
    with pytest.raises(InputError, match="in another order"):
        sf.pool_and_train([fair_release], with_first(SCHEMA, "home"))


def test_inspect_names_groups_whatever_their_order(tmp_path, capsys):
    """The groups whose pairs with a label are hidden, by the release's schema and by another."""
    rare = (TABLE["town"] == "b") & (TABLE["paid"] == "no") & (TABLE.index % 9 > 0)
    path, schema = tmp_path / "r.parquet", tmp_path / "s.json"
    sf.write_release(sf.distill_table(TABLE[~rare], SCHEMA, SURROGATE).release, path)
    schema.write_text(with_column(SCHEMA, "town", categories=("b", "a")).to_json())
    shown = []
    for more in ([], ["--schema", str(schema)]):
        assert main(["inspect", str(path), *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown.append({line.split("town=")[1].strip() for line in lines if "town=" in line})
    assert shown[0] == shown[1]
    assert len(shown[0]) > 1
