"""A model trained on a table, its rates measured over 10^4 devices, beside the true gaps."""

from __future__ import annotations

import synthfair as sf
from benchmarks import use_float64
from synthfair.config import DistillConfig
from synthfair.evaluation import pooled_scores
from synthfair.measure.simulate import ModelGaps, RateGap, measure_model
from synthfair.privacy.noise import seeded

TABLES = ("dutch", "adult", "law_school")
"""Of :mod:`synthfair.data.datasets`, each with the sensitive attribute of its schema."""

DEVICES, EPSILONS = 10_000, (2.0, 4.0, 8.0)


def measure() -> dict[str, list[ModelGaps]]:
    """Of every table."""
    use_float64()
    return {name: one(name) for name in TABLES}


def one(name: str) -> list[ModelGaps]:
    """Distilled without the penalty, so that there is a gap; all rows are cut into devices."""
    rows, schema = sf.load_dataset(name)
    config = DistillConfig(n_synthetic=1200, rho_o=0.0, labels="balanced", start="range")
    clients = sf.partition(rows, clients=4, seed=0)
    releases = {
        str(i): sf.distill_table(client.train, schema, config).release
        for i, client in enumerate(clients)
    }
    scored = pooled_scores(sf.pool_and_train(releases, schema), {name: rows})
    groups = tuple(map(str, schema.groups))
    return [
        measure_model(
            scored, groups, devices=DEVICES, epsilon=epsilon, seed=0, source=seeded(round(epsilon))
        )
        for epsilon in EPSILONS
    ]


def table(found: dict[str, list[ModelGaps]]) -> str:
    """As Markdown."""
    lines = [
        "# A model's rates over many devices",
        "",
        f"`python -m benchmarks.gap devices`: all rows of a table cut into {DEVICES:,} devices of"
        " one group each; single-shot model of four clients without a penalty. Each device sends"
        " two reports, of its true and of its false positive rate; epsilon is that of both"
        " together. 95 % intervals, each by itself.",
        "",
        "| table | epsilon | rate | gap | measured | interval | true, over devices | over rows"
        " | Chebyshev |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        _line(name, one.epsilon, gap)
        for name, some in found.items()
        for one in some
        for gap in one.gaps
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, epsilon: float, gap: RateGap) -> str:
    m = gap.measured
    return (
        f"| {name} | {epsilon:g} | {gap.rate.replace('_', ' ')} | {gap.groups[1]} - {gap.groups[0]}"
        f" | {m.value:+.4f} | [{m.interval.low:.4f}, {m.interval.high:.4f}] | {gap.true:+.4f} |"
        f" {gap.pooled:+.4f} | {m.chebyshev:.4f} |"
    )
