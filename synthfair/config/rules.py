"""Rules that all settings share: strictness, ranges of epsilon, delta and seed, and notions."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

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

Notion = Literal["statistical_parity", "equal_opportunity", "equalized_odds"]
"""Rows in which groups are compared: all; those with the positive label; those of each label."""

Relation = Literal["add_or_remove", "replace"]
"""The neighbouring relation: one table has a row more than the other, or one row is another."""

WeightMethod = Literal["published", "kamiran_calders"]
"""The goal of weights: pairs of group and label weigh the same; or the two become independent."""
