"""Noisy sums over clients, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from synthfair.postprocess.histogram import ScoreHistogram


def statement_table(statement: Mapping[str, Any]) -> Table:
    """What is guaranteed of a sum, entry by entry."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in statement.items():
        lines = value if isinstance(value, list) else [value]
        table.add_row(key.replace("_", " "), Text("\n".join(map(str, lines))))
    return table


def counts_table(histogram: ScoreHistogram, exact: np.ndarray) -> Table:
    """Rows by group and label, over all bins: as released, and the noise in it.

    Args:
        histogram: released.
        exact: [G, 2, B] what only a demonstration knows.
    """
    released = histogram.array().sum(axis=2)
    noise = released - exact.sum(axis=2)
    table = Table("group", "label", "rows, released", "noise")
    for group, name in enumerate(histogram.groups):
        for label, sign in enumerate(("-1", "+1")):
            shown = f"{released[group, label]:,}", f"{noise[group, label]:+,}"
            table.add_row(Text(name), sign, *shown)
    each = (histogram.array() - exact).std()
    table.caption = (
        f"noise of each of the {exact.size} counts: standard deviation {each:.3g}, stated"
        f" {histogram.variance**0.5:.3g}"
    )
    return table
