"""Compiled code is cached where only the user writes, and found again."""

import os
import subprocess
import sys

import jax
import pytest

from synthfair.jax_setup import SETTINGS, cache_compiled_code, cache_folder

SCRIPT = """
import synthfair as sf
import jax
sf.LinearModel
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
assert jax.jit(lambda x: x * 3.0)(2.0).dtype == "float32"  # Python's users choose
print(sum(name.endswith("cache_hits") for name in hits))
"""


def hits(folder):
    """How much a process of its own finds compiled."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TF_CPP_"))}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=kept | {"XDG_CACHE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not found.stderr
    return int(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder otherwise")
def test_the_second_process_finds_what_the_first_compiled_unless_it_is_damaged(tmp_path):
    folder = tmp_path / "synthfair" / "compiled"
    assert hits(tmp_path) == 0
    assert hits(tmp_path) > 0
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.glob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    assert hits(tmp_path) == 0


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Sets the cache up in some environment; returns what is set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)

    def start(*, logged=False, **environment):
        found = {}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(jax.config, "update", found.__setitem__)
        cache_compiled_code(logged=logged)
        return found

    yield start
    monkeypatch.undo()
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_cache_is_the_users_own(settings):
    assert settings() == {**SETTINGS, "jax_compilation_cache_dir": str(cache_folder())}


def test_where_xla_would_log_each_use_nothing_is_cached(settings):
    assert settings(TF_CPP_MIN_LOG_LEVEL="1") == {}


def test_what_a_program_has_chosen_stands(settings, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    assert settings() == {}


@pytest.mark.parametrize(
    "variables",
    [{"JAX_COMPILATION_CACHE_MAX_SIZE": "7"}, {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1"}],
)
def test_the_users_own_settings_stand(settings, variables):
    found = settings(**variables)
    assert set(SETTINGS) - set(found) == {name.lower() for name in variables}


def test_of_a_folder_that_the_environment_names_nothing_is_deleted(settings, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))  # as JAX does on import
    found = settings(JAX_COMPILATION_CACHE_DIR=str(tmp_path))
    assert set(SETTINGS) - set(found) == {"jax_compilation_cache_max_size"}
    assert "jax_compilation_cache_dir" not in found


def test_where_caching_is_off_there_is_no_folder(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(type(jax.config), "jax_enable_compilation_cache", False, raising=False)
    assert settings() == {}
    assert not list(tmp_path.iterdir())


def test_commands_cache_whatever_the_log(settings):
    found = settings(TF_CPP_MIN_LOG_LEVEL="1", logged=True)
    assert found["jax_compilation_cache_dir"] == str(cache_folder())


@pytest.mark.parametrize("mode", [0o777, 0o750])
def test_a_folder_that_others_may_open_is_not_used(settings, mode):
    folder = cache_folder()
    folder.chmod(mode)
    assert cache_folder() is None
    assert settings() == {}


def test_a_folder_that_cannot_be_made_is_done_without(settings, tmp_path):
    (tmp_path / "synthfair").write_text("a file in its place")
    assert cache_folder() is None
    assert settings() == {}


def test_half_written_entries_are_removed(settings):
    folder = cache_folder()
    for name, content in (("a-cache", "x"), ("a-atime", "t"), ("b-cache", "x"), ("c-cache", "")):
        (folder / name).write_text(content)
    (folder / "c-atime").write_text("t")
    settings()
    assert sorted(path.name for path in folder.glob("*-cache")) == ["a-cache"]
