"""Accuracy and gap over the weight of the penalty, on pooled rows and test rows, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.evaluation import pooled_scores
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
    """

    rho: float
    accuracy: float
    gap: float
    test_accuracy: float
    test_gap: float


def frontier_lines(
    problem: GlobalProblem, model: TrainedModel, tables: Mapping[str, pd.DataFrame]
) -> tuple[FrontierLine, ...]:
    """The frontier of a pool.

    Args:
        problem: of the pool.
        model: any that was trained on it; only its schema and inputs count.
        tables: test tables, by name; perhaps none.
    """
    lines = []
    for point in frontier(problem):
        accuracy = gap = np.nan
        if tables:
            own = model.model_copy(update={"theta": tuple(point.theta.tolist())})
            scored = pooled_scores(own, tables)
            accuracy = float(np.mean((scored.score > 0) == (scored.y > 0)))
            gap = largest_gap(scored, problem.notion)
        lines.append(FrontierLine(point.rho, point.accuracy, point.gap, accuracy, gap))
    return tuple(lines)


def write_frontier(lines: Sequence[FrontierLine], path: Path) -> None:
    """Writes them as CSV; undefined numbers are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FrontierLine._fields)
    writer.writerows(["" if np.isnan(v) else f"{v:.6g}" for v in line] for line in lines)
    write_text(path, text.getvalue())
