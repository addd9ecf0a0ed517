"""The public file of a measurement, by which devices make reports.

A report is of a group and a value, or of a model's rate on a person's rows.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.mechanisms import MECHANISMS, Kind, LocalMechanism
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.settings import JsonFile

NO_VALUE = "(no value)"
"""Name of the group of clients who have no value; it is not compared with others."""

MAX_EPSILON_ROUNDING = 1e-9
"""A file's epsilon may be below the exact one by this share, for rounding."""

MIN_RANGE, MAX_RANGE = 1e-100, 1e100
"""Ranges in between can be scaled to [-1, 1], outside of which epsilon does not hold, without
overflow or loss of all digits."""

MAX_MEASURED_GROUPS = 500
"""The most groups of a measurement, in which every two are compared."""

MAX_REPORT_EPSILON = 30.0
"""The largest epsilon of a report: beyond about 36, probabilities are smaller than the steps of
2^-53 in which random numbers are drawn, so that the guarantee would not hold."""


ID_BYTES = 16

Rate = Literal["true_positive_rate", "false_positive_rate"]

RATE_LABELS: dict[Rate, int] = {"true_positive_rate": 1, "false_positive_rate": -1}
"""Rates of a model, with the label of the rows that count."""

NO_RATE = 0.5
"""Value that a client without a rate reports, before noise, for the group "(no value)"."""


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip() or set(name) & {",", '"'}:
        raise ValueError(
            "must be printable, on one line, without spaces around it, commas or quotation marks"
        )
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class Collection(JsonFile):
    """A public description of a measurement: what every device reports, and with which guarantee.

    Attributes:
        groups: names of the groups; every client has one.
        lower: smallest value that a client may have.
        upper: largest value, above it.
        epsilon: of the local differential privacy of one client's report, at most 30.
        mechanism: "randomized" for M_R, "laplace" for M_L.
        epsilon1: budget of the group.
        epsilon2: budget of the value.
    """

    max_file_bytes: ClassVar[int] = 1_000_000

    format: Literal["synthfair-gap/1"] = "synthfair-gap/1"
    groups: tuple[Name, ...] = Field(strict=False, min_length=2, max_length=MAX_MEASURED_GROUPS)
    lower: float = 0.0
    upper: float = 1.0
    epsilon: float
    mechanism: Kind
    epsilon1: float
    epsilon2: float

    @model_validator(mode="after")
    def _can_be(self) -> Collection:
        name, times = Counter(self.groups).most_common(1)[0]
        if times > 1:
            raise ValueError(f"group {name!r} is named twice")
        if len(self.compared) < 2:
            raise ValueError(f"groups: at least two must be others than {NO_VALUE!r}")
        if not MIN_RANGE <= self.upper - self.lower <= MAX_RANGE:
            raise ValueError(
                f"lower = {self.lower:g} must be below upper = {self.upper:g}, by"
                f" {MIN_RANGE:g} to {MAX_RANGE:g}"
            )
        exact = self.make_mechanism().epsilon  # raises for a budget out of range
        if exact > MAX_REPORT_EPSILON:
            raise ValueError(
                f"epsilon = {exact:g}: must be at most {MAX_REPORT_EPSILON:g}, beyond which a"
                " report protects nothing"
            )
        if exact > self.epsilon * (1 + MAX_EPSILON_ROUNDING):
            raise ValueError(
                f"epsilon = {self.epsilon:g} is claimed, but the mechanism's is {exact:.6g}"
            )
        return self

    def make_mechanism(self) -> LocalMechanism:
        """Return the mechanism with these groups and budgets."""
        return MECHANISMS[self.mechanism](len(self.groups), self.epsilon1, self.epsilon2)

    @property
    def fingerprint(self) -> str:
        """Return eight hexadecimal digits of a hash; every report carries them."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def compared(self) -> tuple[int, ...]:
        """Return the indices of the groups that have a value: those other than :data:`NO_VALUE`."""
        return tuple(i for i, name in enumerate(self.groups) if name != NO_VALUE)

    @property
    def unit(self) -> float:
        """Return half of the range: what a difference of 1 in v is in the value's own unit."""
        return (self.upper - self.lower) / 2

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return values [N] from [lower, upper] as v in [-1, 1]."""
        # Clipped, as epsilon does not hold for a v that rounding moves outside.
        return np.clip((values - self.lower) / self.unit - 1.0, -1.0, 1.0)


def make_collection(
    groups: tuple[str, ...], mechanism: LocalMechanism, *, lower: float = 0.0, upper: float = 1.0
) -> Collection:
    """Return the public file for a mechanism.

    Args:
        groups: [d] their names, as many as the mechanism has.
        mechanism: that all clients use; its exact epsilon is at most 30.
        lower: smallest value that a client may have.
        upper: largest value, above it.

    Raises:
        InputError: names repeat or are not printable, the range is empty, or epsilon is too large.

    Example:
        >>> import synthfair as sf
        >>> mechanism = sf.measure.best_split("randomized", groups=2, epsilon=1.0)
        >>> public = sf.measure.make_collection(("female", "male"), mechanism, upper=5.0)
        >>> public.unit, public.make_mechanism() == mechanism
        (2.5, True)
    """
    return Collection(
        groups=groups,
        lower=lower,
        upper=upper,
        epsilon=mechanism.epsilon,
        mechanism=mechanism.kind,
        epsilon1=mechanism.epsilon1,
        epsilon2=mechanism.epsilon2,
    )


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
        raise InputError(f"rows: row {other}: another group than row 1; one person has one group")
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
    counts = (rows.y == RATE_LABELS[name]).astype(float)
    size = np.bincount(device, weights=counts, minlength=devices)
    hits = np.bincount(device, weights=counts * rows.selected, minlength=devices)
    return np.divide(hits, size, out=np.full(devices, np.nan), where=size > 0)
