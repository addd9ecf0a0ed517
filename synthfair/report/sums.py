"""Noisy sums over clients, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.report.result_table import ResultTable
from synthfair.report.results import shown


def statement_table(statement: Mapping[str, Any]) -> ResultTable:
    """What is guaranteed of a sum, entry by entry."""
    table = ResultTable.of_facts()
    for pair in sum_lines(statement):
        table.add_row(*pair)
    return table


def sum_lines(statement: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is guaranteed of a sum, as titles and lines; it may come from a file."""
    return tuple(
        (shown(key.replace("_", " ")), shown(str(line)))
        for key, value in statement.items()
        for line in (value if isinstance(value, list) else [value])
    )


def counts_table(histogram: ScoreHistogram, exact: np.ndarray) -> ResultTable:
    """Rows by group and label, over all bins: as released, and the noise in it.

    Args:
        histogram: released.
        exact: [G, 2, B] what only a demonstration knows.
    """
    released = histogram.array().sum(axis=2)
    noise = released - exact.sum(axis=2)
    table = ResultTable("group", "label", "rows, released", "noise")
    for group, name in enumerate(histogram.groups):
        for label, sign in enumerate(("-1", "+1")):
            table.add_row(name, sign, f"{released[group, label]:,}", f"{noise[group, label]:+,}")
    each = (histogram.array() - exact).std()
    table.caption = (
        f"noise of each of the {exact.size} counts: standard deviation {each:.3g}, stated"
        f" {histogram.variance**0.5:.3g}"
    )
    return table
