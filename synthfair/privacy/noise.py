"""Noise from random bytes: the operating system's, unless a test asks."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from synthfair.errors import InputError

RandomBytes = Callable[[int], bytes]
"""Returns so many random bytes."""

LARGEST_LAPLACE = 53 * float(np.log(2.0))
"""Of the numbers that :func:`laplace` makes: the logarithm of the smallest uniform one."""


def system_entropy(count: int) -> bytes:
    """Bytes that nobody can predict or repeat."""
    return os.urandom(count)


def seeded(seed: int) -> RandomBytes:
    """Bytes that anybody can repeat: for tests alone, as noise that is known protects nothing.

    Raises:
        InputError: a negative seed.
    """
    if seed < 0:
        raise InputError(f"insecure_noise_seed = {seed}: must be 0 or more")
    return np.random.default_rng(seed).bytes


def standard_normal(shape: tuple[int, ...], source: RandomBytes) -> np.ndarray:
    """Independent standard normal numbers, by the transform of Box and Muller (1958).

    They are floating-point numbers: of 53 random bits each, and at most 8.6 in size. What an
    attacker learns from that (Mironov 2012) is not covered by any guarantee built on them.
    """
    count = int(np.prod(shape))
    radius, angle = uniform(2 * count, source).reshape(2, count)
    return (np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)).reshape(shape)


def uniform(count: int, source: RandomBytes) -> np.ndarray:
    """[count] independent multiples of 2^-53, uniform in (0, 1]: no logarithm is infinite."""
    integers = np.frombuffer(source(8 * count), np.uint64) >> np.uint64(11)
    return (integers + 1.0) / 2.0**53


def laplace(count: int, source: RandomBytes) -> np.ndarray:
    """[count] independent Laplace numbers of scale 1, at most :data:`LARGEST_LAPLACE` in size.

    They are floating-point numbers: what is said of :func:`standard_normal` holds of them, too.
    """
    size = -np.log(uniform(count, source))
    negative = np.unpackbits(np.frombuffer(source((count + 7) // 8), np.uint8), count=count)
    return np.where(negative, -size, size)
