"""What a measurement would find: clients drawn from a population, perturbed and added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.estimate import estimate_gaps
from synthfair.measure.linear import known_shares
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.tally import CHUNK, Tally, collect, empty_tally
from synthfair.measure.variance import Population, gap_variance
from synthfair.privacy.noise import RandomBytes, seeded

_Clients = tuple[np.ndarray, np.ndarray]


class Simulated(NamedTuple):
    """One pair of groups over all repetitions, in units of v.

    Attributes:
        groups: their indices.
        true: the gap of the population.
        mean: of the estimates that there are; of none where a group's share is not above 0.
        deviation: of the same.
        expected: their deviation in closed form.
        covered: share of the intervals that hold the true gap.
        open: share of the intervals that are the whole range, and say nothing.
        chebyshev: as ``covered``, of the paper's, which takes estimated sizes for known.
        width: mean half-width of the intervals.
    """

    groups: tuple[int, int]
    true: float
    mean: float
    deviation: float
    expected: float
    covered: float
    open: float
    chebyshev: float
    width: float


def population(shares: Sequence[float], means: Sequence[float]) -> Population:
    """Groups whose clients have values of -1 or 1, which spread most, with such means.

    Raises:
        InputError: shares that are no shares, or means outside [-1, 1].
    """
    found = np.asarray(means, float)
    if found.shape != (len(shares),) or not (np.abs(found) <= 1).all():
        raise InputError(f"means = {list(means)}: must be {len(shares)}, each from -1 to 1")
    return Population(known_shares(shares, len(shares)), found, np.ones(len(shares)))


def draw(people: Population, clients: int, rng: np.random.Generator) -> _Clients:
    """Groups [K] and values [K] of clients, -1 or 1."""
    group = np.searchsorted(np.cumsum(people.shares)[:-1], rng.random(clients), side="right")
    value = np.where(2 * rng.random(clients) < 1 + people.means[group], 1.0, -1.0)
    return group, value


def simulate_gaps(
    mechanism: Mechanism,
    people: Population,
    *,
    clients: int,
    repeats: int,
    seed: int,
    confidence: float = 0.95,
) -> list[Simulated]:
    """Repeats a measurement, clients drawn anew each time; the same seed gives the same numbers.

    Guarantee: none. Anybody who knows the seed can take the noise away: for simulation only.

    Args:
        mechanism: by which clients report.
        people: from whom they are drawn, with values of -1 or 1.
        clients: K, at least 2.
        repeats: at least 2.
        seed: at least 0.
        confidence: of the intervals.

    Raises:
        InputError: a number that cannot be.
    """
    if clients < 2 or repeats < 2 or seed < 0:
        raise InputError(
            f"clients = {clients}, repeats = {repeats}, seed = {seed}: at least 2, 2 and 0"
        )
    rng, source = np.random.default_rng([seed, 1]), seeded(seed)
    found = [
        estimate_gaps(
            _reported(mechanism, people, clients, rng, source), mechanism, confidence=confidence
        ).gaps
        for _ in range(repeats)
    ]
    return [
        _summary([gaps[i] for gaps in found], mechanism, people, clients)
        for i in range(len(found[0]))
    ]


def _reported(
    mechanism: Mechanism,
    people: Population,
    clients: int,
    rng: np.random.Generator,
    source: RandomBytes,
) -> Tally:
    """Of clients who are drawn some at a time: memory does not grow with their number."""
    found = empty_tally(mechanism.groups)
    for start in range(0, clients, CHUNK):
        some = draw(people, min(CHUNK, clients - start), rng)
        found = found.plus(collect(mechanism, *some, source))
    return found


def _summary(gaps: list, mechanism: Mechanism, people: Population, clients: int) -> Simulated:
    pair = gaps[0].groups
    two = Population(*(part[list(pair)] for part in people))
    true = float(two.means[1] - two.means[0])
    values = np.array([gap.value for gap in gaps])
    there = values[np.isfinite(values)]
    low, high = np.array([gap.interval for gap in gaps]).T
    off = np.abs(np.nan_to_num(values) - true)
    return Simulated(
        pair,
        true,
        float(there.mean()) if len(there) else math.nan,
        float(there.std(ddof=1)) if len(there) > 1 else math.nan,
        math.sqrt(gap_variance(mechanism, clients, two)),
        float(np.mean((low <= true) & (true <= high))),
        float(np.mean((low <= -2) & (high >= 2))),
        float(np.mean(off <= [gap.chebyshev for gap in gaps])),
        float(np.mean(high - low)) / 2,
    )
