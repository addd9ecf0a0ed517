"""Rules that all settings share: strictness, ranges of epsilon, delta and seed, and notions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from synthfair.errors import InputError, refusal

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
"""Validation of all that is read from outside: no other keys, and no value of another type, such as
"10" or true for 10."""

LEAST_EPSILON, LARGEST_EPSILON = 1e-6, 100.0
"""Beyond, a guarantee says nothing, and exp(epsilon) leaves the range in which it is computed."""

LEAST_DELTA = 1e-15
"""A smaller one would see where the noise of rounds ends, which is of floating-point numbers."""

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


_NOTIONS = ("statistical_parity", "equal_opportunity", "equalized_odds")


def notion_of(name: str, *others: str) -> Any:
    """Return a notion's own name; statistical parity may be called ``demographic_parity``, too.

    Args:
        name: of a notion.
        others: notions that are allowed in addition to the usual three.

    Raises:
        InputError: there is no such notion.
    """
    own = "statistical_parity" if name == "demographic_parity" else name
    if own not in (allowed := (*_NOTIONS, *others)):
        raise InputError(
            f"notion = {name!r}: must be one of {', '.join(allowed)}, demographic_parity"
        )
    return own


Notion = Annotated[
    Literal["statistical_parity", "demographic_parity", "equal_opportunity", "equalized_odds"],
    AfterValidator(notion_of),
]
"""Rows in which groups are compared: all; those with the positive label; those of each label.
``demographic_parity`` is another name for the first."""

ParityNotion = Annotated[
    Literal[
        "equal_opportunity",
        "statistical_parity",
        "demographic_parity",
        "equalized_odds",
        "accuracy_parity",
    ],
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
                raise refusal(type(self).__name__, error) from None

        # What is read from a file is validated without it, and its errors name the file.
        __init__.__pydantic_base_init__ = True


class Settings(Checked):
    """Settings that are validated once, and show what differs from the defaults."""

    model_config = {"use_attribute_docstrings": True}

    other_names: ClassVar[Mapping[str, str]] = {}
    """What a setting may also be called."""

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:  # noqa: D107
            super().__init__(**self.named(values))

        __init__.__pydantic_base_init__ = True

    @classmethod
    def named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values under the names of the fields.

        Raises:
            InputError: one is given by both of its names.
        """
        for other, name in cls.other_names.items():
            if {other, name} <= values.keys():
                raise InputError(f"{name}, {other}: two names of one setting; give one")
        return {cls.other_names.get(key, key): value for key, value in values.items()}

    @property
    def given(self) -> dict[str, Any]:
        """Settings that make the same: those that are no defaults, or not those of the others."""
        given = self.model_dump(exclude_defaults=True)
        made = type(self).model_validate(given)
        fields = type(self).model_fields
        return given | {k: v for k in fields if (v := getattr(self, k)) != getattr(made, k)}

    def replace(self, **values: Any) -> Self:
        """Return the settings with other values, validated; defaults that others led to stay."""
        return type(self)(**self.given | self.named(values))

    def __repr__(self) -> str:
        """Return the call that makes the same."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{type(self).__name__}({given})"

    __str__ = __repr__
