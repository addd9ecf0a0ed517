"""The settings beside others, on training rows only.

    python -m benchmarks.adult_fpfl.choose

Each line changes one value of the setting in use. Accuracy and FNR gap of the training rows, whose
labels the training has seen; the seed is none of the table's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.progress import track

from benchmarks.adult_fpfl.__main__ import RESULTS
from benchmarks.adult_fpfl.problem import load
from benchmarks.adult_fpfl.settings import SETTINGS, Row
from benchmarks.adult_fpfl.train import trained
from synthfair.files import write_text

SEED = 100

GRID: dict[Row, tuple[dict[str, Any], ...]] = {
    Row(200, "shallow", "FPFL"): (
        {},
        {"alpha": 0.02},
        {"rate_scale": 1.0},
        {"rate_scale": 2.0},
        {"rate_scale": 4.0},
        {"memory": 0.95},
        {"learning_rate": 0.1},
        {"multiplier_rate": 0.05},
        {"rounds": 250, "learning_rate": 0.8, "memory": 0.97},
    ),
    Row(200, "shallow", "FFL+Clip"): (
        {},
        {"alpha": 0.02},
        {"rate_scale": 1.0},
        {"rate_scale": 3.0},
        {"multiplier_rate": 0.01},
    ),
    Row(1000, "shallow", "FPFL"): ({}, {"alpha": 0.02}, {"rounds": 250, "learning_rate": 0.6}),
}
"""What is changed; the first of each is what is in use."""


def line(row: Row, changes: dict[str, Any], seed: int) -> str:
    """One run."""
    found = trained(row, replace(SETTINGS[row], **changes), seed, judged_on=load().train)
    what = ", ".join(f"{name} = {value:g}" for name, value in changes.items()) or "in use"
    cells = (row.cohort, row.algorithm, what, f"{found.accuracy:.4f}", f"{found.fnr_gap:.4f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints and writes a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"Of the runs. Default: {SEED}.")
    args = parser.parse_args(arguments)
    lines = [
        "# Settings, on training rows",
        "",
        f"`python -m benchmarks.adult_fpfl.choose`: seed {args.seed}, shallow network.",
        "",
        "| cohort | algorithm | changed | accuracy | FNR gap |",
        "|---|---|---|---|---|",
    ]
    todo = [(row, changes) for row, grid in GRID.items() for changes in grid]
    lines += [line(row, changes, args.seed) for row, changes in track(todo, "choose")]
    text = "\n".join(lines) + "\n"
    write_text(RESULTS / "choice.md", text)
    print(text)


if __name__ == "__main__":
    main()
