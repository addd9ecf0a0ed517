"""What an outer step must compute and move, and what this machine can.

Counted phase by phase, each of which waits for the one before. Numbers are of 8 bytes, but for the
gradient of P and Adam's moments, which are of 4.

- A gradient of the inner objective reads the inputs, multiplies them by theta and by a column, and
  has an exponential and a quotient a row; of a convex objective no value is needed. As many are
  counted as our solver made, for the paper leaves the solver open; another one may need fewer.
- The Hessian reads the inputs; one triangle is needed, and a weight a row.
- F and its gradient read the real inputs.
- The mixed derivative reads the inputs and writes the gradient, of three products a number.
- Adam reads gradient, x and two moments, and writes the last three.

Left out is what is small: labels and groups, vectors of one number a row, the solver's own vectors,
trial steps of line searches that did not take the first, the covariance and the gap.

The time is the roofline's: of each phase the longer of computing at the speed of a large matrix
product and moving at that of a large copy, as if both went on at once. These arrays fit in the
processor's last cache, and exponentials run far below the speed of a product; so the first makes
the limit a little long, the second short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

DOUBLE, SINGLE = 8, 4
"""Bytes of a number."""

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
    """Return the work of one outer step, phase by phase.

    Args:
        n_real: N.
        n_synthetic: N_s.
        n_inputs: n, the group among them.
        evaluations: of the inner objective and its gradient, at least 1.
    """
    real, synthetic = n_real * n_inputs, n_synthetic * n_inputs
    features, loss = n_synthetic * (n_inputs - 1), EXPONENTIAL + LOGARITHM + QUOTIENT
    evaluation = 4 * synthetic + (EXPONENTIAL + QUOTIENT) * n_synthetic
    hessian = synthetic * (n_inputs + 2) + (EXPONENTIAL + QUOTIENT) * n_synthetic + n_inputs**3 / 3
    reading = synthetic * DOUBLE
    return [
        Work("inner solve", evaluations * evaluation, evaluations * reading),
        Work("Hessian", hessian, reading),
        Work("F and its gradient", 4 * real + loss * n_real, real * DOUBLE),
        Work("mixed derivative", 5 * synthetic, reading + features * SINGLE),
        Work("Adam", ADAM * features, features * (2 * DOUBLE + 5 * SINGLE)),
    ]


class Ceilings(NamedTuple):
    """What a machine does at most: operations, and bytes read and written, a second."""

    flops: float
    bytes: float


def least_seconds(work: Work, ceilings: Ceilings) -> float:
    """Return the least seconds that a machine needs for a phase (the roofline)."""
    return max(work.flops / ceilings.flops, work.bytes / ceilings.bytes)


def measured_ceilings(size: int, numbers: int) -> Ceilings:
    """Of a product of square matrices of a size, and of a copy of so many numbers.

    The best of some runs, of the copy with all cores or one, whichever is faster.

    Both arrays have been used before: to new memory, which the system must clear first, a copy
    would be several times slower.
    """
    a, result = np.ones((size, size)), np.empty((size, size))
    flops = _rate(2 * size**3, lambda: np.matmul(a, a, result))
    source, target = np.ones(numbers), np.ones(numbers)
    counts = {1, os.cpu_count() or 1}
    return Ceilings(flops, max(_copy_rate(source, target, threads) for threads in counts))


def _copy_rate(source: np.ndarray, target: np.ndarray, threads: int) -> float:
    pairs = [*zip(*(np.array_split(part, threads) for part in (target, source)), strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        amount = 2 * DOUBLE * len(source)
        return _rate(amount, lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs)))


def _rate(amount: float, function: Callable[[], object], repeats: int = 7) -> float:
    found = []
    for _ in range(repeats + 1):  # the first warms up
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return amount / min(found[1:])
