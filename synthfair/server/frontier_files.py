"""Accuracy and gap over the weight of the penalty, on pooled rows and test rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from synthfair.data.encode import Encoded
from synthfair.evaluation import encode_tests
from synthfair.fairness.intervals import metrics_with_intervals, size
from synthfair.fairness.metrics import METRIC_OF, Scored
from synthfair.run_files import FrontierLine
from synthfair.server.pooling import Pool
from synthfair.surrogate.fair import frontier
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd


def frontier_lines(
    pooled: Pool,
    model: TrainedModel,
    tables: Mapping[str, pd.DataFrame | Encoded],
    *,
    min_group_rows: int = 0,
) -> tuple[FrontierLine, ...]:
    """The frontier of a pool.

    Args:
        pooled: surrogates.
        model: any that was trained on it; only its schema and inputs count.
        tables: test tables, by name; perhaps none.
        min_group_rows: groups with fewer test rows do not count for their gap.
    """
    encoded = encode_tests(tables, model.schema_).values()
    lines, rows = [], None
    if encoded:
        x, s, y = (np.concatenate(part) for part in zip(*encoded, strict=True))
        rows = model.rows(x, s), s, y
    for point in frontier(cast(Any, pooled.problem())):
        accuracy = gap = np.nan
        if rows:
            a, s, y = rows
            scored = Scored(y, a @ point.theta, s, pooled.n_groups)
            found = metrics_with_intervals(
                scored, resamples=1, seed=0, min_group_rows=min_group_rows, by=pooled.by
            )
            accuracy = found["accuracy"].value
            gap = size(found[METRIC_OF[pooled.notion]]).value
        numbers = point.price.rho, point.accuracy, point.gap, accuracy, gap, float(point.converged)
        lines.append(FrontierLine(*numbers))
    return tuple(lines)
