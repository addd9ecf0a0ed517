"""Damped Gauss-Newton steps on the synthetic features.

Adam crawls where rho_o is large: P(x) then is a narrow valley, curved a thousand times more across
than along. But P sees the many features in x almost only through the few numbers in theta(x). So a
step takes the curvature of P in theta, which is exact and small, and how theta moves with x:

    dx = - (J' |B| J + (m + e) I)^-1 (dP/dx + m (x - x_0)),
    J = dtheta/dx = - H^-1 d2 inner/(dtheta dx),     B = d2 P/dtheta2,

with |B| for its eigenvalues' absolute values, and H the inner Hessian. That is Newton's step for
theta, made by the smallest move of x; e damps it, in the manner of Levenberg and Marquardt: larger
after a step that failed, which is taken back, and smaller after one that did not. See Nocedal and
Wright, Numerical Optimization (2006), section 10.3.

Very many x have the same theta(x). Of these, what is minimised, P(x) + m/2 ||x - x_0||^2, chooses
one near the first x_0. That matters to the pool: a model trained on the rows of several clients is
near the mean of theirs only where their inner problems are curved alike, as they are where all
clients' rows stay near where they started, together. It is as in the iteratively regularised
Gauss-Newton method (Bakushinskii 1992), here with a fixed m.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from synthfair.distill.judge import Judged
from synthfair.distill.problem import Problem
from synthfair.errors import InputError

FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-9, 1e6
"""Of e, in units of the mean curvature that J' |B| J has."""

FACTOR = 4.0
"""By which the damping grows or shrinks."""

LONGEST_STEP = 0.1
"""Root mean square of dx, in units of the features' range: theta(x) is far from linear."""

PULL = 1e-3
"""m, times the number of entries of x: P rises by at most half of that times the mean square of
x - x_0, some 0.01 %, for the sake of staying near."""

MOST_NUMBERS = 200_000_000
"""In J, 1.6 GB."""


class Memory(NamedTuple):
    """What is kept between steps.

    Attributes:
        start: x_0.
        best: the best x so far.
        damping: e, in units of the mean curvature.
    """

    start: jax.Array
    best: Judged
    damping: jax.Array


def init(_problem: Problem, start: Judged) -> Memory:
    """Nothing is reached yet: any x is better.

    Raises:
        InputError: J would have too many numbers to hold.
    """
    numbers = len(start.factor) * start.x.size
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"optimizer = 'gauss_newton': parameters x synthetic rows x features = {numbers}; must"
            f" be at most {MOST_NUMBERS}; use 'adam', or fewer synthetic rows"
        )
    record = start.record._replace(objective=jnp.full_like(start.record.objective, jnp.inf))
    damping = jnp.asarray(FIRST_DAMPING, start.x.dtype)
    return Memory(start.x, start._replace(record=record), damping)


def restart(memory: Memory, _x: jax.Array) -> Memory:
    """Nothing is reached yet, but the rows still stay near where they first started."""
    best = memory.best
    record = best.record._replace(objective=jnp.full_like(best.record.objective, jnp.inf))
    damping = jnp.full_like(memory.damping, FIRST_DAMPING)
    return Memory(memory.start, best._replace(record=record), damping)


def move(
    problem: Problem, judged: Judged, memory: Memory, _learning_rate: jax.Array | float
) -> tuple[Judged, jax.Array, Memory]:
    """One step from the best x so far. Returns as :func:`synthfair.distill.adam.move`."""
    better = worth(judged, memory.start) < worth(memory.best, memory.start)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), judged, memory.best)
    damping = jnp.where(better, memory.damping / FACTOR, memory.damping * FACTOR)
    damping = jnp.clip(damping, LEAST_DAMPING, MOST_DAMPING)
    step = direction(problem, best, memory.start, damping)
    step *= jnp.minimum(1.0, LONGEST_STEP / jnp.sqrt(jnp.mean(step**2)))
    return best, best.x + step, Memory(memory.start, best, damping)


def worth(judged: Judged, start: jax.Array) -> jax.Array:
    """P(x) + m/2 ||x - x_0||^2: what is minimised."""
    return jnp.asarray(judged.record.objective) + PULL / 2 * jnp.mean((judged.x - start) ** 2)


def direction(
    problem: Problem, judged: Judged, start: jax.Array, damping: jax.Array | float
) -> jax.Array:
    """The step dx [N_s, d], by the Woodbury identity: only a p x p system is solved.

    With R'R = |B| and K = R J [p, N_s d],

        (K'K + c I)^-1 h = (h - K' (K K' + c I)^-1 K h) / c,      c = m + e.
    """
    m = PULL / judged.x.size
    h = (judged.gradient + m * (judged.x - start)).ravel()
    k = curvature_root(problem, judged) @ sensitivity(problem, judged)
    kk = k @ k.T
    c = m + damping * jnp.trace(kk) / len(kk)
    inside = jnp.linalg.solve(kk + c * jnp.eye(len(kk), dtype=kk.dtype), k @ h)
    return -((h - k.T @ inside) / c).reshape(judged.x.shape)


def curvature_root(problem: Problem, judged: Judged) -> jax.Array:
    """R [p, p] with R'R = |B|.

    P may be concave in some directions of theta, as where a selection-rate penalty saturates; with
    the absolute value the step still goes downhill there.
    """
    theta, unravel = ravel_pytree(judged.params)
    curvature = jax.hessian(lambda t: problem.outer(unravel(t), judged.x))(theta)
    values, vectors = jnp.linalg.eigh(curvature)
    values = jnp.abs(values)
    floor = 1e-10 * jnp.max(values)  # flat directions: let them move, but not to infinity
    return jnp.sqrt(jnp.maximum(values, floor))[:, None] * vectors.T


def sensitivity(problem: Problem, judged: Judged) -> jax.Array:
    """J = dtheta/dx [p, N_s d], by the implicit function theorem, row by row."""
    params, x = judged.params, judged.x

    def gradient(x: jax.Array) -> jax.Array:
        return ravel_pytree(jax.grad(problem.inner)(params, x))[0]

    _, pull = jax.vjp(gradient, x)
    p = len(judged.factor)
    inverse = cho_solve((judged.factor, True), jnp.eye(p, dtype=x.dtype))
    (rows,) = jax.vmap(pull)(inverse)
    return -rows.reshape(p, -1)
