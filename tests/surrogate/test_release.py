"""The file of a surrogate: read as it was written, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, make_table, rewrite, set_column

import synthfair as sf
from synthfair.errors import InputError
from synthfair.release import inspect_release, read_release
from synthfair.release.format import Header, write_release

CONFIG = sf.SurrogateConfig(k_min=20)


@pytest.fixture(scope="module")
def release():
    return sf.distill_table(make_table(700, seed=3), SCHEMA, CONFIG).release


def with_value(release, column, value, row=1):
    """The release with another value; of its weights where the column is "(weight)"."""
    names, values = [*release.header.names, "(weight)"], np.c_[release.x, release.weight]
    values[row, names.index(column)] = value
    return replace(release, x=values[:, :-1], weight=values[:, -1])


def test_file_of_a_surrogate_is_read_as_it_was_written(tmp_path, release):
    """Bounds and missing values, too."""
    for column, value in (("income", 100.0), ("age", np.nan), ("home", 0.0), ("home", 3.0)):
        release = with_value(release, column, value)
    write_release(release, tmp_path / "r.parquet")
    own = ["(group)", "(label)", "(weight)"]
    assert pq.read_schema(tmp_path / "r.parquet").names == [*SCHEMA.features, *own]
    back = read_release(tmp_path / "r.parquet", SCHEMA)
    assert back.header == release.header
    assert inspect_release(tmp_path / "r.parquet", schema=SCHEMA).fits
    for field in ("x", "s", "y", "weight"):
        np.testing.assert_array_equal(getattr(back, field), getattr(release, field))


VALUES = {
    "income": (100.5, -1e-9, np.nan, np.inf),
    "age": (17.9, 90.1, -np.inf),
    "home": (0.5, 4.0, -1.0, np.nan, np.inf),
    "(weight)": (-1.0, 1e-9, 1e10, np.nan, np.inf),
}


@pytest.mark.parametrize(("column", "value"), [(c, v) for c, of in VALUES.items() for v in of])
def test_file_with_a_value_that_no_record_has_is_refused(tmp_path, release, column, value):
    write_release(with_value(release, column, value), tmp_path / "r.parquet")
    for read in (lambda path: read_release(path, SCHEMA), inspect_release):  # by its own schema
        with pytest.raises(InputError, match=re.escape(f"column '{column}', row 2: {value!r}")):
            read(tmp_path / "r.parquet")


@pytest.mark.parametrize(("change", "complaint"), [
    (lambda t: t.drop_columns("income"), "'income'"),
    (lambda t: t.drop_columns("(weight)"), "column 6: missing; .*weight"),
    (lambda t: t.select([1, 0, *range(2, 6)]), "column 1: 'age' .*'income'"),
    (lambda t: set_column("(weight)", [0.0] * len(t))(t), r"'\(weight\)', row 1: .* all 0"),
])  # fmt: skip
def test_file_with_other_columns_is_refused(tmp_path, release, change, complaint):
    write_release(release, tmp_path / "r.parquet")
    rewrite(tmp_path / "r.parquet", change)
    with pytest.raises(InputError, match=complaint):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_header_declares_pairs_that_are_made_up(release):
    """Of a client with 19 rows of one pair; one with 20 makes up none."""
    table, told = make_table(700, seed=3), []
    few = table.index[(table.town == "b") & (table.paid == "yes")]
    for rows in (19, 20):
        made = sf.distill_table(table.drop(few[rows:]), SCHEMA, CONFIG).release
        told.append(made.header.hides_pairs)
    assert told == [True, False]
    said = made.header.model_dump() | {"hides_pairs": True}
    with pytest.raises(ValueError, match="hides_pairs"):
        Header.model_validate(said | {"config": said["config"] | {"epsilon": 1.0, "delta": 1e-5}})
