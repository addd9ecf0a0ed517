"""Commands and estimators that compute with NumPy alone: JAX is not even imported."""

import os
import subprocess
import sys

import pytest
from conftest import make_schema, make_table

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import pandas as pd
import synthfair as sf
from synthfair.cli import main

folder = Path(sys.argv[1])
schema, there = folder / "schema.json", lambda name: str(folder / name)


def run(*argv):
    code = main([*map(str, argv)])
    assert code == 0, (argv, code)
    loaded = {"jax", "jaxlib", "jaxopt", "optax"} & {*sys.modules}
    assert not loaded, (argv, loaded)


run("schema", there("c0.csv"), "--label", "paid", "--positive", "yes", "--sensitive", "town",
    "--output", there("draft.json"))
run("split", there("c0.csv"), "--schema", schema, "--clients", 2, "--output", there("split"))
for name in "c0", "c1":
    run("client", "--data", there(f"{name}.csv"), "--schema", schema, "--release", "surrogate",
        "--without-epsilon", "--k-min", 5, "--output", there(f"{name}.parquet"))
server = ("server", there("c0.parquet"), there("c1.parquet"), "--schema", schema, "--force",
          "--test", there("test.csv"))
run(*server, "--trusted", there("trusted.csv"), "--output", there("trust"))
run(*server, "--refine", there("refine"), "--output", there("server"))
for name in "c0", "c1":
    run("client", "--data", there(f"{name}.csv"), "--schema", schema, "--k-min", 5,
        "--answer", there("refine/1/question.json"), "--output", there(f"refine/1/{name}.json"))
run(*server, "--refine", there("refine"), "--output", there("server"), "--frontier", "--report")
model = there("server/model.json")
run("evaluate", "--model", model, "--data", there("test.csv"))
run("predict", "--model", model, "--data", there("test.csv"), "--output", there("scored.csv"))
run("report", there("server"), "--output", there("page.html"))

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
    folder = tmp_path_factory.mktemp("without_jax")
    (folder / "schema.json").write_text(make_schema().to_json())
    for seed, (name, rows) in enumerate(
        (("c0", 900), ("c1", 900), ("test", 300), ("trusted", 200))
    ):
        make_table(rows, seed=seed).to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_commands_and_estimators_do_not_load_jax(folder):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
