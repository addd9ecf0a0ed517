"""Which start and step of kappa, on training rows only: the paper's are lost.

    python -m benchmarks.two_phase.choose       # minutes; goes on where it stopped

Teachers of seed 0 are judged on the training rows against the true labels. Chosen is the least gap
among the settings that keep at least four fifths of what no fairness (kappa = 0) gains in accuracy
over the more frequent label, so that a constant decision, which has no gap, cannot win; where none
keeps it, the most accurate. The private teacher has the noise multiplier 2 here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.progress import track

from benchmarks.two_phase.problem import CLIENTS, RESULTS, TABLES, Judged, Problem, make_problem
from synthfair.federated.parity import ParityNotion
from synthfair.federated.two_phase import make_two_phase
from synthfair.files import write_text

CHOICE = RESULTS / "choice.csv"

NOISE = 2.0

GRID = ((0.0, 0.0), (0.3, 0.0), (0.3, 0.1), (1.0, 0.0), (1.0, 0.1), (3.0, 0.0), (3.0, 0.1))
"""Starts and steps of kappa; the first is no fairness."""


class Tried(NamedTuple):
    """A line of choice.csv."""

    table: str
    notion: str
    end_to_end: bool
    kappa: float
    kappa_rate: float
    accuracy: float
    gap: float
    majority: float


def teacher(problem: Problem, end_to_end: bool, kappa: float, kappa_rate: float) -> Judged:
    """Decisions of the teachers of one setting."""
    method = make_two_phase(problem.model, problem.parity, problem.users, end_to_end=end_to_end)
    own = replace(method.teacher, kappa=kappa, kappa_rate=kappa_rate)
    taught = replace(method, teacher=own).with_noise(NOISE).teach(problem.users, seed=0)
    return problem.judge_train(np.asarray(taught.y))


def tried(table: str, notion: ParityNotion, end_to_end: bool) -> Iterator[Tried]:
    """All settings of one task."""
    problem = make_problem(table, notion, seed=0)
    positive = float(np.mean(np.asarray(problem.users.y) > 0))
    for setting in GRID:
        found = teacher(problem, end_to_end, *setting)
        yield Tried(table, notion, end_to_end, *setting, *found, max(positive, 1 - positive))


def best(found: Sequence[Tried]) -> Tried:
    """Which of one task's settings is chosen; the first is no fairness."""
    free, *fair = found
    enough = free.majority + 0.8 * (free.accuracy - free.majority)
    kept = [one for one in fair if one.accuracy >= enough]
    if kept:
        return min(kept, key=lambda one: one.gap)
    return max(fair, key=lambda one: one.accuracy)


def read() -> dict[tuple[str, str, bool], list[Tried]]:
    """What was tried so far, by task."""
    found: dict[tuple[str, str, bool], list[Tried]] = {}
    if CHOICE.exists():
        with CHOICE.open(newline="") as file:
            for table, notion, end_to_end, *numbers in list(csv.reader(file))[1:]:
                line = Tried(table, notion, end_to_end == "True", *map(float, numbers))
                found.setdefault(line[:3], []).append(line)
    return found


def write(found: dict[tuple[str, str, bool], list[Tried]]) -> None:
    """The whole file anew."""
    CHOICE.parent.mkdir(parents=True, exist_ok=True)
    with CHOICE.open("w", newline="") as file:
        csv.writer(file).writerows([Tried._fields, *(one for own in found.values() for one in own)])


def table_of(found: dict[tuple[str, str, bool], list[Tried]]) -> str:
    """As Markdown; what was chosen is bold."""
    text = ["# Start and step of kappa", "", "`python -m benchmarks.two_phase.choose`: teachers of"]
    text[-1] += " seed 0 on training rows, accuracy / gap; bold is chosen."
    head = ["table", "notion", "teacher", *(f"{kappa:g}, {rate:g}" for kappa, rate in GRID)]
    text += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for (table, notion, end_to_end), own in sorted(found.items()):
        cells = [f"{line.accuracy:.3f} / {line.gap:.3f}" for line in own]
        cells[own.index(best(own))] = f"**{cells[own.index(best(own))]}**"
        name = "private" if end_to_end else "published"
        text.append("| " + " | ".join([table, notion, name, *cells]) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Writes both files."""
    found = read()
    tasks: list[tuple[str, ParityNotion, bool]] = [
        (t, n, e) for e in (False, True) for t in TABLES for n in CLIENTS
    ]
    for task in track([task for task in tasks if task not in found], description="kappa"):
        found[task] = list(tried(*task))
        write(found)
    write_text(CHOICE.with_suffix(".md"), table_of(found))
    print(table_of(found))


if __name__ == "__main__":
    main()
