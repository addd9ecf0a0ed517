"""One private surrogate of the rows of all clients, with one noise for all of them.

Each client sums over its own rows, in whole numbers. The sums are added up by shares, see
:mod:`synthfair.secure`: nobody sees a client's, and two aggregators add noise to the total, each of
them enough by itself. So K clients have the noise of two, in place of K.

What is summed next depends on what has been opened: first how columns are distributed; then tables
of all pairs of columns at few levels, from which everybody chooses the same tree; then tables of
the tree's pairs at all coarse levels; and last the smooth rates of models on records that anybody
can draw by then. Whoever plans makes a task of each of :func:`next_sums`; a client computes its
part by :func:`client_sums`; and what was opened goes, when no sum is left, to
:func:`surrogate_from_sums`. :func:`make_secure_surrogate` simulates all of it in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synthfair.client.surrogate_task import release_of
from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.files import read_as
from synthfair.privacy.mechanism import GaussianMechanism, SumName, require_float64
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import Release
from synthfair.secure.aggregator import NoisyTotal, noisy_sum
from synthfair.secure.summands import OpenedSum, RowSums, shared_guarantee, surrogate_digest
from synthfair.secure.task import MAX_BYTES, AggregatorKeys, Task, make_task
from synthfair.settings import SurrogateConfig
from synthfair.surrogate import tables
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.records import Sums, read_sums, surrogate_of
from synthfair.surrogate.sums import Question, SurrogateSpec, two_way_tables
from synthfair.surrogate.tables import Edges, Margins, Tables


def make_secure_surrogate(
    clients: Sequence[Batches],
    config: SurrogateConfig,
    schema: Schema,
    *,
    source: RandomBytes = system_entropy,
) -> Release:
    """Return the surrogate of the rows of all clients, through sums by shares, in one process.

    Guarantee: (config.epsilon, config.delta)-differential privacy of all that is returned, against
    any single aggregator together with everyone who sees it. Unit: one row. Neighbouring relation:
    config.relation. The process itself, with clients and aggregators in it, sees everything.

    Args:
        clients: the encoded rows of each, in memory or a stream.
        config: with epsilon and delta.
        schema: of all rows, public.
        source: of shares and noise; with another one than the system's nothing is guaranteed.

    Raises:
        InputError: no epsilon, no clients, features that are not float64, a client with too many
            rows, or no cell has a noisy count that is large enough.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.batches import in_memory
        >>> table, schema = sf.load_dataset("loanapp")
        >>> parts = sf.partition(table, clients=2, seed=0)
        >>> rows = [in_memory(sf.encode(part.train, schema)) for part in parts]
        >>> config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5)
        >>> guarantee = sf.secure.make_secure_surrogate(rows, config, schema).header.guarantee
        >>> guarantee.epsilon, guarantee.unit
        (8.0, 'row')
    """
    if not clients:
        raise InputError("clients: there are none")
    opened: tuple[OpenedSum, ...] = ()
    while asked := next_sums(opened, config, schema, clients=len(clients)):
        for what in asked:
            total = noisy_sum(map(client_sums(what), clients), what, source=source)
            opened = (*opened, opened_sum(what, total))
    seeded = source is not system_entropy
    return surrogate_from_sums(opened, config, schema, simulated=True, seeded=seeded)


def next_sums(
    opened: Sequence[OpenedSum], config: SurrogateConfig, schema: Schema, *, clients: int
) -> tuple[RowSums, ...]:
    """Return what is summed next, after what was opened; nothing where all is there.

    Noise is for epsilon and delta of all sums together. The mechanisms are those of
    :func:`synthfair.privacy.make_guarantee` with a common tree: sensitivity, with rounding in it,
    grid, and noise.

    Args:
        opened: the totals so far, in any order.
        config: with epsilon and delta.
        schema: of all rows, public.
        clients: at most so many add up theirs; where sums were opened, it is theirs alone.

    Raises:
        InputError: no epsilon, no noise is enough, totals are of different clients, one is not what
            settings, schema and the others ask for, or no cell has a noisy count that is large
            enough.
    """
    return tuple(what for what, _ in _next(opened, config, schema, clients))


def next_tasks(
    opened: Sequence[OpenedSum],
    config: SurrogateConfig,
    schema: Schema,
    aggregators: Sequence[AggregatorKeys],
    clients: Mapping[str, str],
    *,
    least: int,
    label: str | None = None,
) -> dict[SumName, Task]:
    """Return the tasks of what is summed next, by the names of the sums; none where all is there.

    Args:
        opened: the totals so far. Their clients, and nobody else, are asked next, and all must
            answer.
        config: with epsilon and delta.
        schema: of all rows, public.
        aggregators: their public keys.
        clients: names by public key; all are asked for the first sums.
        least: clients that the first sums must have.
        label: the same label makes the same tasks; without one, each is new.

    Raises:
        InputError: as :func:`next_sums`; or whose rows were summed is gone.
    """
    everybody = {key for total in opened for key in total.clients}
    staying = {*clients}.intersection(*(total.clients for total in opened))
    if gone := sorted(clients.get(key, key) for key in everybody - staying):
        raise InputError(
            f"clients: {', '.join(gone)} dropped out: not in all sums that were opened, or not"
            " named any more. All sums must be of the same clients: begin anew without these, and"
            " without what was opened; all others book the whole epsilon once more"
        )
    senders, least = (opened[0].clients, len(everybody)) if opened else ([*clients], least)
    return {
        what.name: make_task(
            what,
            aggregators,
            senders,
            least_clients=least,
            label=label and f"{label} {what.name}",
        )
        for what in next_sums(opened, config, schema, clients=len(senders))
    }


def read_opened(folder: Path | None) -> list[OpenedSum]:
    """Return the totals in a folder, of files *.json. Raises InputError: one is none."""
    paths = sorted(folder.glob("*.json")) if folder else []
    return [read_as(path, OpenedSum, MAX_BYTES) for path in paths]


def opened_sum(what: RowSums, total: NoisyTotal) -> OpenedSum:
    """Return a total that was opened, as everybody may see it."""
    return OpenedSum(
        surrogate=surrogate_digest(what.config, what.table_schema),
        name=what.name,
        models=what.models,
        total=tuple(total.total.tolist()),
        aggregators=total.aggregators,
        clients=total.clients,
    )


def client_sums(what: RowSums) -> Callable[[Batches], np.ndarray]:
    """Return the function by which a client computes its part of a sum, of which it makes uploads.

    It takes the client's rows, encoded by ``schema.plain``, in memory or a stream, and returns
    [k] int64, in whole steps of the grid. It raises InputError for features that are not float64,
    and for more rows than all clients can sum within 64 bits.

    Args:
        what: is summed; of a task that somebody has planned.

    Raises:
        InputError: the sum is none of :func:`next_sums`.
    """
    asked = _next(what.opened, what.config, what.table_schema, what.clients)
    found = [question for own, question in asked if own == what]
    if not found:
        raise InputError(
            f"sum: {what.name}: not one that settings, schema and the totals before ask for, which"
            f" are {[own.name for own, _ in asked]}; or of other models, as another machine has"
            " computed them"
        )
    (question,), terms = found, what.mechanism.terms(what.config.relation)

    def of(part: Encoded) -> np.ndarray:
        require_float64(part.x)
        return question.of(part, terms.whole)

    def sums(rows: Batches) -> np.ndarray:
        steps = rows.sum(of).astype(object) * (round(1 / terms.grid) if question.counts else 1)
        if (largest := abs(steps).max()) > (most := what.entries[1]):
            raise InputError(
                f"rows: too many of a client; {what.name} has an entry of {largest} steps; must be"
                f" at most {most}"
            )
        return steps.astype(np.int64)

    return sums


def surrogate_from_sums(
    opened: Sequence[OpenedSum],
    config: SurrogateConfig,
    schema: Schema,
    *,
    simulated: bool = False,
    seeded: bool = False,
) -> Release:
    """Return the surrogate that opened totals give, for everyone who sees them.

    Guarantee: (config.epsilon, config.delta)-differential privacy, against any single aggregator
    together with everyone who sees it. Unit: one row. Neighbouring relation: config.relation.

    Args:
        opened: a total for each sum, see :func:`next_sums`.
        config: that the sums follow from.
        schema: of all rows, public.
        simulated: whether all ran in one process.
        seeded: whether anybody can repeat the noise; then nothing is guaranteed.

    Raises:
        InputError: a sum is missing, comes twice, or is of other settings or another schema;
            totals are of different clients; or no cell has a noisy count that is large enough.
    """
    spec, known = _progress(opened, config, schema)
    if not isinstance(known, Sums):
        raise InputError(f"sums: {[question.name for question in known]} are missing")
    own = shared_guarantee(config, schema, opened[0].aggregators, simulated=simulated)
    return release_of(surrogate_of(known, spec), config, schema, None if seeded else own)


class _MissingError(Exception):
    """There are sums that have not been opened yet."""


class _OpenedSums(NamedTuple):
    """The answers that have been opened, each of which must be what is asked for.

    Attributes:
        totals: by the names of the sums.
        mechanisms: of the sums.
        sd: standard deviation of the noise on tables of all pairs.
    """

    totals: dict[SumName, OpenedSum]
    mechanisms: dict[SumName, GaussianMechanism]
    sd: float

    def sums(self, *questions: Question) -> list[np.ndarray]:
        """Return the totals. Raises _MissingError: some have not been opened."""
        if missing := [question for question in questions if question.name not in self.totals]:
            raise _MissingError(*missing)
        values = []
        for question in questions:
            total, asked = self.totals[question.name], (question.length, question.follows_from)
            if (own := (len(total.total), total.models)) != asked:
                raise InputError(
                    f"sums: {total.name} has entries and models {own}; settings, schema and the"
                    f" totals before ask for {asked}"
                )
            values.append(np.array(total.total) * self.mechanisms[total.name].grid)
        return values

    def tree(self, columns: Columns, margins: Margins) -> tuple[Edges, Tables]:
        """Return the tree of tables of all pairs of columns at few levels, and then its pairs."""
        few, pairs = tables.few_levels(margins, columns), [*combinations(range(len(columns)), 2)]
        (numbers,) = self.sums(two_way_tables(columns, few, pairs, "tables"))

        def clear(off: np.ndarray) -> float:
            """Return by how much its square exceeds that of noise."""
            return float(((off / self.sd) ** 2 - 1).sum() / off.size**0.5)

        edges = tables.chow_liu(
            tables.dependence(tables.split_tables(numbers, few, pairs), few, clear)
        )
        (numbers,) = self.sums(two_way_tables(columns, margins, edges))
        return edges, tables.split_tables(numbers, margins, edges)


def _next(
    opened: Sequence[OpenedSum], config: SurrogateConfig, schema: Schema, clients: int
) -> list[tuple[RowSums, Question]]:
    """Return what is summed next, with its questions."""
    known = _progress(opened, config, schema)[1]
    clients = len(opened[0].clients) if opened else clients
    own: Any = {"config": config, "table_schema": schema, "opened": opened, "clients": clients}
    return [
        (RowSums(name=one.name, length=one.length, models=one.follows_from, **own), one)
        for one in (() if isinstance(known, Sums) else known)
    ]


def _progress(
    opened: Sequence[OpenedSum], config: SurrogateConfig, schema: Schema
) -> tuple[SurrogateSpec, Sums | tuple[Question, ...]]:
    """Return the rules with the noise that sums have, and all sums, or what is summed next.

    All that has been opened is compared with what it must be.
    """
    if config.epsilon is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    digest = surrogate_digest(config, schema)
    same = {(total.surrogate, total.aggregators, total.clients) for total in opened}
    if len(same) > 1 or any(own[0] != digest for own in same):
        raise InputError(
            "sums: all must be of these settings and this schema, of the same clients, and by the"
            " same number of aggregators"
        )
    totals: Any = {total.name: total for total in opened}
    if len(totals) < len(opened):
        raise InputError("sums: one comes twice")
    aggregators = opened[0].aggregators if opened else 2
    own: Any = shared_guarantee(config, schema, aggregators).mechanisms
    mechanisms = {one.name: one for one in own}
    noise: Any = {one.name: one.noise * aggregators**0.5 for one in own}
    spec = SurrogateSpec(config, schema, noise)
    try:
        return spec, read_sums(_OpenedSums(totals, mechanisms, spec.sd("tables")), spec)
    except _MissingError as missing:
        return spec, missing.args
