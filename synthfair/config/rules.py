"""Rules for all settings: strictness, and the ranges of epsilon, delta and seed."""

from __future__ import annotations

from pydantic import ConfigDict, Field

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
"""Of all that is read from outside: no other keys, and no value of another type, such as "10" or
true for 10."""

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
