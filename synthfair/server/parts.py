"""Whether the pooled model is as fair, and as accurate, as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from synthfair.config import DistillConfig, ServerConfig
from synthfair.config.target import RULE_OF_THUMB
from synthfair.data.schema import Schema
from synthfair.evaluation import Evaluation
from synthfair.fairness.intervals import (
    group_sizes,
    missed_gap,
    near_constant,
    size,
    unfair_clients,
)
from synthfair.fairness.metrics import METRIC_OF, Metric, group_rates
from synthfair.model import Rows
from synthfair.release.format import Release
from synthfair.server.pooling import Pool, train_pool
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    from synthfair.config import Notion
    from synthfair.fairness.metrics import Scored

MOST_PARTS = 20
"""Releases on each of which a model is trained alone, the first of more."""

SLACK = 0.01
"""By which a pool's gap may be above its parts' without a warning."""

REMEDY = (
    "The clients may be unlike: ask them to send surrogates (python -m synthfair.client --release"
    " surrogate), of which this server trains a model that is fair over all of them."
)


class PoolCheck(NamedTuple):
    """Gaps on some rows, of the pooled model and of models of single releases.

    Attributes:
        gap: largest difference between the groups' decision rates, of the pooled model, with its
            interval.
        parts: the same of the model that is trained on each release alone, by name.
        wanted: the smallest ``max_gap`` that was asked for; None where none was.
        accuracy: of the pooled model, with its interval.
        constant_accuracy: of the more frequent label for everybody.
        remedy: what to do.
        rows: what these rows are.
        clients: gaps of the pooled model on each client's rows, whose intervals hold together.
        client_limit: the gap up to which a client counts as treated fairly.
    """

    gap: Metric
    parts: dict[str, float]
    wanted: float | None
    accuracy: Metric
    constant_accuracy: float
    remedy: str = REMEDY
    rows: str = "test rows"
    clients: Mapping[str, Metric] = {}
    client_limit: float = RULE_OF_THUMB

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to say of a pool that is less fair, or less accurate, than it should be."""
        found = []
        usual = float(np.median(list(self.parts.values()))) if len(self.parts) > 1 else np.nan
        if missed := missed_gap(self.gap, self.wanted, self.rows):
            found.append(f"{missed}. {self.remedy}")
        if size(self.gap).value > usual + SLACK:
            found.append(
                f"the pooled model is less fair than its parts: its gap on the {self.rows} is"
                f" {size(self.gap).value:.3f}, and the median of models of a single release"
                f" (of {len(self.parts)}) {usual:.3f}. {self.remedy}"
            )
        if unfair := unfair_clients(self.gap, self.clients, self.client_limit):
            found.append(f"{unfair}. Of surrogates a server takes --max-client-gap")
        if near := near_constant(self.accuracy, self.constant_accuracy):
            found.append(f"{near}. {self.remedy}" if self.parts else near)
        return tuple(found)


STRICTER = "Ask for a smaller --max-gap, or look at --frontier for what can be had."
"""Remedy for surrogates: what is wanted holds on the pooled rows, and test rows differ."""


def check_surrogates(evaluation: Evaluation, config: ServerConfig) -> PoolCheck:
    """Compares a model of surrogates with what was asked for, on all test rows.

    Args:
        evaluation: of the model.
        config: with the gap that is wanted, if one is, and its notion.
    """
    metric, accuracy = METRIC_OF[config.notion], evaluation.overall["accuracy"]
    return PoolCheck(
        evaluation.overall[metric],
        {},
        config.max_gap,
        accuracy,
        evaluation.constant_accuracy,
        STRICTER,
        clients=evaluation.client_gaps[metric],
        client_limit=config.asked.client_limit,
    )


def check_pool(
    releases: Iterable[Release],
    pool: Pool,
    schema: Schema,
    score: Callable[[TrainedModel], Scored],
    evaluation: Evaluation,
    *,
    min_group_rows: int = 0,
) -> PoolCheck:
    """Compares a model of fair releases with those of each release alone, on the same rows.

    Args:
        releases: fair ones.
        pool: of these.
        schema: the clients'.
        score: gives the rows with the scores of a model.
        evaluation: of the model of the whole pool, on these rows.
        min_group_rows: of groups that count.
    """
    settings = [cast(DistillConfig, release.header.config) for release in releases]
    # The strictest wish says which rows are compared; without one, the first client does.
    strictest = min(settings, key=lambda one: one.max_gap or np.inf)
    notion, parts = strictest.notion, {}
    for name, part in list(pool.parts.items())[:MOST_PARTS]:
        own = Rows(pool.rows.a[part], pool.rows.s[part], pool.rows.y[part])
        alone, _ = train_pool(pool._replace(rows=own), schema)
        scored = score(alone)
        parts[name] = max(
            largest_gap(scored.grouped(each), notion, min_group_rows)
            for each in evaluation.by or [range(scored.n_groups)]
        )
    return PoolCheck(
        evaluation.overall[METRIC_OF[notion]],
        parts,
        strictest.max_gap,
        evaluation.overall["accuracy"],
        evaluation.constant_accuracy,
        clients=evaluation.client_gaps[METRIC_OF[notion]],
        client_limit=strictest.asked.client_limit,
    )


_SIZES = {
    "selection_rate": "n",
    "true_positive_rate": "positive",
    "false_positive_rate": "negative",
}
"""The number of rows that each rate is of."""


def largest_gap(scored: Scored, notion: Notion, min_group_rows: int = 0) -> float:
    """Largest difference between the groups' decision rates, among the rows that count.

    Not-a-number where fewer than two groups have such rows, or as many as they must have.
    """
    compared: dict[str, Sequence[str]] = {
        "statistical_parity": ("selection_rate",),
        "equal_opportunity": ("true_positive_rate",),
        "equalized_odds": ("true_positive_rate", "false_positive_rate"),
    }
    groups = list(zip(group_rates(scored), group_sizes(scored), strict=True))
    largest, least = np.nan, max(1, min_group_rows)
    for rate in compared[notion]:
        known = [getattr(r, rate) for r, size in groups if getattr(size, _SIZES[rate]) >= least]
        if len(known) > 1:
            largest = np.fmax(largest, max(known) - min(known))
    return float(largest)
