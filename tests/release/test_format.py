"""The format of a release file: what it holds, and what of it is refused as hostile."""

import contextlib
import json
import struct
from dataclasses import replace
from hashlib import sha256

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
from synthfair.release.format import Release, make_header, read_release, write_release
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.report.privacy_words import header_facts

WIDTH = len(SCHEMA.encoded_names)
HEADER, SIGNATURE = b"synthfair", b"synthfair.release.signature"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "r.parquet"
    write_release(some_release(), path)
    return path


def refused(path, *named):
    """Whether it is refused, by file and place, with the server's schema and without one."""
    for schema in (SCHEMA, None):
        with pytest.raises(InputError) as error:
            read_release(path, schema)
        assert all(words in str(error.value) for words in (path.name, *named)), error.value
    return True


# What is written


@given(x=hnp.arrays(float, (3, WIDTH), elements=st.floats(-1e6, 1e6)))
def test_release_is_read_as_it_was_written(x, tmp_path_factory):
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    release = some_release(x)
    assert write_release(release, path) == write_release(release, path.with_name("again"))
    assert release in [some_release(x), release]  # though arrays have no truth value
    back = read_release(path, SCHEMA)
    np.testing.assert_array_equal(back.x, x)
    assert back.fingerprint == release.fingerprint
    assert back.header == release.header


def test_release_is_written_whole_or_not_at_all(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.delattr("os.fsync")
    with pytest.raises(AttributeError):
        write_release(some_release(rho_o=1.0), path)
    assert path.read_bytes() == before


def test_release_holds_no_size_and_no_statistic_of_the_real_rows(path):
    metadata = pq.read_schema(path).metadata
    assert set(metadata) == {HEADER, SIGNATURE}
    assert set(json.loads(metadata[HEADER])) == {
        "format", "table_schema", "version", "model", "penalty", "config", "guarantee",
        "hides_pairs",
    }  # fmt: skip
    assert pq.read_schema(path).names == [*SCHEMA.encoded_names, "(group)", "(label)"]


def test_release_for_a_blind_model_holds_no_groups(path):
    """Its bytes do not depend on them."""
    blind = some_release(group_input=False)
    flipped = write_release(replace(blind, s=1 - blind.s), path)
    assert write_release(blind, path) == flipped
    assert pq.read_schema(path).names == [*SCHEMA.encoded_names, "(label)"]
    back = read_release(path, SCHEMA)
    assert (back.fingerprint, back.s.tolist()) == (blind.fingerprint, [0, 0])
    rewrite(path, lambda t: t.add_column(WIDTH, "(group)", pa.array([0, 1], "int32")))
    assert refused(path, f"column {WIDTH + 1}")


def test_release_takes_the_room_of_its_encoded_rows(path):
    header = make_header(SurrogateConfig(), SCHEMA, model=LinearModel())
    ones, x = np.ones(2), np.array([[1.0, 20.0, 0.0]] * 2)
    records = Release(header, x, np.array([0, 1]), ones, ones)
    for release, columns in ((some_release(), WIDTH + 2), (records, WIDTH + 3)):
        write_release(release, path)
        read_release(path, SCHEMA, room=2 * columns)
        with pytest.raises(InputError, match="2 rows of"):
            read_release(path, SCHEMA, room=2 * columns - 1)


def test_digest_is_the_documented_one(path):
    """Byte by byte, from the first lines of ``release/keys.py``."""
    release = some_release()
    rows = release.x.astype("<f8").tobytes()
    rows = sha256(rows + struct.pack("<2i2i", *release.s, *release.y.astype(int))).digest()
    assert replace(release, x=np.asfortranarray(release.x)).fingerprint == rows
    metadata = pq.read_schema(path).metadata
    content = b"synthfair-release/2\0" + sha256(metadata[HEADER]).digest() + rows
    assert json.loads(metadata[SIGNATURE])["sha256"] == sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("settings", "word"), [({}, ""), ({"labels": "copy"}, "label"), ({"start": "normal"}, "mean")]
)
def test_header_tells_what_its_settings_disclose(settings, word):
    _, *more = header_facts(some_release(**settings).header)["discloses"]
    assert len(more) == len(settings)
    assert all(word in told for told in more)


# What is refused


def column_with(name, values, kind=None):
    return set_column(name, pa.array(values, kind)), {}, name


def same(table):
    return table


HOSTILE = {
    "format": (same, {"format": "synthfair-release/1"}, "format"),
    "control character": (same, {"version": "\x1b[2J"}, "version"),
    "guarantee": (same, {"guarantee": {"epsilon": 0.1, "relation": "replace"}}, "epsilon"),
    "nan": column_with("income", [0.5, float("nan")]),
    "large": column_with("income", [0.5, -1.0001e6]),
    "missing": (*column_with("income", [None, 0.5])[:2], "missing values"),
    "group": column_with("(group)", [0, 2], "int32"),
    "group below": column_with("(group)", [0, -1], "int32"),
    "label": column_with("(label)", [0, 1], "int32"),
    "no column": (lambda t: t.drop_columns("age"), {}, "'age'"),
    "more columns": (lambda t: t.append_column("id", pa.array([1, 2])), {}, "'id'"),
    "order": (lambda t: t.select(t.column_names[::-1]), {}, "column 1"),
    "no rows": (lambda t: t.slice(0, 0), {}, "0 rows"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_release_that_none_can_be_is_refused_by_its_place(path, case):
    change, header, place = HOSTILE[case]
    rewrite(path, change, **header)
    assert refused(path, place)


def test_release_of_another_schema_is_refused_by_column(path):
    columns = dict(SCHEMA.columns)
    columns["age"] = columns["age"].model_copy(update={"upper": 80.0})
    with pytest.raises(InputError, match=r"r.parquet: .*'age': upper: 90.0 in .*, 80.0 in "):
        read_release(path, SCHEMA.model_copy(update={"columns": columns}))


def test_release_with_columns_in_another_order_is_refused(path):
    backwards = dict(reversed(SCHEMA.columns.items()))
    with pytest.raises(InputError, match="order"):
        read_release(path, SCHEMA.model_copy(update={"columns": backwards}))


NEIGHBOUR = [0.25, np.nextafter(0.25, 1)]
ALTERED = {name: (set_column(name, NEIGHBOUR), {}) for name in SCHEMA.encoded_names} | {
    "group": column_with("(group)", [0, 0], "int32")[:2],
    "label": column_with("(label)", [1, 1], "int32")[:2],
    "rows": (lambda table: table.take([1, 0]), {}),
    "config": (same, {"config": some_release(rho_o=1.0).header.config.model_dump(mode="json")}),
}


@pytest.mark.parametrize("case", ALTERED)
def test_release_that_is_altered_is_refused(path, case):
    change, header = ALTERED[case]
    rewrite(path, change, **header)
    assert refused(path, "altered since it was written: sha256")


METADATA = {
    "no digest": ({SIGNATURE: None}, "altered"),
    "long": ({SIGNATURE: b" " * 1001}, "1001 bytes"),
    "long header": ({HEADER: b" " * (2**22 + 1)}, "4194305 bytes"),
    "very long": ({HEADER: b"a" * 30_000_000}, "Parquet"),
    "unknown": ({b"pandas": b"{}"}, "pandas"),
    "key twice": ({HEADER: b'{"format": "x", "format": "y"}'}, "'format' appears more than once"),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_none_can_be_is_refused(path, case):
    changes, named = METADATA[case]
    metadata = pq.read_schema(path).metadata | changes
    metadata = {key: value for key, value in metadata.items() if value is not None}
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)
    assert refused(path, named)


def test_guarantee_that_schema_and_settings_do_not_imply_is_refused(path):
    """Of a smaller sensitivity: noise that is too small for it then looks large enough."""
    config = DistillConfig(epsilon=1.0, delta=1e-5, group_input=True)
    right = make_guarantee(config, SCHEMA)
    header = make_header(config, SCHEMA, model=LinearModel(), penalty="p", guarantee=right)
    write_release(replace(some_release(), header=header), path)
    assert read_release(path, SCHEMA).header.guarantee == right
    small = [m.model_copy(update={"sensitivity": m.sensitivity / 2}) for m in right.mechanisms]
    false = right.model_copy(update={"mechanisms": tuple(small)})
    header = header.model_copy(update={"guarantee": false})
    write_release(replace(some_release(), header=header), path)
    assert refused(path, "sensitivity")


def test_file_that_is_no_release_is_refused(path):
    content = path.read_bytes()
    for wrong in (b"", b"PAR", b"a,b\n1,2\n", content[:100], content[:-20]):
        path.write_bytes(wrong)
        assert refused(path, "Parquet")
    pq.write_table(pa.table({"a": [1]}), path)
    assert refused(path, "not a synthfair release")
    path.unlink()
    assert refused(path, "No such file")


@given(where=st.integers(0, 10**6), value=st.integers(0, 255))
def test_damaged_byte_never_changes_a_row_unseen(where, value, tmp_path_factory):
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    release = some_release(np.random.default_rng(0).random((50, WIDTH)))
    write_release(release, path)
    content = bytearray(path.read_bytes())
    content[where % len(content)] = value
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert read_release(path, SCHEMA).fingerprint == release.fingerprint
