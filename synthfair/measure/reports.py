"""Reports as devices make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.collection import Collection
from synthfair.privacy.noise import RandomBytes, system_entropy

ID_BYTES = 16


class Report(NamedTuple):
    """What one client sends.

    Attributes:
        report: a random id, 32 hexadecimal digits made for this report alone; it says nothing of
            the client.
        collection: fingerprint of the public file by which it was made.
        group: noisy, by name.
        value: noisy, v' in the mechanism's own unit.
    """

    report: str
    collection: str
    group: str
    value: float


COLUMNS = Report._fields
"""Of a file of reports."""


def perturb_records(
    collection: Collection,
    groups: Sequence[str],
    values: Sequence[float],
    source: RandomBytes = system_entropy,
) -> list[Report]:
    """One report of each client.

    Guarantee: ``collection.epsilon``-local differential privacy; by M_R or M_L, which see. Unit:
    one client's report. Relation: local, any two pairs of group and value. A client that reports
    several times spends as many epsilons. With a source that can be repeated nothing is promised:
    that is for simulation only.

    Args:
        collection: public.
        groups: [N] of its groups.
        values: [N] in its range.
        source: of all randomness; the operating system unless a simulation asks.

    Raises:
        InputError: another group, or a value outside the range. Only the client sees it.
    """
    places = {name: i for i, name in enumerate(collection.groups)}
    for group, value in zip(groups, values, strict=True):
        if group not in places:
            names = ", ".join(collection.groups)[:200]
            raise InputError(f"group {group!r}: must be one of {names}")
        if not collection.lower <= value <= collection.upper:
            raise InputError(
                f"value = {value:g}: must be from {collection.lower:g} to {collection.upper:g}"
            )
    own = np.array([places[group] for group in groups], int)
    scaled = collection.scaled(np.array(values, float))
    told, noisy = collection.noise().perturb(own, scaled, source)
    mark = collection.fingerprint
    return [
        Report(source(ID_BYTES).hex(), mark, collection.groups[group], value)
        for group, value in zip(told.tolist(), noisy.tolist(), strict=True)
    ]


def perturb_record(
    collection: Collection, group: str, value: float, source: RandomBytes = system_entropy
) -> Report:
    """One client's report. Guarantee, unit, relation and errors: :func:`perturb_records`."""
    return perturb_records(collection, [group], [value], source)[0]
