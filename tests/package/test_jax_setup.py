"""Only commands set JAX up: they cache compiled code where only the user writes."""

import os
from pathlib import Path

import jax
import pytest

from synthfair import jax_setup
from synthfair.jax_setup import cache_folder, start_jax


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Starts JAX in some environment; returns what is set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)
    update, before = jax.config.update, jax.config.jax_enable_compilation_cache
    update("jax_enable_compilation_cache", True)

    def start(**environment):
        found = {}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(jax.config, "update", found.__setitem__)
        start_jax()
        return found

    yield start
    update("jax_enable_compilation_cache", before)


TIME = {"jax_enable_x64": True, "jax_persistent_cache_min_compile_time_secs": 0.1}


def test_cache_is_the_users_own(settings):
    assert settings() == {**TIME, "jax_compilation_cache_dir": cache_folder()}


def test_cache_that_the_environment_names_stands(settings, tmp_path):
    assert settings(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine")) == TIME
    named = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert settings(**named) == {"jax_enable_x64": True}
    assert not list(tmp_path.iterdir())


def test_cache_that_is_off_has_no_folder(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(type(jax.config), "jax_enable_compilation_cache", False, raising=False)
    assert settings() == {"jax_enable_x64": True}
    assert not list(tmp_path.iterdir())


def make_shared(path):
    Path(cache_folder()).chmod(0o750)


def make_file(path):
    path.write_text("a file in its place")


@pytest.mark.parametrize("make", [make_shared, make_file])
def test_cache_folder_of_others_or_none_is_done_without(settings, tmp_path, make):
    make(tmp_path / "synthfair")
    assert settings() == {**TIME, "jax_compilation_cache_dir": None}


def test_cache_that_has_grown_too_large_begins_anew(settings, monkeypatch):
    entry = Path(cache_folder(), "a-cache")
    entry.write_bytes(bytes(100))
    for most, stays in ((100, True), (99, False)):
        monkeypatch.setattr(jax_setup, "MAX_CACHE_BYTES", most)
        assert Path(cache_folder()).stat().st_mode & 0o777 == 0o700
        assert entry.exists() == stays
