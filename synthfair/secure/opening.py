"""Partial sums of all aggregators together: the noisy total, and nothing else.

:func:`open_sums` opens what aggregators have answered; :func:`noisy_sum` simulates the whole
protocol over arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.secure.aggregator import PartialSum, verify_partial_sum
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import AnySummand, GroupCounts
from synthfair.secure.task import Task


class NoisyTotal(NamedTuple):
    """The sum over clients with the noise of every aggregator.

    Attributes:
        total: [k] int64; of clipped vectors, in steps.
        variance: of each entry's noise, all aggregators together.
        clients: number of those whose parts are in it.
        aggregators: number of those that each added noise.
        simulated: whether all of them ran in one process, which saw everything.
        seeded: whether anybody can repeat the noise, which then protects nothing.
    """

    total: np.ndarray
    variance: float
    clients: int
    aggregators: int
    simulated: bool = False
    seeded: bool = False


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
    # One verified sum of each aggregator, of those that they committed to.
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
    # All saw the same uploads, and enough of them.
    if len({(partial.clients, partial.clients_hash) for partial in sums}) > 1:
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
    total = np.array([partial.total for partial in sums], np.uint64).sum(axis=0).view(np.int64)
    return noisy_total(task.what, total, aggregators=len(sums), clients=clients)


def noisy_sum(
    parts: Iterable[np.ndarray],
    what: AnySummand,
    *,
    aggregators: int = 2,
    source: RandomBytes = system_entropy,
) -> NoisyTotal:
    """Makes all shares, sums them by aggregator, adds every aggregator's noise, and opens.

    As the protocol by files, without its encryption and signatures: all happens in one process,
    which sees everything. It is for simulations and benchmarks. What is returned has the guarantee
    of ``what``, with the system's entropy alone.

    Args:
        parts: of the clients, [k] int64 each; of :func:`count_table`, or ``what.integers``.
        what: is summed.
        aggregators: 2 or 3.
        source: of seeds and noise; another one than the system's is for tests alone.

    Raises:
        InputError: no parts, one that ``what.require_part`` refuses, or a total that cannot be.

    Example:
        >>> import numpy as np
        >>> from synthfair import secure
        >>> what = secure.GroupCounts(
        ...     schema_hash="0" * 64, groups=("f", "m"), epsilon=1.0, rows_per_client=100
        ... )
        >>> found = secure.noisy_sum([np.array([10, 20, 30, 40])] * 50, what)
        >>> bool(np.all(np.abs(found.total - [500, 1000, 1500, 2000]) < 100))
        True
    """
    sharing = Sharing(source(32), what.length, aggregators)
    totals = np.zeros((aggregators, what.length), np.uint64)
    clients = 0
    for part in parts:
        clients += 1
        what.require_part(part)
        for role, message in enumerate(sharing.split(part, source)):
            totals[role] += sharing.share(message, role)
    if clients == 0:
        raise InputError("parts: there are none")
    for role in range(aggregators):
        totals[role] += what.noise(source).astype(np.uint64)
    total = totals.sum(axis=0).view(np.int64)
    result = noisy_total(what, total, aggregators=aggregators, clients=clients)
    return result._replace(simulated=True, seeded=source is not system_entropy)


def noisy_total(
    what: AnySummand, total: np.ndarray, *, aggregators: int, clients: int
) -> NoisyTotal:
    """Return a total with the variance of its noise.

    A total that honest clients and aggregators do not have, but for a chance of 1e-12, is refused.
    Counts are at least 0, and at most clients rows_per_client, one by one and all together;
    entries of vectors are bounded on both sides. False inputs within that pass.

    Raises:
        InputError: an entry, or the sum of all counts, is outside.
    """
    low, high = int(total.min()), int(total.max())
    bounds = [(f"has entries from {low} to {high}", low, high, aggregators)]
    most = clients * what.largest
    least = -most
    if isinstance(what, GroupCounts):
        rows, least = int(total.sum()), 0
        bounds.append((f"{rows} rows in all", rows, rows, aggregators * what.length))
    for place, low, high, terms in bounds:
        slack = what.noise_bound(terms)
        if low < least - slack or high > most + slack:
            raise InputError(
                f"total: {place}; {clients} clients and the noise can make {least - slack} to"
                f" {most + slack}: an input was false, or an upload damaged"
            )
    return NoisyTotal(total, aggregators * what.variance, clients, aggregators)


def score_histogram(what: GroupCounts, total: NoisyTotal) -> ScoreHistogram:
    """Return an opened total of counts as a histogram, of which thresholds and weights are made."""
    own = what.guarantee(total.aggregators, simulated=total.simulated)
    return ScoreHistogram.model_validate(
        {
            "schema_hash": what.schema_hash,
            "model": what.model,
            "groups": what.groups,
            "counts": total.total.reshape(len(what.groups), 2, what.bins).tolist(),
            "variance": total.variance,
            "origin": {"clients": total.clients, "guarantees": (None if total.seeded else own,)},
        }
    )
