"""What an outer step must compute and move, and what this machine can.

Counted is what no implementation of algorithm 1 in double precision can leave out, however it is
written:

- An evaluation of the inner objective multiplies the features by theta and by a column, and has an
  exponential, a logarithm and a quotient a row. As many are counted as our solver made, for the
  paper leaves the solver open; another one may need fewer or more.
- The Hessian needs one triangle, and its weights come from exponentials that the last evaluation
  has. Of F only the gradient is needed, which has no logarithm.
- An array is read once for each thing that waits for the one before. So the first evaluation, at a
  theta known before, moves nothing: it can be made while Adam writes x. The Hessian can be summed
  while the last evaluation reads x, and Adam moves x as it finds the gradient, which is not stored.

Left out is what is small or can be had for less: groups and labels (a bit each, and none where rows
are sorted by them), sums over the group column, vectors of one number a row between two phases,
the solver's own vectors, trial steps of line searches that did not take the first, the objective's
value, copies.

The time is the roofline's: of each phase the longer of computing at the speed of a large matrix
product and moving at that of a large copy, as if both went on at once. All of these arrays fit in
the processor's cache, where moving is faster; a limit with the speed measured there is given, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BYTES = 8
"""Of a number in double precision."""

EXPONENTIAL = LOGARITHM = 18
"""Operations: a polynomial of degree eight, at least, and taking the number apart and together."""

QUOTIENT = 2
"""Operations: 1 / (1 + u)."""

ADAM = 12
"""Operations a feature: three for the mean, four for the mean square, five for the move."""


class Work(NamedTuple):
    """Operations and bytes of one phase, which the next one waits for."""

    phase: str
    flops: float
    bytes: float


def work_of_step(n_real: int, n_synthetic: int, n_inputs: int, evaluations: float) -> list[Work]:
    """The least work of one outer step, as this module's docstring says.

    Args:
        n_real: N.
        n_synthetic: N_s.
        n_inputs: n, the group among them.
        evaluations: of the inner objective and its gradient, at least 1.
    """
    d = n_inputs - 1
    real, synthetic = n_real * d, n_synthetic * d
    slope = EXPONENTIAL + QUOTIENT
    hessian = synthetic * (d + 2) + 2 * n_synthetic  # half a product, the weights
    return [
        Work(
            "inner solve",
            evaluations * (4 * synthetic + (slope + LOGARITHM) * n_synthetic),
            (evaluations - 1) * synthetic * BYTES,
        ),
        Work("Hessian and dF", hessian + 4 * real + slope * n_real, real * BYTES),
        Work("factor", n_inputs**3 / 3, 0.0),
        # a'v, two columns times a number and their sum, lambda_x x; x and two moments, both ways
        Work("dx and Adam", (7 + ADAM) * synthetic, 6 * synthetic * BYTES),
    ]


class Ceiling(NamedTuple):
    """What a machine does at most.

    Attributes:
        rate: floating-point operations, or bytes read and written, a second.
        cores: that were busy, on average.
    """

    rate: float
    cores: float


class Ceilings(NamedTuple):
    """Of a machine.

    Attributes:
        flops: of a large matrix product.
        memory: of a large copy.
        cache: of a copy of as many numbers as a step needs, again and again.
    """

    flops: Ceiling
    memory: Ceiling
    cache: Ceiling


def least_seconds(work: Work, flops: Ceiling, copy: Ceiling) -> float:
    """The least time that a machine needs for a phase (the roofline)."""
    return max(work.flops / flops.rate, work.bytes / copy.rate)


def numbers_of_step(n_real: int, n_synthetic: int, n_inputs: int) -> int:
    """That a step holds: the real features, the synthetic ones, and Adam's two moments."""
    return (n_real + 3 * n_synthetic) * (n_inputs - 1)


def measured_ceilings(cached_numbers: int) -> Ceilings:
    """The best of some runs of each, with all cores or one, whichever is faster for the copies."""
    return Ceilings(product_ceiling(), copy_ceiling(25_000_000, 1), copy_ceiling(cached_numbers))


def best(first: Ceilings, second: Ceilings) -> Ceilings:
    """The higher of each: a busy minute only ever lowers them."""
    return Ceilings(*map(max, first, second))


def product_ceiling(size: int = 3000) -> Ceiling:
    """Of XLA's product of square matrices, which takes the cores that XLA has."""
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    return _ceiling(2 * size**3, lambda: jax.block_until_ready(product(a)))


def copy_ceiling(numbers: int, times: int = 300) -> Ceiling:
    """Of adding 1 to so many numbers, so often, in place.

    A copy to new memory would be several times slower, as the system must clear it first.
    """
    counts = {1, os.cpu_count() or 1}
    return max(_copy_ceiling(np.array_split(np.ones(numbers), n), times) for n in counts)


def _copy_ceiling(parts: Sequence[np.ndarray], times: int) -> Ceiling:
    def add(part: np.ndarray) -> None:
        for _ in range(times):
            np.add(part, 1.0, out=part)

    moved = 2 * BYTES * times * sum(part.size for part in parts)
    with ThreadPoolExecutor(len(parts)) as pool:
        return _ceiling(moved, lambda: list(pool.map(add, parts)))


def _ceiling(amount: float, function: Callable[[], object], repeats: int = 7) -> Ceiling:
    function()
    found = []
    for _ in range(repeats):
        busy, start = time.process_time(), time.perf_counter()
        function()
        seconds = time.perf_counter() - start
        found.append(Ceiling(amount / seconds, (time.process_time() - busy) / seconds))
    return max(found)
