"""Time and memory to perturb and add up many clients, one process, from arrays."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gap.devices import CHUNK, collect
from benchmarks.harness import Experiment
from benchmarks.showing import page_of, verdict
from synthfair.measure.aggregate import ReportSums, SeenIds, aggregate_reports
from synthfair.measure.collection import COLUMNS, Collection, make_collection
from synthfair.measure.estimate import Tally, estimate_gaps
from synthfair.measure.mechanisms import MECHANISMS, Kind
from synthfair.measure.plan import best_split
from synthfair.privacy.noise import system_entropy

GOAL_SECONDS, GOAL_GIGABYTES = 10.0, 2.0


class GapSpeedSetting(NamedTuple):
    """How many clients, and where their reports come from: a stream, arrays, or a file."""

    mechanism: Kind
    clients: int
    how: str


class GapSpeedValues(NamedTuple):
    """Reports, seconds, and the process's largest memory so far."""

    reports: int
    seconds: float
    gigabytes: float

    @property
    def nanoseconds(self) -> float:
        """Of a report."""
        return self.seconds / self.reports * 1e9

    @property
    def goal(self) -> str:
        """The goals, and whether both are met."""
        met = verdict(self.seconds <= GOAL_SECONDS and self.gigabytes <= GOAL_GIGABYTES)
        return f"{GOAL_SECONDS:g} s, {GOAL_GIGABYTES:g} GB: {met}"


def run_speed(setting: GapSpeedSetting, _seed: int, *, smoke: bool) -> GapSpeedValues:
    """At epsilon = 1, noise from the system."""
    from_file = setting.how not in ("stream", "arrays")
    reports, seconds = _from_file(setting) if from_file else _in_memory(setting)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return GapSpeedValues(reports, seconds, peak)


def _in_memory(setting: GapSpeedSetting) -> tuple[int, float]:
    """Perturbs, adds up and estimates."""
    mechanism, rng = best_split(setting.mechanism, 2, 1.0), np.random.default_rng(0)
    whole = setting.how == "arrays"
    sizes = [setting.clients] if whole else [CHUNK] * -(-setting.clients // CHUNK)
    seconds, tally = 0.0, Tally(0, *np.zeros((3, 2)))
    for size in sizes:
        group, value = rng.integers(2, size=size), rng.uniform(-1, 1, size)
        start = time.perf_counter()
        tally = tally.plus(collect(mechanism, group, value, system_entropy))
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    estimate_gaps(ReportSums(tally), make_collection(("f", "m"), mechanism))
    return tally.reports, seconds + time.perf_counter() - start


def _from_file(setting: GapSpeedSetting) -> tuple[int, float]:
    """Add up a file of reports with ids, each once; return the number of reports, and seconds."""
    mechanism = best_split(setting.mechanism, 2, 1.0)
    collection = make_collection(("f", "m"), mechanism)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"reports.{setting.how.split()[0]}"
        _write(path, collection, setting.clients)
        start = time.perf_counter()
        sums = aggregate_reports([path], collection, SeenIds())
        estimate_gaps(sums, collection)
        return sums.tally.reports, time.perf_counter() - start


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
            groups, noisy = collection.make_mechanism().perturb(
                rng.integers(2, size=size), rng.uniform(-1, 1, size), system_entropy
            )
            ids = [f"{start + i:032x}" for i in range(size)]
            marks, names = [collection.fingerprint] * size, np.array(collection.groups)[groups]
            writer.write_table(pa.table([ids, marks, names, noisy], schema=schema))


WAYS: tuple[tuple[Kind, str], ...] = (
    *((kind, how) for how in ("stream", "arrays") for kind in MECHANISMS),
    ("randomized", "parquet file, with ids"),
    ("randomized", "csv file, with ids"),
)

SPEED = Experiment(
    name="speed", settings=tuple(GapSpeedSetting(kind, 10**7, how) for kind, how in WAYS),
    run=run_speed, summary=page_of("gap/speed", chunk=CHUNK),
    smoke=tuple(GapSpeedSetting(kind, 10**5, how) for kind, how in WAYS), float64=False,
)  # fmt: skip
