"""A trained model over many small clients: its true and false positive rates, measured privately.

A table's rows are cut into devices, each with rows of one group. A device's value is its own rate:
the share of its rows with the label in question that the model selects. A device without such a row
has no rate, and that is private, too: it belongs to a group of its own, "no value", and reports as
any other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, Collection, make_collection
from synthfair.measure.estimate import FEW, Gap, estimate_gaps
from synthfair.measure.mechanisms import Kind
from synthfair.measure.split import BEST, best_split
from synthfair.measure.tally import collect
from synthfair.privacy.noise import RandomBytes

NO_RATE = 0.5
"""Value of a device of that group."""

RATES = {"true_positive_rate": 1, "false_positive_rate": -1}
"""By the label of the rows that count."""

FORMAT = "synthfair-gaps/1"


class Devices(NamedTuple):
    """Small clients.

    Attributes:
        group: [K] index.
        rates: name to [K] rate of each device; not-a-number where it has no row that counts.
    """

    group: np.ndarray
    rates: dict[str, np.ndarray]


class RateGap(NamedTuple):
    """A gap of one rate between two groups, measured and true.

    Attributes:
        rate: its name.
        groups: first and second; a gap is the second's mean minus the first's.
        measured: from the reports, in units of the rate.
        true: of the devices' rates.
        pooled: the same of all rows together, which weighs devices by their rows.
    """

    rate: str
    groups: tuple[str, str]
    measured: Gap
    true: float
    pooled: float


class ModelGaps(NamedTuple):
    """All gaps of a model, and what they cost each device.

    Attributes:
        collections: by rate; the epsilons of a device's reports add up.
        devices: K.
        gaps: of each rate and every two groups.
        confidence: of each interval.
        few: groups with fewer than :data:`synthfair.measure.estimate.FEW` devices that have a rate.
    """

    collections: dict[str, Collection]
    devices: int
    gaps: list[RateGap]
    confidence: float
    few: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """Of all reports of a device together."""
        return sum(collection.epsilon for collection in self.collections.values())


def cut_into_devices(rows: Scored, devices: int, *, seed: int) -> Devices:
    """Deals the rows of each group out at random, to devices in proportion to its rows.

    Raises:
        InputError: a group without rows, or fewer rows than devices.
    """
    sizes = np.bincount(rows.s, minlength=rows.n_groups)
    if not 2 <= devices <= len(rows.y):
        raise InputError(f"devices = {devices}: must be from 2 to the {len(rows.y)} rows")
    if not sizes.all():
        raise InputError(f"group {int(np.argmin(sizes))}: has no row to cut into devices")
    rng = np.random.default_rng([seed, 1])  # not the stream from which a seeded noise comes
    wanted = np.maximum(np.round(devices * sizes / sizes.sum()).astype(int), 1)
    starts = np.cumsum(wanted) - wanted
    device = np.empty(len(rows.y), int)
    for group, (count, start) in enumerate(zip(wanted, starts, strict=True)):
        own = rng.permutation(np.flatnonzero(rows.s == group))
        device[own] = start + np.arange(len(own)) % count
    rates = {name: rate_of(name, rows, device, wanted.sum()) for name in RATES}
    return Devices(np.repeat(np.arange(rows.n_groups), wanted), rates)


def rate_of(name: str, rows: Scored, device: np.ndarray, devices: int) -> np.ndarray:
    """[K] rate of each device; not-a-number where it has no row that counts.

    Args:
        name: of the rate, of :data:`RATES`.
        rows: [N], scored by the model.
        device: [N] whose row each is, 0 to devices - 1.
        devices: K.
    """
    counts = (rows.y == RATES[name]).astype(float)
    size = np.bincount(device, weights=counts, minlength=devices)
    hits = np.bincount(device, weights=counts * (rows.score > 0), minlength=devices)
    return np.divide(hits, size, out=np.full(devices, np.nan), where=size > 0)


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
    """Cuts scored rows into devices, each of which reports every rate once.

    Guarantee: epsilon-local differential privacy of all that a device sends, with a source that
    nobody can repeat; with a seeded one none. Unit: one device's reports. Relation: local, any two
    devices' rows. The true gaps returned beside are not private: they exist in a simulation only.

    Args:
        rows: scored by the model.
        groups: their names.
        devices: K, roughly: groups are rounded.
        epsilon: for both rates together, half each.
        seed: of the cut.
        source: of the noise.
        confidence: of each interval.
        kind: of mechanism.

    Raises:
        InputError: rows that cannot be cut so, or an epsilon that cannot be.
    """
    cut = cut_into_devices(rows, devices, seed=seed)
    mechanism = best_split(kind, len(groups) + 1, epsilon / len(RATES))
    collection = make_collection((*groups, NO_VALUE), mechanism)
    gaps = []
    for name, rate in cut.rates.items():
        group = np.where(np.isnan(rate), len(groups), cut.group)
        value = collection.scaled(np.nan_to_num(rate, nan=NO_RATE))
        found = estimate_gaps(
            collect(mechanism, group, value, source), mechanism, confidence=confidence
        )
        own = [gap for gap in found.gaps if set(gap.groups) <= set(collection.compared)]
        gaps += [_compared(gap, name, cut, rows, collection) for gap in own]
    few = _small(cut, groups)
    return ModelGaps(dict.fromkeys(RATES, collection), len(cut.group), gaps, confidence, few)


def _small(cut: Devices, groups: tuple[str, ...]) -> tuple[str, ...]:
    with_rate = [~np.isnan(rate) for rate in cut.rates.values()]
    least = np.min([np.bincount(cut.group[own], minlength=len(groups)) for own in with_rate], 0)
    return tuple(name for name, count in zip(groups, least, strict=True) if count < FEW)


def _compared(gap: Gap, name: str, cut: Devices, rows: Scored, collection: Collection) -> RateGap:
    i, j = gap.groups
    means, pooled = [], []
    for g in (i, j):
        own = cut.rates[name][cut.group == g]
        mine = rows.score[(rows.y == RATES[name]) & (rows.s == g)]
        means.append(_mean(own[~np.isnan(own)]))
        pooled.append(_mean(mine > 0))
    names = collection.groups[i], collection.groups[j]
    measured = scaled_gap(gap, collection.unit)
    return RateGap(name, names, measured, means[1] - means[0], pooled[1] - pooled[0])


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def scaled_gap(gap: Gap, unit: float) -> Gap:
    """In the values' own unit."""
    low, high = gap.interval
    return gap._replace(
        value=gap.value * unit,
        error=gap.error * unit,
        interval=gap.interval._replace(low=low * unit, high=high * unit),
        magnitude=gap.magnitude * unit,
        chebyshev=gap.chebyshev * unit,
    )


def gaps_document(found: ModelGaps, *, seed: int) -> dict[str, Any]:
    """As it stands in gaps.json; what is not finite is null there."""
    collection = next(iter(found.collections.values()))
    return {
        "format": FORMAT,
        "devices": found.devices,
        "epsilon": found.epsilon,
        "mechanism": collection.mechanism,
        "confidence": found.confidence,
        "seed": seed,
        "few": list(found.few),
        "gaps": [
            {
                "rate": gap.rate,
                "first": gap.groups[0],
                "second": gap.groups[1],
                **gap_document(gap.measured),
                "true": finite(gap.true),
                "pooled": finite(gap.pooled),
            }
            for gap in found.gaps
        ],
    }


def gap_document(gap: Gap) -> dict[str, float | None]:
    """A gap's numbers, as they stand in a file."""
    low, high = gap.interval
    return {
        "value": finite(gap.value),
        "low": low,
        "high": high,
        "magnitude": finite(gap.magnitude),
        "chebyshev": finite(gap.chebyshev),
    }


def finite(value: float) -> float | None:
    """As it stands in a file: null if it is not finite."""
    return value if math.isfinite(value) else None
