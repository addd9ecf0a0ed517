"""The Gaussian mechanism on sums over rows: how much one row can change, and the noise for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from synthfair.config import Relation
from synthfair.config.rules import FROZEN
from synthfair.data.schema import Categorical, Column, Schema, encoded_as
from synthfair.privacy.noise import RandomBytes, standard_normal

SumName = Literal["moments", "curvature", "gradients", "rates"]
"""What mechanisms release sums of: (x, 1) by group and label; b b' over model inputs b; the losses'
gradients, in each step; smooth selection rates and their gradients by group and label, in each
step."""


class GaussianMechanism(BaseModel):
    """One Gaussian mechanism: mu-GDP with mu = sqrt(times) sensitivity / noise.

    Attributes:
        name: what it releases sums of.
        sensitivity: Euclidean norm by which a neighbour can change the sum.
        noise: standard deviation of what is added to each entry.
        times: how often it is used, at most.
    """

    model_config = FROZEN

    name: SumName
    sensitivity: float = Field(gt=0)
    noise: float = Field(gt=0)
    times: int = Field(ge=1, le=10_000)

    @property
    def mu(self) -> float:
        """Of Gaussian differential privacy, all uses together."""
        return math.sqrt(self.times) * self.sensitivity / self.noise


class NoisySum:
    """Releases a sum over rows with Gaussian noise, at most as often as its mechanism says.

    Guarantee: mu-GDP with the mu of the mechanism, all releases together, for sums of terms that
    :func:`clip_rows` has brought to ``bound``. Unit: one row. Neighbouring relation: as given.

    Args:
        mechanism: as it is stated in the release.
        relation: for which its sensitivity was computed.
        source: of the noise.
    """

    def __init__(
        self, mechanism: GaussianMechanism, relation: Relation, source: RandomBytes
    ) -> None:
        """Nothing is released yet."""
        self._mechanism, self._source, self._used = mechanism, source, 0
        self.bound = mechanism.sensitivity / sensitivity(1.0, relation)

    def release(self, total: np.ndarray) -> np.ndarray:
        """The sum [...] with noise in every entry.

        Raises:
            RuntimeError: it was used as often as its guarantee allows.
        """
        if self._used >= self._mechanism.times:
            raise RuntimeError(f"{self._mechanism.name}: the budget is spent")
        self._used += 1
        return total + self._mechanism.noise * standard_normal(total.shape, self._source)


def clip_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows [N, k], shortened to the Euclidean norm ``bound`` where they are longer.

    A row without a finite norm becomes 0: one row must not turn a sum into not-a-number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        shortened = rows * (bound / np.maximum(norms, bound))
    return np.where(np.isfinite(norms), shortened, 0.0)


def sensitivity(bound: float, relation: Relation) -> float:
    """Largest change of a sum over rows whose terms have at most the norm ``bound``.

    A row added or removed changes it by its own term; one that is replaced, by two.
    """
    return bound if relation == "add_or_remove" else 2.0 * bound


class Ball(NamedTuple):
    """Holds every vector that some columns can encode to, as the public schema says.

    Attributes:
        centre: [k].
        radius: at least 0.
    """

    centre: np.ndarray
    radius: float

    @property
    def norm_with_one(self) -> float:
        """Largest norm of (v - centre, 1), for v in the ball."""
        return float(np.hypot(self.radius, 1.0))


def feature_ball(schema: Schema) -> Ball:
    """Around all features x [d] that the schema allows.

    Columns are encoded independently, so that squared radii add up. Measured from the centre, a
    row is half as long as from the origin, and so is its noise.
    """
    return _product(
        _simplex_ball(len(encoded_as(name, column)), zero=not _is_one_hot(column))
        for name, column in schema.features.items()
    )


def input_ball(schema: Schema) -> Ball:
    """Around features and the indicators of groups 1 to n_groups - 1, as a model sees them."""
    return _product([feature_ball(schema), _simplex_ball(len(schema.groups) - 1, zero=True)])


def _product(balls: Iterable[Ball]) -> Ball:
    centres, radii = zip(*balls, strict=True)
    return Ball(np.concatenate(centres), math.sqrt(sum(radius**2 for radius in radii)))


def _is_one_hot(column: Column) -> bool:
    return isinstance(column, Categorical) and len(column.categories) > 2


def _simplex_ball(k: int, *, zero: bool) -> Ball:
    """Around the k unit vectors, and the origin where that is allowed.

    A number in [0, 1] lies between the origin and a unit vector, so that this covers it as well.
    The distance of t (1, ..., 1) to a unit vector is least at t = 1/k, where it is sqrt(1 - 1/k).
    """
    t = 1.0 / max(k, 2) if zero else 1.0 / k
    farthest = max(k * t**2 if zero else 0.0, 1.0 - 2.0 * t + k * t**2)
    return Ball(np.full(k, t), math.sqrt(farthest))
