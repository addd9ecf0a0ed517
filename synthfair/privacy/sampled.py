"""Accounts of sums over random samples of users, or of rows, each with Gaussian noise.

That a sample is random, and not known, makes it private beyond its noise. dp-accounting computes by
how much: for samples drawn one by one (Poisson) by its privacy loss distributions, for samples of
fixed size by the Renyi bound of Wang, Balle and Kasiviswanathan (2019), theorem 27.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from synthfair.errors import InputError
from synthfair.privacy.accounting import epsilon_of, mu_for
from synthfair.privacy.statement import Relation

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

Sampling = Literal["poisson", "fixed"]
"""Each by itself with the same probability; or a fixed number, without replacement."""

LARGEST_NOISE = 1e4
"""Standard deviations of noise a sensitivity, beyond which a sum says nothing."""

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
    """

    population: int
    sample: int
    times: int
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if not 1 <= self.sample <= self.population:
            raise InputError(f"sample = {self.sample}: must be 1 to {self.population}, all")
        if self.times < 1:
            raise InputError(f"rounds = {self.times}: must be at least 1")

    @property
    def relation(self) -> Relation:
        """Which populations are neighbours."""
        return "add_or_remove" if self.sampling == "poisson" else "replace"

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
        return _epsilon(self, noise, delta)

    def noise(self, epsilon: float, delta: float) -> float:
        """The least noise for which epsilon and delta hold, up to a thousandth.

        Raises:
            InputError: no reasonable noise does.
        """
        return _noise(self, epsilon, delta)


def fresh_accountant(sampling: Sampling) -> PrivacyAccountant:
    """The tightest that dp-accounting has for a way of sampling and its relation."""
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant() if sampling == "poisson" else _renyi(sampling)


def _renyi(sampling: Sampling) -> PrivacyAccountant:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    relation = {
        "poisson": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "fixed": NeighboringRelation.REPLACE_ONE,
    }[sampling]
    return RdpAccountant(neighboring_relation=relation)


@contextmanager
def quiet() -> Iterator[None]:
    """The Renyi accountant logs each order that it leaves out, which only loosens the bound."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@cache
def _epsilon(sums: SampledSums, noise: float, delta: float) -> float:
    if sums.sample == sums.population:
        return epsilon_of(sums.times**0.5 / noise, delta)
    with quiet():
        accountant = fresh_accountant(sums.sampling).compose(sums.event(noise))
        return float(accountant.get_epsilon(delta))


@cache
def _noise(sums: SampledSums, epsilon: float, delta: float) -> float:
    """By bisection on a logarithmic scale, from below and above; what is returned was checked.

    The Renyi bound is quick, and at most some tenths too large: it says where to look.
    """
    if sums.sample == sums.population:  # no sampling: exact
        exact = sums.times**0.5 / mu_for(epsilon, delta)
        return _first(lambda _: True, exact, epsilon, delta)

    def enough(noise: float) -> bool:
        return sums.epsilon(noise, delta) <= epsilon

    high = _first(lambda noise: _renyi_holds(sums, noise, epsilon, delta), 0.1, epsilon, delta)
    while not enough(high):
        high = _first(enough, high * 1.1, epsilon, delta)
    low = high / 1.1
    while enough(low):
        low, high = low / 1.1, low
    while high / low > 1 + TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _renyi_holds(sums: SampledSums, noise: float, epsilon: float, delta: float) -> bool:
    with quiet():
        return _renyi(sums.sampling).compose(sums.event(noise)).get_epsilon(delta) <= epsilon


def _first(holds: Callable[[float], bool], start: float, epsilon: float, delta: float) -> float:
    """The first noise, in steps of a fifth from a start, for which it holds."""
    noise = start
    while noise <= LARGEST_NOISE:
        if holds(noise):
            return noise
        noise *= 1.2
    raise InputError(
        f"epsilon = {epsilon:g} at delta = {delta:g}: no noise up to {LARGEST_NOISE:g} times the"
        " clip is enough; ask for less privacy, fewer rounds or smaller cohorts"
    )
