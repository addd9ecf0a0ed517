"""A release is hostile input until validated."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, rewrite, set_column, some_release
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from synthfair.errors import InputError
from synthfair.model import LinearModel
from synthfair.privacy.guarantee import make_guarantee
from synthfair.release.format import make_header, read_release, write_release
from synthfair.release.settings import DistillConfig
from synthfair.report.privacy_words import header_facts


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "r.parquet"
    write_release(some_release(), path)
    return path


OTHER = SCHEMA.document | {
    "columns": SCHEMA.document["columns"]
    | {"age": SCHEMA.document["columns"]["age"] | {"upper": 80.0}}
}


@given(
    x=hnp.arrays(
        float,
        st.tuples(st.integers(1, 6), st.just(len(SCHEMA.encoded_names))),
        elements=st.floats(-1e6, 1e6),
    )
)
def test_what_is_written_is_read(x, tmp_path_factory):
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    release = some_release(x)
    write_release(release, path)
    back = read_release(path, SCHEMA)
    np.testing.assert_array_equal(back.x, x)
    assert back.fingerprint == release.fingerprint
    assert back.header == release.header


def test_releases_are_compared_without_an_error():
    """Arrays have no truth value, so that each release equals itself alone."""
    one, other = some_release(), some_release()
    assert one == one  # noqa: PLR0124 - as a list of releases asks
    assert one != other


def test_one_release_is_one_file(tmp_path):
    one, other = (write_release(some_release(), tmp_path / name) for name in ("a", "b"))
    assert one == other


def test_a_release_holds_no_size_and_no_statistic_of_the_real_rows(path):
    assert set(json.loads(pq.read_schema(path).metadata[b"synthfair"])) == {
        "format", "table_schema", "version", "model", "penalty", "config", "guarantee",
        "hides_pairs",
    }  # fmt: skip
    assert pq.read_schema(path).names == [*SCHEMA.encoded_names, "(group)", "(label)"]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "not anonymous"),
        ({"labels": "copy"}, "group and the label of every real row"),
        ({"labels": "copy", "group_input": False}, "The label of every real row"),
        ({"start": "normal"}, "mean"),
    ],
)
def test_a_header_says_what_is_disclosed(settings, word):
    header = some_release(**settings).header
    assert header.guarantee is None
    told = header_facts(header)["discloses"]
    assert word in " ".join(told)
    assert len(told) == (1 if not settings else 2)


@pytest.mark.parametrize(
    ("change", "header", "complaint"),
    [
        (lambda t: t, {"format": "synthfair-release/1"}, "format.*'synthfair-release/5'"),
        (
            lambda t: t,
            {"table_schema": OTHER},
            "'age': upper: 80.0 in .*, 90.0 in ",
        ),
        (lambda t: t, {"clients": 3}, "clients: unknown key"),
        (lambda t: t, {"version": "\x1b[2J"}, "version"),
        (
            lambda t: t,
            {"guarantee": {"epsilon": 0.1, "relation": "replace"}},
            "needs epsilon and delta",
        ),
        (set_column("income", [0.5, float("nan")]), {}, "'income', row 2: .*nan"),
        (set_column("income", [float("inf"), 0.5]), {}, "'income', row 1: .*inf"),
        (set_column("income", [2e6, 0.5]), {}, "'income', row 1"),
        (set_column("income", [None, 0.5]), {}, "missing values"),
        (set_column("income", ["0.1", "0.2"]), {}, "'income'.*string.*must be 'income' .double"),
        (
            set_column("(group)", pa.array([0, 2], pa.int32())),
            {},
            "'.group.', row 2: .*must be 0 to 1",
        ),
        (
            set_column("(label)", pa.array([0, 1], pa.int32())),
            {},
            "'.label.', row 1: .*must be -1 or 1",
        ),
        (lambda t: t.drop_columns("age"), {}, "must be 'age' .double"),
        (
            lambda t: t.append_column("id", pa.array([1, 2])),
            {},
            "'id' .int64.; must be missing",
        ),
        (lambda t: t.add_column(0, "id", pa.array([1.0, 2.0])), {}, "column 1: 'id'"),
        (lambda t: t.add_column(0, "age", t["age"]), {}, "column 1: 'age'"),
        (
            lambda t: t.select([1, 0, *range(2, t.num_columns)]),
            {},
            "column 1: .*; must be 'income'",
        ),
        (lambda t: t.slice(0, 0), {}, "0 rows"),
    ],
)
def test_bad_releases_are_refused_with_the_reason(path, change, header, complaint):
    rewrite(path, change, **header)
    with pytest.raises(InputError, match=f"r.parquet: .*{complaint}"):
        read_release(path, SCHEMA)


def test_a_release_for_a_blind_model_holds_no_groups(tmp_path):
    """Its bytes do not depend on them, and it is refused with a column of them."""
    blind, other = some_release(group_input=False), some_release(group_input=False)
    flipped = replace(other, s=1 - other.s)
    one, two = (write_release(one, tmp_path / "r.parquet") for one in (blind, flipped))
    assert one == two
    assert pq.read_schema(tmp_path / "r.parquet").names == [*SCHEMA.encoded_names, "(label)"]
    back = read_release(tmp_path / "r.parquet", SCHEMA)
    assert (back.fingerprint, back.s.tolist()) == (blind.fingerprint, [0, 0])
    rewrite(tmp_path / "r.parquet", lambda t: t.add_column(7, "(group)", pa.array([0, 1], "int32")))
    for schema in (SCHEMA, None):
        with pytest.raises(InputError, match="column 8: .*group.*; must be .*label"):
            read_release(tmp_path / "r.parquet", schema)
    write_release(some_release(), tmp_path / "r.parquet")
    rewrite(tmp_path / "r.parquet", lambda t: t.drop_columns("(group)"))
    for schema in (SCHEMA, None):
        with pytest.raises(InputError, match="column 8: .*label.*; must be .*group"):
            read_release(tmp_path / "r.parquet", schema)


@pytest.mark.parametrize("part", [b"synthfair", b"synthfair.release.signature"])
def test_metadata_with_a_key_twice_is_refused(path, part):
    """Plain JSON has the last value of a key, and other readers the first."""
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    key = json.dumps(next(iter(json.loads(metadata[part])))).encode()
    metadata[part] = metadata[part].replace(b"{", b"{" + key + b':"' + b"0" * 64 + b'",', 1)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(InputError, match="r.parquet: not JSON: key '.*' appears more than once"):
        read_release(path, SCHEMA)


def test_a_guarantee_that_schema_and_settings_do_not_imply_is_refused(tmp_path):
    """Of a smaller sensitivity: noise that is too small for it then looks large enough."""
    config = DistillConfig(epsilon=1.0, delta=1e-5, group_input=True)
    right = make_guarantee(config, SCHEMA)
    small = [m.model_copy(update={"sensitivity": m.sensitivity / 2}) for m in right.mechanisms]
    kinds = {"model": LinearModel(), "penalty": "p"}
    true = make_header(config, SCHEMA, **kinds, guarantee=right)
    false = right.model_copy(update={"mechanisms": tuple(small)})
    for header in (true, true.model_copy(update={"guarantee": false})):
        write_release(replace(some_release(), header=header), tmp_path / "r.parquet")
        if header is true:
            assert read_release(tmp_path / "r.parquet", SCHEMA).header.guarantee == right
    for schema in (SCHEMA, None):
        with pytest.raises(InputError, match=r"r.parquet: mechanism histograms: sensitivity"):
            read_release(tmp_path / "r.parquet", schema)


def test_columns_that_are_declared_never_missing_are_the_same_columns(path):
    before = read_release(path, SCHEMA)
    fields = [field.with_nullable(False) for field in pq.read_schema(path)]
    rewrite(path, lambda table: table.cast(pa.schema(fields)))
    assert not pq.read_schema(path).field("income").nullable
    assert read_release(path, SCHEMA).fingerprint == before.fingerprint


@pytest.mark.parametrize("size", [0, 3, 100, 1500, -20])
def test_truncated_files(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_release(path, SCHEMA)


def test_foreign_files(tmp_path):
    (tmp_path / "csv.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_release(tmp_path / "csv.parquet", SCHEMA)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="not a synthfair release"):
        read_release(tmp_path / "other.parquet", SCHEMA)
    with pytest.raises(InputError, match="No such file"):
        read_release(tmp_path / "none.parquet", SCHEMA)


@given(where=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_byte_never_changes_a_row_unseen(where, value, tmp_path_factory):
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    release = some_release(np.random.default_rng(0).random((50, len(SCHEMA.encoded_names))))
    write_release(release, path)
    content = bytearray(path.read_bytes())
    content[where % len(content)] = value
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert read_release(path, SCHEMA).fingerprint == release.fingerprint
