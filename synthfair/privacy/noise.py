"""Exact discrete noise made of random bytes.

Algorithms 1 to 3 of Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential
Privacy*, in rational arithmetic. Every decision compares integers: there is no logarithm and no
rounding, and so nothing for attacks on floating-point arithmetic (Mironov 2012) to find. The time
that a sample takes depends on its value; that is not hidden.

Many samples share each loop of rejections. Their integers are int64 where a bound that is proven
next to the code keeps them below 2^63, and Python's own elsewhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from synthfair.errors import InputError

RandomBytes = Callable[[int], bytes]
"""A function that returns so many random bytes."""


MAX_SCALE = 2**50
"""The largest scale or deviation. It keeps noise below 2^63, but for a chance of exp(-2^13)."""

_MAX_FACTOR = 2**31
"""U + t V is below 2^63 if t and V are below this; counting V so far would take hours."""


def system_entropy(count: int) -> bytes:
    """Return bytes that nobody can predict or repeat."""
    return os.urandom(count)


def seeded(seed: int) -> RandomBytes:
    """Return bytes that anybody can repeat: for tests alone, as known noise protects nothing.

    Raises:
        InputError: a negative seed.
    """
    if seed < 0:
        raise InputError(f"insecure_noise_seed = {seed}: must be 0 or more")
    return np.random.default_rng(seed).bytes


def uniform(count: int, source: RandomBytes) -> np.ndarray:
    """Return [count] independent multiples of 2^-53, uniform in (0, 1]."""
    integers = np.frombuffer(source(8 * count), np.uint64) >> np.uint64(11)
    return (integers + 1.0) / 2.0**53


def discrete_laplace(scale: Fraction, n: int, source: RandomBytes = system_entropy) -> np.ndarray:
    """Return [n] independent samples of the discrete Laplace distribution.

        P(k) = (e^(1/scale) - 1) / (e^(1/scale) + 1) e^(-|k|/scale)        for each integer k.

    Guarantee: a count to which one is added is epsilon-differentially private with epsilon =
    sensitivity / scale, and so is a vector of counts with the sensitivity in L1. Unit and
    neighbouring relation are those of the sensitivity. Algorithm 2.

    Args:
        scale: above 0, at most 2^50; sensitivity / epsilon.
        n: number of samples, at least 0.
        source: of random bytes; another one than the system's is for tests alone.

    Returns:
        int64.

    Raises:
        ValueError: a scale out of range.

    Example:
        >>> from fractions import Fraction
        >>> from synthfair.privacy.noise import discrete_laplace
        >>> discrete_laplace(Fraction(10), 3).dtype
        dtype('int64')
        >>> discrete_laplace(Fraction(1, 1000), 3).tolist()  # other values: one in 10^400
        [0, 0, 0]
    """
    if not 0 < scale <= MAX_SCALE:
        raise ValueError(f"scale = {scale}: must be above 0, and at most 2^50")
    t, s = Fraction(scale).as_integer_ratio()

    def candidates(count: int) -> np.ndarray:
        u = _below(t, count, source)
        u = u[_bernoulli_exp_fraction(u, t, source)]
        v = _geometric(len(u), source)
        size = (u + t * v.astype(np.int64 if t < _MAX_FACTOR else object)) // s
        negative = _below(2, len(u), source) == 1
        keep = ~(negative & (size == 0))  # or 0 would come twice as often
        return np.where(negative, -size, size)[keep].astype(np.int64)

    return _rejection_sample(candidates, n)


def discrete_gaussian(
    variance: Fraction, n: int, source: RandomBytes = system_entropy
) -> np.ndarray:
    """Return [n] independent samples of the discrete Gaussian distribution.

        P(k) = e^(-k^2 / (2 sigma^2)) / sum_j e^(-j^2 / (2 sigma^2))       for each integer k.

    Guarantee: a vector of integers to which they are added is rho-zero-concentrated differentially
    private with rho = sensitivity^2 / (2 sigma^2), the sensitivity in L2 (theorem 14). Unit and
    neighbouring relation are those of the sensitivity. Algorithm 3.

    Args:
        variance: sigma^2, above 0, below 2^100; the true variance is a little below it, by less
            than 1e-6 of it from sigma = 1 on.
        n: number of samples, at least 0.
        source: of random bytes; another one than the system's is for tests alone.

    Returns:
        int64.

    Raises:
        ValueError: a variance out of range.

    Example:
        >>> from fractions import Fraction
        >>> from synthfair.privacy.noise import discrete_gaussian
        >>> len(discrete_gaussian(Fraction(9, 4), 5))
        5
    """
    if not 0 < variance < MAX_SCALE**2:
        raise ValueError(f"variance = {variance}: must be above 0, and below 2^100")
    a, b = Fraction(variance).as_integer_ratio()
    t = math.isqrt(a // b) + 1

    def candidates(count: int) -> np.ndarray:
        # With sigma^2 = a / b and t = floor(sigma) + 1,
        # (|y| - sigma^2 / t)^2 / (2 sigma^2) = (|y| b t - a)^2 / (2 a b t^2).
        # The squares soon pass 2^63, so they are Python integers; what follows is small again.
        y = discrete_laplace(Fraction(t), count, source)
        top, bottom = (abs(y.astype(object)) * (b * t) - a) ** 2, 2 * a * b * t**2
        return y[_bernoulli_exp(top, bottom, source)]

    return _rejection_sample(candidates, n)


def exponential_choice(
    scores: np.ndarray, rate: Fraction, source: RandomBytes = system_entropy
) -> int:
    """Return a random index i of scores u, with P(i) proportional to exp(rate u_i).

    Guarantee: the logarithm of the ratio of P(i) between neighbours differs by at most
    2 rate sensitivity from one i to another. Unit and neighbouring relation are those of the
    sensitivity, by which a neighbour changes each score at most. An index is drawn uniformly, and
    again until it is accepted, which it is with chance exp(rate (u_i - max u)).

    Args:
        scores: [n] int64, at least one.
        rate: at least 0.
        source: of random bytes; another one than the system's is for tests alone.

    Example:
        >>> import numpy as np
        >>> from fractions import Fraction
        >>> from synthfair.privacy.noise import exponential_choice
        >>> exponential_choice(np.array([0, 1000, 20]), Fraction(1))  # another: one in 10^400
        1
    """
    behind = (scores.max() - scores).astype(object) * rate.numerator
    while True:
        index = _below(len(scores), len(scores), source)
        index = index[_bernoulli_exp(behind[index], rate.denominator, source)]
        if len(index):
            return int(index[0])


def laplace_variance(scale: Fraction) -> float:
    """Return the variance of :func:`discrete_laplace`: 2 p / (1 - p)^2 with p = exp(-1/scale).

    Example:
        >>> from fractions import Fraction
        >>> from synthfair.privacy.noise import laplace_variance
        >>> round(laplace_variance(Fraction(1)), 4)
        1.8413
    """
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def _rejection_sample(candidates: Callable[[int], np.ndarray], n: int) -> np.ndarray:
    """Return the first n candidates that were accepted; each call makes some of so many."""
    samples = [np.empty(0, np.int64)]
    while (missing := n - sum(map(len, samples))) > 0:
        samples.append(candidates(missing))
    return np.concatenate(samples)


def _bernoulli_exp(top: np.ndarray, bottom: int, source: RandomBytes) -> np.ndarray:
    """Return [n] True with probability exp(-top / bottom) each, for top >= 0: algorithm 1.

    exp(-q) for a whole q is the chance that a geometric number of exp(-1) is at least q.
    """
    whole, rest = top // bottom, top % bottom
    outcome = _geometric(len(top), source) >= whole
    outcome[outcome] = _bernoulli_exp_fraction(rest[outcome], bottom, source)
    return outcome


def _bernoulli_exp_fraction(top: np.ndarray, bottom: int, source: RandomBytes) -> np.ndarray:
    """Return [n] True with probability exp(-top / bottom) each, for 0 <= top <= bottom.

    The first k at which a Bernoulli number of top / (bottom k) is 0 is odd with that probability.
    That number is drawn as two, of top / bottom and of 1 / k, so that no product can overflow.
    """
    first = np.ones(len(top), np.int64)
    active, k = np.arange(len(top)), 1
    while len(active):
        active = active[_below(bottom, len(active), source) < top[active]]
        active = active[_below(k, len(active), source) == 0]
        first[active] += 1
        k += 1
    return first % 2 == 1


def _geometric(n: int, source: RandomBytes) -> np.ndarray:
    """Return [n] times how often a Bernoulli number of exp(-1) is 1 before it is 0."""
    count, active = np.zeros(n, np.int64), np.arange(n)
    while len(active):
        active = active[_bernoulli_exp_fraction(np.ones(len(active), np.int64), 1, source)]
        count[active] += 1
    return count


def _below(m: int, n: int, source: RandomBytes) -> np.ndarray:
    """Return [n] uniform integers from 0 to m - 1: int64 for m up to 2^63, or Python's own."""
    bits = (m - 1).bit_length()
    size = 8 if bits <= 63 else (bits + 7) // 8

    def candidates(count: int) -> np.ndarray:  # at least half are below m
        if not bits:
            return np.zeros(count, np.int64)
        block, shift = source(size * count), 8 * size - bits
        if bits <= 63:
            numbers = (np.frombuffer(block, "<u8") >> np.uint64(shift)).astype(np.int64)
        else:
            pieces = (block[i : i + size] for i in range(0, len(block), size))
            numbers = np.array([int.from_bytes(p, "little") >> shift for p in pieces], object)
        return numbers[numbers < m]

    return _rejection_sample(candidates, n)
