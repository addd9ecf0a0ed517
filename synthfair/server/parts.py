"""Whether a pool of fair releases keeps what each has: compared with a model of each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.config import ServerConfig
from synthfair.evaluation import Evaluation, pooled_scores
from synthfair.fairness.metrics import group_rates
from synthfair.release.format import Release
from synthfair.server.pooling import make_pool, train_pool
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.config import Notion
    from synthfair.fairness.metrics import Scored

MOST_PARTS = 20
"""Releases on each of which a model is trained alone, the first of more."""

SLACK = 0.01
"""By which a pool's gap may be above its parts', or above the wanted one, without a warning."""

REMEDY = (
    "The clients may be unlike: ask them to send surrogates (python -m synthfair.client --release"
    " surrogate), of which this server trains a model that is fair over all of them."
)


class PoolCheck(NamedTuple):
    """Gaps on the test rows, of the pooled model and of models of single releases.

    Attributes:
        gap: largest difference between the groups' decision rates, of the pooled model.
        parts: the same of the model that is trained on each release alone, by name.
        wanted: the smallest ``max_gap`` that a client asked for; None where none did.
        accuracy: of the pooled model.
        constant_accuracy: of the more frequent label for everybody.
    """

    gap: float
    parts: dict[str, float]
    wanted: float | None
    accuracy: float
    constant_accuracy: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to say of a pool that is less fair, or less accurate, than it should be."""
        found = []
        usual = float(np.median(list(self.parts.values()))) if len(self.parts) > 1 else np.nan
        if self.wanted is not None and self.gap > self.wanted + SLACK:
            found.append(
                f"the pooled model's gap on the test rows is {self.gap:.3f}, and a client asked"
                f" for at most {self.wanted:g}. {REMEDY}"
            )
        if self.gap > usual + SLACK:
            found.append(
                f"the pooled model is less fair than its parts: its gap on the test rows is"
                f" {self.gap:.3f}, and the median of models of a single release {usual:.3f}."
                f" {REMEDY}"
            )
        if self.accuracy <= self.constant_accuracy:
            found.append(
                f"the pooled model's accuracy on the test rows, {self.accuracy:.3f}, is no more"
                f" than the {self.constant_accuracy:.3f} of the more frequent label for everybody."
                f" {REMEDY}"
            )
        return tuple(found)


def check_pool(
    releases: Mapping[str, Release],
    trained: TrainedModel,
    tables: Mapping[str, pd.DataFrame],
    evaluation: Evaluation,
) -> PoolCheck:
    """Compares a model of fair releases with those of each release alone, on all test rows.

    Args:
        releases: fair ones, by name.
        trained: on all of them.
        tables: test tables, by name.
        evaluation: of ``trained`` on these.
    """
    settings = [release.header.config for release in releases.values()]
    notion: Notion = getattr(settings[0], "notion", "statistical_parity")
    wanted = [gap for gap in (getattr(one, "max_gap", None) for one in settings) if gap is not None]
    schema, parts = trained.schema_, {}
    for name in list(releases)[:MOST_PARTS]:
        alone = make_pool({name: releases[name]}, schema, ServerConfig())
        model, _ = train_pool(alone, schema)
        parts[name] = largest_gap(pooled_scores(model, tables), notion)
    return PoolCheck(
        largest_gap(pooled_scores(trained, tables), notion),
        parts,
        min(wanted, default=None),
        evaluation.overall["accuracy"].value,
        evaluation.constant_accuracy,
    )


def largest_gap(scored: Scored, notion: Notion) -> float:
    """Largest difference between the groups' decision rates, among the rows that count.

    Not-a-number where fewer than two groups have such rows.
    """
    compared: dict[str, Sequence[str]] = {
        "statistical_parity": ("selection_rate",),
        "equal_opportunity": ("true_positive_rate",),
        "equalized_odds": ("true_positive_rate", "false_positive_rate"),
    }
    largest = np.nan
    for rate in compared[notion]:
        found = [getattr(rates, rate) for rates in group_rates(scored)]
        known = [value for value in found if not np.isnan(value)]
        if len(known) > 1:
            largest = np.fmax(largest, max(known) - min(known))
    return float(largest)
