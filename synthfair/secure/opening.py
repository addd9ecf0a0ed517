"""Partial sums of all aggregators together: the noisy total, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.postprocess.histogram import ScoreHistogram, write_histogram
from synthfair.secure.aggregator import PartialSum, verify_partial_sum
from synthfair.secure.summands import AnySummand, GroupCounts
from synthfair.secure.task import Task, privacy_statement


class NoisyTotal(NamedTuple):
    """The sum over clients with the noise of every aggregator.

    Attributes:
        total: [k] int64; of clipped vectors, in steps.
        variance: of each entry's noise, all aggregators together.
        statement: what is guaranteed.
    """

    total: np.ndarray
    variance: float
    statement: dict[str, Any]


def open_sums(
    task: Task,
    sums: Sequence[PartialSum],
    *,
    commitments: Sequence[str] | None = None,
    sources: Sequence[object] | None = None,
) -> NoisyTotal:
    """Adds the partial sums of all aggregators: the shares cancel, and total and noise remain.

    Args:
        task: of the sums.
        sums: one of each aggregator, in any order.
        commitments: that the aggregators published before any sum, by role; None if none did.
        sources: their files, for errors.

    Raises:
        InputError: a sum of another task, altered or not signed; an aggregator's is missing or
            comes twice; one is not what its aggregator had committed to; they saw different
            uploads, or fewer clients than the task asks; or the total cannot be.
    """
    places = [str(place) for place in sources or [f"sum {i}" for i in range(len(sums))]]
    for partial, place in zip(sums, places, strict=True):
        verify_partial_sum(partial, task, source=place)
    roles = sorted(partial.role for partial in sums)
    if roles != list(range(len(task.aggregators))):
        raise InputError(
            f"{', '.join(places)}: of aggregators {roles}; must be one of each of the"
            f" {len(task.aggregators)}"
        )
    by_role = [one.commitment for one in sorted(sums, key=lambda one: one.role)]
    if commitments is not None and by_role != list(commitments):
        raise InputError(
            f"{', '.join(places)}: have the commitments {', '.join(by_role)}; published before were"
            f" {', '.join(commitments)}: a sum was chosen after another was known"
        )
    lists = {(partial.clients, partial.clients_hash) for partial in sums}
    if len(lists) > 1:
        raise InputError(
            f"{', '.join(places)}: the aggregators saw different uploads, of"
            f" {' and '.join(str(partial.clients) for partial in sums)} clients"
        )
    clients = sums[0].clients
    if not task.least_clients <= clients <= len(task.clients):
        raise InputError(
            f"{places[0]}: of {clients} clients; the task asks for {task.least_clients} to"
            f" {len(task.clients)}"
        )
    total = np.sum([np.array(partial.total, np.uint64) for partial in sums], axis=0)
    opened = total.astype(np.uint64).view(np.int64)
    require_possible(task.what, opened, aggregators=len(sums), clients=clients)
    return noisy_total(task.what, opened, aggregators=len(sums), clients=clients)


def noisy_total(
    what: AnySummand, total: np.ndarray, *, aggregators: int, clients: int
) -> NoisyTotal:
    """A total with its variance and statement."""
    statement = privacy_statement(what, aggregators=aggregators, clients=clients)
    return NoisyTotal(total, aggregators * what.variance, statement)


def require_possible(
    what: AnySummand, total: np.ndarray, *, aggregators: int, clients: int
) -> None:
    """Refuses totals that honest clients and aggregators do not have, but for a chance of 1e-12.

    Counts are at least 0, and at most clients rows_per_client, one by one and all together;
    entries of clipped vectors are bounded on both sides. False inputs within that pass.

    Raises:
        InputError: an entry, or the sum of all counts, is outside.
    """
    most, slack = clients * what.largest, what.noise_bound(aggregators)
    least = 0 if isinstance(what, GroupCounts) else -most
    low, high = int(total.min()), int(total.max())
    if low < least - slack or high > most + slack:
        raise InputError(
            f"total: has entries from {low} to {high}; {clients} clients and the noise can make"
            f" {least - slack} to {most + slack}: an input was false, or an upload damaged"
        )
    if isinstance(what, GroupCounts):
        slack = what.noise_bound(aggregators * what.length)
        if not -slack <= (together := int(total.sum())) <= most + slack:
            raise InputError(
                f"total: {together} rows in all; {clients} clients and the noise can make"
                f" {-slack} to {most + slack}: an input was false, or an upload damaged"
            )


def write_total(what: AnySummand, opened: NoisyTotal, path: Path) -> None:
    """As JSON: counts as a histogram, clipped vectors as real numbers."""
    if isinstance(what, GroupCounts):
        write_histogram(score_histogram(what, opened), path)
        return
    document = {
        "format": "synthfair-vector/1",
        "values": what.values(opened.total).tolist(),
        "variance": opened.variance * what.step**2,
        "statement": opened.statement,
    }
    write_json(path, document)


def score_histogram(what: GroupCounts, opened: NoisyTotal) -> ScoreHistogram:
    """An opened total of counts as the histogram from which thresholds and weights are chosen."""
    return ScoreHistogram.model_validate(
        {
            "schema_hash": what.schema_hash,
            "model": what.model,
            "groups": what.groups,
            "counts": opened.total.reshape(len(what.groups), 2, what.bins).tolist(),
            "variance": opened.variance,
            "statement": opened.statement,
        }
    )
