"""Exact accounts of Gaussian mechanisms, which are all that a private release is made of.

A Gaussian mechanism whose noise has the standard deviation sigma, on a query that a neighbour
changes by at most Delta (Euclidean norm), is mu-GDP with mu = Delta / sigma, and mechanisms mu_1,
mu_2, ... together are sqrt(mu_1^2 + mu_2^2 + ...)-GDP, also where one is chosen by what those
before it released. Dong, Roth and Su (2022), *Gaussian Differential Privacy*, corollary 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

from synthfair.errors import InputError

ACCOUNTANT = r"^exact Gaussian composition, dp-accounting [0-9A-Za-z.+-]{1,30}$"
"""What :func:`accountant` returns, as a pattern."""


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta for which mu-GDP is (epsilon, delta)-DP.

        delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)

    Dong, Roth and Su (2022), corollary 2.13; Balle and Wang (2018), theorem 8.

    Args:
        mu: of all mechanisms together, at least 0; sensitivity / noise for a single one.
        epsilon: at least 0.

    Returns:
        From 0 to 1.

    Example:
        >>> import synthfair as sf
        >>> round(sf.privacy.delta_of(1.0, 1.0), 4)
        0.1269
    """
    if mu == 0:
        return 0.0

    def upper_tail(z: float) -> float:
        return 0.5 * math.erfc(z / math.sqrt(2))

    far, near = epsilon / mu + mu / 2, epsilon / mu - mu / 2
    return max(0.0, upper_tail(near) - math.exp(epsilon) * upper_tail(far))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon for which mu-GDP is (epsilon, delta)-DP, by dp-accounting.

    Args:
        mu: of all mechanisms together, at least 0; sensitivity / noise for a single one.
        delta: above 0, below 1.

    Returns:
        At least 0.

    Example:
        >>> import synthfair as sf
        >>> round(sf.privacy.epsilon_of(0.5, 1e-5), 2)
        1.99
    """
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1.0 / mu, delta))


@cache
def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP is (epsilon, delta)-DP, by dp-accounting.

    Args:
        epsilon: positive.
        delta: above 0, below 1.

    Returns:
        Positive. The noise of a single sum is its sensitivity / mu.

    Example:
        >>> import synthfair as sf
        >>> round(sf.privacy.mu_for(1.0, 1e-5), 3)
        0.268
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
