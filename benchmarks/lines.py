"""A CSV file of runs, one line each, to which an interrupted benchmark goes on adding."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

_Run = TypeVar("_Run")


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines so far, by column; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_runs(
    path: Path, run: Callable[..., _Run], kinds: Sequence[Callable[[str], Any]]
) -> list[_Run]:
    """The same as runs.

    Args:
        path: of the file.
        run: made of a line's cells in order.
        kinds: make each cell what it is.
    """
    return [
        run(*(kind(cell) for kind, cell in zip(kinds, line.values(), strict=True)))
        for line in read_lines(path)
    ]


def append_line(path: Path, columns: Iterable[str], cells: Iterable[Any]) -> None:
    """Adds a line, after the names of the columns where the file is new."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if new:
            lines.writerow(columns)
        lines.writerow(cells)
