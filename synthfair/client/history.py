"""The record of every step of a distillation as CSV, for plots in house. It must not be sent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, read_numbers, write_text

if TYPE_CHECKING:
    from synthfair.distill.problem import StepRecord

ENDING = ".history.csv"
"""Of the names of histories, so that a report finds them."""

MAX_STEPS = 1_000_000
"""Most steps that are read."""

MAX_ABSOLUTE = 1e12
"""Largest number accepted."""


class History(NamedTuple):
    """Columns of the file, one entry for each step.

    Attributes:
        objective: P(x).
        covariance: on the real rows.
        gap: of decisions on the real rows; not-a-number in a private run, which reads none.
        gradient_norm: of the inner problem.
    """

    objective: list[float]
    covariance: list[float]
    gap: list[float]
    gradient_norm: list[float]


def require_history_name(path: Path) -> None:
    """Refuses a name that a report would not find.

    Raises:
        InputError: it has another ending.
    """
    if not path.name.endswith(ENDING):
        raise InputError(f"{path}: the name of a history must end in {ENDING}")


def write_history(record: StepRecord, path: Path) -> None:
    """Writes the records, whole or not at all; only their owner may read them.

    They are computed from private rows.
    """
    columns = [getattr(record, name) for name in History._fields]
    lines = [",".join(History._fields)]
    lines += [",".join(f"{value:.10g}" for value in row) for row in zip(*columns, strict=True)]
    write_text(path, "\n".join(lines) + "\n", mode=OWNER_ONLY)


def read_history(path: Path) -> History:
    """Reads what :func:`write_history` wrote.

    Raises:
        InputError: unreadable, other columns, a value other than a gap that is no number, one that
            is too large, no rows or too many.
    """
    lines = read_numbers(path, History._fields, _line, what="history", most=MAX_STEPS)
    return History(*map(list, zip(*lines, strict=True)))


def _line(row: list[str]) -> list[float]:
    return [_number(text, name) for text, name in zip(row, History._fields, strict=True)]


def _number(text: str, column: str) -> float:
    value = float(text)
    if column == "gap" and math.isnan(value):
        return value
    if not abs(value) <= MAX_ABSOLUTE:
        raise ValueError(f"{text!r} is not a number of at most {MAX_ABSOLUTE:g} in size")
    return value
