"""What an outer step must compute and move, and what this machine can."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

BYTES = 8
"""Of a number in double precision."""

LOGISTIC = 40
"""Floating-point operations of one logistic loss with its derivatives: an exponential and a
logarithm are about fifteen each."""


class Ceilings(NamedTuple):
    """Of a machine.

    Attributes:
        flops: floating-point operations a second, of a large matrix product.
        bandwidth: bytes a second, read and written, of a large copy.
    """

    flops: float
    bandwidth: float


class Work(NamedTuple):
    """Operations and bytes of one phase, which the next one waits for."""

    phase: str
    flops: float
    bytes: float

    def seconds(self, ceilings: Ceilings) -> float:
        """The least time that a machine needs for it (the roofline)."""
        return max(self.flops / ceilings.flops, self.bytes / ceilings.bandwidth)


def work_of_step(n_real: int, n_synthetic: int, n_inputs: int, evaluations: float) -> list[Work]:
    """What no implementation of algorithm 1 can leave out, each array being read once a phase.

    Args:
        n_real: N.
        n_synthetic: N_s.
        n_inputs: n.
        evaluations: of the inner objective and its gradient.
    """
    real, synthetic = n_real * n_inputs, n_synthetic * n_inputs
    features = n_synthetic * (n_inputs - 1)
    return [
        Work(
            "inner solve",
            evaluations * (4 * synthetic + LOGISTIC * n_synthetic),
            evaluations * synthetic * BYTES,
        ),
        Work("Hessian", synthetic * n_inputs + LOGISTIC * n_synthetic, synthetic * BYTES),
        Work("factor", n_inputs**3 / 3, n_inputs**2 * BYTES),
        Work("F and its gradient", 4 * real + LOGISTIC * n_real, real * BYTES),
        Work("mixed derivative", 8 * synthetic, (synthetic + features) * BYTES),
        Work("Adam", 12 * features, 7 * features * BYTES),
    ]


def measured_ceilings(size: int = 3000, repeats: int = 5) -> Ceilings:
    """Of a product of square matrices, and of adding 1 to 200 MB; the best of some."""
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    copy = jax.jit(lambda x: x + 1.0)
    x = jnp.ones(25_000_000)
    return Ceilings(
        2 * size**3 / _best(product, a, repeats), 2 * x.size * x.itemsize / _best(copy, x, repeats)
    )


def _best(function: Callable[[jax.Array], jax.Array], x: jax.Array, repeats: int) -> float:
    jax.block_until_ready(function(x))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(x))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
