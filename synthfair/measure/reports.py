"""Reports as devices make them: of a group and a value, or of a model's rate on a person's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, Collection
from synthfair.privacy.noise import RandomBytes, system_entropy

ID_BYTES = 16

Rate = Literal["true_positive_rate", "false_positive_rate"]

RATES: dict[Rate, int] = {"true_positive_rate": 1, "false_positive_rate": -1}
"""Rates of a model, with the label of the rows that count."""

NO_RATE = 0.5
"""Value that a client without a rate reports, before noise, for the group "(no value)"."""


class Report(NamedTuple):
    """The noisy report of one client.

    Attributes:
        report: random id of 32 hexadecimal digits, new for each report and unrelated to the client.
        collection: fingerprint of the public file.
        group: noisy group, by name.
        value: noisy value v', -1 or 1 for M_R and any number for M_L.
    """

    report: str
    collection: str
    group: str
    value: float


COLUMNS = Report._fields
"""The columns of a file of reports."""


def perturb_records(
    collection: Collection,
    groups: Sequence[str],
    values: Sequence[float],
    source: RandomBytes = system_entropy,
) -> list[Report]:
    """Return one noisy report for each of N clients.

    Guarantee: ``collection.epsilon``-local differential privacy, by M_R or M_L. Unit: one client's
    report. Relation: local, any two pairs of group and value. The epsilons of several reports of a
    client add up. A source that can be repeated gives no guarantee; it is for simulations only.

    Args:
        collection: the public file.
        groups: [N] names of the clients' groups.
        values: [N] the clients' values, from ``collection.lower`` to ``collection.upper``.
        source: of all randomness; the operating system by default.

    Raises:
        InputError: a group or a value is not allowed. The message stays on the client's device.

    Example:
        >>> import synthfair as sf
        >>> mechanism = sf.measure.RandomizedValue(2, 1.0, 1.0)
        >>> public = sf.measure.make_collection(("female", "male"), mechanism)
        >>> (report,) = sf.measure.perturb_records(public, ["female"], [0.93])
        >>> report.group in public.groups, report.value in (-1.0, 1.0)
        (True, True)
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
    indices = np.array([places[group] for group in groups], int)
    scaled = collection.scaled(np.array(values, float))
    reported, noisy = collection.make_mechanism().perturb(indices, scaled, source)
    mark = collection.fingerprint
    return [
        Report(source(ID_BYTES).hex(), mark, collection.groups[group], value)
        for group, value in zip(reported.tolist(), noisy.tolist(), strict=True)
    ]


def perturb_rates(
    collection: Collection,
    rows: Scored,
    groups: tuple[str, ...],
    rate: Rate,
    *,
    together: bool = False,
    source: RandomBytes = system_entropy,
) -> list[Report]:
    """Return one noisy report of a model's rate a row, or one for all rows; in random order.

    A row whose label does not count for the rate has none. That is private as well: such a row
    belongs to the group "(no value)", which is perturbed like any other.

    Guarantee: ``collection.epsilon``-local differential privacy of each report. Unit: one person,
    if all rows of a person are in one report. Relation: local, any two persons. The epsilons of
    several reports of a person add up.

    Args:
        collection: the public file, with all groups of the rows and "(no value)", and with 0 and 1
            in its range.
        rows: with labels, groups and the model's scores.
        groups: names of the rows' groups, by index.
        rate: "true_positive_rate" or "false_positive_rate".
        together: the rows belong to one person, who reports the rate over all of them.
        source: of all randomness; the operating system by default.

    Raises:
        InputError: no rows, a collection without the groups, or one person's rows in two groups.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> from synthfair.fairness.metrics import Scored
        >>> mechanism = sf.measure.best_split("randomized", groups=3, epsilon=1.0)
        >>> public = sf.measure.make_collection(("a", "b", "(no value)"), mechanism)
        >>> rows = Scored(y=np.array([1, -1]), score=np.array([0.3, -2.0]), s=np.array([0, 1]))
        >>> len(sf.measure.perturb_rates(public, rows, ("a", "b"), "true_positive_rate"))
        2
    """
    if not len(rows.y):
        raise InputError("rows: none; at least one is needed")
    if missing := {*groups, NO_VALUE} - {*collection.groups}:
        raise InputError(
            f"collection: groups: {', '.join(sorted(missing))[:200]}: missing; rates of a model"
            f" need its schema's groups and {NO_VALUE!r}"
        )
    if collection.lower > 0 or collection.upper < 1:
        raise InputError(
            f"collection: range {collection.lower:g} to {collection.upper:g}: must hold rates,"
            " 0 to 1"
        )
    if together and np.ptp(rows.s):
        other = int(np.argmax(rows.s != rows.s[0])) + 1
        raise InputError(
            f"rows: row {other}: another group than row 1; rows of one person have one group"
        )
    persons = 1 if together else len(rows.s)
    values = rate_of(rate, rows, np.arange(len(rows.s)) % persons, persons)
    names = np.where(np.isnan(values), NO_VALUE, np.array(groups, object)[rows.s[:persons]])
    # Sorted before, reports depend on the noise and not on the order of rows; sorted after, by
    # their random ids, they do not tell whose each is.
    records = sorted(zip(names.tolist(), np.nan_to_num(values, nan=NO_RATE).tolist(), strict=True))
    own_groups, own_values = zip(*records, strict=True)
    return sorted(perturb_records(collection, own_groups, own_values, source))


def rate_of(name: Rate, rows: Scored, device: np.ndarray, devices: int) -> np.ndarray:
    """Return the share [K] of a device's rows with the rate's label that the model selects.

    A row [N] is on a device from 0 to K - 1.

    It is the mean share of decisions that are drawn, and not-a-number for a device without such
    rows.
    """
    counts = (rows.y == RATES[name]).astype(float)
    size = np.bincount(device, weights=counts, minlength=devices)
    hits = np.bincount(device, weights=counts * rows.selected, minlength=devices)
    return np.divide(hits, size, out=np.full(devices, np.nan), where=size > 0)
