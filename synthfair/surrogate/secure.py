"""One private surrogate of the rows of all clients, with one noise for all of them.

Each client sums over its own rows, in whole numbers. The sums are added up by shares, see
:mod:`synthfair.secure`: nobody sees a client's, and two aggregators add noise to the total, each of
them enough by itself. So K clients have the noise of two, in place of K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from synthfair.config import Relation, SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.errors import InputError, refusal
from synthfair.privacy.accounting import discrete_mu_for
from synthfair.privacy.mechanism import (
    SumName,
    cell_moments_bound,
    clip_squares,
    feature_ball,
    histograms_bound,
    numeric_features,
)
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.private_sums import PrivateSums
from synthfair.privacy.statement import SHARES_OF_MOMENTS, SHARES_WITH_HISTOGRAMS
from synthfair.secure.in_memory import noisy_sum
from synthfair.secure.opening import NoisyTotal
from synthfair.secure.summands import RowSums
from synthfair.surrogate.make import Surrogate, rows_of_a_cell
from synthfair.surrogate.private import private_surrogate
from synthfair.surrogate.sums import BINS, cell_sums

STEPS = 2**34
"""Of the grid of a sum, in the noise of an aggregator, or up to four times as many."""

ROOM = 1 + 1e-9
"""Of a row's norm, for what floating point adds when it is clipped."""


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
    """The surrogate of the rows of all clients, through sums by shares.

    Guarantee: (config.epsilon, config.delta)-differential privacy of all that is returned, against
    any single aggregator together with everyone who sees it. Unit: one row. Neighbouring relation:
    config.relation. Here clients and aggregators run in one process, which sees everything.

    Args:
        clients: the encoded rows of each, in memory or a stream.
        config: with epsilon and delta.
        schema: of all rows, public.
        aggregators: 2 or 3, that do not collude; each adds noise of full scale.
        source: of shares and noise; another one than the system's is for tests alone.

    Raises:
        InputError: no epsilon, no clients, a client with too many rows, or no cell has
            a noisy count that is large enough.

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
    summed = summands(config, schema, clients=len(clients))
    found: dict[SumName, NoisyTotal] = {}
    for name, what in summed.items():
        parts = (client_sums(name, what, rows, schema) for rows in clients)
        found[name] = noisy_sum(parts, what, aggregators=aggregators, source=source)
    sums = _opened(
        {name: summed[name].values(total.total) for name, total in found.items()}, schema
    )
    noise: dict[SumName, float] = {
        name: summed[name].step * total.variance**0.5 for name, total in found.items()
    }
    made = private_surrogate(sums, noise, config, schema)
    return SecureSurrogate(made, _statement(config, [total.statement for total in found.values()]))


def summands(config: SurrogateConfig, schema: Schema, *, clients: int) -> dict[SumName, RowSums]:
    """What the settings need sums of, with noise for their epsilon and delta all together.

    A row b = (x - centre, 1), clipped to N(b) <= sqrt(bound) and rounded to c, in steps of 2^j, has

        N(c) <= sqrt(bound) / 2^j + sqrt(d + 1) / 2,    N(c)^2 = norm of the upper triangle of c c',

    as N(b) = ((|b|_2^4 + |b|_4^4) / 2)^(1/4) is a norm, and no larger than the Euclidean one; c c'
    is in steps of 4^j. In the histograms a row has a 1 for each of m numbers. No two rows' terms
    oppose each other, so that replacing a row costs twice the square, not four times.

    Raises:
        InputError: no epsilon, or no noise is enough for it.
    """
    if config.epsilon is None or config.delta is None:
        raise InputError("epsilon: must be given, with delta; sums by shares are opened with noise")
    groups, size = len(schema.groups), len(schema.encoded_names) + 1
    numbers = 0 if config.moments_only else len(numeric_features(schema))
    shares = SHARES_WITH_HISTOGRAMS if numbers else SHARES_OF_MOMENTS
    mu, neighbours = discrete_mu_for(config.epsilon, config.delta), _NEIGHBOURS[config.relation]
    rho = {name: share * mu**2 / 2 for name, share in shares.items()}

    def sums(name: SumName, length: int, bound: float, rounding: float) -> RowSums:
        step = _step(bound * math.sqrt(neighbours / (2 * rho[name])))
        norm = (math.sqrt(bound / step) * ROOM + rounding) ** 2
        return RowSums(
            length=length,
            square=neighbours * math.ceil(norm**2),
            largest=2**61 // clients,
            step=step,
            rho=rho[name],
            relation=config.relation,
        )

    try:
        found: dict[SumName, RowSums] = {
            "cell_moments": sums(
                "cell_moments",
                groups * size * (size + 1),
                cell_moments_bound(schema),
                math.sqrt(size) / 2,
            )
        }
        if numbers:
            length = 2 * groups * numbers * BINS
            found["histograms"] = sums("histograms", length, histograms_bound(schema), 0.0)
    except ValidationError as error:
        raise refusal("secure sums", error) from error
    return found


_NEIGHBOURS: dict[Relation, int] = {"add_or_remove": 1, "replace": 2}
"""Terms in the difference of neighbours' sums."""


def _step(noise: float) -> float:
    """A power of 4, at most 1, of which the noise has :data:`STEPS` or more."""
    return min(1.0, 4.0 ** math.floor(math.log(noise / STEPS, 4)))


def client_sums(name: SumName, what: RowSums, rows: Batches, schema: Schema) -> np.ndarray:
    """[k] int64: a client's part of a sum of :func:`summands`, in whole steps.

    Raises:
        InputError: more rows than can be summed within 64 bits by all clients together.
    """
    number, most = (
        rows.sum(lambda batch: len(batch.y)),
        what.largest // (math.isqrt(what.square) + 1),
    )
    if number > most:
        raise InputError(f"rows: {number} of a client; must be at most {most}")
    if name == "cell_moments":
        return rows.sum(partial(_whole_moments, step=what.step, schema=schema))
    return rows.sum(partial(_counts, schema=schema)).astype(np.int64) * round(1 / what.step)


def _whole_moments(rows: Encoded, *, step: float, schema: Schema) -> np.ndarray:
    """[2 G (d + 1) (d + 2) / 2] int64, upper triangles of the sums of c c' of each cell.

    As many rows are added in floating point as stay below 2^53, so that the sums are exact, and the
    same in any order.
    """
    bound = cell_moments_bound(schema)
    b = np.column_stack([rows.x - feature_ball(schema).centre, np.ones(len(rows.y))])
    c = np.rint(clip_squares(b.astype(np.float64), bound) / math.sqrt(step))
    cell, upper = 2 * rows.s + (rows.y > 0), np.triu_indices(c.shape[1])
    at_once = max(1, int(2**52 * step / bound))
    totals = np.zeros((2 * len(schema.groups), len(upper[0])), np.int64)
    for each in range(len(totals)):
        own = c[cell == each]
        for begin in range(0, len(own), at_once):
            part = own[begin : begin + at_once]
            totals[each] += (part.T @ part)[upper].astype(np.int64)
    return totals.ravel()


def _counts(rows: Encoded, *, schema: Schema) -> np.ndarray:
    """[2 G m 16] rows in each bin of each number, by cell."""
    numbers = rows._replace(x=np.nan_to_num(rows.x[:, numeric_features(schema)]))
    return cell_sums(numbers, n_groups=len(schema.groups)).binned.ravel()


def _opened(totals: dict[SumName, np.ndarray], schema: Schema) -> PrivateSums:
    """Noisy totals in the form in which a private surrogate is made of them."""
    groups, k = len(schema.groups), len(schema.encoded_names) + 1
    moments = np.zeros((groups, 2, k, k))
    moments[..., *np.triu_indices(k)] = totals["cell_moments"].reshape(groups, 2, -1)
    binned = totals.get("histograms", np.empty(0)).reshape(groups, 2, -1, BINS)
    return PrivateSums(moments + np.swapaxes(np.triu(moments, 1), -1, -2), binned)


def _statement(config: SurrogateConfig, sums: list[dict[str, Any]]) -> dict[str, Any]:
    """Of both sums together: what they have in common, and what each costs."""
    own = ("guarantee", "rho", "step", "mechanism")
    common = {key: value for key, value in sums[0].items() if key not in own}
    return {
        "guarantee": "(epsilon, delta)-differential privacy",
        "epsilon": config.epsilon,
        "delta": config.delta,
        **common,
        "simulated": "clients and aggregators ran in one process, which saw everything",
        "sums": [{key: one[key] for key in own} for one in sums],
    }
