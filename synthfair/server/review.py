"""A server's review: what is wrong with a pool, its model, and what it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from synthfair.data.schema import Schema
from synthfair.fairness.intervals import (
    FEW_ROWS,
    MOST_NAMED,
    missed_gap,
    near_constant,
    unfair_clients,
)
from synthfair.fairness.metrics import METRIC_OF
from synthfair.metrics_file import Evaluation
from synthfair.release.format import Release
from synthfair.server.pooling import MANY_MEDIANS, Pool
from synthfair.server.trust import MIN_TRUST
from synthfair.settings import DistillConfig, ServerConfig, Target
from synthfair.surrogate.fair import FrontierPoint
from synthfair.trained import TrainedModel

UNLIKE = (
    "The clients may be unlike: ask them to send surrogates (release = surrogate), of which"
    " this server trains a model that is fair over all of them."
)
"""The remedy where a pool of fair releases is not fair or accurate enough."""

STRICTER = "Ask for a smaller max_gap, or look at the frontier for what can be had."
"""The remedy for surrogates: what is wanted holds on the pooled rows, and test rows differ."""


def missed(
    evaluation: Evaluation, releases: Mapping[str, Release], config: ServerConfig
) -> tuple[str, ...]:
    """Return what to say of a model that is less fair, or less accurate, than it should be."""
    asked, notion, remedy = config.asked, config.notion, STRICTER
    configs = [release.header.config for release in releases.values()]
    if fair := [config for config in configs if isinstance(config, DistillConfig)]:
        # The strictest wish says which rows are compared; without one, the first client does.
        notion = min(fair, key=lambda one: one.max_gap or np.inf).notion
        asked, remedy = asked_of(releases), UNLIKE
    metric, accuracy = METRIC_OF[notion], evaluation.overall["accuracy"]
    gap, clients = evaluation.overall[metric], evaluation.client_gaps[metric]
    # Where a group has few rows, or none of a label, a smaller gap on the pooled rows is no remedy.
    if np.isnan(gap.value) or evaluation.small_groups:
        remedy = "Give test tables with more rows of each group and label."
    found = (
        (missed_gap(gap, asked.max_gap), f". {remedy}"),
        (
            unfair_clients(gap, clients, asked.client_limit),
            ". Of surrogates a server takes max_client_gap",
        ),
        (near_constant(accuracy, evaluation.constant_accuracy), f". {UNLIKE}" if fair else ""),
    )
    return tuple(said + remedy for said, remedy in found if said)


def asked_of(fair: Mapping[str, Release]) -> Target:
    """How much fairness the clients' own settings ask for."""
    configs = (release.header.config for release in fair.values())
    return Target.of(config.asked for config in configs if isinstance(config, DistillConfig))


def hardly_count(pooled: Pool, names: Sequence[str]) -> tuple[str, ...]:
    """Says which releases hardly count, given trusted rows."""
    weights = zip(names, pooled.trust.values(), strict=False)  # none without trusted rows
    if not (few := [f"{name} ({weight:.2g})" for name, weight in weights if weight < MIN_TRUST]):
        return ()
    more = f" and {len(few) - 5} more" if len(few) > 5 else ""
    return (
        f"{', '.join(few[:5])}{more}: a row counts for less than {MIN_TRUST:g} rows, as the model"
        " does better on the trusted rows without. Ask the sites whether groups, labels and units"
        " are right; their people may also be others than those of the trusted rows, or their"
        " pairs of group and label be made up (`inspect` says so)",
    )


def surrogate_warnings(
    pooled: Pool,
    point: FrontierPoint,
    config: ServerConfig,
    schema: Schema,
    free: TrainedModel | None,
) -> tuple[str, ...]:
    """Says what is wrong with a pool of surrogates, its model and that without a penalty."""
    usual = "" if config.max_rows else f", {MANY_MEDIANS:g} times the lower median of the releases"
    found = [
        f"{name}: claims {claim:,.0f} rows, and counts as {pooled.max_rows:,.0f}{usual}; ask its"
        " site how many it has, and set max_rows"
        for name, claim in pooled.capped.items()
    ]
    if pooled.left_out:
        found.append(
            f"too few rows to be compared, of all releases together: {_some(pooled.left_out)}"
        )
    times = Counter(pair for pairs in pooled.estimated.values() for pair in pairs)
    if times:
        each = [f"{schema.pair(*pair)} (of {n} releases)" for pair, n in times.items()]
        found.append(
            f"estimated, not reported: {_some(each)}; where there are no such people, the model"
            " decides less well for that group"
        )
    if pooled.unpaired:
        found.append(
            f"{_some(pooled.unpaired)}: some pair of group and label has fewer rows than k_min,"
            " and how often pairs occur is made up from labels and groups. These rows take part in"
            f" the loss, but not in {config.notion}: ask for releases with a lower k_min, or for"
            " statistical_parity"
        )
    limits = {
        "gap on the pooled rows": (point.gap, config.max_gap),
        "largest gap of a client on its pooled rows": (point.client_gap, config.max_client_gap),
    }
    for what, (gap, most) in limits.items():
        if most is not None and gap > most:
            found.append(
                f"no model that was tried brings the {what} to {most:g}; this one has {gap:.3f}"
            )
    if free and point.price.rho and not free.converged:
        found.append(
            "the training without a penalty, which says what fairness costs, did not converge;"
            f" gradient norm {free.gradient_norm:.1e}"
        )
    trusted = [name for name in pooled.parts if pooled.trust.get(name, 1.0) >= MIN_TRUST]
    few = [n for n in trusted if n not in pooled.compared and n not in pooled.unpaired]
    if few and config.max_client_gap is not None:
        found.append(
            f"max_client_gap leaves out {_some(few)}, which stand for fewer"
            f" than {max(FEW_ROWS, config.min_group_rows)} rows of a group that is compared"
        )
    return tuple(found)


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
