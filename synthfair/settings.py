"""Settings: frozen models, read from Python, TOML files or flags."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WrapValidator,
)

from synthfair.errors import CONTROLS, InputError, refusal
from synthfair.files import ORDINARY, read_as, read_bytes, write_json

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
"""Validation of all that is read from outside: no other keys, and no value of another type, such as
"10" or true for 10."""


def on_one_line(text: str) -> str:
    """Return a text. Raises ValueError: it has control characters, or several lines."""
    if CONTROLS.search(text):
        raise ValueError("must be on one line, without control characters")
    return text


Line = Annotated[str, Field(max_length=10_000), AfterValidator(on_one_line)]
"""Text that is safe to show."""


def _nan_where_null(value: Any, check: Callable[[Any], float]) -> float:
    is_undefined = value is None or (isinstance(value, float) and isnan(value))
    return nan if is_undefined else check(value)


Undefined = (
    WrapValidator(_nan_where_null),
    PlainSerializer(lambda value: None if isnan(value) else value, float | None),
)
"""Annotations of a number that may be not-a-number, which JSON has as null."""

AsObject = PlainSerializer(
    lambda fields: {
        name: None if isnan(value) else value for name, value in fields._asdict().items()
    },
    dict[str, Any],
)
"""Annotation of a named tuple of numbers, which JSON has as an object."""

Count = Annotated[int, Field(ge=0, lt=2**53)]
Share = Annotated[float, Field(ge=0, le=1), *Undefined]
Number = Annotated[float, Field(ge=-1e12, le=1e12), *Undefined]
"""Numbers in files of results."""

MIN_GUARANTEE_EPSILON, MAX_GUARANTEE_EPSILON = 1e-6, 100.0
"""The range of epsilon: beyond, a guarantee says nothing, and exp(epsilon) is out of range."""

MIN_GUARANTEE_DELTA = 1e-15
"""The smallest delta: a smaller one would see where the noise of floating-point numbers ends."""

Epsilon = Annotated[float, Field(ge=MIN_GUARANTEE_EPSILON, le=MAX_GUARANTEE_EPSILON)]
Delta = Annotated[float, Field(ge=MIN_GUARANTEE_DELTA, lt=1)]
"""The budget of a guarantee."""

Seed = Field(
    default=0,
    ge=0,
    lt=2**32,
    description="Seed of everything random; the same seed gives the same bytes.",
)

GroupsBy = Field(
    default=None,
    min_length=1,
    max_length=20,
    strict=False,
    exclude_if=lambda given: given is None,
    description="Of a schema with several sensitive attributes, such as sex and race: by which of"
    ' them groups are compared: "sex" and "race", each by itself, or "sex x race", which is all'
    " combinations, small ones merged. Of several gaps the largest counts. Default: combinations.",
)
"""Groupings of several sensitive attributes."""


_Notion = Literal["statistical_parity", "demographic_parity", "equal_opportunity", "equalized_odds"]


def notion_of(name: str, *more_notions: str) -> Any:
    """Return a notion's own name; statistical parity may be called ``demographic_parity``, too.

    Args:
        name: of a notion.
        more_notions: notions that are allowed in addition to the usual three.

    Raises:
        InputError: there is no such notion.
    """
    if name not in (allowed := (*get_args(_Notion), *more_notions)):
        raise InputError(f"notion = {name!r}: must be one of {', '.join(allowed)}")
    return "statistical_parity" if name == "demographic_parity" else name


Notion = Annotated[_Notion, AfterValidator(notion_of)]
"""Rows in which groups are compared: all; those with the positive label; those of each label.
``demographic_parity`` is another name for the first."""

ParityNotion = Annotated[
    Literal[_Notion, "accuracy_parity"],
    AfterValidator(lambda name: notion_of(name, "accuracy_parity")),
]
"""Rates that must not differ between groups: of true positives (computed as those of false
negatives); of positive decisions, which have two names; of true and of false positives; of right
decisions."""

PenaltyName = Literal["covariance", "selection_rate"]
"""The penalties that come with synthfair."""

Relation = Literal["add_or_remove", "replace"]
"""The neighbouring relation: one table has a row more than the other, or one row is another."""

WeightMethod = Literal["published", "kamiran_calders"]
"""The goal of weights: pairs of group and label weigh the same; or the two become independent."""


class Checked(BaseModel):
    """A model whose values are validated once.

    Raises:
        InputError: a value out of range or an unknown key, in a line each.
    """

    model_config = STRICT

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **values: Any) -> None:  # noqa: D107
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise refusal("", error) from None

        # What is read from a file is validated without it, and its errors name the file.
        __init__.__pydantic_base_init__ = True


class JsonFile(Checked):
    """A model that has a file of JSON of its own.

    Attributes:
        max_file_bytes: the largest size of a file that is read.
    """

    max_file_bytes: ClassVar[int]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the model in a file.

        Raises:
            InputError: unreadable, too large, or of something else; the message names the entry.
        """
        return read_as(path, cls, cls.max_file_bytes)

    def write(self, path: Path, *, mode: int = ORDINARY) -> None:
        """Write the model to a file, whole or not at all; ``mode`` as of :func:`whole_file`."""
        write_json(path, self.model_dump(mode="json"), mode=mode)


class Settings(Checked):
    """A model of settings, which shows what differs from the defaults."""

    model_config = {"use_attribute_docstrings": True}

    @property
    def given(self) -> dict[str, Any]:
        """Return the settings that make the same: those that differ from their defaults."""
        given = self.model_dump(exclude_defaults=True)
        made = dict(type(self).model_validate(given))
        settable = {n for n, field in type(self).model_fields.items() if not field.exclude}
        return given | {n: value for n, value in self if n in settable and value != made[n]}

    def replace(self, **values: Any) -> Self:
        """Return the settings with other values, validated; defaults that others led to stay."""
        return type(self)(**self.given | values)

    def __repr__(self) -> str:
        """Return the call that makes the same."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{type(self).__name__}({given})"

    def __str__(self) -> str:
        """Return the same: pydantic's own is of all fields."""
        return repr(self)


_Config = TypeVar("_Config", bound=Settings)


MAX_SETTINGS_BYTES = 2**20
"""The largest size of a file of settings."""


def load_settings(kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]) -> _Config:
    """Return a TOML file's settings (or the defaults), with overrides that are not None on top.

    Args:
        kind: of the settings.
        path: of the file.
        overrides: settings by their names.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    return override({} if path is None else read_toml(path), kind, path, overrides)


def override(
    settings: dict[str, Any], kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]
) -> _Config:
    """Return the settings that a file holds, with overrides that are not None on top."""
    flags = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind.model_validate(settings | flags)
    except ValidationError as error:
        from_flags = path is None or all(
            problem["loc"][:1] and problem["loc"][0] in flags for problem in error.errors()
        )
        raise refusal("flags" if from_flags else str(path), error) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as they are. Raises InputError: unreadable, or not TOML."""
    try:
        return tomllib.loads(read_bytes(path, MAX_SETTINGS_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
