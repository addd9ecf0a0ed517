"""What a release holds is shown, whole or refused, without its schema and without JAX."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, make_schema, make_table, rewrite, set_column, some_release

import synthfair as sf
from synthfair.cli import main
from synthfair.data.schema import Numeric
from synthfair.errors import InputError
from synthfair.release.format import Release, inspect_release, read_release, write_release
from synthfair.release.keys import make_keys, read_signing_key


@pytest.fixture
def folder(tmp_path):
    make_keys(tmp_path / "ada.key")
    make_keys(tmp_path / "bob.key")
    key = read_signing_key(tmp_path / "ada.key")
    write_release(some_release(rho_o=3.0), tmp_path / "r.parquet", key=key)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path


def inspect(folder, *flags, name="r.parquet"):
    return main(["inspect", str(folder / name), *map(str, flags)])


def test_it_shows_what_the_file_holds_and_claims(folder, capsys):
    sha256 = hashlib.sha256((folder / "r.parquet").read_bytes()).hexdigest()
    flags = ["--schema", folder / "schema.json", "--keys", folder / "ada.pub"]
    assert inspect(folder, *flags) == 0
    said = " ".join(capsys.readouterr().out.split())
    release = read_release(folder / "r.parquet", SCHEMA)
    for words in (
        sha256,
        release.signature.sha256,
        "format synthfair-release/5",
        f"2 x {len(SCHEMA.encoded_names)} features",
        "town=a with paid=no: 1 rows",
        "town=b with paid=yes: 1 rows",
        "income: 0.25 to 0.25",
        f"{SCHEMA.hash}; fits the schema given",
        "linear, logistic loss; it reads town",
        "rho_o = 3.0",
        "valid, by 'ada'",
        "not anonymous",
    ):
        assert " ".join(words.split()) in said, words
    assert "DOES NOT FIT" not in said


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--keys", "{folder}/bob.pub"], "r.parquet: signed with the unknown key .*'bob'"),
        (
            ["--schema", "{folder}/other.json"],
            "r.parquet: made with another schema than the one given",
        ),
    ],
)
def test_a_mismatch_is_shown_and_fails(folder, capsys, flags, complaint):
    (folder / "other.json").write_text(make_schema(n_groups=3).to_json())
    assert inspect(folder, *(flag.format(folder=folder) for flag in flags)) == 2
    said = capsys.readouterr()
    assert "DOES NOT FIT" in said.out
    assert "rho_o = 3.0" in said.out
    assert re.search(complaint, said.err)


def test_all_that_does_not_fit_is_named(folder):
    found = inspect_release(folder / "r.parquet", schema=make_schema(n_groups=3), keys={})
    assert (found.fits, found.client, len(found.problems)) == (False, None, 2)


def test_an_unsigned_release_is_said_to_be(folder, capsys):
    write_release(some_release(group_input=False), folder / "u.parquet")
    assert inspect(folder, name="u.parquet") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "none: anybody may have written this" in said
    assert "all the defaults" in said
    assert f"2 x {len(SCHEMA.encoded_names)} features, y pairs paid=no: 1 rows" in said
    assert "it does not read town" in said


def test_an_altered_file_is_refused(folder, capsys):
    rewrite(folder / "r.parquet", set_column("income", [0.25, 0.5]))
    assert inspect(folder) == 2
    said = capsys.readouterr()
    assert "r.parquet: altered since it was written" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.drop_columns("(label)"), "column 9: missing; must be .*label"),
        (lambda t: t.select(["(group)", "(label)"]), "column 1: .*group.*; must be 'income'"),
        (lambda t: t.select(t.column_names[::-1]), "column 1: .*label"),
        (lambda t: t.add_column(0, "age", t["age"]), "column 1: 'age' .*; must be 'income'"),
        (lambda t: t.add_column(0, "a" * 1001, t["age"]), "column 1: 'a{999}; must be 'income'"),
        (lambda t: t.slice(0, 0), "0 rows"),
        (set_column("income", ["a", "b"]), "'income' .string.; must be 'income' .double"),
        (set_column("income", [0.5, float("nan")]), "'income', row 2: nan"),
        (set_column("income", [0.5, None]), "missing values"),
        (
            set_column("(group)", pa.array([0, 1000], pa.int32())),
            "'.group.', row 2: 1000 .*0 to 1",
        ),
    ],
)
def test_without_a_schema_it_is_hostile_all_the_same(folder, change, complaint):
    rewrite(folder / "r.parquet", change)
    with pytest.raises(InputError, match=f"r.parquet: .*{complaint}"):
        inspect_release(folder / "r.parquet")


def test_the_range_of_every_column_is_shown(folder, capsys):
    columns = {f"c{i}": Numeric(lower=0.0, upper=1.0) for i in range(150)}
    schema = SCHEMA.model_copy(
        update={"columns": columns | {name: SCHEMA.columns[name] for name in ("town", "paid")}}
    )
    release = some_release()
    header = release.header.model_copy(update={"table_schema": schema})
    wide = Release(header, np.tile([[0.0], [1.0]], 150), release.s, release.y)
    write_release(wide, folder / "w.parquet")
    assert inspect(folder, name="w.parquet") == 0
    assert "c149: 0 to 1" in capsys.readouterr().out


def test_no_control_character_reaches_the_terminal(folder, capsys):
    """Neither from a column's name, nor from a file's, nor from what the header says."""
    release, name = some_release(), "e\x1b[2J.parquet"
    header = release.header.model_copy(update={"penalty": "[red]p[/red]"})
    write_release(replace(release, header=header), folder / name)
    assert inspect(folder, "--schema", folder / "schema.json", name=name) == 0
    first = capsys.readouterr()
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    rewrite(folder / name, lambda t: t.rename_columns([evil, *t.column_names[1:]]))
    assert inspect(folder, "--schema", folder / "schema.json", name=name) == 2
    second = capsys.readouterr()
    for text in (*first, *second):
        assert all(c.isprintable() or c == "\n" for c in text)
    assert "owned" in second.err
    assert "[red]p[/red]" in first.out


def test_the_metadata_of_a_release_is_the_header_and_the_signature(folder):
    assert set(pq.read_schema(folder / "r.parquet").metadata) == {
        b"synthfair",
        b"synthfair.release.signature",
    }


def test_columns_without_values_have_no_range(tmp_path, capsys):
    table = make_table(400).assign(age=np.nan)
    config = sf.SurrogateConfig(k_min=5)
    release = sf.distill_table(table, SCHEMA, config).release
    sf.write_release(release, tmp_path / "r.parquet")
    assert inspect(tmp_path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "age: all missing" in said
    assert "nan" not in said
    assert "town=a with paid=no: " in said  # as the file's own schema has it
