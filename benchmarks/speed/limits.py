"""What an outer step must compute and move, and what this machine can.

Counted phase by phase, each of which waits for the one before, in double precision:

- An evaluation of the inner objective reads the inputs, multiplies them by theta and by a column,
  and has an exponential, a logarithm and a quotient a row. As many are counted as our solver made,
  for the paper leaves the solver open; another one may need fewer or more.
- The Hessian reads the inputs; one triangle is needed, and a weight a row.
- F and its gradient read the real inputs.
- The mixed derivative reads the inputs and writes the gradient, of three products a number (ours
  makes it where Adam needs it).
- Adam reads gradient, x and two moments, and writes the last three; the moments are of four bytes
  a number.

Left out is what is small: labels and groups, vectors of one number a row, the solver's own vectors,
trial steps of line searches that did not take the first, the covariance and the gap.

The time is the roofline's: of each phase the longer of computing at the speed of a large matrix
product and moving at that of a large copy, as if both went on at once. These arrays fit in the
processor's last cache, and exponentials run far below the speed of a product; so the first makes
the limit a little long, the second short.

:func:`fused_work` counts less: as if no array were ever read twice where one pass would do, a limit
for whoever writes the whole step as one loop by hand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from synthfair.distill import adam

BYTES = 8
"""Of a number in double precision."""

MOMENT = np.dtype(adam.KEPT).itemsize
"""Bytes of a number in one of Adam's moments."""

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
    """The work of one outer step, phase by phase.

    Args:
        n_real: N.
        n_synthetic: N_s.
        n_inputs: n, the group among them.
        evaluations: of the inner objective and its gradient, at least 1.
    """
    real, synthetic, d = n_real * n_inputs, n_synthetic * n_inputs, n_inputs - 1
    loss = EXPONENTIAL + LOGARITHM + QUOTIENT
    return [
        Work(
            "inner solve",
            evaluations * (4 * synthetic + loss * n_synthetic),
            evaluations * synthetic * BYTES,
        ),
        Work(
            "Hessian",
            synthetic * (n_inputs + 2) + (EXPONENTIAL + QUOTIENT) * n_synthetic + n_inputs**3 / 3,
            synthetic * BYTES,
        ),
        Work("F and its gradient", 4 * real + loss * n_real, real * BYTES),
        Work("mixed derivative", 5 * synthetic, (synthetic + n_synthetic * d) * BYTES),
        Work("Adam", ADAM * n_synthetic * d, n_synthetic * d * (3 * BYTES + 4 * MOMENT)),
    ]


def fused_work(n_real: int, n_synthetic: int, n_inputs: int, evaluations: float) -> list[Work]:
    """The same with the fewest passes: all but the first evaluation, F, and x with its moments.

    The first evaluation is made as Adam writes x, the Hessian as the last one reads it, and
    Adam moves x as it finds the gradient; columns of groups are not stored.
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
        Work("Hessian and F", hessian + 4 * real + slope * n_real, real * BYTES),
        # a'v, two columns times a number and their sum, lambda_x x; x and two moments, both ways
        Work("x and Adam", (7 + ADAM) * synthetic, synthetic * (2 * BYTES + 4 * MOMENT)),
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
    """

    flops: Ceiling
    memory: Ceiling


def least_seconds(work: Work, flops: Ceiling, copy: Ceiling) -> float:
    """The least time that a machine needs for a phase (the roofline)."""
    return max(work.flops / flops.rate, work.bytes / copy.rate)


def measured_ceilings() -> Ceilings:
    """The best of some runs of each, of the copy with all cores or one, whichever is faster."""
    return Ceilings(product_ceiling(), copy_ceiling())


def best(first: Ceilings, second: Ceilings) -> Ceilings:
    """The higher of each: a busy minute only ever lowers them."""
    return Ceilings(*map(max, first, second))


def product_ceiling(size: int = 3000) -> Ceiling:
    """Of NumPy's product of square matrices, which takes all cores."""
    a, result = np.ones((size, size)), np.empty((size, size))
    return _ceiling(2 * size**3, lambda: np.matmul(a, a, result))


def copy_ceiling(numbers: int = 25_000_000) -> Ceiling:
    """Of copying so many numbers from one array to another.

    Both have been used before: to new memory, which the system must clear first, a copy would be
    several times slower.
    """
    counts = {1, os.cpu_count() or 1}
    return max(_copy_ceiling(np.ones(numbers), np.ones(numbers), n) for n in counts)


def _copy_ceiling(source: np.ndarray, target: np.ndarray, threads: int) -> Ceiling:
    pairs = [*zip(*(np.array_split(part, threads) for part in (target, source)), strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        return _ceiling(
            2 * BYTES * len(source), lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs))
        )


def _ceiling(amount: float, function: Callable[[], object], repeats: int = 7) -> Ceiling:
    function()
    found = []
    for _ in range(repeats):
        busy, start = time.process_time(), time.perf_counter()
        function()
        seconds = time.perf_counter() - start
        found.append(Ceiling(amount / seconds, (time.process_time() - busy) / seconds))
    return max(found)
