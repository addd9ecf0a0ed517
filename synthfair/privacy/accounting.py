"""Accounts of what a private release is made of: Gaussian mechanisms and exponential choices.

A Gaussian mechanism whose noise has the standard deviation sigma, on a query that a neighbour
changes by at most Delta (Euclidean norm), is mu-GDP with mu = Delta / sigma, and mechanisms mu_1,
mu_2, ... together are sqrt(mu_1^2 + mu_2^2 + ...)-GDP, also where one is chosen by what those
before it released. Dong, Roth and Su (2022), *Gaussian Differential Privacy*, corollary 3.3.
A choice by the exponential mechanism counts as one of them, see :func:`mu_of_choice`.

The noise of releases is discrete. :func:`discrete_delta_of` says why that changes next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from statistics import NormalDist

from synthfair.errors import InputError

LEAST_STEPS = 2**34
"""Of the standard deviation of discrete Gaussian noise, in steps of its grid."""

DISCRETE = 1e-11
"""What discrete noise adds to epsilon, and to delta relatively, at most."""

CHOICES = 2**20
"""The epsilon of a choice is a whole number of parts of 1, of which there are so many."""

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


def discrete_delta_of(mu: float, epsilon: float) -> float:
    """A delta for which mechanisms with discrete Gaussian noise are (epsilon, delta)-DP.

        delta = (1 + h) delta_of(mu, epsilon - h)        with h = 1e-11

    for integer sums with a sensitivity as for mu, fewer than 2^32 numbers in all, and a standard
    deviation of s >= 2^34 steps. Each sum may depend on those released before it.

    Proof. Let P be the discrete Gaussian distribution, and R that of a normal number of deviation
    s, rounded to an integer. With noise from R the releases are mu-GDP exactly: an integer plus
    rounded noise is the rounded sum, and rounding is post-processing. The sum Z of exp(-k^2/2s^2)
    is at least s sqrt(2 pi), and exceeds it by less than a part in 10^100 (Poisson's formula). With
    u uniform in [-1/2, 1/2],

        R(k) / P(k) = Z / (s sqrt(2 pi)) E[exp(-u^2 / 2s^2) cosh(k u / s^2)],

    which is at least 1 - 1/(24 s^2), and at most Z / (s sqrt(2 pi)) exp(k^2 / 8s^4). So n numbers
    have P <= C R with log C <= n / (23 s^2) everywhere; and, where their noise is shorter than
    s (sqrt(n) + 65), R <= D P with log D <= (sqrt(n) + 65)^2 / (7 s^2). Under R, it is longer with
    a chance t below exp(-2000) (Gaussian concentration). For every set A of releases, from a table
    and a neighbour,

        P(A) <= C R(A) <= C (exp(e) R'(A) + delta_of(mu, e))
             <= C D exp(e) P'(A) + C (delta_of(mu, e) + exp(e) t).

    With n = 2^32, log(C D) is below 4e-12; exp(e) t is nothing next to any delta from 1e-15 on.
    Exponential choices between the sums are the same under P and R, so that they change no ratio.

    Args:
        mu: of all mechanisms together, as for normal noise.
        epsilon: at least 1e-6.

    Example:
        >>> from synthfair.privacy.accounting import delta_of, discrete_delta_of
        >>> 0 < discrete_delta_of(1.0, 1.0) - delta_of(1.0, 1.0) < 1e-11
        True
    """
    return (1 + DISCRETE) * delta_of(mu, epsilon - DISCRETE)


def discrete_mu_for(epsilon: float, delta: float) -> float:
    """The mu to make discrete noise for: a little below :func:`mu_for`.

    Args:
        epsilon: at least 1e-6.
        delta: above 0, below 1.
    """
    return mu_for(epsilon - DISCRETE, delta * (1 - DISCRETE))


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


def mu_of_choice(epsilon: float) -> float:
    """The least mu for which every choice of range epsilon is mu-GDP.

        mu = 2 Phi^-1(sigma(epsilon / 2)),        sigma(v) = 1 / (1 + exp(-v))

    A choice has the range epsilon if, between neighbours, the logarithm of the ratio P(i) / Q(i) of
    an outcome's chances differs by at most epsilon from one outcome i to another. With scores u_i
    that a neighbour changes by at most Delta, P(i) proportional to exp(epsilon u_i / (2 Delta)) has
    it: the sums over all i cancel. Dong, Durfee and Rogers (2020), *Optimal Differential Privacy
    Composition for Exponential Mechanisms*.

    Proof. 1. Let P / Q lie in [exp(t - epsilon), exp(t)]. For each gamma, E_Q max(P/Q - gamma, 0)
    is the mean of a convex function of P/Q, whose mean is 1. It is largest where P/Q takes the two
    ends of the interval alone. So the pair is dominated by two Bernoulli chances p and q with
    logit p - logit q = epsilon: p = sigma(u + epsilon/2), q = sigma(u - epsilon/2) for some u.

    2. Their trade-off function joins (0, 1), (1 - p, q) and (1, 0) by straight lines. That of
    mu-GDP, Phi(Phi^-1(1 - a) - mu), is convex, and therefore below it where it is so in these three
    points: where mu >= Phi^-1(p) - Phi^-1(q) = g(u + epsilon/2) - g(u - epsilon/2), g being
    Phi^-1 o sigma.

    3. That difference is largest at u = 0, as g' is even and falls with |v|. For g' is Phi(x)
    Phi(-x) / phi(x) at x = g(v). With a = Phi(x) - 1/2, its logarithm has a derivative of the sign
    of -D(x), D = 2 a phi - x (1/4 - a^2). Now D' = 2 phi^2 - 1/4 + a^2 and D'' = 2 phi (a - 2 x
    phi). As a - 2 x phi is 0 at 0, falls up to x = 1/sqrt(2), and rises from there to 1/2, D' falls
    and then rises, from 2/(2 pi) - 1/4 > 0 to its limit 0. So D rises and then falls, from 0 to its
    limit 0, and is positive for all x > 0.

    The bound is attained, by two outcomes. Mechanisms of GDP compose as the module says, so that k
    choices, each among what those before it left, are sqrt(k) mu-GDP.

    Args:
        epsilon: at least 0, at most 100.

    Example:
        >>> from synthfair.privacy.accounting import mu_of_choice
        >>> round(mu_of_choice(1.0), 4)
        0.6239
    """
    return -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon / 2)))


def epsilon_of_choice(mu: float) -> float:
    """The largest range, a multiple of 2^-20, for which a choice is mu-GDP: 2 logit Phi(mu / 2).

    Args:
        mu: at least 0, at most 20.

    Example:
        >>> from synthfair.privacy.accounting import epsilon_of_choice, mu_of_choice
        >>> 0 <= 0.5 - mu_of_choice(epsilon_of_choice(0.5)) < 1e-6
        True
    """
    odds = math.erfc(-mu / 8**0.5) / math.erfc(mu / 8**0.5)
    return math.floor(2 * math.log(odds) * CHOICES) / CHOICES


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
