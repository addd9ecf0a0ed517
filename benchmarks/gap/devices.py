"""A model trained on a table, its rates measured over 10^4 devices, next to the true gaps."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import synthfair as sf
from benchmarks.harness import Experiment
from benchmarks.showing import page_of
from synthfair.evaluation import pooled_scores
from synthfair.measure import measure_model
from synthfair.privacy.noise import seeded


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
    chebyshev: float


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


def run_device(setting: DeviceSetting, _seed: int, *, smoke: bool) -> DeviceValues:
    """One rate of a model."""
    scored, groups = _scored(setting.table, 5 if smoke else 1000)
    gaps = measure_model(
        scored, groups, devices=10_000, epsilon=setting.epsilon, seed=0,
        source=seeded(round(setting.epsilon)),
    ).gaps  # fmt: skip
    (gap,) = (gap for gap in gaps if gap.rate == setting.rate)
    m = gap.measured
    return DeviceValues(
        f"{gap.groups[1]} - {gap.groups[0]}", m.value, m.interval.low, m.interval.high, gap.true,
        gap.pooled, m.chebyshev,
    )  # fmt: skip


RATES = ("true_positive_rate", "false_positive_rate")
TABLES = ("dutch", "adult", "law_school")

DEVICES = Experiment(
    name="devices",
    settings=tuple(DeviceSetting(*one) for one in product(TABLES, (2.0, 4.0, 8.0), RATES)),
    run=run_device,
    summary=page_of("gap/devices", lambda s, _: {"rate": s.rate.replace("_", " ")}),
    smoke=tuple(DeviceSetting("law_school", 4.0, rate) for rate in RATES),
)  # fmt: skip
