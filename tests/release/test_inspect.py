"""What a release holds is shown, whole or refused, without its schema and without JAX."""

from dataclasses import replace
from hashlib import sha256

import pytest
from builders import SCHEMA, make_schema, rewrite, some_release

from synthfair.cli import main
from synthfair.data.schema import read_schema
from synthfair.release.format import inspect_release, write_release
from synthfair.release.keys import make_keys, read_keys, read_signing_key


@pytest.fixture
def folder(tmp_path):
    """A release signed by ada, with her key, that of bob, and two schemas."""
    for name in ("ada", "bob"):
        make_keys(tmp_path / f"{name}.key")
    key = read_signing_key(tmp_path / "ada.key")
    write_release(some_release(rho_o=3.0), tmp_path / "r.parquet", key=key)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "other.json").write_text(make_schema(n_groups=3).to_json())
    return tmp_path


def shown(folder, capsys, *flags, name="r.parquet"):
    """Exit code, output and errors of the command."""
    code = main(["inspect", str(folder / name), *flags])
    said = capsys.readouterr()
    return code, " ".join(said.out.split()), " ".join(said.err.split())


@pytest.mark.parametrize(("schema", "signer", "wrong"), [
    ("schema", "ada", []), ("other", "ada", ["town"]), ("other", "bob", ["town", "'bob'"]),
])  # fmt: skip
def test_inspection_fails_for_all_that_does_not_fit(folder, capsys, schema, signer, wrong):
    path, files = folder / "r.parquet", (folder / f"{schema}.json", folder / f"{signer}.pub")
    found = inspect_release(path, schema=read_schema(files[0]), keys=read_keys(files[1:]))
    content = path.read_bytes()
    assert (found.size, found.sha256) == (len(content), sha256(content).hexdigest())
    assert (found.fits, found.client) == (schema == "schema", "ada" if signer == "ada" else None)
    assert len(found.problems) == len(wrong)
    code, said, error = shown(folder, capsys, "--schema", str(files[0]), "--keys", str(files[1]))
    assert code == (2 if wrong else 0)
    assert all(
        value in said for value in (found.sha256, f"{found.size:,}", SCHEMA.hash, "rho_o = 3.0")
    )
    assert all(named in error for named in wrong)


def test_inspection_sends_no_control_character_to_the_terminal(folder, capsys):
    """Neither from a column's name, nor from a file's, nor from what the header says."""
    release, path = some_release(), folder / "e\x1b[2J.parquet"
    header = release.header.model_copy(update={"penalty": "[red]p[/red]"})
    write_release(replace(release, header=header), path)
    first = shown(folder, capsys, name=path.name)
    rewrite(path, lambda t: t.rename_columns(["\x1b]0;owned\x07\u202e", *t.column_names[1:]]))
    second = shown(folder, capsys, name=path.name)
    assert (first[0], second[:2]) == (0, (2, ""))  # of what was altered nothing is shown
    assert all(text.isprintable() for text in (*first[1:], *second[1:]))
    assert "owned" in second[2]
    assert "[red]p[/red]" in first[1]
