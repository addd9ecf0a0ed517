"""Time and memory to perturb and add up many clients, one process, from arrays."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple

import numpy as np

from synthfair.measure.estimate import estimate
from synthfair.measure.split import KINDS, best_split
from synthfair.measure.tally import CHUNK, collect, empty_tally
from synthfair.privacy.noise import system_entropy

GOAL_SECONDS, GOAL_GIGABYTES = 10.0, 2.0


class Timed(NamedTuple):
    """One run: its mechanism, clients, seconds, and the process's largest memory so far."""

    mechanism: str
    clients: int
    how: str
    seconds: float
    gigabytes: float


def measure(clients: int) -> list[Timed]:
    """Both mechanisms at epsilon = 1, noise from the system; in memory, then as a stream."""
    return [one(kind, clients, how) for how in ("stream", "arrays") for kind in KINDS]


def one(kind: str, clients: int, how: str) -> Timed:
    """Perturbs, adds up and estimates."""
    mechanism = best_split("randomized" if kind == "randomized" else "laplace", 2, 1.0)
    rng = np.random.default_rng(0)
    sizes = [clients] if how == "arrays" else [CHUNK] * -(-clients // CHUNK)
    seconds, told = 0.0, empty_tally(2)
    for size in sizes:
        group, value = rng.integers(2, size=size), rng.uniform(-1, 1, size)
        start = time.perf_counter()
        told = told.plus(collect(mechanism, group, value, system_entropy))
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    estimate(told, mechanism)
    seconds += time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return Timed(kind, told.reports, how, seconds, peak)


def table(runs: list[Timed]) -> str:
    """As Markdown, with the goals."""
    lines = [
        "# Speed",
        "",
        "`python -m benchmarks.gap speed`: perturbed with noise from the system, added up and"
        " estimated, one process; peak memory of the process so far, the clients' own numbers"
        " included. A stream makes"
        f" {CHUNK} clients at a time and forgets them, so its memory is that of any number.",
        "",
        "| mechanism | clients | from | s | ns a client | peak GB | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        met = run.seconds <= GOAL_SECONDS and run.gigabytes <= GOAL_GIGABYTES
        lines.append(
            f"| {run.mechanism} | {run.clients:,} | {run.how} | {run.seconds:.2f} |"
            f" {run.seconds / run.clients * 1e9:.0f} | {run.gigabytes:.2f} |"
            f" {GOAL_SECONDS:g} s, {GOAL_GIGABYTES:g} GB: {'met' if met else 'MISSED'} |"
        )
    return "\n".join(lines) + "\n"
