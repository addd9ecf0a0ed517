"""How time and memory grow with rows, releases and inputs.

    python -m benchmarks.scale                                  # about ten minutes
    python -m benchmarks.scale rows --only rows=1000000 --output elsewhere

rows: a client with many rows, its whole process: reading, encoding, compiling and 1,000 steps with
2,000 synthetic rows, without a cache of compiled code. The table is drawn at random: 33 numbers, 5
columns of three categories, a group and a label that depends on them.

releases: a server that pools many releases, its whole process. The synthetic rows are random: only
reading, checking, pooling and training on them is measured, not how good they are.

inputs: an outer step with a Cholesky factor and with conjugate gradients. Random features, 4
synthetic rows for each input (2,000 at least), 5,000 real rows, and a ridge of lambda_theta / n^2 =
0.001: a thousand inputs and the default ridge let the synthetic rows be separated, which takes
L-BFGS many more iterations than it is given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

import synthfair as sf
from benchmarks.fit import Usage, watch
from benchmarks.harness import Experiment, main
from benchmarks.runs import Runs
from benchmarks.showing import page, page_of
from synthfair.data.schema import Categorical, Numeric
from synthfair.data.tables import write_csv

# Random tables

CATEGORIES = ("low", "middle", "high")


def random_schema(name: str, numbers: int, choices: int) -> sf.Schema:
    """Return the schema of a table of numbers, columns of three categories, a group and a label."""
    columns: dict[str, Numeric | Categorical] = {
        **{f"number_{i}": Numeric(lower=0.0, upper=1.0) for i in range(numbers)},
        **{f"choice_{i}": Categorical(categories=CATEGORIES) for i in range(choices)},
        "town": Categorical(categories=("a", "b")),
        "paid": Categorical(categories=("no", "yes")),
    }
    return sf.Schema(
        name=name, label="paid", positive="yes", sensitive="town", columns=columns, ignored=(),
        missing_values=(),
    )  # fmt: skip


def random_parts(n: int, numbers: int, choices: int, *, size: int) -> Iterator[pd.DataFrame]:
    """Yield a table of n rows in parts of ``size`` rows; the same arguments give the same table.

    The process that writes a table must stay smaller than the one that is measured.
    """
    rng, words = np.random.default_rng(0), np.array(CATEGORIES)
    weights = rng.normal(size=numbers)
    for begin in range(0, n, size):
        many = min(size, n - begin)
        x = rng.random((many, numbers)).round(4)
        choice, town = rng.integers(3, size=(many, choices)), rng.integers(2, size=many)
        z = 2 * (x - 0.5) @ weights + 0.3 * (choice - 1).sum(axis=1) + town - 0.5
        part = pd.DataFrame(x, columns=[f"number_{i}" for i in range(numbers)])
        for i in range(choices):
            part[f"choice_{i}"] = words[choice[:, i]]
        part["town"] = np.array(["a", "b"])[town]
        part["paid"] = np.where(z + rng.logistic(size=many) > 0, "yes", "no")
        yield part


# Rows

NUMBERS, CHOICES = 33, 5
INPUTS = NUMBERS + CHOICES * len(CATEGORIES) + 2
"""The group and the intercept counted."""


class ManyRows(NamedTuple):
    """A table's rows and the kind of its file."""

    rows: int
    kind: str


def run_rows(setting: ManyRows, _seed: int, *, smoke: bool) -> Usage:
    """Write a table; return the time and memory of a new process that distils it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema, data = folder / "schema.json", folder / f"table.{setting.kind}"
        schema.write_text(random_schema("many rows", NUMBERS, CHOICES).to_json())
        parts = random_parts(setting.rows, NUMBERS, CHOICES, size=20_000)
        tables = (pa.Table.from_pandas(part, preserve_index=False) for part in parts)
        first = next(tables)
        writer = csv.CSVWriter if setting.kind == "csv" else parquet.ParquetWriter
        with writer(data, first.schema) as file:
            file.write_table(first)
            for table in tables:
                file.write_table(table)
        config = folder / "release.toml"
        config.write_text(f"n_synthetic = 2000\nsteps = {5 if smoke else 1000}")
        return watch(
            "synthfair.client", "--schema", schema, "--data", data, "--config", config,
            "--output", folder / "release.parquet", "--without-epsilon",
        )  # fmt: skip


def show_rows(runs: Runs) -> dict[str, str]:
    """Return a table of time and memory."""

    def more(setting: ManyRows, usage: Usage) -> dict[str, Any]:
        return {"times": usage.megabytes / (setting.rows * INPUTS * 8 / 1e6)}

    return {"rows.md": page("scale/rows", runs, more, inputs=INPUTS)}


ROWS = Experiment(
    name="rows",
    version=2,
    settings=(
        *(ManyRows(n, "parquet") for n in (10_000, 100_000, 300_000, 1_000_000)),
        ManyRows(1_000_000, "csv"),
    ),
    run=run_rows,
    summary=show_rows,
    smoke=(ManyRows(2000, "parquet"),),
    float64=False,
)

# Releases


class ManyReleases(NamedTuple):
    """How many, and the rows of each."""

    releases: int
    rows: int


def run_releases(setting: ManyReleases, _seed: int, *, smoke: bool) -> Usage:
    """Write releases, which takes longest; return time and memory of a process that pools them."""
    from synthfair.release.format import make_header

    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        table, schema = sf.load_dataset("law_school", "race")
        write_csv(table.head(2000), folder / "test.csv")
        (folder / "schema.json").write_text(schema.to_json())
        model = sf.LinearModel()
        header = make_header(sf.DistillConfig(), schema, model=model, penalty="covariance")
        paths = []
        for i in range(setting.releases):
            s, positive = rng.integers(2, size=(2, setting.rows))
            x = rng.random((setting.rows, len(header.names)))
            paths.append(folder / f"client_{i}.parquet")
            sf.write_release(sf.Release(header, x, s, 2.0 * positive - 1.0), paths[-1])
        return watch(
            "synthfair.server", *paths, "--schema", folder / "schema.json",
            "--test", folder / "test.csv", "--output", folder / "server",
        )  # fmt: skip


RELEASES = Experiment(
    name="releases", settings=(ManyReleases(1000, 100), ManyReleases(10_000, 100)),
    run=run_releases, summary=page_of("scale/releases"),
    smoke=(ManyReleases(3, 100),), float64=False,
)  # fmt: skip

# Inputs

METHODS = {
    "L-BFGS, Cholesky": ("lbfgs", "cholesky"),
    "L-BFGS, conjugate gradients": ("lbfgs", "conjugate_gradient"),
    "Newton, conjugate gradients": ("newton", "conjugate_gradient"),
}


class ManyInputs(NamedTuple):
    """How many, and what solves the inner problem and for its derivative."""

    inputs: int
    method: str


class ManyInputsValues(NamedTuple):
    """Of the second run: milliseconds of a step, the last P(x), and how it was solved.

    Attributes:
        milliseconds: of a step.
        objective: P(x) after the last.
        converged: whether the inner problem and its derivative met their tolerances, always.
        automatic: whether the method is what is chosen where nothing is asked for.
    """

    milliseconds: float
    objective: float
    converged: bool
    automatic: bool


def run_inputs(setting: ManyInputs, _seed: int, *, smoke: bool) -> ManyInputsValues:
    """Twenty steps of one problem."""
    from benchmarks.distilling import prepare, run_steps, solvers

    n, (inner_solver, linear_solver) = setting.inputs, METHODS[setting.method]
    config = sf.DistillConfig.model_validate(
        {
            "n_synthetic": max(2000, 4 * n), "lambda_theta": 1e-3 * n**2,
            "steps": 2 if smoke else 20, "inner_solver": inner_solver,
            "linear_solver": linear_solver,
        }
    )  # fmt: skip
    rng, n_rows, d = np.random.default_rng(0), 5000, n - 2
    x, s = rng.random((n_rows, d)), rng.integers(2, size=n_rows)
    z = (x - 0.5) @ rng.normal(size=d) * (10 / d) ** 0.5 + s - 0.5
    y = np.where(z + rng.logistic(size=n_rows) > 0, 1.0, -1.0)
    problem = prepare(sf.Encoded(x, s, y), config)
    run_steps(problem, config)  # compiles
    steps = run_steps(problem, config)
    automatic = solvers(problem, sf.DistillConfig()) == solvers(problem, config)
    objectives, converged = steps.records.objective, bool(steps.records.inner_converged.all())
    milliseconds = 1e3 * steps.seconds / len(objectives)
    return ManyInputsValues(milliseconds, float(objectives[-1]), converged, automatic)


INPUTS_TRIED = Experiment(
    name="inputs",
    settings=tuple(ManyInputs(*one) for one in product((50, 100, 200, 300, 500, 1000), METHODS)),
    run=run_inputs,
    summary=page_of(
        "scale/inputs",
        lambda _, v: {"mark": " *" * v.automatic, "converged": "yes" if v.converged else "no"},
    ),
    smoke=(ManyInputs(50, "Newton, conjugate gradients"),),
)  # fmt: skip

# In this order: those that start processes first: see watch
EXPERIMENTS = (ROWS, RELEASES, INPUTS_TRIED)

if __name__ == "__main__":
    main(__doc__, "scale", *EXPERIMENTS)
