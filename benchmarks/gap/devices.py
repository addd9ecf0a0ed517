"""A model trained on a table, its rates measured over 10^4 devices, next to the true gaps."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment
from benchmarks.showing import page_of
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import Scored
from synthfair.measure.aggregate import ReportSums
from synthfair.measure.collection import NO_RATE, NO_VALUE, make_collection, rate_of
from synthfair.measure.collection import RATE_LABELS as LABELS
from synthfair.measure.estimate import Tally, estimate_gaps, tally
from synthfair.measure.mechanisms import LocalMechanism
from synthfair.measure.plan import best_split
from synthfair.privacy.noise import RandomBytes, seeded

CHUNK = 2**17
"""Clients that are perturbed at a time: few enough for their numbers to fit into the cache."""


def collect(
    mechanism: LocalMechanism, group: np.ndarray, value: np.ndarray, source: RandomBytes
) -> Tally:
    """Return the tally of reports of clients with groups [N] and values [N], some at a time."""
    total = Tally(0, *np.zeros((3, mechanism.groups)))
    for start in range(0, len(group), CHUNK):
        part = slice(start, start + CHUNK)
        reported, noisy = mechanism.perturb(group[part], value[part], source)
        total = total.plus(tally(reported, noisy, mechanism.groups))
    return total


class DeviceSetting(NamedTuple):
    """A table of :mod:`synthfair.data.datasets`, with the sensitive attribute of its schema."""

    table: str
    epsilon: float
    rate: str


class DeviceValues(NamedTuple):
    """Of a rate: its gap between the groups as measured with its interval, and in truth."""

    gap: str
    measured: float
    low: float
    high: float
    true: float
    pooled: float


@lru_cache(maxsize=1)
def _scored(name: str, steps: int) -> tuple[Any, tuple[str, ...]]:
    """Scores of a model that is distilled without the penalty, so that there is a gap; and groups.

    All rows are cut into devices.
    """
    rows, schema = sf.load_dataset(name)
    config = sf.DistillConfig(n_synthetic=1200, rho_o=0.0, start="range", steps=steps)
    releases = {
        str(i): sf.distill_table(client.train, schema, config).release
        for i, client in enumerate(sf.partition(rows, clients=4, seed=0))
    }
    scored = pooled_scores(sf.pool_and_train(releases, schema), {name: rows})
    return scored, tuple(map(str, schema.groups))


def assign_to_devices(rows: Scored, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Assign the rows of each group at random to its devices, in proportion to its rows.

    Returns:
        The group of each of the K devices, and the device of each of the N rows.
    """
    sizes = np.bincount(rows.s, minlength=rows.n_groups)
    rng = np.random.default_rng([0, 1])
    counts = np.maximum(np.round(devices * sizes / sizes.sum()).astype(int), 1)
    starts = np.cumsum(counts) - counts
    device = np.empty(len(rows.y), int)
    for group, (count, start) in enumerate(zip(counts, starts, strict=True)):
        members = rng.permutation(np.flatnonzero(rows.s == group))
        device[members] = start + np.arange(len(members)) % count
    return np.repeat(np.arange(rows.n_groups), counts), device


def measure_rates(
    rows: Scored, groups: tuple[str, ...], *, devices: int, epsilon: float, source: RandomBytes
) -> dict[str, DeviceValues]:
    """Return the gap of each rate of a model, which every device reports once on its own rows.

    A device without a row of the label that counts reports as a member of the group "(no value)".

    Guarantee: none, as the source can be repeated; else epsilon-local differential privacy of both
    reports of a device, for any two sets of rows.
    """
    group, device = assign_to_devices(rows, devices)
    mechanism = best_split("randomized", len(groups) + 1, epsilon / len(LABELS))
    collection = make_collection((*groups, NO_VALUE), mechanism)
    found = {}
    for name, label in LABELS.items():
        rate = rate_of(name, rows, device, len(group))
        has_rate = ~np.isnan(rate)
        value = collection.scaled(np.where(has_rate, rate, NO_RATE))
        reports = collect(mechanism, np.where(has_rate, group, len(groups)), value, source)
        gap = estimate_gaps(ReportSums(reports), collection).gaps[0]
        # What only a simulation knows: means of the rates over devices, and rates over all rows.
        true = [rate[has_rate & (group == i)].mean() for i in (0, 1)]
        pooled = [rows.selected[(rows.y == label) & (rows.s == i)].mean() for i in (0, 1)]
        found[name] = DeviceValues(
            f"{groups[1]} - {groups[0]}",
            measured=gap.value,
            low=gap.low,
            high=gap.high,
            true=float(true[1] - true[0]),
            pooled=float(pooled[1] - pooled[0]),
        )
    return found


def run_device(setting: DeviceSetting, _seed: int, *, smoke: bool) -> DeviceValues:
    """One rate of a model."""
    scored, groups = _scored(setting.table, 5 if smoke else 1000)
    source = seeded(round(setting.epsilon))
    rates = measure_rates(scored, groups, devices=10_000, epsilon=setting.epsilon, source=source)
    return rates[setting.rate]


TABLES = ("dutch", "adult", "law_school")

DEVICES = Experiment(
    name="devices",
    settings=tuple(DeviceSetting(*one) for one in product(TABLES, (2.0, 4.0, 8.0), LABELS)),
    run=run_device,
    summary=page_of("gap/devices", lambda s, _: {"rate": s.rate.replace("_", " ")}),
    smoke=tuple(DeviceSetting("law_school", 4.0, rate) for rate in LABELS),
)  # fmt: skip
