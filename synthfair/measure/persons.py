"""Reports on a device: a trained model, applied to rows of persons whom nobody else shall know."""

from __future__ import annotations

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, Collection
from synthfair.measure.devices import NO_RATE, rate_of
from synthfair.measure.reports import Report, perturb_records
from synthfair.privacy.noise import RandomBytes, system_entropy


def perturb_rates(
    collection: Collection,
    rows: Scored,
    groups: tuple[str, ...],
    rate: str,
    *,
    together: bool = False,
    source: RandomBytes = system_entropy,
) -> list[Report]:
    """A report for each row, or one for all.

    A row with the other label has no rate; that is private, too, and a report says so by a group of
    its own, "(no value)", which is noisy as any other.

    Guarantee: ``collection.epsilon``-local differential privacy of each report. Unit: one person,
    if all rows of a person are in one report. Relation: local, any two persons. A person with
    several reports spends as many epsilons.

    Args:
        collection: public; of the groups and :data:`NO_VALUE`, with 0 and 1 in its range.
        rows: scored by the model.
        groups: names of the rows' groups.
        rate: of :data:`synthfair.measure.devices.RATES`.
        together: the rows are one person's, who sends the rate over all of them.
        source: of all randomness; the operating system unless a simulation asks.

    Raises:
        InputError: no rows, a collection without the groups, or rows of several groups together.
    """
    if not len(rows.y):
        raise InputError("rows: none; at least one is needed")
    if missing := {*groups, NO_VALUE} - {*collection.groups}:
        raise InputError(
            f"collection: groups: {', '.join(sorted(missing))[:200]}: missing; rates of a model"
            f" need its schema's groups and {NO_VALUE!r}"
        )
    if together and np.ptp(rows.s):
        other = int(np.argmax(rows.s != rows.s[0])) + 1
        raise InputError(f"rows: row {other}: another group than row 1; they are one person's")
    persons = 1 if together else len(rows.s)
    device = np.arange(len(rows.s)) % persons
    values = rate_of(rate, rows, device, persons)
    told = np.where(np.isnan(values), NO_VALUE, np.array(groups, object)[rows.s[:persons]])
    return perturb_records(
        collection, told.tolist(), np.nan_to_num(values, nan=NO_RATE).tolist(), source
    )
