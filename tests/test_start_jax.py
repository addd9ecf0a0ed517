"""Compiled code is kept where only the user writes, and found again."""

import os
import subprocess
import sys

import jax
import pytest

from synthfair.cli import start

SCRIPT = """
import sys
from synthfair.cli.start import start_jax
start_jax()
import jax
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
assert jax.jit(lambda x: x * 3.0)(2.0).dtype == "float64"
print(sum(name.endswith("cache_hits") for name in hits))
"""


def hits(folder, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=kept | {"XDG_CACHE_HOME": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not found.stderr
    return int(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder otherwise")
def test_the_second_process_finds_what_the_first_compiled(tmp_path):
    assert hits(tmp_path) == 0
    assert hits(tmp_path) > 0
    kept = list((tmp_path / "synthfair" / "compiled").iterdir())
    assert any(path.name.endswith("-cache") for path in kept)
    assert (tmp_path / "synthfair" / "compiled").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("size", "set_by_user", "threads"),
    [(100, {}, "1"), (start.SMALL_TABLE, {}, None), (100, {"NPROC": "3"}, None)],
)
def test_one_thread_for_a_small_table(tmp_path, monkeypatch, size, set_by_user, threads):
    table = tmp_path / "table.csv"
    with table.open("wb") as file:
        file.truncate(size)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {k: v for k, v in os.environ.items() if k not in start.THREADS} | set_by_user
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    start.start_jax(table=table)
    assert os.environ.get("PJRT_NPROC") == threads


def test_the_users_own_choice_stands(tmp_path):
    mine = tmp_path / "mine"
    hits(tmp_path, JAX_COMPILATION_CACHE_DIR=str(mine))
    assert not (tmp_path / "synthfair" / "compiled").exists() or not any(
        (tmp_path / "synthfair" / "compiled").iterdir()
    )
    other = tmp_path / "other"
    hits(other, JAX_ENABLE_COMPILATION_CACHE="false")
    assert not any((other / "synthfair" / "compiled").iterdir())


def test_a_folder_that_others_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = start.cache_folder()
    assert folder is not None
    folder.chmod(0o777)
    assert start.cache_folder() is None


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "synthfair").write_text("a file in its place")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert start.cache_folder() is None


def test_half_written_entries_are_removed(tmp_path, monkeypatch):
    for name, content in (("a-cache", "x"), ("a-atime", "t"), ("b-cache", "x"), ("c-cache", "")):
        (tmp_path / name).write_text(content)
    (tmp_path / "c-atime").write_text("t")
    start._sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*-cache")) == ["a-cache"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder otherwise")
def test_a_damaged_entry_is_compiled_again_in_silence(tmp_path):
    hits(tmp_path)
    for path in (tmp_path / "synthfair" / "compiled").glob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    assert hits(tmp_path) == 0
