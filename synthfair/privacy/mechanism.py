"""The Gaussian mechanism on sums over rows: how much one row can change, and the noise for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from synthfair.config import Relation
from synthfair.config.rules import FROZEN
from synthfair.data.schema import Categorical, Column, Numeric, Schema, encoded_as
from synthfair.privacy.noise import RandomBytes, standard_normal

SumName = Literal["moments", "curvature", "gradients", "rates", "cell_moments", "histograms"]
"""What mechanisms release sums of: (x, 1) by group and label; b b' over model inputs b; the losses'
gradients, in each step; smooth selection rates and their gradients by group and label, in each
step. For surrogates: b b' with b = (x, 1) by group and label; rows in each bin of each numeric
feature's range, by group and label."""

NEVER_OPPOSED: frozenset[SumName] = frozenset({"cell_moments", "histograms"})
"""Sums in which the terms of any two rows have an inner product of at least 0."""


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
        unit = sensitivity(1.0, relation, never_opposed=mechanism.name in NEVER_OPPOSED)
        self.bound = mechanism.sensitivity / unit

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


def clip_squares(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows b [N, k], shortened until the upper triangle of b b' has at most the norm ``bound``.

    See :func:`square_norms`; it grows with the square of b. A row without a finite one becomes 0.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms = square_norms(rows)[:, None]
        shortened = rows * np.sqrt(bound / np.maximum(norms, bound))
    return np.where(np.isfinite(norms), shortened, 0.0)


def square_norms(rows: np.ndarray) -> np.ndarray:
    """[N] Euclidean norms of the entries of b b' on and above the diagonal, for rows b [N, k].

    All entries together have the square |b|^4, those on the diagonal sum_i b_i^4, and each of the
    others stands there twice:

        norm^2 = (|b|^4 + sum_i b_i^4) / 2.
    """
    squares = rows**2
    return np.sqrt((squares.sum(axis=1) ** 2 + (squares**2).sum(axis=1)) / 2)


def sensitivity(bound: float, relation: Relation, *, never_opposed: bool = False) -> float:
    """Largest change of a sum over rows whose terms have at most the norm ``bound``.

    A row added or removed changes it by its own term t; one that is replaced, by two. Where no two
    terms have an inner product below 0, |t - t'|^2 = |t|^2 + |t'|^2 - 2 t't' is at most 2 bound^2.

    Args:
        bound: of each row's term, at least 0.
        relation: which tables are neighbours.
        never_opposed: whether the inner product of two terms is never negative.
    """
    if never_opposed and relation == "replace":
        return math.sqrt(2.0) * bound
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


def cell_moments_bound(schema: Schema) -> float:
    """Largest norm of the upper triangle of b b', b = (x - centre, 1), over all rows allowed.

    The centre is that of :func:`feature_ball`. It is attained, so that no smaller bound is true.

    Proof. The square of the norm is (|b|^4 + sum_i b_i^4) / 2, see :func:`square_norms`. Both
    |b|^2 = 1 + sum over columns of |x_c - centre_c|^2 and sum_i b_i^4 = 1 + sum over columns of the
    fourth powers are sums of convex functions of what each column is encoded as, a point x_c of the
    simplex of its unit vectors and, where that is allowed, the origin. A convex function is largest
    in a corner. With k entries and t in each entry of the centre, a unit vector has the sums

        (1 - t)^2 + (k - 1) t^2    and    (1 - t)^4 + (k - 1) t^4,

    and the origin k t^2 and k t^4, which are no larger as t <= 1/2. So a row with a unit vector in
    every column has the largest of all sums at once.

    Two terms b b' and c c' have the inner product ((b'c)^2 + sum_i b_i^2 c_i^2) / 2, which is never
    negative, nor is that of terms in different cells, which is 0.
    """
    columns = [encoded_as(name, column) for name, column in schema.features.items()]
    corner = np.concatenate([np.eye(1, len(names))[0] for names in columns])
    b = np.append(corner - feature_ball(schema).centre, 1.0)
    return float(square_norms(b[None])[0])


def numeric_features(schema: Schema) -> np.ndarray:
    """[m] positions of the numbers among the encoded features; the others are 0 or 1."""
    numbers = {name for name, column in schema.features.items() if isinstance(column, Numeric)}
    names = schema.encoded_names
    return np.array([j for j, name in enumerate(names) if name in numbers], dtype=int)


def histograms_bound(schema: Schema) -> float:
    """Norm of what a row adds to the histograms of m numbers: 1 in one bin of each, so sqrt(m).

    Entries are never negative, so neither is the inner product of two terms.
    """
    return math.sqrt(len(numeric_features(schema)))


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
