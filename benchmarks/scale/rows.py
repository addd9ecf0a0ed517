"""A client with many rows: wall time and peak memory of its whole process.

    python -m benchmarks.scale.rows --n 1000000

The table is drawn at random: 33 numbers, 5 columns of three categories, a group and a label that
depends on them; with group and intercept a model of 50 inputs. Reading, encoding, compiling and
1,000 steps with 2,000 synthetic rows are measured together, without compiled code kept from before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.cold import measure
from synthfair.data.schema import Categorical, Numeric, Schema

NUMBERS, CHOICES, CATEGORIES = 33, 5, ("low", "middle", "high")

INPUTS = NUMBERS + CHOICES * len(CATEGORIES) + 2
"""The group and the intercept counted."""

PART = 20_000
"""Rows made at a time: this process must stay smaller than the one that it measures."""

FORMATS = ("csv", "parquet")

N_SYNTHETIC, STEPS = 2000, 1000


class Distilled(NamedTuple):
    """What distilling took.

    Attributes:
        n: number of real rows.
        kind: of file.
        seconds: wall time of the client's process, from start to end.
        megabytes: its peak resident memory.
    """

    n: int
    kind: str
    seconds: float
    megabytes: float

    @property
    def table_megabytes(self) -> float:
        """Of the encoded table, in double precision."""
        return self.n * INPUTS * 8 / 1e6


def distil_rows(n: int, kind: str, *, steps: int = STEPS) -> Distilled:
    """Writes a table of n rows, and distils it in a new process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.json").write_text(make_schema().to_json())
        write_table(folder / f"table.{kind}", n)
        return Distilled(n, kind, *measure(_command(folder, kind, steps)))


def _command(folder: Path, kind: str, steps: int) -> list[str]:
    return [
        *(sys.executable, "-m", "synthfair.client", "--schema", str(folder / "schema.json")),
        *("--data", str(folder / f"table.{kind}"), "--output", str(folder / "release.parquet")),
        *("--n-synthetic", str(N_SYNTHETIC), "--steps", str(steps)),
    ]


def make_schema() -> Schema:
    """Its codebook."""
    return Schema(
        ignored=(),
        missing_values=(),
        name="many rows",
        label="paid",
        positive="yes",
        sensitive="town",
        columns={
            **{f"number_{i}": Numeric(lower=0.0, upper=1.0) for i in range(NUMBERS)},
            **{f"choice_{i}": Categorical(categories=CATEGORIES) for i in range(CHOICES)},
            "town": Categorical(categories=("a", "b")),
            "paid": Categorical(categories=("no", "yes")),
        },
    )


def write_table(path: Path, n: int) -> None:
    """A table of n rows, CSV or Parquet, the same for the same n."""
    parts = _parts(n)
    first = pa.Table.from_pandas(next(parts), preserve_index=False)
    kind = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with kind(path, first.schema) as file:
        file.write_table(first)
        for part in parts:
            file.write_table(pa.Table.from_pandas(part, preserve_index=False))


def _parts(n: int) -> Iterator[pd.DataFrame]:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=NUMBERS)
    for begin in range(0, n, PART):
        size = min(PART, n - begin)
        numbers = rng.random((size, NUMBERS)).round(4)
        choices, town = rng.integers(3, size=(size, CHOICES)), rng.integers(2, size=size)
        z = 2 * (numbers - 0.5) @ weights + 0.3 * (choices - 1).sum(axis=1) + town - 0.5
        table = pd.DataFrame(numbers, columns=[f"number_{i}" for i in range(NUMBERS)])
        words = np.array(CATEGORIES)
        for i in range(CHOICES):
            table[f"choice_{i}"] = words[choices[:, i]]
        table["town"] = np.array(["a", "b"])[town]
        table["paid"] = np.where(z + rng.logistic(size=size) > 0, "yes", "no")
        yield table


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=1_000_000, help="Real rows. Default: 1000000.")
    parser.add_argument("--steps", type=int, default=STEPS, help="Outer steps. Default: 1000.")
    parser.add_argument("--kinds", nargs="+", choices=FORMATS, default=FORMATS)
    args = parser.parse_args()
    print(table([distil_rows(args.n, kind, steps=args.steps) for kind in args.kinds]))


def table(lines: Sequence[Distilled]) -> str:
    """Markdown."""
    text = ["| rows | file | s | peak MB | times the encoded table |", "|---|---|---|---|---|"]
    text += [
        f"| {one.n} | {one.kind} | {one.seconds:.1f} | {one.megabytes:.0f}"
        f" | {one.megabytes / one.table_megabytes:.2f} |"
        for one in lines
    ]
    return "\n".join(text)


if __name__ == "__main__":
    main()
