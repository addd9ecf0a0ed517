"""One private surrogate of the rows of all clients, with one noise for all of them.

Each client sums over its own rows, in whole numbers. The sums are added up by shares, see
:mod:`synthfair.secure`: nobody sees a client's, and two aggregators add noise to the total, each of
them enough by itself. So K clients have the noise of two, in place of K.

What is summed next depends on what has been opened: first how columns are distributed; then tables
of all pairs of columns at few levels, from which everybody chooses the same tree; then tables of
the tree's pairs at all coarse levels; and last the smooth rates of models on records that anybody
can draw by then. By files, for parties on machines of their own:
tasks for each of :func:`next_sums`; uploads of :func:`client_sums`; and, when there are no more,
what was opened, to :func:`surrogate_from_sums`. :func:`make_secure_surrogate` simulates all of them
in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple, cast

import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.mechanism import GaussianMechanism, SumName, require_float64
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.secure.opening import NoisyTotal, noisy_sum
from synthfair.secure.summands import RowSums
from synthfair.settings import SurrogateConfig
from synthfair.surrogate import tables
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.records import Sums, Surrogate, read_sums, surrogate_of
from synthfair.surrogate.sums import Question, SurrogateSpec, two_way_tables
from synthfair.surrogate.tables import Edges, Margins, Tables

ALIKE = 1e-9
"""By which numbers of two machines may differ relatively that both have computed."""

Opened = Sequence[tuple[RowSums, NoisyTotal]]
"""Sums that have been opened: what was summed, and the total with its noise."""


class SecureSurrogate(NamedTuple):
    """A surrogate of all clients' rows together.

    Attributes:
        surrogate: made of noisy sums alone; all of it may be released.
        guarantee: of the rows; None where anybody can repeat the noise.
    """

    surrogate: Surrogate
    guarantee: Guarantee | None


def make_secure_surrogate(
    clients: Sequence[Batches],
    config: SurrogateConfig,
    schema: Schema,
    *,
    source: RandomBytes = system_entropy,
) -> SecureSurrogate:
    """The surrogate of the rows of all clients, through sums by shares, in one process.

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
        >>> made = sf.secure.make_secure_surrogate(rows, config, schema)
        >>> made.guarantee.epsilon, made.guarantee.unit
        (8.0, 'row')
    """
    if not clients:
        raise InputError("clients: there are none")
    opened: list[tuple[RowSums, NoisyTotal]] = []
    while asked := next_sums(opened, config, schema, clients=len(clients)):
        before = tuple(opened)
        for what in asked:
            parts = (client_sums(what, rows, before, config, schema) for rows in clients)
            opened.append((what, noisy_sum(parts, what, source=source)))
    return surrogate_from_sums(opened, config, schema)


def next_sums(
    opened: Opened, config: SurrogateConfig, schema: Schema, *, clients: int
) -> tuple[RowSums, ...]:
    """What is summed next, after what was opened; nothing where all is there.

    Noise is for epsilon and delta of all sums together. The mechanisms are those of
    :func:`synthfair.privacy.make_guarantee` with a common tree: sensitivity, with rounding in it,
    grid, and noise.

    Args:
        opened: each sum so far with its total, in this order.
        config: with epsilon and delta.
        schema: of all rows, public.
        clients: at most so many will add up theirs.

    Raises:
        InputError: no epsilon, too many clients, no noise is enough, a sum is none of these, or no
            cell has a noisy count that is large enough.
    """
    spec, found = _progress(opened, config, schema)
    missing = () if isinstance(found, Sums) else found
    return tuple(_as_row_sums(question, spec, clients=clients) for question in missing)


def client_sums(
    what: RowSums, rows: Batches, opened: Opened, config: SurrogateConfig, schema: Schema
) -> np.ndarray:
    """[k] int64: a client's part of a sum, in whole steps, of which it makes its uploads.

    Args:
        what: is summed; of a task that somebody has planned.
        rows: the client's, encoded by ``schema.plain``, in memory or a stream.
        opened: what was opened before, as everybody sees it.
        config: settings on which the client has agreed; the sum must be one of theirs.
        schema: of the rows, public.

    Raises:
        InputError: the sum is none of :func:`next_sums`, features are not float64, or there are
            more rows than can be summed within 64 bits by all clients together.
    """
    spec, found = _progress(opened, config, schema)
    questions = {} if isinstance(found, Sums) else {q.name: q for q in found}
    if what.name not in questions:
        raise InputError(f"sum: {what.name}; next are {list(questions)}")
    question = questions[what.name]
    _require_own(what, question, spec)
    terms = _mechanism(question, spec).terms(config.relation)

    def of(part: Encoded) -> np.ndarray:
        require_float64(part.x)
        return question.of(part, terms.whole)

    steps = rows.sum(of).astype(object) * (round(1 / terms.grid) if question.counts else 1)
    if (largest := abs(steps).max()) > what.largest:
        raise InputError(
            f"rows: too many of a client; {what.name} has an entry of {largest} steps; must be at"
            f" most {what.largest}"
        )
    return steps.astype(np.int64)


def surrogate_from_sums(opened: Opened, config: SurrogateConfig, schema: Schema) -> SecureSurrogate:
    """The surrogate that opened totals give, for everyone who sees them.

    Guarantee: (config.epsilon, config.delta)-differential privacy, against any single aggregator
    together with everyone who sees it. Unit: one row. Neighbouring relation: config.relation.

    Args:
        opened: each of :func:`next_sums` with its total, of :func:`synthfair.secure.open_sums`.
        config: that the sums follow from.
        schema: of all rows, public.

    Raises:
        InputError: a sum is missing, comes twice, or is of other settings or another schema; a
            total is of another sum; totals are of different clients; or no cell has a noisy count
            that is large enough.

    Example:
        The totals here come from one process; by files, each is what ``open_sums`` returns.

        >>> import synthfair as sf
        >>> from synthfair.data.batches import in_memory
        >>> table, schema = sf.load_dataset("loanapp")
        >>> rows = [in_memory(sf.encode(part, schema)) for part in (table[:900], table[900:])]
        >>> config, opened = sf.SurrogateConfig(epsilon=8.0, delta=1e-5), []
        >>> while asked := sf.secure.next_sums(opened, config, schema, clients=2):
        ...     before = list(opened)
        ...     for what in asked:
        ...         parts = [
        ...             sf.secure.client_sums(what, own, before, config, schema) for own in rows
        ...         ]
        ...         opened.append((what, sf.secure.noisy_sum(parts, what)))
        >>> made = sf.secure.surrogate_from_sums(opened, config, schema)
        >>> abs(float(made.surrogate.weight.sum()) - len(table)) < 300  # noisy
        True
    """
    spec, found = _progress(opened, config, schema)
    if not isinstance(found, Sums):
        raise InputError(f"sums: {[question.name for question in found]} are missing")
    totals = [total for _, total in opened]
    if len({(total.clients, total.aggregators) for total in totals}) > 1:
        raise InputError("sums: all must be of the same clients, and by the same aggregators")
    made = surrogate_of(found, spec)
    if any(total.seeded for total in totals):
        return SecureSurrogate(made, None)
    own = {"adversary": "all_but_one", "aggregators": totals[0].aggregators}
    own |= {"simulated": any(total.simulated for total in totals)}
    return SecureSurrogate(made, cast(Guarantee, spec.guarantee).model_copy(update=own))


class _MissingError(Exception):
    """There are sums that have not been opened yet."""


class _OpenedSums:
    """The answers that have been opened, each of which must be what is asked for."""

    def __init__(self, opened: Opened, spec: SurrogateSpec) -> None:
        self.left, self._spec = list(opened), spec

    def sums(self, *questions: Question) -> list[np.ndarray]:
        """Return the next totals. Raises _MissingError: some have not been opened."""
        here, self.left = self.left[: len(questions)], self.left[len(questions) :]
        for question, (what, total) in zip(questions, here, strict=False):
            _require_own(what, question, self._spec)
            noises = [aggregators * what.variance for aggregators in (2, 3)]
            if len(total.total) != what.length or total.variance not in noises:
                raise InputError(f"{what.name}: the total is of another sum")
        if len(here) < len(questions):
            raise _MissingError(*questions[len(here) :])
        return [total.total * what.step for what, total in here]

    def tree(self, columns: Columns, margins: Margins) -> tuple[Edges, Tables]:
        """Return the tree of tables of all pairs of columns at few levels, and then its pairs."""
        few, pairs = tables.few_levels(margins, columns), [*combinations(range(len(columns)), 2)]
        (numbers,) = self.sums(two_way_tables(columns, few, pairs, "tables"))
        sd = self._spec.sd("tables")

        def clear(off: np.ndarray) -> float:
            """Return by how much its square exceeds that of noise."""
            return float(((off / sd) ** 2 - 1).sum() / off.size**0.5)

        edges = tables.chow_liu(
            tables.dependence(tables.split_tables(numbers, few, pairs), few, clear)
        )
        (numbers,) = self.sums(two_way_tables(columns, margins, edges))
        return edges, tables.split_tables(numbers, margins, edges)


def _progress(
    opened: Opened, config: SurrogateConfig, schema: Schema
) -> tuple[SurrogateSpec, Sums | tuple[Question, ...]]:
    """Return the rules with the noise that sums have, and all sums, or what is summed next.

    All that has been opened is compared with what it must be.
    """
    if config.epsilon is None or config.delta is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    noise: dict[SumName, float] = {what.name: what.step * t.variance**0.5 for what, t in opened}
    spec = SurrogateSpec(config, schema, noise)
    answers = _OpenedSums(opened, spec)
    try:
        sums = read_sums(answers, spec)
    except _MissingError as missing:
        return spec, missing.args
    if answers.left:
        raise InputError(f"sums: {answers.left[0][0].name} is more than the settings ask for")
    return spec, sums


def _as_row_sums(question: Question, spec: SurrogateSpec, *, clients: int) -> RowSums:
    config, mechanism = spec.config, _mechanism(question, spec)
    return RowSums(
        schema_hash=spec.schema.hash,
        name=mechanism.name,
        epsilon=config.epsilon or 0.0,
        delta=config.delta or 0.0,
        length=question.length,
        square=math.ceil((Fraction(mechanism.sensitivity) / Fraction(mechanism.grid)) ** 2),
        step=mechanism.grid,
        rho=(mechanism.sensitivity / mechanism.noise) ** 2 / 2,
        relation=config.relation,
        models=question.follows_from,
        clients=clients,
        k_min=config.k_min,
        seed=config.seed,
    )


def _mechanism(question: Question, spec: SurrogateSpec) -> GaussianMechanism:
    return cast(Guarantee, spec.guarantee).mechanism(question.name)


def _require_own(what: RowSums, question: Question, spec: SurrogateSpec) -> None:
    """Refuse a sum that settings and schema do not ask for: one with less noise, for instance."""
    own = _as_row_sums(question, spec, clients=what.clients)
    for key, wanted in sorted(own.model_dump().items()):  # epsilon before what follows from it
        found = getattr(what, key)
        computed = key in ("square", "rho")
        if not (math.isclose(found, wanted, rel_tol=ALIKE) if computed else found == wanted):
            raise InputError(
                f"sum: {what.name}: {key} {found}; settings and schema ask for {wanted}"
            )
