"""Accounts of sums over random samples of users, or of rows, each with Gaussian noise.

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

from synthfair.errors import InputError
from synthfair.privacy.accounting import epsilon_of, mu_for
from synthfair.privacy.statement import Relation

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

Sampling = Literal["poisson", "fixed"]
"""Each by itself with the same probability; or a fixed number, without replacement."""

LARGEST_NOISE = 1e4
"""Standard deviations of noise a sensitivity, beyond which a sum says nothing."""

LEAST_NOISE = 0.1
"""The same, below which no noise is looked for."""

LEAST = 1e-12
"""Epsilon below which all are alike, for the search."""

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
        return composed_epsilon([(self, noise)], delta)

    def noise(self, epsilon: float, delta: float) -> float:
        """The least noise for which epsilon and delta hold, up to a thousandth.

        Nothing below :data:`LEAST_NOISE` is looked for.

        Raises:
            InputError: no reasonable noise does.
        """
        return common_noise([self], epsilon, delta)


def composed_epsilon(parts: Sequence[tuple[SampledSums, float]], delta: float) -> float:
    """The least epsilon that is known to hold of several kinds of sums together.

    Composed by one accountant, which is less than the sum of each kind's epsilon.

    Args:
        parts: kinds of sums about the same population, each with its noise in units of its
            sensitivity; each may depend on what those before it released.
        delta: above 0, below 1, of all together.

    Raises:
        InputError: nothing to compose, or samples of unlike kinds.
    """
    _require_alike([sums for sums, _ in parts])
    return _epsilon(tuple(parts), delta)


def common_noise(kinds: Sequence[SampledSums], epsilon: float, delta: float) -> float:
    """The least noise that all kinds of sums may have together, up to a thousandth.

    Args:
        kinds: as for :func:`composed_epsilon`.
        epsilon: of all together.
        delta: of all together.

    Raises:
        InputError: no reasonable noise is enough, or as :func:`composed_epsilon`.
    """
    _require_alike(kinds)
    return _noise(tuple(kinds), epsilon, delta)


def _require_alike(kinds: Sequence[SampledSums]) -> None:
    if len({sums.relation for sums in kinds}) != 1:
        raise InputError(
            f"sums of {len(kinds)} kinds: must be at least one, and all of samples drawn alike,"
            " Poisson or of fixed size"
        )


def accountant_of(parts: Sequence[tuple[SampledSums, float]]) -> PrivacyAccountant:
    """That of dp-accounting which is tightest for a way of sampling, with these sums composed."""
    from dp_accounting.pld import PLDAccountant

    poisson = parts[0][0].sampling == "poisson"
    return _composed(PLDAccountant() if poisson else _renyi(parts[0][0]), parts)


def _renyi(sums: SampledSums) -> PrivacyAccountant:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    relation = {
        "add_or_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace": NeighboringRelation.REPLACE_ONE,
    }[sums.relation]
    return RdpAccountant(neighboring_relation=relation)


def _composed(
    accountant: PrivacyAccountant, parts: Iterable[tuple[SampledSums, float]]
) -> PrivacyAccountant:
    for sums, noise in parts:
        accountant.compose(sums.event(noise))
    return accountant


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
def _epsilon(parts: tuple[tuple[SampledSums, float], ...], delta: float) -> float:
    if all(sums.everyone for sums, _ in parts):  # no sampling: exact
        return epsilon_of(sum(sums.times / noise**2 for sums, noise in parts) ** 0.5, delta)
    with quiet():
        return float(accountant_of(parts).get_epsilon(delta))


@cache
def _noise(kinds: tuple[SampledSums, ...], epsilon: float, delta: float) -> float:
    """By bracketing and root finding on a logarithmic scale; what is returned was checked.

    The Renyi bound is quick, and at most some tenths too large: it says where to look.
    """
    if all(sums.everyone for sums in kinds):  # no sampling: exact
        exact = sum(sums.times for sums in kinds) ** 0.5 / mu_for(epsilon, delta)
        return _first(lambda _: True, exact, epsilon, delta)
    from scipy.optimize import root_scalar

    def spent(noise: float) -> float:
        return composed_epsilon([(sums, noise) for sums in kinds], delta)

    def enough(noise: float) -> bool:
        return spent(noise) <= epsilon

    def excess(log_noise: float) -> float:
        """Nearly linear, so that the root is found in few steps."""
        return math.log(max(spent(math.exp(log_noise)), LEAST) / epsilon)

    def nearly(noise: float) -> bool:
        return _renyi_holds(kinds, noise, epsilon, delta)

    high = _first(nearly, LEAST_NOISE, epsilon, delta)
    while not enough(high):
        high = _first(enough, high * 1.1, epsilon, delta)
    low = high / 1.1
    while high > LEAST_NOISE and enough(low):
        low, high = low / 1.1, low
    if high <= LEAST_NOISE:  # with a large delta, that few are ever sampled may be enough
        return high
    bracket = (math.log(low), math.log(high))
    root = root_scalar(excess, bracket=bracket, method="brentq", xtol=TOLERANCE / 4).root
    return _first(enough, math.exp(root + TOLERANCE / 2), epsilon, delta, step=1 + TOLERANCE / 4)


def _renyi_holds(
    kinds: tuple[SampledSums, ...], noise: float, epsilon: float, delta: float
) -> bool:
    with quiet():
        accountant = _composed(_renyi(kinds[0]), ((sums, noise) for sums in kinds))
        return accountant.get_epsilon(delta) <= epsilon


def _first(
    holds: Callable[[float], bool],
    start: float,
    epsilon: float,
    delta: float,
    *,
    step: float = 1.2,
) -> float:
    """The first noise, growing by a factor from a start, for which it holds."""
    noise = start
    while noise <= LARGEST_NOISE:
        if holds(noise):
            return noise
        noise *= step
    raise InputError(
        f"epsilon = {epsilon:g} at delta = {delta:g}: no noise up to {LARGEST_NOISE:g} times the"
        " clip is enough; ask for less privacy, fewer rounds or smaller cohorts"
    )
