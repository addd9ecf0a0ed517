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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve

from synthfair.distill.hypergradient import Iterate, absolute_eigen, hessian_of
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


class State(NamedTuple):
    """What is remembered between steps.

    Attributes:
        best: the best point so far.
        damping: e, in units of the mean curvature.
    """

    best: Iterate
    damping: jax.Array | np.ndarray


@dataclass(frozen=True)
class GaussNewton:
    """An optimizer of x, as :class:`synthfair.distill.optimize.Optimizer` says; needs Cholesky."""

    def init(self, point: Iterate) -> State:
        """Any point that is evaluated next is better."""
        return State(point, np.asarray(FIRST_DAMPING, point.x.dtype))

    def step(self, problem: Problem, point: Iterate, state: State) -> tuple[jax.Array, State]:
        """One step from the best point so far."""
        lower = _value(point, problem.start) < _value(state.best, problem.start)
        # A theta that is not the inner optimum may look good, and a server would not find it.
        now, then = point.record.inner_converged, state.best.record.inner_converged
        better = (now & ~then) | ((now == then) & lower)
        best = jax.tree.map(partial(jnp.where, better), point, state.best)
        damping = jnp.where(better, state.damping / FACTOR, state.damping * FACTOR)
        damping = jnp.clip(damping, LEAST_DAMPING, MOST_DAMPING)
        step = direction(problem, best, damping)
        step *= jnp.minimum(1.0, LONGEST_STEP / jnp.sqrt(jnp.mean(step**2)))
        return best.x + step, State(best, damping)


def _value(point: Iterate, start: jax.Array) -> jax.Array:
    """P(x) + m/2 ||x - x_0||^2: what is minimised."""
    return jnp.asarray(point.record.objective) + PULL / 2 * jnp.mean((point.x - start) ** 2)


def direction(problem: Problem, point: Iterate, damping: jax.Array | float) -> jax.Array:
    """The step dx [d, N_s], by the Woodbury identity: only a p x p system is solved.

    With R'R = |B| and K = R J [p, N_s d],

        (K'K + c I)^-1 h = (h - K' (K K' + c I)^-1 K h) / c,      c = m + e.

    K is never formed: K K' = R (J J') R', and J h and J' v are one derivative each.
    """
    m = PULL / point.x.size
    h = point.gradient + m * (point.x - problem.start)
    root = curvature_root(problem, point)
    kk = root @ sensitivity_gram(problem, point) @ root.T
    c = m + damping * jnp.trace(kk) / len(kk)
    forward, back = sensitivity(problem, point)
    inside = jnp.linalg.solve(kk + c * jnp.eye(len(kk), dtype=kk.dtype), root @ forward(h))
    return -(h - back(root.T @ inside)) / c


def curvature_root(problem: Problem, point: Iterate) -> jax.Array:
    """R [p, p] with R'R = |B|.

    P may be concave in some directions of theta, as where a selection-rate penalty saturates; with
    the absolute value the step still goes downhill there.
    """
    values, vectors = absolute_eigen(hessian_of(lambda p: problem.outer(p, point.x), point.params))
    floor = 1e-10 * jnp.max(values)  # flat directions: let them move, but not to infinity
    return jnp.sqrt(jnp.maximum(values, floor))[:, None] * vectors.T


def sensitivity(problem: Problem, point: Iterate) -> tuple[LinearMap, LinearMap]:
    """J = dtheta/dx = -H^-1 M, M = d2 inner/(dtheta dx), by the implicit function theorem.

    Returns:
        dx [d, N_s] -> J dx [p], and v [p] -> J' v [d, N_s].
    """

    def gradient(x: jax.Array) -> jax.Array:
        return ravel_pytree(jax.grad(problem.inner)(point.params, problem.inputs(x)))[0]

    _, push = jax.linearize(gradient, point.x)
    pull = jax.linear_transpose(push, point.x)
    factor = (point.curvature, True)
    return (
        lambda dx: -cho_solve(factor, push(dx)),
        lambda v: -pull(cho_solve(factor, v))[0],
    )


def sensitivity_gram(problem: Problem, point: Iterate) -> jax.Array:
    """J J' = H^-1 M M' H^-1 [p, p].

    The training loss is a mean over rows, so that M falls into parts, one a row; they are summed
    up in blocks that fit the processor's cache.
    """
    n = point.x.shape[1]
    n_blocks = -(-n // BLOCK)

    def blocks(part: jax.Array) -> jax.Array:
        padding = [(0, n_blocks * BLOCK - n)] + [(0, 0)] * (part.ndim - 1)
        return jnp.pad(part, padding).reshape(n_blocks, BLOCK, *part.shape[1:])

    def add(total: jax.Array, block: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        x, others, y, weight = block

        def gradient(x: jax.Array) -> jax.Array:
            def loss(params: Params) -> jax.Array:
                scores = problem.model.scores(params, jnp.concatenate([x.T, others.T]).T)
                return weight @ problem.model.loss(scores, y)

            return ravel_pytree(jax.grad(loss)(point.params))[0]

        slope, pull = jax.vjp(gradient, x)
        (m,) = jax.vmap(pull)(jnp.eye(len(slope), dtype=slope.dtype))
        m = m.reshape(len(slope), -1)
        return total + m @ m.T, None

    p = len(point.curvature)
    weight = jnp.full(n, 1 / n, point.x.dtype)
    rows = tuple(map(blocks, (point.x.T, problem.others.T, problem.y, weight)))
    total, _ = jax.lax.scan(add, jnp.zeros((p, p), point.x.dtype), rows)
    half = cho_solve((point.curvature, True), total)
    return cho_solve((point.curvature, True), half.T)
