"""How long an encoded row can be, as the public schema says: what sensitivities are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.data.schema import Categorical, Column, Schema, encoded_as


class Ball(NamedTuple):
    """Holds every vector that some columns can encode to.

    Attributes:
        centre: [k].
        radius: at least 0.
    """

    centre: np.ndarray
    radius: float


def feature_ball(schema: Schema) -> Ball:
    """Around all features x [d] that the schema allows.

    Columns are encoded independently, so that squared radii add up. Measured from the centre, a
    row is half as long as from the origin, and its noise is, too.
    """
    return _together([_column_ball(name, column) for name, column in schema.features.items()])


def group_ball(schema: Schema) -> Ball:
    """Around the indicators of the groups 1 to n_groups - 1."""
    return _simplex_ball(len(schema.groups) - 1, zero=True)


def input_ball(schema: Schema) -> Ball:
    """Around features and groups together, as a model sees them."""
    return _together([feature_ball(schema), group_ball(schema)])


def with_one(radius: float) -> float:
    """The norm of a vector in a ball about the origin with a 1 appended, at most."""
    return float(np.hypot(radius, 1.0))


def _together(balls: list[Ball]) -> Ball:
    radius = float(np.sqrt(sum(ball.radius**2 for ball in balls)))
    return Ball(np.concatenate([ball.centre for ball in balls]), radius)


def _column_ball(name: str, column: Column) -> Ball:
    one_hot = isinstance(column, Categorical) and len(column.categories) > 2
    return _simplex_ball(len(encoded_as(name, column)), zero=not one_hot)


def _simplex_ball(k: int, *, zero: bool) -> Ball:
    """Around the k unit vectors, and the origin where that is allowed.

    A number in [0, 1] lies between the origin and a unit vector, so that this covers it as well.
    The distance of t (1, ..., 1) to a unit vector is least at t = 1/k, where it is sqrt(1 - 1/k).
    """
    t = 1.0 / max(k, 2) if zero else 1.0 / k
    farthest = max(k * t**2 if zero else 0.0, 1.0 - 2.0 * t + k * t**2)
    return Ball(np.full(k, t), float(np.sqrt(farthest)))
