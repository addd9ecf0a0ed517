"""Algorithm 1 with jaxopt's own implicit differentiation, under value_and_grad and scan."""

from __future__ import annotations

import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.problem import PeerProblem, PeerRun

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import jaxopt


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


def distil(problem: PeerProblem, steps: int, repeats: int = 2) -> PeerRun:
    """Adam on x, in one compiled scan that is run so often."""

    def run(x: jax.Array, problem: PeerProblem) -> tuple[jax.Array, jax.Array]:
        adam = optax.adam(problem.learning_rate)

        def step(carry: tuple[jax.Array, Any], _: None) -> tuple[tuple[jax.Array, Any], jax.Array]:
            x, memory = carry
            value, slope = jax.value_and_grad(outer)(x, problem)
            updates, memory = adam.update(slope, memory)
            return (x + jnp.asarray(updates), memory), value

        (x, _), values = jax.lax.scan(step, (x, adam.init(x)), None, length=steps)
        return x, values

    arrays = jax.tree.map(jnp.asarray, problem)
    times = [time.perf_counter()]
    compiled = jax.jit(run).lower(arrays.x, arrays).compile()
    times.append(time.perf_counter())
    x, values = arrays.x, jnp.empty(0)
    for _ in range(repeats):
        x, values = jax.block_until_ready(compiled(arrays.x, arrays))
        times.append(time.perf_counter())
    first, *seconds = np.diff(times).tolist()
    theta = np.asarray(jax.jit(solve)(x, arrays))
    return PeerRun(np.asarray(x), theta, tuple(seconds), first, np.asarray(values))
