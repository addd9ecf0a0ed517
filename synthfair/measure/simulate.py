"""What a measurement would find: of clients drawn at random, or of a model on simulated devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, Collection, make_collection
from synthfair.measure.estimate import FEW, Gap, estimate_gaps
from synthfair.measure.mechanisms import Kind, LocalMechanism
from synthfair.measure.plan import BEST, GroupMoments, best_split, gap_variance
from synthfair.measure.reports import NO_RATE, RATES, rate_of
from synthfair.measure.tally import CHUNK, collect, empty_tally, require_shares
from synthfair.privacy.noise import RandomBytes, seeded


class SimulatedGap(NamedTuple):
    """The gap of two groups over all repetitions of a measurement, in units of v.

    Attributes:
        groups: their indices.
        true: the gap of the population.
        mean: of the estimates, where there is one; a group whose estimated share is not positive
            has none.
        deviation: standard deviation of the estimates.
        expected: the same in closed form.
        covered: share of the intervals that contain the true gap.
        open: share of the intervals that are the whole range.
        width: mean half-width of the intervals.
    """

    groups: tuple[int, int]
    true: float
    mean: float
    deviation: float
    expected: float
    covered: float
    open: float
    width: float


def simulate_gaps(
    mechanism: LocalMechanism,
    shares: Sequence[float],
    means: Sequence[float],
    *,
    clients: int,
    repeats: int,
    seed: int,
    confidence: float = 0.95,
) -> list[SimulatedGap]:
    """Repeats a measurement, each time with clients drawn anew.

    The clients' values are -1 or 1, which has the largest variance for given means. The same seed
    gives the same result. Guarantee: none, as anybody who knows the seed can remove the noise.

    Args:
        mechanism: that every client uses.
        shares: [d] of the groups, positive and of sum 1.
        means: [d] of v in each group, from -1 to 1.
        clients: K, at least 2.
        repeats: number of measurements, at least 2.
        seed: at least 0.
        confidence: of the intervals.

    Returns:
        One result for every two groups.

    Raises:
        InputError: a number is out of range.

    Example:
        >>> import synthfair as sf
        >>> mechanism = sf.measure.best_split("randomized", groups=2, epsilon=4.0)
        >>> (gap,) = sf.measure.simulate_gaps(
        ...     mechanism, (0.5, 0.5), (0.8, 0.6), clients=10_000, repeats=20, seed=0
        ... )
        >>> round(gap.true, 2), abs(gap.mean - gap.true) < gap.expected
        (-0.2, True)
    """
    if clients < 2 or repeats < 2 or seed < 0:
        raise InputError(
            f"clients = {clients}, repeats = {repeats}, seed = {seed}: must be at least 2, 2 and 0"
        )
    groups = GroupMoments(
        require_shares(shares, len(shares)), np.asarray(means, float), np.ones(len(shares))
    )
    if groups.means.shape != groups.shares.shape or not (np.abs(groups.means) <= 1).all():
        raise InputError(f"means = {list(means)}: must be {len(shares)}, each from -1 to 1")
    rng, source = np.random.default_rng([seed, 1]), seeded(seed)
    found = []
    for _ in range(repeats):
        reports = empty_tally(mechanism.groups)
        for start in range(0, clients, CHUNK):  # memory does not grow with the clients
            some = draw_clients(groups, min(CHUNK, clients - start), rng)
            reports = reports.plus(collect(mechanism, *some, source))
        found.append(estimate_gaps(reports, mechanism, confidence=confidence).gaps)
    return [_summary(gaps, mechanism, groups, clients) for gaps in zip(*found, strict=True)]


def draw_clients(
    groups: GroupMoments, clients: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Groups [K] and values [K], -1 or 1, of clients drawn at random."""
    group = np.searchsorted(np.cumsum(groups.shares)[:-1], rng.random(clients), side="right")
    value = np.where(2 * rng.random(clients) < 1 + groups.means[group], 1.0, -1.0)
    return group, value


def _summary(
    gaps: Sequence[Gap], mechanism: LocalMechanism, groups: GroupMoments, clients: int
) -> SimulatedGap:
    pair = gaps[0].groups
    two = GroupMoments(*(part[list(pair)] for part in groups))
    true = float(two.means[1] - two.means[0])
    values = np.array([gap.value for gap in gaps])
    finite = values[np.isfinite(values)]
    low, high = np.array([gap.interval for gap in gaps]).T
    return SimulatedGap(
        pair,
        true,
        mean=float(finite.mean()) if len(finite) else math.nan,
        deviation=float(finite.std(ddof=1)) if len(finite) > 1 else math.nan,
        expected=math.sqrt(gap_variance(mechanism, clients, two)),
        covered=float(np.mean((low <= true) & (true <= high))),
        open=float(np.mean((low <= -2) & (high >= 2))),
        width=float(np.mean(high - low)) / 2,
    )


class Devices(NamedTuple):
    """Simulated devices, each with rows of one group.

    Attributes:
        group: [K] index of each device's group.
        rates: by name, [K] rate on each device's rows; not-a-number if no row counts for it.
    """

    group: np.ndarray
    rates: dict[str, np.ndarray]


class RateGap(NamedTuple):
    """The gap of one rate between two groups.

    Attributes:
        rate: "true_positive_rate" or "false_positive_rate".
        groups: names of the first and second; gaps are second minus first.
        measured: from the reports, in units of the rate.
        true: the gap of the means over devices.
        pooled: the gap of the rates over all rows, in which devices with more rows weigh more.
    """

    rate: str
    groups: tuple[str, str]
    measured: Gap
    true: float
    pooled: float


class ModelGaps(NamedTuple):
    """All gaps of a model over simulated devices.

    Attributes:
        collection: the public file of each rate, to which every device reports once for each.
        devices: K.
        gaps: of each rate and every two groups.
        confidence: of each interval.
        few: groups in which fewer than 100 devices have a rate.
    """

    collection: Collection
    devices: int
    gaps: list[RateGap]
    confidence: float
    few: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """Of all reports of one device together."""
        return len(RATES) * self.collection.epsilon


def measure_model(
    rows: Scored,
    groups: tuple[str, ...],
    *,
    devices: int,
    epsilon: float,
    seed: int,
    source: RandomBytes,
    confidence: float = 0.95,
    kind: Kind = BEST,
) -> ModelGaps:
    """Assigns scored rows to devices, each of which reports the model's two rates on its own rows.

    A device without a row of the label that counts has no rate. That is private as well: it reports
    as a member of the group "(no value)".

    Guarantee: epsilon-local differential privacy of all reports of a device, if nobody can repeat
    the source; none with a seeded one. Unit: one device. Relation: local, any two sets of rows. The
    true gaps in the result are not private; only a simulation knows them.

    Args:
        rows: with labels, groups and the model's scores.
        groups: names of the groups, by index.
        devices: K, at most the number of rows; rounded in each group.
        epsilon: of both reports together, half for each rate.
        seed: of the assignment of rows to devices.
        source: of the noise.
        confidence: of each interval.
        kind: of mechanism, "randomized" or "laplace".

    Raises:
        InputError: rows that cannot be assigned, or epsilon out of range.

    Example:
        >>> import os
        >>> import numpy as np
        >>> import synthfair as sf
        >>> from synthfair.fairness.metrics import Scored
        >>> y = np.tile([1, 1, -1, -1], 500)
        >>> rows = Scored(y, score=np.tile([1.0, -1.0], 1000), s=np.repeat([0, 1], 1000))
        >>> found = sf.measure.measure_model(
        ...     rows, ("a", "b"), devices=200, epsilon=2.0, seed=0, source=os.urandom
        ... )
        >>> [(gap.rate, gap.pooled) for gap in found.gaps]
        [('true_positive_rate', 0.0), ('false_positive_rate', 0.0)]
    """
    assigned = assign_to_devices(rows, devices, seed=seed)
    mechanism = best_split(kind, len(groups) + 1, epsilon / len(RATES))
    collection = make_collection((*groups, NO_VALUE), mechanism)
    gaps = []
    for name, rate in assigned.rates.items():
        group = np.where(np.isnan(rate), len(groups), assigned.group)
        value = collection.scaled(np.nan_to_num(rate, nan=NO_RATE))
        reports = collect(mechanism, group, value, source)
        found = estimate_gaps(reports, mechanism, confidence=confidence).gaps
        compared = [gap for gap in found if len(groups) not in gap.groups]  # not "(no value)"
        gaps += [_rate_gap(gap, name, assigned, rows, collection) for gap in compared]
    return ModelGaps(collection, len(assigned.group), gaps, confidence, _few(assigned, groups))


def assign_to_devices(rows: Scored, devices: int, *, seed: int) -> Devices:
    """Assigns the rows of each group at random to its devices, in proportion to its rows.

    Raises:
        InputError: a group without rows, or fewer rows than devices.
    """
    sizes = np.bincount(rows.s, minlength=rows.n_groups)
    if not 2 <= devices <= len(rows.y):
        raise InputError(f"devices = {devices}: must be from 2 to the {len(rows.y)} rows")
    if not sizes.all():
        raise InputError(f"group {int(np.argmin(sizes))}: has no rows to assign to devices")
    rng = np.random.default_rng([seed, 1])  # another stream than that of seeded noise
    wanted = np.maximum(np.round(devices * sizes / sizes.sum()).astype(int), 1)
    starts = np.cumsum(wanted) - wanted
    device = np.empty(len(rows.y), int)
    for group, (count, start) in enumerate(zip(wanted, starts, strict=True)):
        own = rng.permutation(np.flatnonzero(rows.s == group))
        device[own] = start + np.arange(len(own)) % count
    rates = {name: rate_of(name, rows, device, wanted.sum()) for name in RATES}
    return Devices(np.repeat(np.arange(rows.n_groups), wanted), rates)


def _few(assigned: Devices, groups: tuple[str, ...]) -> tuple[str, ...]:
    with_rate = [assigned.group[~np.isnan(rate)] for rate in assigned.rates.values()]
    least = np.min([np.bincount(own, minlength=len(groups)) for own in with_rate], axis=0)
    return tuple(name for name, count in zip(groups, least, strict=True) if count < FEW)


def _rate_gap(
    gap: Gap, name: str, assigned: Devices, rows: Scored, collection: Collection
) -> RateGap:
    means, pooled = [], []
    for group in gap.groups:
        own = assigned.rates[name][assigned.group == group]
        means.append(_mean(own[~np.isnan(own)]))
        pooled.append(_mean(rows.selected[(rows.y == RATES[name]) & (rows.s == group)]))
    i, j = gap.groups
    names = collection.groups[i], collection.groups[j]
    measured = gap.in_units_of(collection.unit)
    return RateGap(name, names, measured, means[1] - means[0], pooled[1] - pooled[0])


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
