"""Simulated measurements: of clients drawn at random, or of a model on simulated devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, Collection, make_collection
from synthfair.measure.estimate import FEW, Gap, estimate_gaps, require_shares
from synthfair.measure.mechanisms import Kind, LocalMechanism
from synthfair.measure.plan import BEST, best_split, gap_variance
from synthfair.measure.reports import NO_RATE, RATES, rate_of
from synthfair.measure.tally import CHUNK, collect, empty_tally
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
    p, m = require_shares(shares, len(shares)), np.asarray(means, float)
    if m.shape != p.shape or not (np.abs(m) <= 1).all():
        raise InputError(f"means = {list(means)}: must be {len(shares)}, each from -1 to 1")
    # The same measurement again and again, of clients drawn anew.
    rng, source = np.random.default_rng([seed, 1]), seeded(seed)
    estimates: list[tuple[Gap, ...]] = []
    for _ in range(repeats):
        reports = empty_tally(mechanism.groups)
        for start in range(0, clients, CHUNK):  # memory does not grow with the clients
            some = draw_clients(p, m, min(CHUNK, clients - start), rng)
            reports = reports.plus(collect(mechanism, *some, source))
        estimates.append(estimate_gaps(reports, mechanism, confidence=confidence).gaps)

    # How the estimates of each pair of groups are distributed.
    summary = []
    for gaps in zip(*estimates, strict=True):
        pair = list(gaps[0].groups)
        true = float(m[pair[1]] - m[pair[0]])
        values = np.array([gap.value for gap in gaps])
        finite = values[np.isfinite(values)]
        low, high = np.array([gap.interval for gap in gaps]).T
        summary.append(
            SimulatedGap(
                gaps[0].groups,
                true,
                mean=_mean(finite),
                deviation=float(finite.std(ddof=1)) if len(finite) > 1 else math.nan,
                expected=math.sqrt(gap_variance(mechanism, clients, p[pair], m[pair])),
                covered=_mean((low <= true) & (true <= high)),
                open=_mean((low <= -2) & (high >= 2)),
                width=_mean(high - low) / 2,
            )
        )
    return summary


def draw_clients(
    shares: np.ndarray, means: np.ndarray, clients: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Groups [K] and values [K], -1 or 1, of clients drawn at random."""
    group = np.searchsorted(np.cumsum(shares)[:-1], rng.random(clients), side="right")
    value = np.where(2 * rng.random(clients) < 1 + means[group], 1.0, -1.0)
    return group, value


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
    """The estimated gaps of a model in all rates, over simulated devices.

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
        """The epsilon of all reports of one device together."""
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
    group, device = assign_to_devices(rows, devices, seed=seed)
    no_value = len(groups)
    mechanism = best_split(kind, len(groups) + 1, epsilon / len(RATES))
    collection = make_collection((*groups, NO_VALUE), mechanism)
    gaps, few = [], set[str]()
    for name, label in RATES.items():
        # Each device reports the rate over its own rows.
        rate = rate_of(name, rows, device, len(group))
        has_rate = ~np.isnan(rate)
        value = collection.scaled(np.where(has_rate, rate, NO_RATE))
        reports = collect(mechanism, np.where(has_rate, group, no_value), value, source)
        # What only a simulation knows: means of the rates over devices, and rates over all rows.
        masks = [has_rate & (group == i) for i in range(len(groups))]
        true = [_mean(rate[one]) for one in masks]
        rates = [
            _mean(rows.selected[(rows.y == label) & (rows.s == i)]) for i in range(len(groups))
        ]
        few |= {groups[i] for i, one in enumerate(masks) if one.sum() < FEW}
        gaps += [
            RateGap(
                name,
                (groups[i], groups[j]),
                gap.in_units_of(collection.unit),
                true[j] - true[i],
                rates[j] - rates[i],
            )
            for gap in estimate_gaps(reports, mechanism, confidence=confidence).gaps
            for i, j in (gap.groups,)
            if no_value not in gap.groups
        ]
    in_order = tuple(name for name in groups if name in few)
    return ModelGaps(collection, len(group), gaps, confidence, in_order)


def assign_to_devices(rows: Scored, devices: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Assigns the rows of each group at random to its devices, in proportion to its rows.

    Returns:
        The group of each of the K devices, and the device of each of the N rows.

    Raises:
        InputError: a group without rows, or fewer rows than devices.
    """
    sizes = np.bincount(rows.s, minlength=rows.n_groups)
    if not 2 <= devices <= len(rows.y):
        raise InputError(f"devices = {devices}: must be from 2 to the {len(rows.y)} rows")
    if not sizes.all():
        raise InputError(f"group {int(np.argmin(sizes))}: has no rows to assign to devices")
    rng = np.random.default_rng([seed, 1])  # another stream than that of seeded noise
    counts = np.maximum(np.round(devices * sizes / sizes.sum()).astype(int), 1)
    starts = np.cumsum(counts) - counts
    device = np.empty(len(rows.y), int)
    for group, (count, start) in enumerate(zip(counts, starts, strict=True)):
        members = rng.permutation(np.flatnonzero(rows.s == group))
        device[members] = start + np.arange(len(members)) % count
    return np.repeat(np.arange(rows.n_groups), counts), device


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
