"""A model trained on a table, its rates measured over 10^4 devices, next to the true gaps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import synthfair as sf
from benchmarks.harness import Experiment, Run
from benchmarks.showing import page, table
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
def _scored(name: str, steps: int):  # noqa: ANN202 - whatever measure_model takes
    """Distilled without the penalty, so that there is a gap; all rows are cut into devices."""
    rows, schema = sf.load_dataset(name)
    config = sf.DistillConfig(n_synthetic=1200, rho_o=0.0, start="range", steps=steps)
    clients = sf.partition(rows, clients=4, seed=0)
    releases = {
        str(i): sf.distill_table(client.train, schema, config).release
        for i, client in enumerate(clients)
    }
    scored = pooled_scores(sf.pool_and_train(releases, schema), {name: rows})
    return scored, tuple(map(str, schema.groups))


def run_device(setting: DeviceSetting, _seed: int, *, smoke: bool) -> DeviceValues:
    """One rate of a model."""
    scored, groups = _scored(setting.table, 5 if smoke else 1000)
    found = measure_model(
        scored, groups, devices=10_000, epsilon=setting.epsilon, seed=0,
        source=seeded(round(setting.epsilon)),
    )  # fmt: skip
    (gap,) = (gap for gap in found.gaps if gap.rate == setting.rate)
    m = gap.measured
    return DeviceValues(
        f"{gap.groups[1]} - {gap.groups[0]}", m.value, m.interval.low, m.interval.high, gap.true,
        gap.pooled, m.chebyshev,
    )  # fmt: skip


def show(runs: Sequence[Run[DeviceSetting, DeviceValues]]) -> dict[str, str]:
    """As Markdown."""
    rows = [
        (
            setting.table, setting.epsilon, setting.rate.replace("_", " "), m.gap,
            f"{m.measured:+.4f}", f"[{m.low:.4f}, {m.high:.4f}]", f"{m.true:+.4f}",
            f"{m.pooled:+.4f}", f"{m.chebyshev:.4f}",
        )
        for setting, _, m, _ in runs
    ]  # fmt: skip
    before = (
        "`python -m benchmarks.gap devices`: all rows of a table cut into 10,000 devices of one"
        " group each; single-shot model of four clients without a penalty. Each device sends two"
        " reports, of its true and of its false positive rate; epsilon is that of both together."
        " 95 % intervals, each by itself."
    )
    header = (
        "table | epsilon | rate | gap | measured | interval | true, over devices | over rows"
        " | Chebyshev"
    )
    title = "# A model's rates over many devices"
    return {"devices.md": page(title, before, table(header, rows))}


RATES = ("true_positive_rate", "false_positive_rate")

DEVICES = Experiment(
    name="devices",
    settings=tuple(
        DeviceSetting(*one)
        for one in product(("dutch", "adult", "law_school"), (2.0, 4.0, 8.0), RATES)
    ),
    run=run_device,
    summary=show,
    smoke=tuple(DeviceSetting("law_school", 4.0, rate) for rate in RATES),
)
