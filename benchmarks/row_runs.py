"""Runs of a published table's rows, over seeds, in a file that says what need not be run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks.lines import append_line, read_lines


class Run(NamedTuple):
    """A line of the file.

    Attributes:
        row: of the table.
        seed: of all that is random.
        setting: as text: a run of another setting is not taken for one of today's.
        found: on test rows.
    """

    row: Any
    seed: int
    setting: str
    found: Any


@dataclass(frozen=True)
class RowRuns:
    """The runs of one table.

    Args:
        rows: named tuples.
        setting_of: today's setting of a row.
        measured: the named tuple of numbers that a run finds.
    """

    rows: Sequence[Any]
    setting_of: Callable[[Any], object]
    measured: type[Any]

    def go_on(self, path: Path, seeds: int, train: Callable[[Any, int], Any]) -> list[Run]:
        """Makes the runs that are not in the file, seeds first; all of today's settings."""
        done = {(run.row, run.seed) for run in self.current(path)}
        wanted = [(row, seed) for seed in range(seeds) for row in self.rows]
        for row, seed in track([one for one in wanted if one not in done], path.parent.name):
            self.append(path, self.made(row, seed, train(row, seed)))
        return self.current(path)

    def made(self, row: Any, seed: int, found: Any) -> Run:
        """A run with the setting of its row."""
        return Run(row, seed, str(self.setting_of(row)), found)

    def append(self, path: Path, run: Run) -> None:
        """Adds a line."""
        columns = (*self.rows[0]._fields, "seed", "setting", *self.measured._fields)
        append_line(path, columns, (*run.row, run.seed, run.setting, *run.found))

    def current(self, path: Path) -> list[Run]:
        """The runs so far that have the settings of today."""
        rows = {tuple(map(str, row)): row for row in self.rows}
        named = [(self._name(line), line) for line in read_lines(path)]
        runs = [self._run(rows[name], line) for name, line in named if name in rows]
        return [run for run in runs if run.setting == str(self.setting_of(run.row))]

    def _name(self, line: dict[str, str]) -> tuple[str, ...]:
        return tuple(line[name] for name in self.rows[0]._fields)

    def _run(self, row: Any, line: dict[str, str]) -> Run:
        found = self.measured(*(float(line[name]) for name in self.measured._fields))
        return Run(row, int(line["seed"]), line["setting"], found)
