"""Time and memory to perturb and add up many clients, one process, from arrays."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from synthfair.measure.aggregate import SeenIds, aggregate_reports
from synthfair.measure.collection import Collection, make_collection
from synthfair.measure.estimate import estimate_gaps
from synthfair.measure.mechanisms import MECHANISMS, Kind
from synthfair.measure.plan import best_split
from synthfair.measure.reports import COLUMNS
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
    """Both mechanisms at epsilon = 1, noise from the system; a stream, arrays, and from files."""
    runs = [one(kind, clients, how) for how in ("stream", "arrays") for kind in MECHANISMS]
    return runs + [from_file(clients, ending) for ending in ("parquet", "csv")]


def one(kind: Kind, clients: int, how: str) -> Timed:
    """Perturbs, adds up and estimates."""
    mechanism = best_split(kind, 2, 1.0)
    rng = np.random.default_rng(0)
    sizes = [clients] if how == "arrays" else [CHUNK] * -(-clients // CHUNK)
    seconds, told = 0.0, empty_tally(2)
    for size in sizes:
        group, value = rng.integers(2, size=size), rng.uniform(-1, 1, size)
        start = time.perf_counter()
        told = told.plus(collect(mechanism, group, value, system_entropy))
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    estimate_gaps(told, mechanism)
    seconds += time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return Timed(kind, told.reports, how, seconds, peak)


def from_file(clients: int, ending: str) -> Timed:
    """Reads reports with ids from a file, judges them, finds repeated ones and adds up."""
    mechanism = best_split("randomized", 2, 1.0)
    collection = make_collection(("f", "m"), mechanism)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"reports.{ending}"
        _write(path, collection, clients)
        start = time.perf_counter()
        found = aggregate_reports([path], collection, SeenIds())
        estimate_gaps(found.tally, mechanism)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return Timed("randomized", found.tally.reports, f"{ending} file, with ids", seconds, peak)


def _write(path: Path, collection: Collection, clients: int) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    schema = pa.schema(dict.fromkeys(COLUMNS[:3], pa.string()) | {"value": pa.float64()})
    make = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    plain = csv.WriteOptions(quoting_style="none")  # as perturb writes them
    options = {"write_options": plain} if make is csv.CSVWriter else {}
    rng = np.random.default_rng(0)
    with make(str(path), schema, **options) as writer:
        for start in range(0, clients, CHUNK):
            size = min(CHUNK, clients - start)
            told, noisy = collection.make_mechanism().perturb(
                rng.integers(2, size=size), rng.uniform(-1, 1, size), system_entropy
            )
            ids = [f"{start + i:032x}" for i in range(size)]
            marks, names = [collection.fingerprint] * size, np.array(collection.groups)[told]
            writer.write_table(pa.table([ids, marks, names, noisy], schema=schema))


def table(runs: list[Timed]) -> str:
    """As Markdown, with the goals."""
    lines = [
        "# Speed",
        "",
        "`python -m benchmarks.gap speed`: perturbed with noise from the system, added up and"
        " estimated, one process; peak memory of the process so far, the clients' own numbers"
        " included. From a file, reports are read, judged, looked through for repeated ids (128 MB)"
        " and added up; the goal is for perturbing and adding up. A stream makes"
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
