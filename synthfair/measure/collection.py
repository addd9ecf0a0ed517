"""The public file on which devices and analyst agree: groups, range of the value, mechanism."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from synthfair.errors import InputError, reason, refusal
from synthfair.files import write_json
from synthfair.measure.mechanisms import MECHANISMS, Kind, Mechanism

MAX_BYTES = 1_000_000
"""Of a file that is read."""

NO_VALUE = "(no value)"
"""Name of the group of those who have none; it is not compared to others."""

ROUNDING = 1e-9
"""By which a mechanism's epsilon may lie above the one claimed, relatively."""


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip() or set(text) & {",", '"'}:
        raise ValueError(
            "must be printable, on one line, without spaces around it, commas or quotation marks"
        )
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


SMALLEST_RANGE, LARGEST_RANGE = 1e-100, 1e100
"""Between, values are scaled without overflow, and without what is left of tiny numbers: epsilon
holds for |v| <= 1 alone."""


MOST_GROUPS = 500
"""Every two are compared."""

MOST_EPSILON = 30.0
"""Of a report."""


class Collection(BaseModel):
    """What every device sends, and what it costs the device's owner.

    Attributes:
        groups: names of the groups; every client has one.
        lower: smallest value that a client may have.
        upper: largest, above it.
        epsilon: of the guarantee: local differential privacy of one client's report, for any two
            pairs of group and value.
        mechanism: M_R or M_L.
        epsilon1: budget of the group.
        epsilon2: budget of the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal["synthfair-gap/1"] = "synthfair-gap/1"
    groups: tuple[Name, ...] = Field(min_length=2, max_length=MOST_GROUPS)
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
        if not SMALLEST_RANGE <= self.upper - self.lower <= LARGEST_RANGE:
            raise ValueError(
                f"lower = {self.lower:g} must be below upper = {self.upper:g}, by"
                f" {SMALLEST_RANGE:g} to {LARGEST_RANGE:g}"
            )
        true = self.noise().epsilon  # raises where a budget is out of its range
        if true > MOST_EPSILON:
            raise ValueError(
                f"epsilon = {true:g}: a report has at most {MOST_EPSILON:g}; with more, chances are"
                " as small as the steps in which they are drawn, and nothing is protected"
            )
        if true > self.epsilon * (1 + ROUNDING):
            raise ValueError(
                f"epsilon = {self.epsilon:g} is claimed, and the mechanism has {true:.6g}"
            )
        return self

    def noise(self) -> Mechanism:
        """The mechanism."""
        return MECHANISMS[self.mechanism](len(self.groups), self.epsilon1, self.epsilon2)

    @property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits that tell it from others; every report carries them."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def warning(self) -> str | None:
        """What its guarantee does not cover, if anything."""
        if self.mechanism == "randomized":
            return None
        return (
            "laplace: the noise is a floating-point number, whose last digits can tell of the value"
            " (Mironov 2012); epsilon holds for real numbers. randomized has no such weakness"
        )

    @property
    def compared(self) -> tuple[int, ...]:
        """The groups that have a value."""
        return compared_groups(self.groups)

    @property
    def unit(self) -> float:
        """What a difference of 1 between values v in [-1, 1] is in the values' own unit."""
        return (self.upper - self.lower) / 2

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Values [N] in [lower, upper], as v in [-1, 1]; rounding must not leave it."""
        return np.clip((values - self.lower) / self.unit - 1.0, -1.0, 1.0)


def compared_groups(names: Sequence[str]) -> tuple[int, ...]:
    """Indices of the groups that have a value: what others report in its place says nothing."""
    return tuple(i for i, name in enumerate(names) if name != NO_VALUE)


def make_collection(
    groups: tuple[str, ...], mechanism: Mechanism, *, lower: float = 0.0, upper: float = 1.0
) -> Collection:
    """For a mechanism.

    Raises:
        InputError: group names repeat or cannot be shown, or the range is empty.
    """
    try:
        return Collection(
            groups=groups,
            lower=lower,
            upper=upper,
            epsilon=mechanism.epsilon,
            mechanism=mechanism.kind,
            epsilon1=mechanism.epsilon1,
            epsilon2=mechanism.epsilon2,
        )
    except ValidationError as error:
        raise refusal("collection", error) from error


def write_collection(collection: Collection, path: Path) -> None:
    """Writes it as JSON, whole or not at all."""
    write_json(path, collection.model_dump(mode="json"))


def read_collection(path: Path) -> Collection:
    """Reads one; its epsilon is worked out anew, and a file that claims too little is refused.

    Raises:
        InputError: unreadable, or not what :func:`write_collection` writes.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise InputError(f"{path}: larger than the {MAX_BYTES} bytes that are read")
        return Collection.model_validate(json.loads(text))
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    except ValidationError as error:
        raise refusal(str(path), error) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{path}: {error}") from error
        raise InputError(f"{path}: not JSON: {reason(error)}") from error
