"""The privacy accounting of noisy sums, alone or composed with choices.

A Gaussian mechanism whose noise has the standard deviation sigma, on a query that a neighbour
changes by at most Delta (Euclidean norm), is mu-GDP with mu = Delta / sigma, and mechanisms mu_1,
mu_2, ... together are sqrt(mu_1^2 + mu_2^2 + ...)-GDP, also where one is chosen by what those
before it released. Dong, Roth and Su (2022), *Gaussian Differential Privacy*, corollary 3.3.
A choice by the exponential mechanism counts as one of them, see :func:`mu_of_choice`.

The noise of releases is discrete. :func:`discrete_delta_of` says why that changes next to nothing.

That a sample is random, and not known, makes sums over it private beyond their noise. dp-accounting
computes by how much: for samples drawn one by one (Poisson) by its privacy loss distributions, for
samples of fixed size by the Renyi bound of Wang, Balle and Kasiviswanathan (2019), theorem 27.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from synthfair.errors import InputError
from synthfair.settings import Relation

if TYPE_CHECKING:
    from dp_accounting import PrivacyAccountant

MIN_NOISE_STEPS = 2**34
"""The least standard deviation of discrete Gaussian noise, in steps of its grid."""

DISCRETE_EXCESS = 1e-11
"""An upper bound on what discrete noise adds to epsilon, and to delta relatively."""

EPSILON_STEPS = 2**20
"""The epsilon of a choice is a whole number of parts of 1, of which there are so many."""

ACCOUNTANT = r"^dp-accounting [0-9A-Za-z.+-]{1,30}$"
"""Pattern of what :func:`accountant` returns."""


Sampling = Literal["poisson", "fixed"]
"""Draws of rows: each by itself with the same probability; or a fixed number, each at most once."""

MAX_NOISE_MULTIPLIER = 1e4
"""Standard deviations of noise a sensitivity, beyond which a sum says nothing."""

MIN_NOISE_MULTIPLIER = 0.1
"""The smallest such noise that the search for the least noise tries."""

NOISE_TOLERANCE = 1e-3
"""Relative tolerance of the noise: it may be larger than needed by about so much."""


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least delta for which mu-GDP is (epsilon, delta)-DP.

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
    near, far = (
        0.5 * math.erfc((epsilon / mu + shift) / math.sqrt(2)) for shift in (-mu / 2, mu / 2)
    )
    return max(0.0, near - math.exp(epsilon) * far)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon for which mu-GDP is (epsilon, delta)-DP, by dp-accounting.

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
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1.0 / mu if mu else math.inf, delta))


def discrete_delta_of(mu: float, epsilon: float) -> float:
    """Return a delta for which mechanisms with discrete noise are (epsilon, delta)-DP.

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
    return (1 + DISCRETE_EXCESS) * delta_of(mu, epsilon - DISCRETE_EXCESS)


def discrete_mu_for(epsilon: float, delta: float) -> float:
    """Return the mu to make discrete noise for: a little below :func:`mu_for`.

    Args:
        epsilon: at least 1e-6.
        delta: above 0, below 1.
    """
    return mu_for(epsilon - DISCRETE_EXCESS, delta * (1 - DISCRETE_EXCESS))


@cache
def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP is (epsilon, delta)-DP, by dp-accounting.

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
    """Return the least mu for which every choice of range epsilon is mu-GDP.

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
    """Return the largest range for which a choice is mu-GDP: 2 logit Phi(mu / 2), of 2^-20 each.

    Args:
        mu: at least 0, at most 20.

    Example:
        >>> from synthfair.privacy.accounting import epsilon_of_choice, mu_of_choice
        >>> 0 <= 0.5 - mu_of_choice(epsilon_of_choice(0.5)) < 1e-6
        True
    """
    odds = math.erfc(-mu / 8**0.5) / math.erfc(mu / 8**0.5)
    return math.floor(2 * math.log(odds) * EPSILON_STEPS) / EPSILON_STEPS


def accountant() -> str:
    """Return the name and version of the library by which epsilon and delta are computed."""
    from importlib.metadata import version

    return f"dp-accounting {version('dp-accounting')}"


@dataclass(frozen=True)
class SampledSums:
    """A series of noisy sums over samples, each chosen by what those before it released.

    Guarantee: what :meth:`epsilon` returns, for a sum whose noise has the standard deviation
    ``noise`` times its sensitivity. Neighbouring relation: add or remove one, for Poisson samples,
    whose probability is a setting and no count; replace one, for samples of fixed size, of a
    population whose size is public. Unit: whatever is sampled, a user or a row.

    Attributes:
        population: number of users or rows.
        sample: how many of them are in a sample, or expected to be.
        times: number of releases.
        sampling: how samples are drawn.

    Raises:
        InputError: an empty sample, one larger than the population, or no release.

    Example:
        All ten users in each of four sums: four Gaussian mechanisms, which are accounted exactly.

        >>> sums = SampledSums(population=10, sample=10, times=4)
        >>> round(sums.epsilon(noise=4.0, delta=1e-5), 3)
        1.993
        >>> round(sums.noise(epsilon=2.0, delta=1e-5), 3)
        3.988
    """

    population: int
    sample: int
    times: int
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if not 1 <= self.sample <= self.population:
            raise InputError(f"sample = {self.sample}: must be 1 to {self.population}, all")
        if self.times < 1:
            raise InputError(f"rounds = {self.times}: must be at least 1")

    @property
    def relation(self) -> Relation:
        """The neighbouring relation: which populations are neighbours."""
        return "add_or_remove" if self.sampling == "poisson" else "replace"

    @property
    def everyone(self) -> bool:
        """Return whether a sample is the whole population: then nothing is random but the noise."""
        return self.sample == self.population

    def epsilon(self, noise: float, delta: float) -> float:
        """Return the least epsilon, at this delta, that is known to hold.

        Args:
            noise: standard deviation, in units of the sensitivity; positive.
            delta: above 0, below 1.
        """
        return Composition.of([(self, noise)]).epsilon(delta)

    def noise(self, epsilon: float, delta: float) -> float:
        """Return the least noise for which epsilon and delta hold, see :func:`common_noise`."""
        return common_noise((self,), epsilon, delta)


@dataclass(frozen=True)
class Composition:
    """A composition of mechanisms of one unit and one neighbouring relation, in whatever order.

    One accountant composes them, which gives less than the sum of their epsilons.

    Attributes:
        mu: of Gaussian differential privacy, all mechanisms without sampling together.
        sampled: the others, each with its noise in units of its sensitivity; all of one relation.
        pure: sum of the epsilons of mechanisms whose delta is 0; it adds to the others' epsilon.
    """

    mu: float = 0.0
    sampled: tuple[tuple[SampledSums, float], ...] = ()
    pure: float = 0.0

    @classmethod
    def of(cls, parts: Iterable[tuple[SampledSums, float]]) -> Composition:
        """Return sums with their noise, composed; sums over everyone are exact Gaussian mechanisms.

        Raises:
            InputError: nothing to compose, or samples of unlike kinds.
        """
        parts = tuple(parts)
        if len({sums.relation for sums, _ in parts}) != 1:
            raise InputError(f"sums of {len(parts)} kinds: give some, of samples drawn alike")
        mu = math.hypot(*(sums.times**0.5 / noise for sums, noise in parts if sums.everyone))
        return cls(mu, tuple(term for term in parts if not term[0].everyone))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon known to hold at this delta; exact where nothing is sampled."""
        accounted = _epsilon(self, delta) if self.sampled else epsilon_of(self.mu, delta)
        return self.pure + accounted

    def delta(self, epsilon: float) -> float:
        """Return the least delta that is known to hold at this epsilon."""
        remaining = epsilon - self.pure
        if remaining < 0:
            return 1.0
        if not self.sampled:
            return delta_of(self.mu, remaining)
        with _quiet():
            return float(_accountant(self).get_delta(remaining))


@cache
def _epsilon(composition: Composition, delta: float, *, tight: bool = True) -> float:
    with _quiet():
        return float(_accountant(composition, tight=tight).get_epsilon(delta))


def _accountant(composition: Composition, *, tight: bool = True) -> PrivacyAccountant:
    """Return the tightest accountant for a way of sampling; or that of the quick Renyi bound."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    if tight and composition.sampled[0][0].sampling == "poisson":
        accountant = PLDAccountant()
    else:
        relation = composition.sampled[0][0].relation
        kind = "ADD_OR_REMOVE_ONE" if relation == "add_or_remove" else "REPLACE_ONE"
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation[kind])
    for sums, noise in composition.sampled:
        event, n, m = dp.GaussianDpEvent(noise), sums.population, sums.sample
        if sums.sampling == "poisson":
            event = dp.PoissonSampledDpEvent(m / n, event)
        else:
            event = dp.SampledWithoutReplacementDpEvent(n, m, event)
        accountant.compose(event, sums.times)
    if composition.mu > 0:
        accountant.compose(dp.GaussianDpEvent(1.0 / composition.mu))
    return accountant


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the Renyi accountant, which logs each order that it leaves out to no harm."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@cache
def common_noise(kinds: tuple[SampledSums, ...], epsilon: float, delta: float) -> float:
    """Return the least noise, in units of the sensitivity, that several kinds of sums may all have.

    It is exact where everyone is in each sum; else up to :data:`NOISE_TOLERANCE` larger than
    needed, and not below :data:`MIN_NOISE_MULTIPLIER`.

    Args:
        kinds: of sums about the same population.
        epsilon: positive, of all together.
        delta: above 0, below 1, of all together.

    Raises:
        InputError: no reasonable noise is enough, nothing to compose, or samples of unlike kinds.
    """

    def cost(noise: float, *, tight: bool = True) -> float:
        return _epsilon(Composition.of((sums, noise) for sums in kinds), delta, tight=tight)

    try:
        alone = Composition.of((sums, 1.0) for sums in kinds)
        if not alone.sampled:  # exact
            return _first(lambda _: True, alone.mu / mu_for(epsilon, delta))
        return least_noise(cost, epsilon, guess=partial(cost, tight=kinds[0].sampling == "fixed"))
    except OverflowError as error:
        raise InputError(
            f"epsilon = {epsilon:g} at delta = {delta:g}: no noise up to {MAX_NOISE_MULTIPLIER:g}"
            " times the clip is enough; ask for less privacy, fewer rounds or smaller cohorts"
        ) from error


def least_noise(
    cost: Callable[[float], float], epsilon: float, *, guess: Callable[[float], float]
) -> float:
    """Return the least noise that spends at most an epsilon, up to :data:`NOISE_TOLERANCE`.

    It is bracketed, and then found as a root on logarithmic scales, where epsilon is nearly linear
    in the noise. That what is returned is enough was checked.

    Args:
        cost: the epsilon of a noise, falling in it; exact, and slow.
        epsilon: positive.
        guess: the same, quick, and somewhat too large: it says where to look.

    Raises:
        OverflowError: :data:`MAX_NOISE_MULTIPLIER` is not enough.
    """
    from scipy.optimize import root_scalar

    def excess(log_noise: float) -> float:
        return math.log(max(cost(math.exp(log_noise)), 1e-12) / epsilon)

    # A bracket around the least noise that is enough: at high, and not at low.
    high = _first(lambda noise: guess(noise) <= epsilon, MIN_NOISE_MULTIPLIER)
    if cost(high) > epsilon:
        high = _first(lambda noise: cost(noise) <= epsilon, high * 1.1)
    low = high / 1.1
    while high > MIN_NOISE_MULTIPLIER and cost(low) <= epsilon:
        low, high = low / 1.1, low
    if high <= MIN_NOISE_MULTIPLIER:  # with a large delta, that few are ever sampled may be enough
        return high
    # The root, and from there the first noise that is seen to be enough.
    bracket = (math.log(low), math.log(high))
    root = root_scalar(excess, bracket=bracket, method="brentq", xtol=NOISE_TOLERANCE / 4).root
    return _first(
        lambda noise: cost(noise) <= epsilon,
        math.exp(root + NOISE_TOLERANCE / 2),
        step=1 + NOISE_TOLERANCE / 4,
    )


def _first(holds: Callable[[float], bool], noise: float, *, step: float = 1.2) -> float:
    """Return the first noise, growing by a factor from a start, for which it holds."""
    while noise <= MAX_NOISE_MULTIPLIER:
        if holds(noise):
            return noise
        noise *= step
    raise OverflowError
