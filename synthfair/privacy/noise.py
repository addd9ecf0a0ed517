"""Noise from random bytes: the operating system's, unless a test asks."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from synthfair.errors import InputError

RandomBytes = Callable[[int], bytes]
"""Returns so many random bytes."""


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


def uniform(count: int, source: RandomBytes) -> np.ndarray:
    """[count] independent multiples of 2^-53, uniform in (0, 1]."""
    integers = np.frombuffer(source(8 * count), np.uint64) >> np.uint64(11)
    return (integers + 1.0) / 2.0**53
