"""Algorithm 1 with jaxopt's own implicit differentiation, under value_and_grad and scan."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.problem import Peer, PeerProblem, Reached, parts

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import jaxopt


Carry = tuple[jax.Array, Any]
"""x, and Adam's memory."""


def inner(theta: jax.Array, x: jax.Array, problem: PeerProblem) -> jax.Array:
    """Equation (11)."""
    a = jnp.column_stack([x, problem.s_hat])
    loss = jnp.mean(jax.nn.softplus(-problem.y_hat * (a @ theta)))
    return loss + problem.lambda_theta / (2 * len(theta) ** 2) * theta @ theta


def solve(x: jax.Array, problem: PeerProblem) -> jax.Array:
    """theta(x), from zero."""
    solver = jaxopt.LBFGS(inner, maxiter=100, tol=1e-7, linesearch="zoom", implicit_diff=True)
    return solver.run(jnp.zeros(problem.a.shape[1]), x, problem).params


def outer(x: jax.Array, problem: PeerProblem) -> jax.Array:
    """Equation (12), with rho_s = 0, through jaxopt's implicit derivative of theta(x)."""
    theta = solve(x, problem)
    scores, s = problem.a @ theta, problem.a[:, -1]
    covariance = jnp.mean((s - jnp.mean(s)) * scores)
    loss = jnp.mean(jax.nn.softplus(-problem.y * scores))
    ridge = problem.lambda_x / (2 * (len(x) * len(theta)) ** 2) * jnp.sum(x**2)
    return loss + problem.rho_o / 2 * covariance**2 + ridge


def scan(carry: Carry, problem: PeerProblem, length: int) -> tuple[Carry, jax.Array]:
    """So many steps of Adam on x, and P(x) before each."""
    adam = optax.adam(problem.learning_rate)

    def step(carry: Carry, _: None) -> tuple[Carry, jax.Array]:
        x, memory = carry
        value, slope = jax.value_and_grad(outer)(x, problem)
        updates, memory = adam.update(slope, memory)
        return (x + jnp.asarray(updates), memory), value

    return jax.lax.scan(step, carry, None, length=length)


def distil(problem: PeerProblem, steps: int) -> Peer:
    """Adam on x, in a compiled scan for each turn."""
    arrays, turns = jax.tree.map(jnp.asarray, problem), [*parts(steps)]
    carry = (arrays.x, optax.adam(problem.learning_rate).init(arrays.x))
    lower = jax.jit(scan, static_argnames="length").lower
    compiled = {part: lower(carry, arrays, part).compile() for part in {*turns}}
    jax.block_until_ready(compiled[turns[-1]](carry, arrays))  # warms up
    yield np.empty(0)
    for part in turns:
        carry, values = compiled[part](carry, arrays)
        yield np.asarray(values)
    yield Reached(np.asarray(carry[0]), np.asarray(jax.jit(solve)(carry[0], arrays)))
