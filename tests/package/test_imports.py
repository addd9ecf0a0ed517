"""What help, commands and estimators import: nothing heavy, no engine, and JAX where it is used."""

import os
import subprocess
import sys

import pytest
from builders import make_schema, make_table

SCRIPT = """
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from synthfair.cli import main

folder = Path(sys.argv[1])

# Help loads nothing that computes.
with redirect_stdout(StringIO()) as said:
    assert main(["--help"]) == 0
    assert main(["gap", "aggregate", "--help"]) == 0
    for module in "synthfair", "synthfair.client", "synthfair.server":
        sys.argv[1:] = ["--help"]
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            assert not end.code
assert said.getvalue().count("Usage: python -m synthfair ") == 5, said.getvalue()
heavy = {"jax", "numpy", "pandas", "pyarrow", "scipy"} & {*sys.modules}
assert not heavy, heavy

import numpy as np
import pandas as pd
import synthfair.measure.aggregate, synthfair.measure.plan, synthfair.measure.collection

schema, there = folder / "schema.json", lambda name: str(folder / name)


def run(*argv):
    code = main([*map(str, argv)])
    assert code == 0, (argv, code)
    loaded = {"jax", "jaxlib", "jaxopt", "optax", "nvflare"} & {*sys.modules}
    assert not loaded, (argv, loaded)


for name in "c0", "c1":
    run("client", "--data", there(f"{name}.csv"), "--schema", schema, "--release", "surrogate",
        "--without-epsilon", "--k-min", 5, "--output", there(f"{name}.parquet"))
run("server", there("c0.parquet"), there("c1.parquet"), "--schema", schema, "--frontier",
    "--test", there("test.csv"), "--report", "--output", there("server"))
model = there("server/model.json")
run("evaluate", "--model", model, "--data", there("test.csv"))
run("predict", "--model", model, "--data", there("test.csv"), "--output", there("scored.csv"))
"""


FEW = """
import sys
from synthfair.cli import main

assert main(sys.argv[1:]) == 0
loaded = [name for name in sys.modules if name.split(".")[0] == "synthfair"]
assert len(loaded) < 50, loaded
"""

NOTHING = """
import logging, os, signal, sys, warnings
import jax, jaxopt, optax, pandas, pyarrow, scipy.optimize

def process():
    handlers = signal.getsignal(signal.SIGINT), sys.excepthook, sys.unraisablehook, sys.meta_path
    log = {name: logging.getLogger(name).level for name in (None, "jax")}
    return dict(os.environ), dict(jax.config.values), [*warnings.filters], log, handlers

before = process()
import synthfair as sf

for name in sf.__all__:
    getattr(sf, name)
assert process() == before
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of two clients' tables, and one of test rows."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "schema.json").write_text(make_schema().to_json())
    for seed, name in enumerate(("c0", "c1", "test")):
        make_table(900, seed=seed).to_csv(folder / f"{name}.csv", index=False)
    return folder


def executed(script, folder, *argv):
    environment = os.environ | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", script, *argv],
        capture_output=True, text=True, check=False, env=environment, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_of_help_compute_nothing_and_of_commands_are_without_jax(folder):
    executed(SCRIPT, folder, str(folder))


def test_imports_of_a_release_are_few(folder):
    """Of the package; a fair release has some more, for JAX."""
    words = "client --data test.csv --schema schema.json --release surrogate --output few.parquet"
    executed(FEW, folder, *words.split())


def test_importing_synthfair_changes_nothing_in_the_process(folder):
    executed(NOTHING, folder)
