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
from typing import Any, NamedTuple

import numpy as np

from synthfair.client.surrogate_task import release_of
from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.mechanism import GaussianMechanism, SumName, require_float64
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import Release
from synthfair.release.settings import SurrogateConfig
from synthfair.secure.aggregator import NoisyTotal, noisy_sum
from synthfair.secure.summands import OpenedSum, RowSums, shared_guarantee, surrogate_digest
from synthfair.secure.task import AggregatorKeys, SumTask, make_task
from synthfair.surrogate import tables
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.records import Sums, read_sums, surrogate_of
from synthfair.surrogate.sums import Statistic, SurrogateSpec, two_way_tables
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
        InputError: no epsilon, no clients, features that are not float64, or no cell has a noisy
            count that is large enough.

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
    opened: tuple[OpenedSum, ...] = ()
    while summands := next_sums(opened, config, schema, clients=len(clients)):
        for summand in summands:
            total = noisy_sum(map(client_sums(summand), clients), summand, source=source)
            opened = (*opened, opened_sum(summand, total))
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
    return tuple(summand for summand, _ in _next(opened, config, schema, clients))


def next_tasks(
    opened: Sequence[OpenedSum],
    config: SurrogateConfig,
    schema: Schema,
    aggregators: Sequence[AggregatorKeys],
    clients: Mapping[str, str],
    *,
    least: int,
    label: str | None = None,
) -> dict[SumName, SumTask]:
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
        InputError: as :func:`next_sums`; a client of the totals is gone; or the noise of
            another number of aggregators is in the totals.
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
        summand.name: make_task(
            summand,
            aggregators,
            senders,
            least_clients=least,
            label=label and f"{label} {summand.name}",
        )
        for summand in next_sums(opened, config, schema, clients=len(senders))
    }


def opened_sum(summand: RowSums, total: NoisyTotal) -> OpenedSum:
    """Return a total that was opened, as everybody may see it."""
    return OpenedSum(
        surrogate=surrogate_digest(summand.config, summand.table_schema),
        name=summand.name,
        tree=summand.tree,
        models=summand.models,
        total=tuple(total.total.tolist()),
        aggregators=total.aggregators,
        clients=total.clients,
    )


def client_sums(summand: RowSums) -> Callable[[Batches], np.ndarray]:
    """Return the function by which a client computes its part of a sum, of which it makes uploads.

    It takes the client's rows, encoded by ``schema.plain``, in memory or a stream, and returns
    [k] int64, in whole steps of the grid. It raises InputError for features that are not float64.
    Entries beyond ``summand.entries`` are clipped to them: a refusal would tell, without noise, how
    many rows there are. One row still changes the part by no more than the sensitivity.

    Args:
        summand: what is summed; of a task that somebody has planned.

    Raises:
        InputError: the sum is none of :func:`next_sums`.
    """
    wanted = _next(
        summand.opened, summand.config, summand.table_schema, summand.clients, summand.models
    )
    statistic = next((statistic for other, statistic in wanted if other == summand), None)
    if statistic is None:
        raise InputError(
            f"sum: {summand.name}: not one that settings, schema and the totals before ask for,"
            f" which are {[other.name for other, _ in wanted]}"
        )
    terms = summand.mechanism.terms(summand.config.relation)

    def of(batch: Encoded) -> np.ndarray:
        require_float64(batch.x)
        return statistic.of(batch, terms.whole)

    def sums(rows: Batches) -> np.ndarray:
        steps = rows.sum(of).astype(object) * (round(1 / terms.grid) if statistic.counts else 1)
        return np.clip(steps, *summand.entries).astype(np.int64)

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
        raise InputError(f"sums: {[statistic.name for statistic in known]} are missing")
    guarantee = shared_guarantee(config, schema, opened[0].aggregators, simulated=simulated)
    return release_of(surrogate_of(known, spec), config, schema, None if seeded else guarantee)


MAX_TOTAL_ERRORS = 10
"""Standard deviations of noise that honest totals do not have: once in 10^15 sums."""


class _MissingError(Exception):
    """A lack of sums that have not been opened yet."""


class _OpenedSums(NamedTuple):
    """The totals that have been opened, each of which must be what is asked for.

    Attributes:
        totals: by the names of the sums.
        mechanisms: of the sums.
        spec: the public rules, with the noise of the totals.
        models: of a task, whose rates are summed next; None where this machine's are.
    """

    totals: dict[SumName, OpenedSum]
    mechanisms: dict[SumName, GaussianMechanism]
    spec: SurrogateSpec
    models: tuple[float, ...] | None

    def sums(self, *statistics: Statistic) -> list[np.ndarray]:
        """Return the totals. Raises _MissingError: some have not been opened."""
        if missing := [s for s in statistics if s.name not in self.totals]:
            raise _MissingError(*missing)
        values = []
        for statistic in statistics:
            total = self.totals[statistic.name]
            has = (len(total.total), total.tree, total.models)
            if has != (statistic.length, statistic.tree, statistic.models):
                raise InputError(
                    f"sums: {statistic.name} has {has[0]} entries of the tree {has[1]}; settings,"
                    f" schema and the totals before ask for {statistic.length} of {statistic.tree}"
                )
            values.append(np.array(total.total) * self.mechanisms[statistic.name].grid)
            if statistic.counts and values[-1].min() < -MAX_TOTAL_ERRORS * self.spec.sd(
                statistic.name
            ):
                raise InputError(f"sums: {statistic.name} counts fewer than no rows: false input")
        return values

    def rated_models(self, thetas: np.ndarray) -> np.ndarray:
        """Return the models whose rates are summed.

        Another machine may round models otherwise: a task's, or the total's, are taken as they are.
        """
        models = self.totals["anchors"].models if "anchors" in self.totals else self.models
        if models and len(models) == thetas.size:
            return np.reshape(models, thetas.shape)
        return thetas

    def tree(self, columns: Columns, margins: Margins) -> tuple[Edges, Tables]:
        """Return the tree of tables of all pairs of columns at few levels, and then its pairs."""
        few, pairs = tables.few_levels(margins, columns), [*combinations(range(len(columns)), 2)]
        sd = self.spec.sd("tables")
        (numbers,) = self.sums(two_way_tables(columns, few, pairs, "tables"))

        def clear(off: np.ndarray) -> float:
            """Return by how much its square exceeds that of noise."""
            return float(((off / sd) ** 2 - 1).sum() / off.size**0.5)

        edges = tables.chow_liu(
            tables.dependence(tables.split_tables(numbers, few, pairs), few, clear)
        )
        (numbers,) = self.sums(two_way_tables(columns, margins, edges))
        return edges, tables.split_tables(numbers, margins, edges)


def _next(
    opened: Sequence[OpenedSum],
    config: SurrogateConfig,
    schema: Schema,
    clients: int,
    models: tuple[float, ...] | None = None,
) -> list[tuple[RowSums, Statistic]]:
    """Return what is summed next, with its statistics; of a task's models, if there are any."""
    known = _progress(opened, config, schema, models)[1]
    clients = len(opened[0].clients) if opened else clients
    public: Any = {"config": config, "table_schema": schema, "opened": opened, "clients": clients}
    return [
        (RowSums(name=s.name, length=s.length, tree=s.tree, models=s.models, **public), s)
        for s in (() if isinstance(known, Sums) else known)
    ]


def _progress(
    opened: Sequence[OpenedSum],
    config: SurrogateConfig,
    schema: Schema,
    models: tuple[float, ...] | None = None,
) -> tuple[SurrogateSpec, Sums | tuple[Statistic, ...]]:
    """Return the rules with the noise that sums have, and all sums, or what is summed next.

    All that has been opened is compared with what it must be.
    """
    if config.epsilon is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    digest = surrogate_digest(config, schema)
    kinds = {(total.surrogate, total.aggregators, total.clients) for total in opened}
    if len(kinds) > 1 or any(kind[0] != digest for kind in kinds):
        raise InputError(
            "sums: all must be of these settings and this schema, of the same clients, and by the"
            " same number of aggregators"
        )
    totals: Any = {total.name: total for total in opened}
    if len(totals) < len(opened):
        raise InputError("sums: one comes twice")
    aggregators = opened[0].aggregators if opened else 2
    in_guarantee: Any = shared_guarantee(config, schema, aggregators).mechanisms
    mechanisms = {mechanism.name: mechanism for mechanism in in_guarantee}
    noise: Any = {mechanism.name: mechanism.noise * aggregators**0.5 for mechanism in in_guarantee}
    spec = SurrogateSpec(config, schema, noise)
    try:
        return spec, read_sums(_OpenedSums(totals, mechanisms, spec, models), spec)
    except _MissingError as missing:
        return spec, missing.args
