"""Compiled code is kept where only the user writes, and found again."""

import os
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
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
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TF_CPP_"))}
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


@pytest.fixture
def threads(tmp_path, monkeypatch):
    """What XLA is told as it starts, for some table."""
    seen = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (*start.THREADS, "XLA_FLAGS"):
        monkeypatch.setenv(name, "")  # so that what a test sets goes after it
        monkeypatch.delenv(name)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax, "devices", lambda: seen.append(os.environ.get("PJRT_NPROC")))

    def told(table):
        start.start_jax(table=table)
        return seen

    return told


def test_one_thread_for_a_small_table(tmp_path, threads):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    assert threads(tmp_path / "table.csv") == ["1"]
    assert "PJRT_NPROC" not in os.environ


def test_the_users_number_of_threads_stands(tmp_path, threads, monkeypatch):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    monkeypatch.setenv("NPROC", "3")
    assert threads(tmp_path / "table.csv") == []


def test_loops_without_tiles_for_a_small_table(tmp_path, threads, monkeypatch):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    threads(tmp_path / "none.csv")
    assert "XLA_FLAGS" not in os.environ
    threads(tmp_path / "table.csv")
    assert os.environ["XLA_FLAGS"] == start.LOOPS
    monkeypatch.setenv("XLA_FLAGS", "--mine=1")
    threads(tmp_path / "table.csv")
    assert os.environ["XLA_FLAGS"] == f"--mine=1 {start.LOOPS}"
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_extra_options=mine=1")
    threads(tmp_path / "table.csv")
    assert os.environ["XLA_FLAGS"] == "--xla_backend_extra_options=mine=1"


@pytest.mark.parametrize("cells", [2_000_000, 2_200_000])
def test_tables_in_parquet_are_sized_by_their_cells(tmp_path, threads, cells):
    """Packed, those of the larger are a few bytes."""
    path = tmp_path / "table.parquet"
    pd.DataFrame({"a": np.zeros(cells)}).to_parquet(path)
    assert path.stat().st_size < start.SMALL_TABLE / 10
    assert threads(path) == (["1"] if 8 * cells < start.SMALL_TABLE else [])


def test_a_table_that_cannot_be_read_is_left_to_its_reader(tmp_path, threads):
    (tmp_path / "table.parquet").write_bytes(b"PAR1 and no more")
    for name in ("table.parquet", "none.csv"):
        assert threads(tmp_path / name) == []


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
