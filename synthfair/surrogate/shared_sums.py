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
from collections.abc import Generator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.mechanism import GaussianMechanism, SumName, require_float64
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import make_guarantee
from synthfair.secure.opening import NoisyTotal, noisy_sum
from synthfair.secure.summands import RowSums
from synthfair.settings import SurrogateConfig
from synthfair.surrogate.make import NONE, Plan, Sums, Surrogate, surrogate_of
from synthfair.surrogate.marginals import chow_liu, dependence, few_levels
from synthfair.surrogate.questions import (
    Question,
    anchor_rates,
    column_moments,
    histograms,
    table_parts,
    two_way_tables,
)

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
        >>> parts = sf.partition(table, clients=4, seed=0)
        >>> rows = [in_memory(sf.encode(part.train, schema)) for part in parts]
        >>> config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5)
        >>> made = sf.surrogate.make_secure_surrogate(rows, config, schema)
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
    _, questions, _ = _progress(opened, config, schema)
    return tuple(_as_row_sums(question, config, schema, clients=clients) for question in questions)


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
    questions = {q.name: q for q in _progress(opened, config, schema)[1]}
    if what.name not in questions:
        raise InputError(f"sum: {what.name}; next are {list(questions)}")
    question = questions[what.name]
    _require_own(what, question, config, schema)
    terms = _mechanism(question, config, schema).terms(config.relation)

    def of(part: Encoded) -> np.ndarray:
        require_float64(part.x)
        return question.of(part, terms.whole)

    found = rows.sum(of).astype(object) * (round(1 / terms.grid) if question.counts else 1)
    if (largest := abs(found).max()) > what.largest:
        raise InputError(
            f"rows: too many of a client; {what.name} has an entry of {largest} steps; must be at"
            f" most {what.largest}"
        )
    return found.astype(np.int64)


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
        >>> while asked := sf.surrogate.next_sums(opened, config, schema, clients=2):
        ...     before = list(opened)
        ...     for what in asked:
        ...         parts = [
        ...             sf.surrogate.client_sums(what, own, before, config, schema) for own in rows
        ...         ]
        ...         opened.append((what, sf.secure.noisy_sum(parts, what)))
        >>> made = sf.surrogate.surrogate_from_sums(opened, config, schema)
        >>> abs(float(made.surrogate.weight.sum()) - len(table)) < 300  # noisy
        True
    """
    plan, missing, sums = _progress(opened, config, schema)
    if sums is None:
        raise InputError(f"sums: {[question.name for question in missing]} are missing")
    totals = [total for _, total in opened]
    if len({(total.clients, total.aggregators) for total in totals}) > 1:
        raise InputError("sums: all must be of the same clients, and by the same aggregators")
    made = surrogate_of(sums, plan)
    if any(total.seeded for total in totals):
        return SecureSurrogate(made, None)
    own = {"adversary": "all_but_one", "aggregators": totals[0].aggregators}
    own |= {"simulated": any(total.simulated for total in totals)}
    guarantee = make_guarantee(config, schema, common_tree=True)
    return SecureSurrogate(made, guarantee.model_copy(update=own))


def _progress(
    opened: Opened, config: SurrogateConfig, schema: Schema
) -> tuple[Plan, tuple[Question, ...], Sums | None]:
    """Return the plan with the noise that sums have, what is summed next, and all sums if known.

    All that has been opened is compared with what it must be.
    """
    if config.epsilon is None or config.delta is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    noise: dict[SumName, float] = {what.name: what.step * t.variance**0.5 for what, t in opened}
    plan, left = Plan(config, schema, noise), list(opened)
    exchanges = _exchanges(plan)
    questions = next(exchanges)
    while len(left) >= len(questions):
        values = [_values(question, *left.pop(0), config, schema) for question in questions]
        try:
            questions = exchanges.send(values)
        except StopIteration as end:
            if left:
                raise InputError(
                    f"sums: {left[0][0].name} is more than the settings ask for"
                ) from None
            return plan, (), end.value
    for question, (what, _) in zip(questions, left, strict=False):
        _require_own(what, question, config, schema)
    return plan, questions[len(left) :], None


def _exchanges(plan: Plan) -> Generator[tuple[Question, ...], list[np.ndarray], Sums]:
    """What is summed, one exchange after the other; it is sent the values, which have noise."""
    columns, n_groups = plan.columns, plan.n_groups
    first = [histograms(columns, n_groups)]
    first += [column_moments(columns, n_groups)] * (len(columns.numbers) > 0)
    found = yield tuple(first)
    sums = Sums(*(part.reshape(2 * n_groups, -1) for part in [*found, NONE][:2]))
    margins = plan.margins(sums)
    if len(columns) > 1:
        few = few_levels(margins, columns)
        (tables,) = yield (two_way_tables(columns, few),)
        part, sd = table_parts(tables, few), plan.sd("tables")

        def clear(off: np.ndarray) -> float:
            """By how much its square exceeds that of noise."""
            return float(((off / sd) ** 2 - 1).sum() / off.size**0.5)

        edges = chow_liu(dependence(part, few, clear))
        (pairs,) = yield (two_way_tables(columns, margins, edges),)
        sums = sums._replace(edges=np.array(edges), pairs=pairs)
        margins = plan.margins(sums)
    thetas = plan.models(sums, margins)
    (rates,) = yield (anchor_rates(thetas, margins.strata, plan.schema),)
    return sums._replace(thetas=thetas, rates=rates.reshape(len(margins.n), -1))


def _values(
    question: Question, what: RowSums, total: NoisyTotal, config: SurrogateConfig, schema: Schema
) -> np.ndarray:
    """The numbers of an opened total, which must be of this question."""
    _require_own(what, question, config, schema)
    noises = [aggregators * what.variance for aggregators in (2, 3)]
    if len(total.total) != what.length or total.variance not in noises:
        raise InputError(f"{what.name}: the total is of another sum")
    return total.total * what.step


def _mechanism(question: Question, config: SurrogateConfig, schema: Schema) -> GaussianMechanism:
    return make_guarantee(config, schema, common_tree=True).mechanism(question.name)


def _as_row_sums(
    question: Question, config: SurrogateConfig, schema: Schema, *, clients: int
) -> RowSums:
    mechanism = _mechanism(question, config, schema)
    return RowSums(
        schema_hash=schema.hash,
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


def _require_own(
    what: RowSums, question: Question, config: SurrogateConfig, schema: Schema
) -> None:
    """Refuses a sum that settings and schema do not ask for: one with less noise, for instance."""
    own = _as_row_sums(question, config, schema, clients=what.clients)
    for key, wanted in sorted(own.model_dump().items()):  # epsilon before what follows from it
        found = getattr(what, key)
        computed = key in ("square", "rho")
        if not (math.isclose(found, wanted, rel_tol=ALIKE) if computed else found == wanted):
            raise InputError(
                f"sum: {what.name}: {key} {found}; settings and schema ask for {wanted}"
            )
