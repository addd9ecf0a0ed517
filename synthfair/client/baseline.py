"""What a fair release is compared with on the training rows: no penalty, and the majority."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from synthfair.distill.problem import PenalizedLoss, Problem
from synthfair.distill.solvers import train
from synthfair.model import Model, Params


class Baseline(NamedTuple):
    """How a release's model does on the training rows, and what it must not fall behind. Private.

    Attributes:
        accuracy: of the model that is trained on the release.
        gap: largest difference between its decision rates of the groups.
        majority: accuracy of the more frequent label for everybody.
        plain_gap: gap of the model that is trained on the real rows without a penalty.
    """

    accuracy: float
    gap: float
    majority: float
    plain_gap: float


def baseline(problem: Problem, theta: Params) -> Baseline | None:
    """Compares theta(x) on the real rows; None where the objective holds none.

    Args:
        problem: of the client.
        theta: of the model trained on the release.
    """
    objective = problem.objective
    if not isinstance(objective, PenalizedLoss):
        return None
    plain = train(objective.rows, problem.lambda_theta, model=problem.model).params
    found = _measured(objective, theta, plain, model=problem.model)
    return Baseline(*map(float, found))


@partial(jax.jit, static_argnames="model")
def _measured(
    objective: PenalizedLoss, theta: Params, plain: Params, *, model: Model
) -> tuple[jax.Array, ...]:
    positive = objective.y > 0
    right = (model.scores(theta, objective.rows.a) > 0) == positive
    majority = jnp.maximum(jnp.mean(positive), jnp.mean(~positive))
    return jnp.mean(right), objective.gap(theta), majority, objective.gap(plain)
