"""A model trained on Dutch, its rates measured over 10^4 devices, beside the true gaps."""

from __future__ import annotations

from pathlib import Path

import synthfair as sf
from benchmarks import use_float64
from synthfair.config import load_distill_config
from synthfair.evaluation import pooled_scores
from synthfair.measure.devices import ModelGaps, measure_model
from synthfair.privacy.noise import seeded

ROOT = Path(__file__).parent.parent.parent
DEVICES, EPSILONS = 10_000, (2.0, 4.0, 8.0)


def measure() -> list[ModelGaps]:
    """Distilled without the penalty, so that there is a gap; all rows are cut into devices."""
    use_float64()
    rows, schema = sf.load_dataset("dutch")
    config = load_distill_config(ROOT / "configs/dutch/gender.toml", rho_o=0.0)
    clients = sf.partition(rows, clients=4, seed=0)
    releases = {
        str(i): sf.distill_table(client.train, schema, config).release
        for i, client in enumerate(clients)
    }
    scored = pooled_scores(sf.pool_and_train(releases, schema), {"dutch": rows})
    groups = tuple(map(str, schema.groups))
    return [
        measure_model(
            scored, groups, devices=DEVICES, epsilon=epsilon, seed=0, source=seeded(round(epsilon))
        )
        for epsilon in EPSILONS
    ]


def table(found: list[ModelGaps]) -> str:
    """As Markdown."""
    lines = [
        "# A model's rates over many devices",
        "",
        f"`python -m benchmarks.gap devices`: Dutch, all rows cut into {DEVICES:,} devices of one"
        " group each, about six rows a device; single-shot model of four clients without a penalty."
        " Each device sends two reports, of its true and of its false positive rate; epsilon is"
        " that of both together. 95 % intervals, each by itself.",
        "",
        "| epsilon | rate | gap | measured | interval | true, over devices | over rows"
        " | Chebyshev |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        for gap in one.gaps:
            m = gap.measured
            lines.append(
                f"| {one.epsilon:g} | {gap.rate.replace('_', ' ')} | {gap.groups[1]} -"
                f" {gap.groups[0]} | {m.value:+.4f} | [{m.interval.low:.4f}, {m.interval.high:.4f}]"
                f" | {gap.true:+.4f} | {gap.pooled:+.4f} | {m.chebyshev:.4f} |"
            )
    return "\n".join(lines) + "\n"
