"""What a client is shown of its real rows: too few, or values that were clipped. Private."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthfair.config import DistillConfig
from synthfair.report.result_table import ResultTable

if TYPE_CHECKING:
    from synthfair.config import SurrogateConfig
    from synthfair.data.encode import Clipping

MOST_SHOWN = 20
"""Columns of a table or a warning; those that are clipped the most."""


def clipping_table(clipping: Clipping) -> ResultTable | None:
    """The columns of which values were clipped; None where there is none."""
    clipped = clipping.clipped(above=0.0)
    if not clipped:
        return None
    title = "values clipped to the schema's bounds (private)"
    table = ResultTable("column", "bounds", "below", "above", title=title)
    for name, column in clipped[:MOST_SHOWN]:
        shares = (f"{share:.1%}" for share in (column.below, column.above))
        table.add_row(repr(name), f"{column.lower:g} to {column.upper:g}", *shares)
    if len(clipped) > MOST_SHOWN:
        table.caption = f"The {MOST_SHOWN} most clipped of {len(clipped)}."
    return table


def real_rows_warnings(clipping: Clipping, config: DistillConfig | SurrogateConfig) -> list[str]:
    """What to say of columns of which too many values were clipped, and of too few rows."""
    found = []
    if isinstance(config, DistillConfig) and config.epsilon and clipping.rows < config.n_min:
        found = [f"{clipping.rows} rows: the release is hardly more than its noise"]
    return found + clipping.warnings()[:MOST_SHOWN]
