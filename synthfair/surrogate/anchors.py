"""Directions along which a surrogate's smooth sums must be right: where models may look."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.fairness.penalties import CovariancePenalty, Penalty, SelectionRatePenalty
from synthfair.model import LinearModel, Rows
from synthfair.surrogate.fair_training import minimise
from synthfair.surrogate.sums import Anchors
from synthfair.surrogate.table import WeightedTable

THRESHOLDS, SLOPE = (0.1, 0.3, 0.5, 0.7, 0.9), 16.0
"""Of each feature: they carry its distribution. The middle one does where there are two values."""

SPARSE = 3
"""Features in every other random direction, on average."""

TEMPERATURE = 4.0
"""A self-play model is matched in its scores, which the loss sees, and in so many times these,
which a smooth selection rate sees."""

IMPORTANCE = 2.0
"""Weight of a self-play model next to another anchor."""

LONGEST = 60.0
"""Norm of a self-play model; a longer one is of a problem without a solution worth matching."""


def public_anchors(binary: np.ndarray, *, n_groups: int, n_random: int, seed: int) -> Anchors:
    """Thresholds on each feature, and random directions; of the rows only ``binary`` enters.

    Args:
        binary: [d] whether a feature is 0 or 1 in all rows.
        n_groups: number of groups.
        n_random: number of random directions, every other one sparse.
        seed: of these.
    """
    d = len(binary)
    feature, threshold = np.repeat(np.arange(d), len(THRESHOLDS)), np.tile(THRESHOLDS, d)
    carries = ~binary[feature] | (threshold == 0.5)
    axes = SLOPE * np.eye(d)[feature[carries]]
    offsets = SLOPE * (0.5 - threshold[carries])
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(n_random, d))
    slopes[1::2] *= rng.random((len(slopes[1::2]), d)) < SPARSE / d
    slopes[~slopes.any(axis=1), 0] = 1.0
    length = np.exp(rng.uniform(0.0, np.log(12.0), n_random))
    slopes *= (length / np.linalg.norm(slopes, axis=1))[:, None]
    offsets = np.concatenate([offsets, 0.3 * length * rng.normal(size=n_random)])
    return Anchors(
        np.concatenate([axes, slopes]), np.tile(offsets, (n_groups, 1)), np.ones(len(offsets))
    )


def anchors_of(thetas: np.ndarray, d: int, *, n_groups: int, weight: float) -> Anchors:
    """Models theta [Q, n] over (x, groups, 1) as anchors over x - 1/2, with an offset by group."""
    groups = np.column_stack([np.zeros(len(thetas)), thetas[:, d : d + n_groups - 1]])
    middle = thetas[:, -1] + thetas[:, :d].sum(axis=1) / 2
    return Anchors(thetas[:, :d], (groups + middle[:, None]).T, np.full(len(thetas), weight))


def self_play(table: WeightedTable, n_problems: int, *, n_groups: int, seed: int) -> np.ndarray:
    """Models of random fair problems on a client's table: what other clients may lead to.

    Each problem weighs the cells anew, by a Dirichlet distribution, and has a penalty and a rho of
    its own, log-uniform from 1 to 100.

    Args:
        table: of the client's own cells.
        n_problems: Q.
        n_groups: number of groups.
        seed: of the problems.

    Returns:
        [Q, n] theta over (x, groups, 1); 0 where there is no solution worth matching.
    """
    rng = np.random.default_rng(seed)
    cell = 2 * table.s + (table.y > 0)
    cells, position = np.unique(cell, return_inverse=True)
    shares = rng.dirichlet(np.ones(2 * n_groups), n_problems)[:, cells] + 0.02
    inside = table.weight / np.bincount(position, table.weight)[position]
    y = np.tile(table.y, (n_problems, 1))
    if len(np.unique(table.y)) < 2:  # without both labels there is nothing to learn
        kept = rng.random(y.shape) < 0.5 + 0.3 * rng.random((n_problems, 1))
        y = np.where(kept, y, -y)
    mixture, odds = _penalties(n_groups, groups=len(np.unique(table.s)))
    rho = 10 ** rng.uniform(0, 2, n_problems)
    chosen = rho[:, None] * rng.multinomial(1, odds, n_problems)
    with jax.enable_x64(True):
        rows = table.rows(n_groups=n_groups)._replace(y=y, weight=shares[:, position] * inside)
        thetas = np.asarray(_fair_models(rows, chosen, mixture=mixture))
    fit = np.linalg.norm(thetas, axis=1) < LONGEST  # not where there is a not-a-number
    return np.where(fit[:, None], thetas, 0.0)


def _penalties(n_groups: int, *, groups: int) -> tuple[tuple[Penalty, ...], list[float]]:
    """Penalties that are defined for so many groups there are, and the chance of each."""
    covariance, rates = CovariancePenalty(n_groups), SelectionRatePenalty(n_groups)
    return ((covariance, rates), [0.3, 0.7]) if groups == n_groups else ((covariance,), [1.0])


@partial(jax.jit, static_argnames="mixture")
def _fair_models(rows: Rows, weights: jax.Array, *, mixture: tuple[Penalty, ...]) -> jax.Array:
    """Theta [Q, n] of problems that share a and s.

    They differ in labels and weights [Q, R], and in the weights [Q, K] of their penalties.
    """
    model = LinearModel()

    def one(y: jax.Array, weight: jax.Array, of_penalties: jax.Array) -> jax.Array:
        def unfairness(scores: jax.Array, rows: Rows) -> jax.Array:
            found = jnp.stack([penalty(scores, rows) for penalty in mixture])
            return of_penalties @ found

        own = rows._replace(y=y, weight=weight)
        start = jnp.zeros(rows.a.shape[1])
        return minimise(
            unfairness, own, 1.0, 1.0, start, model=model, tolerance=1e-4, max_iterations=20
        ).params

    return jax.vmap(one)(rows.y, jnp.asarray(rows.weight), weights)
