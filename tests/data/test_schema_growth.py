"""Schemas that grow: which is within which, and releases of one read by the other."""

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, TABLE, make_table, with_column

import synthfair as sf
from synthfair.data.bases import Steps
from synthfair.data.schema import differences, document_differences, is_within
from synthfair.server import read_releases

GROWN = with_column(SCHEMA, "home", categories=("own", "parents", "rent", "other"))
WIDER = with_column(SCHEMA, "age", lower=0.0, upper=120.0)
TWO = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"late": SCHEMA.columns["paid"]}})
PAIRED = SCHEMA.model_copy(update={"interactions": (("age", "home"),)})
REFUSES = with_column(SCHEMA, "age", missing="refuse")
LISTED = with_column(SCHEMA, "home", unlisted="other")
STEPS = with_column(SCHEMA, "age", basis=Steps(edges=(50.0,)))
LATER = with_column(SCHEMA, "paid", categories=("no", "later", "yes"))
LATE_IS_PAID = LATER.model_copy(update={"positive": ("later", "yes")})
SURROGATE = sf.SurrogateConfig(k_min=10)


def with_first(schema, *first):
    """The schema with some columns before the others."""
    columns = {name: schema.columns[name] for name in (*first, *schema.columns)}
    return schema.model_copy(update={"columns": columns})


@pytest.mark.parametrize(("released", "given", "within"), [
    (SCHEMA, GROWN, True), (GROWN, SCHEMA, False), (SCHEMA, WIDER, True), (WIDER, SCHEMA, False),
    (SCHEMA, STEPS, True), (STEPS, SCHEMA, False), (SCHEMA, PAIRED, True), (PAIRED, SCHEMA, False),
    (with_column(SCHEMA, "age", lower=0.0), SCHEMA, False), (SCHEMA, TWO, False),
    (TWO, TWO.model_copy(update={"label": "late"}), False),
    (REFUSES, SCHEMA, True), (SCHEMA, REFUSES, False),
    (LISTED, LISTED, True), (LISTED, SCHEMA, False),
    (LISTED, with_column(GROWN, "home", unlisted="other"), False),
    (SCHEMA, SCHEMA.model_copy(update={"positive": "no"}), False),
    (SCHEMA, LATER, True), (SCHEMA, LATE_IS_PAID, True),
    (LATER, LATE_IS_PAID, False), (LATE_IS_PAID, LATER, False),
    (SCHEMA, SCHEMA.model_copy(update={"name": "x", "missing_values": ("?",)}), True),
    (with_column(SCHEMA, "home", missing="refuse").with_sensitive("home"), SCHEMA, False),
])  # fmt: skip
def test_schema_is_within_another_that_allows_as_much(released, given, within):
    assert is_within(released, given) == within


def test_differences_name_column_key_and_values():
    (line,) = differences(with_column(SCHEMA, "age", lower=0.0), SCHEMA)
    assert line == "column 'age': lower: 0.0 in the release, 18.0 in the schema given"


def test_differences_are_few_whatever_the_release_holds():
    many = {f"{i}{'x' * 900}": SCHEMA.columns["age"] for i in range(300)}
    wide = SCHEMA.model_copy(update={"columns": SCHEMA.columns | many})
    lines = differences(wide, SCHEMA)
    assert (len(lines), max(map(len, lines))) == (11, 500)
    assert len(document_differences(SCHEMA.document, wide.document, ("", ""), None)) > 300


@pytest.fixture(scope="module")
def sent():
    return sf.distill_table(TABLE, SCHEMA, SURROGATE)


@pytest.fixture(scope="module")
def path(sent, tmp_path_factory):
    path = tmp_path_factory.mktemp("sent") / "r.parquet"
    sf.write_release(sent.release, path)
    return path


@pytest.mark.parametrize("given", [
    with_column(GROWN, "town", categories=("c", "b", "a")),
    with_first(with_column(SCHEMA, "home", categories=("rent", "other", "own")), "home", "age"),
])  # fmt: skip
def test_records_keep_their_values_by_another_schema(sent, path, given):
    """Positions are mapped once: a release that was read by a schema is of it."""
    before, weight = sf.pool_records([sent], SCHEMA)
    for releases in ([sent], [path], read_releases([path], given)):
        after, same = sf.pool_records(releases, given)
        pd.testing.assert_frame_equal(before, after[list(before)])
        np.testing.assert_array_equal(weight, same)


def test_releases_of_a_schema_and_of_the_grown_one_pool(sent):
    rows = make_table(400, seed=1).replace({"home": {"other": "parents"}})
    newer = sf.distill_table(rows, GROWN, SURROGATE)
    records, _ = sf.pool_records([sent, newer], GROWN)
    assert set(records["home"].dropna()) == {"own", "rent", "other", "parents"}
    with pytest.raises(sf.InputError, match=r"'home': categories: \['parents'\]"):
        sf.pool_records([sent, newer], SCHEMA)


def test_fair_release_fits_its_own_schema_alone(fair_release):
    with pytest.raises(sf.InputError, match=r"client 0: .*'home': categories: .*\['parents'\]"):
        sf.pool_and_train([fair_release], GROWN)
    with pytest.raises(sf.InputError, match="in another order"):
        sf.pool_and_train([fair_release], with_first(SCHEMA, "home"))
    with pytest.raises(sf.InputError, match="'town': categories"):  # its groups are numbers
        sf.pool_and_train([fair_release], with_column(SCHEMA, "town", categories=("b", "a")))
