"""Accuracy and gap over the weight of the penalty, on pooled rows and test rows, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.data.encode import encode
from synthfair.fairness.metrics import Scored
from synthfair.files import write_text
from synthfair.server.parts import largest_gap
from synthfair.surrogate.frontier import GlobalProblem, frontier
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd


class FrontierLine(NamedTuple):
    """A line of frontier.csv; not-a-number on test rows where there are none.

    Attributes:
        rho: weight of the penalty.
        accuracy: on the pooled rows of the surrogates, by their weights.
        gap: largest difference between the groups' decision rates there.
        test_accuracy: on the test rows.
        test_gap: there.
        converged: 1 where the model's training met its tolerance, else 0.
    """

    rho: float
    accuracy: float
    gap: float
    test_accuracy: float
    test_gap: float
    converged: float


def frontier_lines(
    problem: GlobalProblem,
    model: TrainedModel,
    tables: Mapping[str, pd.DataFrame],
    *,
    min_group_rows: int = 0,
) -> tuple[FrontierLine, ...]:
    """The frontier of a pool.

    Args:
        problem: of the pool.
        model: any that was trained on it; only its schema and inputs count.
        tables: test tables, by name; perhaps none.
        min_group_rows: groups with fewer test rows do not count for their gap.
    """
    encoded = [encode(table, model.schema_, source=name) for name, table in tables.items()]
    lines, rows = [], None
    if encoded:
        x, s, y = (np.concatenate(part) for part in zip(*encoded, strict=True))
        rows = model.rows(x, s), s, y
    for point in frontier(problem):
        accuracy = gap = np.nan
        if rows:
            a, s, y = rows
            scored = Scored(y, a @ point.theta, s, problem.n_groups)
            accuracy = float(np.mean((scored.score > 0) == (y > 0)))
            gap = largest_gap(scored, problem.notion, min_group_rows)
        numbers = point.rho, point.accuracy, point.gap, accuracy, gap, float(point.converged)
        lines.append(FrontierLine(*numbers))
    return tuple(lines)


def write_frontier(lines: Sequence[FrontierLine], path: Path) -> None:
    """Writes them as CSV; undefined numbers are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FrontierLine._fields)
    writer.writerows(["" if np.isnan(v) else f"{v:.6g}" for v in line] for line in lines)
    write_text(path, text.getvalue())
