"""Shared fixtures: double precision, small problems, and the public tables where they are."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

# Child processes find this package wherever they run, and not another that is installed. What they
# and a worker compile is cached in a folder of the worker's own; the user's settings are not read.
ROOT = Path(__file__).parents[1]
COMPILED = ROOT / ".pytest_cache" / f"compiled-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
CACHES = COMPILED.with_name(COMPILED.name.replace("compiled", "caches"))
if COMPILED.exists() and sum(path.stat().st_size for path in COMPILED.iterdir()) > 500 * 10**6:
    shutil.rmtree(COMPILED)
os.environ |= {
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
    "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "XDG_CACHE_HOME": str(CACHES),
    "XDG_CONFIG_HOME": str(CACHES),
    "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHES / "hypothesis"),  # else in the working folder
    "OMP_NUM_THREADS": "1",  # workers share the processors
    "TF_CPP_MIN_LOG_LEVEL": "3",  # XLA takes each cached entry for another machine's
}

# A disk takes some milliseconds for each file that must not be lost, and tests write ten thousand:
# where there is room, and scripts may run, their folders are in memory.
MEMORY, ROOM = Path("/dev/shm"), 4 * 10**9
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
    free, noexec = shutil.disk_usage(MEMORY).free, os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if free > ROOM and not noexec:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Ctrl-C works, too, where a shell in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis
import jax
import numpy as np
import pandas as pd
import pytest
from builders import QUICK, SCHEMA, TABLE, make_schema, make_table, silent

import synthfair as sf
from synthfair.data.datasets import DATA_VARIABLE
from synthfair.data.schema import Schema

jax.config.update("jax_enable_x64", True)

MAX_RESIDENT, MIN_GROWTH = 1_150_000_000, 200_000_000
"""Bytes of a worker's memory above which what is compiled is forgotten; and by how much it must
have grown since the last time, as libraries that are loaded stay."""


class MemoryLimit:
    """A plugin, for examples in docstrings too, that keeps a worker small.

    What is compiled stays on disk. The C library keeps what is freed, unless it is told to trim.
    """

    def __init__(self):
        self.pages = Path("/proc/self/statm")
        self.trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
        self.most = MAX_RESIDENT

    def resident(self):
        return int(self.pages.read_text().split()[1]) * resource.getpagesize()

    def pytest_runtest_logfinish(self):
        if self.pages.exists() and self.resident() > self.most:
            jax.clear_caches()
            gc.collect()
            self.trim(0)
            self.most = max(MAX_RESIDENT, self.resident() + MIN_GROWTH)


def pytest_configure(config):
    config.pluginmanager.register(MemoryLimit())


# Most of a test's time is compilation; the code need not be fast. Set SYNTHFAIR_TEST_OPTIMIZED=1 to
# test what XLA optimises, too.
if not os.environ.get("SYNTHFAIR_TEST_OPTIMIZED"):
    jax.config.update("jax_disable_most_optimizations", True)

hypothesis.settings.register_profile("steady", deadline=None)  # a busy machine is not a bug
hypothesis.settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _silent_is_zero():
    from synthfair.privacy import mechanism

    drawn, chosen = mechanism.discrete_gaussian, mechanism.exponential_choice

    def discrete_gaussian(variance, n, source):
        return np.zeros(n, np.int64) if source is silent else drawn(variance, n, source)

    def exponential_choice(scores, rate, source):
        return int(np.argmax(scores)) if source is silent else chosen(scores, rate, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanism, "discrete_gaussian", discrete_gaussian)
        patch.setattr(mechanism, "exponential_choice", exponential_choice)
        yield


@pytest.fixture
def calls():
    """``calls()``: how many functions were called since the test began, whatever the machine.

    What a function of C does inside it, such as a product of arrays, is one call.
    """
    count, before = 0, sys.getprofile()

    def step(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    yield lambda: count
    sys.setprofile(before)


@pytest.fixture(scope="session")
def public_tables():
    """Skip a test that needs the public tables where there are none."""
    if DATA_VARIABLE not in os.environ:
        pytest.skip(f"{DATA_VARIABLE} names no folder with the tables")


@pytest.fixture
def schema() -> Schema:
    return make_schema()


@pytest.fixture
def table() -> pd.DataFrame:
    return make_table()


@pytest.fixture
def quick() -> sf.DistillConfig:
    return QUICK


@pytest.fixture(scope="session")
def fair_release() -> sf.Release:
    """That of the table of two groups, for tests that need one, whatever it holds."""
    return sf.distill_table(TABLE, SCHEMA, QUICK).release


@pytest.fixture
def text_only(monkeypatch):
    """Pages without figures, which take most of the time."""
    monkeypatch.setattr("synthfair.report.figures.find_spec", lambda name: None)
