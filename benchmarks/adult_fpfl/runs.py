"""The file of runs, which says what need not be run again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.adult_fpfl.problem import Measured
from benchmarks.adult_fpfl.settings import ROWS, SETTINGS, Row
from benchmarks.lines import append_line, read_lines


class Run(NamedTuple):
    """A line of the file.

    Attributes:
        row: of the tables.
        seed: of all that is random.
        setting: as text: a run of another setting is not taken for one of this.
        found: on test rows.
    """

    row: Row
    seed: int
    setting: str
    found: Measured


COLUMNS = (*Row._fields, "seed", "setting", *Measured._fields)


def wanted(seeds: int) -> list[tuple[Row, int]]:
    """All runs, seeds first."""
    return [(row, seed) for seed in range(seeds) for row in ROWS]


def made(row: Row, seed: int, found: Measured) -> Run:
    """A run with the settings of its row."""
    return Run(row, seed, str(SETTINGS[row]), found)


def append(path: Path, run: Run) -> None:
    """Adds a line."""
    append_line(path, COLUMNS, (*run.row, run.seed, run.setting, *run.found))


def current(path: Path) -> list[Run]:
    """The runs so far that have the settings of today."""
    runs = [_run(line) for line in read_lines(path)]
    return [run for run in runs if run.setting == str(SETTINGS.get(run.row))]


def _run(line: dict[str, str]) -> Run:
    row = next(row for row in ROWS if row == _row(line))
    found = Measured(*(float(line[name]) for name in Measured._fields))
    return Run(row, int(line["seed"]), line["setting"], found)


def _row(line: dict[str, str]) -> tuple[int, str, str]:
    return int(line["cohort"]), line["model"], line["algorithm"]
