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

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from synthfair.distill.judge import Judged
from synthfair.distill.problem import Problem
from synthfair.model import Params

LinearMap = Callable[[jax.Array], jax.Array]

FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-9, 1e6
"""Of e, in units of the mean curvature that J' |B| J has."""

FACTOR = 4.0
"""By which the damping grows or shrinks."""

LONGEST_STEP = 0.1
"""Root mean square of dx, in units of the features' range: theta(x) is far from linear."""

PULL = 1e-3
"""m, times the number of entries of x: P rises by at most half of that times the mean square of
x - x_0, some 0.01 %, for the sake of staying near."""

BLOCK = 256
"""Rows whose part of J is held at once."""


class Memory(NamedTuple):
    """What is kept between steps.

    Attributes:
        start: x_0.
        best: the best x so far.
        damping: e, in units of the mean curvature.
    """

    start: jax.Array
    best: Judged
    damping: jax.Array | np.ndarray


def init(_problem: Problem, start: Judged) -> Memory:
    """Nothing is reached yet: any x is better."""
    damping = np.asarray(FIRST_DAMPING, start.x.dtype)
    return Memory(start.x, _worthless(start), damping)


def restart(memory: Memory, _x: jax.Array) -> Memory:
    """Nothing is reached yet, but the rows still stay near where they first started."""
    damping = np.asarray(FIRST_DAMPING, memory.damping.dtype)
    return Memory(memory.start, _worthless(memory.best), damping)


def _worthless(judged: Judged) -> Judged:
    """The same, to be replaced by whatever is judged next."""
    infinite = np.full_like(judged.record.objective, np.inf)
    nothing = np.zeros_like(judged.record.inner_converged)
    return judged._replace(
        record=judged.record._replace(objective=infinite, inner_converged=nothing)
    )


def move(
    problem: Problem, judged: Judged, memory: Memory, _learning_rate: jax.Array | float
) -> tuple[Judged, jax.Array, Params, Memory]:
    """One step from the best x so far. Returns as :func:`synthfair.distill.adam.move`."""
    lower = worth(judged, memory.start) < worth(memory.best, memory.start)
    # A theta that is not the inner optimum may look good, and its x would not keep the promise.
    now, then = judged.record.inner_converged, memory.best.record.inner_converged
    better = (now & ~then) | ((now == then) & lower)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), judged, memory.best)
    damping = jnp.where(better, memory.damping / FACTOR, memory.damping * FACTOR)
    damping = jnp.clip(damping, LEAST_DAMPING, MOST_DAMPING)
    step = direction(problem, best, memory.start, damping)
    step *= jnp.minimum(1.0, LONGEST_STEP / jnp.sqrt(jnp.mean(step**2)))
    return best, best.x + step, best.params, Memory(memory.start, best, damping)


def worth(judged: Judged, start: jax.Array) -> jax.Array:
    """P(x) + m/2 ||x - x_0||^2: what is minimised."""
    return jnp.asarray(judged.record.objective) + PULL / 2 * jnp.mean((judged.x - start) ** 2)


def direction(
    problem: Problem, judged: Judged, start: jax.Array, damping: jax.Array | float
) -> jax.Array:
    """The step dx [d, N_s], by the Woodbury identity: only a p x p system is solved.

    With R'R = |B| and K = R J [p, N_s d],

        (K'K + c I)^-1 h = (h - K' (K K' + c I)^-1 K h) / c,      c = m + e.

    K is never formed: K K' = R (J J') R', and J h and J' v are one derivative each.
    """
    m = PULL / judged.x.size
    h = judged.gradient + m * (judged.x - start)
    root = curvature_root(problem, judged)
    kk = root @ sensitivity_gram(problem, judged) @ root.T
    c = m + damping * jnp.trace(kk) / len(kk)
    forward, back = sensitivity(problem, judged)
    inside = jnp.linalg.solve(kk + c * jnp.eye(len(kk), dtype=kk.dtype), root @ forward(h))
    return -(h - back(root.T @ inside)) / c


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


def sensitivity(problem: Problem, judged: Judged) -> tuple[LinearMap, LinearMap]:
    """J = dtheta/dx = -H^-1 M, M = d2 inner/(dtheta dx), by the implicit function theorem.

    Returns:
        dx [d, N_s] -> J dx [p], and v [p] -> J' v [d, N_s].
    """

    def gradient(x: jax.Array) -> jax.Array:
        return ravel_pytree(jax.grad(problem.inner)(judged.params, x))[0]

    _, push = jax.linearize(gradient, judged.x)
    pull = jax.linear_transpose(push, judged.x)
    factor = (judged.curvature, True)
    return (
        lambda dx: -cho_solve(factor, push(dx)),
        lambda v: -pull(cho_solve(factor, v))[0],
    )


def sensitivity_gram(problem: Problem, judged: Judged) -> jax.Array:
    """J J' = H^-1 M M' H^-1 [p, p].

    The training loss is a mean over rows, so that M falls into parts, one a row; they are summed
    up in blocks that fit the processor's cache.
    """
    n = judged.x.shape[1]
    n_blocks = -(-n // BLOCK)

    def blocks(column: jax.Array) -> jax.Array:
        padding = [(0, n_blocks * BLOCK - n)] + [(0, 0)] * (column.ndim - 1)
        return jnp.pad(column, padding).reshape(n_blocks, BLOCK, *column.shape[1:])

    def add(total: jax.Array, block: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        m = _mixed_derivative(problem, judged.params, block)
        return total + m @ m.T, None

    p = len(judged.curvature)
    weight = jnp.full(n, 1 / n, judged.x.dtype)
    columns = tuple(map(blocks, (judged.x.T, problem.beside.T, problem.y, weight)))
    total, _ = jax.lax.scan(add, jnp.zeros((p, p), judged.x.dtype), columns)
    half = cho_solve((judged.curvature, True), total)
    return cho_solve((judged.curvature, True), half.T)


def _mixed_derivative(problem: Problem, params: Params, block: tuple[jax.Array, ...]) -> jax.Array:
    """M [p, rows d] of a block: x, other columns, y and weight in the mean of its rows."""
    x, beside, y, weight = block
    some = dataclasses.replace(problem, beside=beside.T)

    def gradient(x: jax.Array) -> jax.Array:
        def loss(params: Params) -> jax.Array:
            return weight @ problem.model.loss(params, some.columns(x.T).T, y)

        return ravel_pytree(jax.grad(loss)(params))[0]

    slope, pull = jax.vjp(gradient, x)
    (rows,) = jax.vmap(pull)(jnp.eye(len(slope), dtype=x.dtype))
    return rows.reshape(len(slope), -1)
