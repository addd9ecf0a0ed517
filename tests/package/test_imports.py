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
import synthfair as sf
import synthfair.measure.aggregate, synthfair.measure.plan, synthfair.measure.collection

schema, there = folder / "schema.json", lambda name: str(folder / name)


def run(*argv):
    code = main([*map(str, argv)])
    assert code == 0, (argv, code)
    loaded = {"jax", "jaxlib", "jaxopt", "optax", "nvflare"} & {*sys.modules}
    assert not loaded, (argv, loaded)


run("schema", there("c0.csv"), "--label", "paid", "--positive", "yes", "--sensitive", "town",
    "--output", there("draft.json"))
run("split", there("c0.csv"), "--schema", schema, "--clients", 2, "--output", there("split"))
run("keygen", "--output", there("c0.key"))
for name in "c0", "c1":
    run("client", "--data", there(f"{name}.csv"), "--schema", schema, "--release", "surrogate",
        "--without-epsilon", "--k-min", 5, "--output", there(f"{name}.parquet"),
        "--sign", there("c0.key"))
run("inspect", there("c0.parquet"), "--schema", schema, "--keys", there("c0.pub"))
server = ("server", there("c0.parquet"), there("c1.parquet"), "--schema", schema, "--force",
          "--test", there("test.csv"))
run(*server, "--trusted", there("trusted.csv"), "--output", there("trust"))
run(*server, "--refine", there("refine"), "--output", there("server"), "--frontier", "--report")
run("answer", there("refine/1/question.json"), "--data", there("c0.csv"), "--schema", schema,
    "--k-min", 5, "--output", there("refine/1/c0.json"))
model = there("server/model.json")
run("evaluate", "--model", model, "--data", there("test.csv"))
run("predict", "--model", model, "--data", there("test.csv"), "--output", there("scored.csv"))

from synthfair.sklearn import FairLogisticRegression

rng = np.random.default_rng(0)
s = rng.integers(2, size=300)
x = rng.normal(size=(300, 3)) + 0.5 * s[:, None]
y = x[:, 0] + rng.normal(size=300) > 0.3
FairLogisticRegression(max_gap=0.1).fit(x, y, sensitive_features=s).predict(x)
assert "jax" not in sys.modules
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of two clients' tables, one of test rows and one of trusted rows."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "schema.json").write_text(make_schema().to_json())
    for seed, (name, rows) in enumerate(
        (("c0", 900), ("c1", 900), ("test", 300), ("trusted", 200))
    ):
        make_table(rows, seed=seed).to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_imports_of_help_compute_nothing_and_of_commands_are_without_jax(folder):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
