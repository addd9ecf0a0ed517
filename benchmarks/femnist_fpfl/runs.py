"""The file of runs, which says what need not be run again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.femnist_fpfl.settings import ROWS, SETTING, Row
from benchmarks.femnist_fpfl.train import Measured
from benchmarks.lines import append_line, read_lines


class Run(NamedTuple):
    """A line of the file; a run of another setting is not taken for one of today's."""

    row: Row
    seed: int
    setting: str
    found: Measured


COLUMNS = (*Row._fields, "seed", "setting", *Measured._fields)


def wanted(seeds: int) -> list[tuple[Row, int]]:
    """All runs, seeds first."""
    return [(row, seed) for seed in range(seeds) for row in ROWS]


def made(row: Row, seed: int, found: Measured) -> Run:
    """A run of today's setting."""
    return Run(row, seed, str(SETTING.of(row)), found)


def append(path: Path, run: Run) -> None:
    """Adds a line."""
    append_line(path, COLUMNS, (*run.row, run.seed, run.setting, *run.found))


def current(path: Path) -> list[Run]:
    """The runs so far that have today's setting."""
    runs = [_run(line) for line in read_lines(path)]
    return [run for run in runs if run.setting == str(SETTING.of(run.row))]


def _run(line: dict[str, str]) -> Run:
    row = next(row for row in ROWS if row == (line["algorithm"], line["population"]))
    found = Measured(float(line["accuracy"]), float(line["accuracy_gap"]))
    return Run(row, int(line["seed"]), line["setting"], found)
