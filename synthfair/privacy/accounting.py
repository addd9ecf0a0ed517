"""Exact accounts of Gaussian mechanisms, which are all that a private release is made of.

A Gaussian mechanism whose noise has the standard deviation sigma, on a query that a neighbour
changes by at most Delta (Euclidean norm), is mu-GDP with mu = Delta / sigma, and mechanisms mu_1,
mu_2, ... together are sqrt(mu_1^2 + mu_2^2 + ...)-GDP, also where one is chosen by what those
before it released. mu-GDP is (epsilon, delta)-DP exactly for

    delta >= Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2).

Dong, Roth and Su (2022), *Gaussian Differential Privacy*, corollaries 2.13 and 3.3; Balle and Wang
(2018), theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from synthfair.errors import InputError

ACCOUNTANT = r"^exact Gaussian composition, dp-accounting [0-9A-Za-z.+-]{1,30}$"
"""What :func:`accountant` returns, as a pattern."""


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta for which mu-GDP, mu >= 0, is (epsilon, delta)-DP; no package is needed."""
    if mu == 0:
        return 0.0
    far, near = epsilon / mu + mu / 2, epsilon / mu - mu / 2
    return max(0.0, _upper_tail(near) - math.exp(epsilon) * _upper_tail(far))


def _upper_tail(z: float) -> float:
    """1 - Phi(z)."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon for which mu-GDP is (epsilon, delta)-DP, by dp-accounting."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1.0 / mu, delta))


@cache
def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-DP, by dp-accounting.

    Args:
        epsilon: positive.
        delta: above 0, below 1.
    """
    from dp_accounting import get_sigma_gaussian

    mu = 1.0 / float(get_sigma_gaussian(epsilon, delta))
    while delta_of(mu, epsilon) > delta:  # found to a tolerance: never beyond what was asked
        mu *= 1 - 1e-9
    return mu


def composed(mus: Iterable[float]) -> float:
    """The mu of mechanisms together."""
    return math.hypot(*mus)


def accountant() -> str:
    """Which computation a statement of privacy relies on, with its version.

    Raises:
        InputError: dp-accounting is not installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"exact Gaussian composition, dp-accounting {version('dp-accounting')}"
    except PackageNotFoundError as error:
        raise InputError("epsilon: needs dp-accounting; pip install dp-accounting") from error
