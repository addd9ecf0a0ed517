"""The public file of a measurement: groups, range of the value, mechanism and its budgets."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from synthfair.files import read_as, write_json
from synthfair.measure.mechanisms import MECHANISMS, Kind, LocalMechanism
from synthfair.settings import Checked

MAX_BYTES = 1_000_000
"""Size of the largest file that is read."""

NO_VALUE = "(no value)"
"""Name of the group of clients who have no value; it is not compared with others."""

ROUNDING = 1e-9
"""A file's epsilon may be below the exact one by this share, for rounding."""

SMALLEST_RANGE, LARGEST_RANGE = 1e-100, 1e100
"""Ranges in between can be scaled to [-1, 1], outside of which epsilon does not hold, without
overflow or loss of all digits."""

MOST_GROUPS = 500
"""The most groups of a measurement, in which every two are compared."""

MOST_EPSILON = 30.0
"""The largest epsilon of a report: beyond about 36, probabilities are smaller than the steps of
2^-53 in which random numbers are drawn, so that the guarantee would not hold."""


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip() or set(name) & {",", '"'}:
        raise ValueError(
            "must be printable, on one line, without spaces around it, commas or quotation marks"
        )
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class Collection(Checked):
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

    format: Literal["synthfair-gap/1"] = "synthfair-gap/1"
    groups: tuple[Name, ...] = Field(strict=False, min_length=2, max_length=MOST_GROUPS)
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
        if not SMALLEST_RANGE <= self.upper - self.lower <= LARGEST_RANGE:
            raise ValueError(
                f"lower = {self.lower:g} must be below upper = {self.upper:g}, by"
                f" {SMALLEST_RANGE:g} to {LARGEST_RANGE:g}"
            )
        exact = self.make_mechanism().epsilon  # raises for a budget out of range
        if exact > MOST_EPSILON:
            raise ValueError(
                f"epsilon = {exact:g}: must be at most {MOST_EPSILON:g}, beyond which a report"
                " protects nothing"
            )
        if exact > self.epsilon * (1 + ROUNDING):
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


def write_collection(collection: Collection, path: Path) -> None:
    """Write the public file as JSON, completely or not at all."""
    write_json(path, collection.model_dump(mode="json"))


def read_collection(path: Path) -> Collection:
    """Return what a public file holds; its epsilon is checked against its mechanism's.

    Raises:
        InputError: unreadable, not what :func:`write_collection` writes, or too small an epsilon.
    """
    return read_as(path, Collection, MAX_BYTES)
