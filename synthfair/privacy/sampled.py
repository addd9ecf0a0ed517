"""Accounts of noisy sums over random samples of users, or of rows, and of such sums with others.

That a sample is random, and not known, makes it private beyond its noise. dp-accounting computes by
how much: for samples drawn one by one (Poisson) by its privacy loss distributions, for samples of
fixed size by the Renyi bound of Wang, Balle and Kasiviswanathan (2019), theorem 27.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from synthfair.config import Relation
from synthfair.errors import InputError
from synthfair.privacy.accounting import delta_of, epsilon_of, mu_for

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

Sampling = Literal["poisson", "fixed"]
"""Each by itself with the same probability; or a fixed number, without replacement."""

LARGEST_NOISE = 1e4
"""Standard deviations of noise a sensitivity, beyond which a sum says nothing."""

LEAST_NOISE = 0.1
"""The same, below which the search for the least noise does not go."""

TOLERANCE = 1e-3
"""Of the noise, relatively: what is found may be larger than needed by about so much."""


@dataclass(frozen=True)
class SampledSums:
    """Releases of noisy sums over samples, each chosen by what those before it released.

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
        """Refuses numbers out of range."""
        if not 1 <= self.sample <= self.population:
            raise InputError(f"sample = {self.sample}: must be 1 to {self.population}, all")
        if self.times < 1:
            raise InputError(f"rounds = {self.times}: must be at least 1")

    @property
    def relation(self) -> Relation:
        """Which populations are neighbours."""
        return "add_or_remove" if self.sampling == "poisson" else "replace"

    @property
    def everyone(self) -> bool:
        """Whether a sample is the whole population: then nothing is random but the noise."""
        return self.sample == self.population

    def event(self, noise: float) -> DpEvent:
        """As dp-accounting calls it."""
        import dp_accounting as dp

        gaussian = dp.GaussianDpEvent(noise)
        one = (
            dp.PoissonSampledDpEvent(self.sample / self.population, gaussian)
            if self.sampling == "poisson"
            else dp.SampledWithoutReplacementDpEvent(self.population, self.sample, gaussian)
        )
        return dp.SelfComposedDpEvent(one, self.times)

    def epsilon(self, noise: float, delta: float) -> float:
        """The least epsilon, at this delta, that is known to hold.

        Args:
            noise: standard deviation, in units of the sensitivity; positive.
            delta: above 0, below 1.
        """
        return Composition.of([(self, noise)]).epsilon(delta)

    def noise(self, epsilon: float, delta: float) -> float:
        """The least noise for which epsilon and delta hold, see :func:`common_noise`."""
        return common_noise([self], epsilon, delta)


@dataclass(frozen=True)
class Composition:
    """Mechanisms of one unit and one neighbouring relation, in whatever order.

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
        """Of sums with their noise; those over everyone are Gaussian mechanisms, which is exact.

        Raises:
            InputError: nothing to compose, or samples of unlike kinds.
        """
        parts = tuple(parts)
        _require_alike([sums for sums, _ in parts])
        mu = math.hypot(*(sums.times**0.5 / noise for sums, noise in parts if sums.everyone))
        return cls(mu, tuple(part for part in parts if not part[0].everyone))

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is known to hold at this delta; exact where nothing is sampled."""
        return self.pure + self._others(delta)

    def _others(self, delta: float) -> float:
        return _epsilon(self, delta) if self.sampled else epsilon_of(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        """The least delta that is known to hold at this epsilon."""
        others = epsilon - self.pure
        if others < 0:
            return 1.0
        if not self.sampled:
            return delta_of(self.mu, others)
        with _quiet():
            return float(_accountant(self).get_delta(others))


def common_noise(kinds: Sequence[SampledSums], epsilon: float, delta: float) -> float:
    """The least noise, in units of the sensitivity, that several kinds of sums may all have.

    It is exact where everyone is in each sum; else up to :data:`TOLERANCE` larger than needed, and
    not below :data:`LEAST_NOISE`.

    Args:
        kinds: of sums about the same population.
        epsilon: positive, of all together.
        delta: above 0, below 1, of all together.

    Raises:
        InputError: no reasonable noise is enough, nothing to compose, or samples of unlike kinds.
    """
    _require_alike(kinds)
    return _noise(tuple(kinds), epsilon, delta)


def _require_alike(kinds: Sequence[SampledSums]) -> None:
    if len({sums.relation for sums in kinds}) != 1:
        raise InputError(
            f"sums of {len(kinds)} kinds: must be at least one, and all of samples drawn alike,"
            " Poisson or of fixed size"
        )


@cache
def _epsilon(composition: Composition, delta: float) -> float:
    with _quiet():
        return float(_accountant(composition).get_epsilon(delta))


def _accountant(composition: Composition, *, tight: bool = True) -> PrivacyAccountant:
    """That of dp-accounting which is tightest for a way of sampling; or the quick Renyi bound."""
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
        accountant.compose(sums.event(noise))
    if composition.mu > 0:
        accountant.compose(dp.GaussianDpEvent(1.0 / composition.mu))
    return accountant


@contextmanager
def _quiet() -> Iterator[None]:
    """The Renyi accountant logs each order that it leaves out, which only loosens the bound."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@cache
def _noise(kinds: tuple[SampledSums, ...], epsilon: float, delta: float) -> float:
    def with_noise(noise: float) -> Composition:
        return Composition.of((sums, noise) for sums in kinds)

    def spent(noise: float) -> float:
        return with_noise(noise).epsilon(delta)

    def renyi(noise: float) -> float:
        with _quiet():
            return float(_accountant(with_noise(noise), tight=False).get_epsilon(delta))

    try:
        if all(sums.everyone for sums in kinds):  # no sampling: exact
            exact = sum(sums.times for sums in kinds) ** 0.5 / mu_for(epsilon, delta)
            return _first(lambda _: True, exact)
        return least_noise(spent, epsilon, guess=spent if kinds[0].sampling == "fixed" else renyi)
    except OverflowError as error:
        raise InputError(
            f"epsilon = {epsilon:g} at delta = {delta:g}: no noise up to {LARGEST_NOISE:g} times"
            " the clip is enough; ask for less privacy, fewer rounds or smaller cohorts"
        ) from error


def least_noise(
    spent: Callable[[float], float], epsilon: float, *, guess: Callable[[float], float]
) -> float:
    """The least noise that spends at most an epsilon, up to :data:`TOLERANCE`.

    It is bracketed, and then found as a root on logarithmic scales, where epsilon is nearly linear
    in the noise. That what is returned is enough was checked.

    Args:
        spent: the epsilon of a noise, falling in it; exact, and slow.
        epsilon: positive.
        guess: the same, quick, and somewhat too large: it says where to look.

    Raises:
        OverflowError: :data:`LARGEST_NOISE` is not enough.
    """
    from scipy.optimize import root_scalar

    def enough(noise: float) -> bool:
        return spent(noise) <= epsilon

    def excess(log_noise: float) -> float:
        return math.log(max(spent(math.exp(log_noise)), 1e-12) / epsilon)

    high = _first(lambda noise: guess(noise) <= epsilon, LEAST_NOISE)
    if not enough(high):
        high = _first(enough, high * 1.1)
    low = high / 1.1
    while high > LEAST_NOISE and enough(low):
        low, high = low / 1.1, low
    if high <= LEAST_NOISE:  # with a large delta, that few are ever sampled may be enough
        return high
    bracket = (math.log(low), math.log(high))
    root = root_scalar(excess, bracket=bracket, method="brentq", xtol=TOLERANCE / 4).root
    return _first(enough, math.exp(root + TOLERANCE / 2), step=1 + TOLERANCE / 4)


def _first(holds: Callable[[float], bool], noise: float, *, step: float = 1.2) -> float:
    """The first noise, growing by a factor from a start, for which it holds."""
    while noise <= LARGEST_NOISE:
        if holds(noise):
            return noise
        noise *= step
    raise OverflowError
