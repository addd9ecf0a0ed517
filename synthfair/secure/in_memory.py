"""The whole protocol over arrays, in one process: for simulations and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.secure.opening import NoisyTotal, noisy_total, require_possible
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import AnySummand

CLAIMS = ("epsilon", "rho", "holds_against")
"""Entries of a statement that nothing backs where others may know the noise."""

SEEDED = "none: the noise did not come from the system's entropy"

SIMULATED = "clients and aggregators ran in one process, which saw everything"


def noisy_sum(
    parts: Iterable[np.ndarray],
    what: AnySummand,
    *,
    aggregators: int = 2,
    source: RandomBytes = system_entropy,
) -> NoisyTotal:
    """Makes all shares, sums them by aggregator, adds every aggregator's noise, and opens.

    As the protocol by files, without its encryption and signatures: all happens in one process,
    which sees everything. What is returned has the guarantee of ``what``, with the system's entropy
    alone.

    Args:
        parts: of the clients, [k] int64 each; of :func:`count_table`, or ``what.integers``.
        what: is summed.
        aggregators: 2 or 3.
        source: of seeds and noise; another one than the system's is for tests alone, and the
            statement then claims nothing.

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
    sharing = Sharing(source(32), what.length, aggregators, full_share=0)
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
    opened = totals.sum(axis=0).view(np.int64)
    require_possible(what, opened, aggregators=aggregators, clients=clients)
    found = noisy_total(what, opened, aggregators=aggregators, clients=clients)
    said = found.statement | {"simulated": SIMULATED}
    if source is not system_entropy:
        said |= {key: None for key in CLAIMS if key in said} | {"guarantee": SEEDED}
    return found._replace(statement=said)
