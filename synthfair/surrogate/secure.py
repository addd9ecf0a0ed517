"""One private surrogate of the rows of all clients, with one noise for all of them.

Each client sums over its own rows, in whole numbers. The sums are added up by shares, see
:mod:`synthfair.secure`: nobody sees a client's, and two aggregators add noise to the total, each of
them enough by itself. So K clients have the noise of two, in place of K.

By files, for parties on machines of their own: a task for each of :func:`summands`; uploads of
:func:`client_sums`; what opens, to :func:`surrogate_from_sums`. :func:`make_secure_surrogate`
simulates all of them in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.schema import Schema
from synthfair.errors import InputError, refusal
from synthfair.privacy.mechanism import SumName
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.private_sums import as_private_sums, sum_length, whole_sums
from synthfair.privacy.statement import make_guarantee
from synthfair.secure.in_memory import noisy_sum
from synthfair.secure.opening import NoisyTotal
from synthfair.secure.summands import RowSums
from synthfair.surrogate.make import Surrogate, rows_of_a_cell
from synthfair.surrogate.private import private_surrogate

ALIKE = 1e-9
"""By which numbers of two machines may differ relatively that both have computed."""


class SecureSurrogate(NamedTuple):
    """A surrogate of all clients' rows together.

    Attributes:
        surrogate: made of noisy sums alone; all of it may be released.
        statement: what is guaranteed, and what is not covered.
    """

    surrogate: Surrogate
    statement: dict[str, Any]


def make_secure_surrogate(
    clients: Sequence[Batches],
    config: SurrogateConfig,
    schema: Schema,
    *,
    aggregators: int = 2,
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
        aggregators: 2 or 3, that do not collude; each adds noise of full scale.
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
        >>> config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5, moments_only=True)
        >>> made = sf.surrogate.make_secure_surrogate(rows, config, schema)
        >>> made.statement["epsilon"], made.statement["unit"]
        (8.0, 'one row')
    """
    rows_of_a_cell(config, len(schema.encoded_names))  # before anything is spent
    if not clients:
        raise InputError("clients: there are none")
    opened = []
    for what in summands(config, schema, clients=len(clients)):
        parts = (client_sums(what, rows, config, schema) for rows in clients)
        opened.append((what, noisy_sum(parts, what, aggregators=aggregators, source=source)))
    return surrogate_from_sums(opened, config, schema)


def summands(config: SurrogateConfig, schema: Schema, *, clients: int) -> tuple[RowSums, ...]:
    """What the settings need sums of, with noise for their epsilon and delta all together.

    The mechanisms are those of :func:`synthfair.privacy.make_guarantee`: sensitivity, with rounding
    in it, grid, and noise.

    Args:
        config: with epsilon and delta.
        schema: of all rows, public.
        clients: at most so many will add up theirs.

    Raises:
        InputError: no epsilon, too many clients, or no noise is enough.
    """
    if config.epsilon is None or config.delta is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    try:
        return tuple(
            RowSums(
                schema_hash=schema.hash,
                name=mechanism.name,
                epsilon=config.epsilon,
                delta=config.delta,
                length=sum_length(mechanism.name, schema),
                square=math.ceil((Fraction(mechanism.sensitivity) / Fraction(mechanism.step)) ** 2),
                step=mechanism.step,
                rho=(mechanism.sensitivity / mechanism.noise) ** 2 / 2,
                relation=config.relation,
                clients=clients,
            )
            for mechanism in make_guarantee(config, schema).mechanisms
        )
    except ValidationError as error:
        raise refusal("secure sums", error) from error


def client_sums(
    what: RowSums, rows: Batches, config: SurrogateConfig, schema: Schema
) -> np.ndarray:
    """[k] int64: a client's part of a sum, in whole steps, of which it makes its uploads.

    Args:
        what: is summed; of a task that somebody has planned.
        rows: the client's, encoded, in memory or a stream.
        config: settings on which the client has agreed; the sum must be one of theirs.
        schema: of the rows, public.

    Raises:
        InputError: the sum is none of :func:`summands`, features are not float64, or there are more
            rows than can be summed within 64 bits by all clients together.
    """
    _require_own(what, config, schema)
    terms = make_guarantee(config, schema).mechanism(what.name).terms(config.relation)
    found = whole_sums(rows, schema, {what.name: terms})[what.name]
    if (largest := abs(found).max()) > what.largest:
        raise InputError(
            f"rows: too many of a client; {what.name} has an entry of {largest} steps; must be at"
            f" most {what.largest}"
        )
    return found.astype(np.int64)


def surrogate_from_sums(
    opened: Sequence[tuple[RowSums, NoisyTotal]], config: SurrogateConfig, schema: Schema
) -> SecureSurrogate:
    """The surrogate that opened totals give, for everyone who sees them.

    Guarantee: (config.epsilon, config.delta)-differential privacy, against any single aggregator
    together with everyone who sees it. Unit: one row. Neighbouring relation: config.relation.

    Args:
        opened: each of :func:`summands` with its total, of :func:`synthfair.secure.open_sums`.
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
        >>> config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5, moments_only=True)
        >>> opened = []
        >>> for what in sf.surrogate.summands(config, schema, clients=2):
        ...     parts = [sf.surrogate.client_sums(what, own, config, schema) for own in rows]
        ...     opened.append((what, sf.secure.noisy_sum(parts, what)))
        >>> made = sf.surrogate.surrogate_from_sums(opened, config, schema)
        >>> abs(float(made.surrogate.table.weight.sum()) - len(table)) < 300  # noisy
        True
    """
    names, wanted = [what.name for what, _ in opened], _names(config, schema)
    if sorted(names) != sorted(wanted):
        raise InputError(f"sums: {names}; must be {wanted}, each once")
    for what, total in opened:
        _require_own(what, config, schema)
        noises = [aggregators * what.variance for aggregators in (2, 3)]
        if len(total.total) != what.length or total.variance not in noises:
            raise InputError(f"{what.name}: the total is of another sum")
    statements = [total.statement for _, total in opened]
    if len({(said["clients"], said["noise_added_by"]) for said in statements}) > 1:
        raise InputError("sums: all must be of the same clients, and by the same aggregators")
    noise: dict[SumName, float] = {
        what.name: what.step * total.variance**0.5 for what, total in opened
    }
    sums = as_private_sums({what.name: what.values(t.total) for what, t in opened}, schema)
    made = private_surrogate(sums, noise, config, schema)
    return SecureSurrogate(made, _statement(config, statements))


def _names(config: SurrogateConfig, schema: Schema) -> list[SumName]:
    return [what.name for what in summands(config, schema, clients=1)]


def _require_own(what: RowSums, config: SurrogateConfig, schema: Schema) -> None:
    """Refuses a sum that settings and schema do not ask for: one with less noise, for instance."""
    own = {one.name: one for one in summands(config, schema, clients=what.clients)}
    if what.name not in own:
        raise InputError(f"sum: {what.name}; the settings ask for {list(own)}")
    for key, wanted in own[what.name].model_dump().items():
        found = getattr(what, key)
        computed = key in ("square", "rho")
        if not (math.isclose(found, wanted, rel_tol=ALIKE) if computed else found == wanted):
            raise InputError(
                f"sum: {what.name}: {key} {found}; settings and schema ask for {wanted}"
            )


def _statement(config: SurrogateConfig, sums: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all sums together: what they have in common, and what each costs.

    Where one of them guarantees nothing, as with noise that anybody can repeat, neither do all.
    """
    own = ("guarantee", "rho", "step", "mechanism")
    common = {key: value for key, value in sums[0].items() if key not in own}
    broken = [one["guarantee"] for one in sums if one["rho"] is None]
    claim = {"epsilon": config.epsilon, "delta": config.delta} if not broken else {}
    return {
        "guarantee": broken[0] if broken else "(epsilon, delta)-differential privacy",
        **claim,
        **common,
        "sums": [{key: one[key] for key in own} for one in sums],
    }
