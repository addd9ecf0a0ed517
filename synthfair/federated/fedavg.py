"""Federated averaging (McMahan et al. 2017, algorithm 1), with or without a fairness penalty.

In each round every client takes a few full-batch gradient steps on its own objective, from the
server's parameters; the server averages what comes back. No privacy is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params, Rows, regularized_loss


class FedAvgSolution(NamedTuple):
    """An average of the clients' models and how settled it is.

    Attributes:
        params: the server's parameters after the last round.
        gradient_norm: of the clients' mean objective there. More local steps than one leave it
            above 0 where clients differ: that is the method, not a failure.
        drift: norm of the last round's change of the parameters, per local step and in units of
            the learning rate: the mean gradient along the clients' paths. It falls to 0 as the
            rounds settle, whatever the rate.
    """

    params: Params
    gradient_norm: jax.Array
    drift: jax.Array


def fedavg(
    clients: Sequence[Rows],
    lambda_theta: float,
    *,
    model: Model,
    penalty: Penalty | None = None,
    rho: float = 0.0,
    rounds: int = 500,
    local_steps: int = 5,
) -> FedAvgSolution:
    """Minimises the clients' mean of regularised loss + rho penalty, each on its own rows.

    The learning rate of a round is 1 / L, where L is the largest curvature of any client's
    objective at the server's parameters: no step overshoots where the curvature stays below L on
    its way. A steep penalty makes L large and progress slow; ``drift`` tells whether it settled.

    Args:
        clients: each with the same number of rows, so that they count equally and share one
            compilation.
        lambda_theta: see :func:`synthfair.model.regularized_loss`.
        model: what is trained.
        penalty: none if not given; each client can compute it of its own rows alone.
        rho: its weight, at least 0.
        rounds: at least 1.
        local_steps: gradient steps of a client in a round, at least 1.

    Raises:
        InputError: no client, or different numbers of rows.
    """
    sizes = {len(rows.y) for rows in clients}
    if len(sizes) != 1:
        raise InputError(
            f"fedavg: clients have {sorted(sizes)} rows; must be equally many, not none"
        )
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *clients)
    return _fedavg(
        stacked, lambda_theta, rho, model=model, penalty=penalty, rounds=rounds, steps=local_steps
    )


@partial(jax.jit, static_argnames=("model", "penalty", "rounds", "steps"))
def _fedavg(
    clients: Rows,
    lambda_theta: float,
    rho: float,
    *,
    model: Model,
    penalty: Penalty | None,
    rounds: int,
    steps: int,
) -> FedAvgSolution:
    def objective(params: Params, rows: Rows) -> jax.Array:
        unfairness = 0.0 if penalty is None else rho * penalty(model, params, rows)
        return regularized_loss(model, params, rows, lambda_theta) + unfairness

    start = model.init(clients.a.shape[2])

    def descend(params: Params, rows: Rows, rate: jax.Array) -> Params:
        def one(params: Params, _: None) -> tuple[Params, None]:
            slope = jax.grad(objective)(params, rows)
            return jax.tree.map(lambda p, g: p - rate * g, params, slope), None

        return jax.lax.scan(one, params, None, length=steps)[0]

    def one_round(params: Params, _: None) -> tuple[Params, jax.Array]:
        rate = 1.0 / _largest_curvature(objective, params, clients)
        returned = jax.vmap(descend, in_axes=(None, 0, None))(params, clients, rate)
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), returned)
        return mean, _norm(jax.tree.map(jnp.subtract, mean, params)) / (rate * steps)

    params, drifts = jax.lax.scan(one_round, start, None, length=rounds)
    slopes = jax.vmap(jax.grad(objective), in_axes=(None, 0))(params, clients)
    slope = jax.tree.map(lambda leaf: leaf.mean(axis=0), slopes)
    return FedAvgSolution(params, _norm(slope), drifts[-1])


def _largest_curvature(objective, params: Params, clients: Rows) -> jax.Array:  # noqa: ANN001
    flat, unravel = ravel_pytree(params)

    def largest(rows: Rows) -> jax.Array:
        curvature = jax.hessian(lambda theta: objective(unravel(theta), rows))(flat)
        return jnp.max(jnp.abs(jnp.linalg.eigvalsh(curvature)))

    return jnp.max(jax.vmap(largest)(clients))


def _norm(tree: Params) -> jax.Array:
    return jnp.linalg.norm(ravel_pytree(tree)[0])
