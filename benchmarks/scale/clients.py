"""Many small clients in one process: wall time, and whether a batch gives what one by one gives.

    python -m benchmarks.scale.clients --n 1000

Each client has rows drawn from Dutch (10 inputs, sensitive: gender) with replacement, and distils
them in 1,000 steps.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
from synthfair.client.routine import distill_rows

import synthfair as sf
from benchmarks import use_float64
from synthfair.data.schema import Schema

ROWS, N_SYNTHETIC, STEPS = 500, 100, 1000

COMPARED, EARLY = 10, 200
"""Clients that are distilled again by themselves; steps of which they are compared closely."""


class Simulated(NamedTuple):
    """What simulating took.

    Attributes:
        n: number of clients.
        seconds: of all, compilation included.
        alone: of one client by itself, compiled before.
        early: largest relative difference of P(x) between the batch and one by one over the first
            steps of the clients compared: rounding.
        late: the same at the end. Where Adam has come near an optimum it begins to bounce, and
            doubles a difference of rounding in a few steps.
        converged: how many clients met the tolerance of the inner problem.
    """

    n: int
    seconds: float
    alone: float
    early: float
    late: float
    converged: int


def simulate(n: int) -> Simulated:
    """Distils n clients together, and a few of them again one by one."""
    use_float64()
    schema, clients = _clients(n)
    config = sf.DistillConfig(n_synthetic=N_SYNTHETIC, steps=STEPS)
    start = time.perf_counter()
    together = sf.distill_clients(clients, schema, config)
    seconds = time.perf_counter() - start
    distill_rows(clients[0], schema, config)  # compiles
    start, compared = time.perf_counter(), min(n, COMPARED)
    alone = [distill_rows(real, schema, config) for real in clients[:compared]]
    each = (time.perf_counter() - start) / compared
    pairs = [
        (one.history.objective, other.history.objective)
        for one, other in zip(together, alone, strict=False)
    ]
    early = max(np.abs(one[:EARLY] / other[:EARLY] - 1).max() for one, other in pairs)
    late = max(abs(one[-1] / other[-1] - 1) for one, other in pairs)
    converged = sum(distillation.inner_converged for distillation in together)
    return Simulated(n, seconds, each, float(early), float(late), converged)


def _clients(n: int) -> tuple[Schema, list[sf.Encoded]]:
    table, schema = sf.load_dataset("dutch")
    everything, rng = sf.encode(table, schema), np.random.default_rng(0)
    drawn = rng.integers(len(table), size=(n, ROWS))
    return schema, [sf.Encoded(*(part[rows] for part in everything)) for rows in drawn]


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=1000, help="Clients. Default: 1000.")
    print(table(simulate(parser.parse_args().n)))


def table(found: Simulated) -> str:
    """Markdown."""
    return (
        "| clients | s | one by one, s | P(x), first 200 steps | P(x), end | converged |\n"
        "|---|---|---|---|---|---|\n"
        f"| {found.n} | {found.seconds:.1f} | {found.n * found.alone:.1f} (of {COMPARED})"
        f" | {found.early:.0e} | {found.late:.0e} | {found.converged} |"
    )


if __name__ == "__main__":
    main()
