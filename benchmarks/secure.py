"""Time and memory of a secure sum, as the number of clients grows.

    python -m benchmarks.secure                 # two minutes

Each client sends 404 counts (two groups, two labels, 101 bins) to two aggregators. Measured are
what a client computes; the whole process of an aggregator, `python -m synthfair secure add`, and
its peak memory; and the process that opens.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.fit import watch
from benchmarks.harness import Experiment, main
from benchmarks.showing import page_of
from synthfair.secure.summands import GroupCounts
from synthfair.secure.task import make_aggregator_keys, make_task
from synthfair.secure.upload import make_uploads


class SumSetting(NamedTuple):
    """How many clients and bins."""

    clients: int
    bins: int

    @property
    def counts(self) -> int:
        """How many counts there are: of two groups and two labels."""
        return 4 * self.bins


class SumValues(NamedTuple):
    """What it took.

    Attributes:
        client: milliseconds of one client, to make its uploads.
        add: seconds of an aggregator's process; of the slower of two.
        megabytes: its peak memory.
        opening: seconds of the process that opens.
    """

    client: float
    add: float
    megabytes: float
    opening: float


def run_sum(setting: SumSetting, _seed: int, *, smoke: bool) -> SumValues:
    """Write all uploads, and sum them in new processes; return seconds and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder, command = Path(name), ("synthfair", "secure")
        client, task = 1e3 * write_uploads(folder, setting), folder / "task.json"
        sums = [folder / f"sum_{role}.json" for role in range(2)]
        added = [
            watch(
                *command, "add", folder, "--task", task, "--output", path, "--most-epsilon", 1,
                "--key", folder / f"aggregator_{role}.key",
            )
            for role, path in enumerate(sums)
        ]  # fmt: skip
        histogram = folder / "histogram.json"
        opened = watch(*command, "open", *sums, "--task", task, "--output", histogram)
    seconds, megabytes = map(max, zip(*added, strict=True))
    return SumValues(client, seconds, megabytes, opened.seconds)


def counts_of(bins: int) -> GroupCounts:
    """Of rows by two groups, label and bin of a model's score; of one bin without a model."""
    return GroupCounts(
        schema_hash="0" * 64, groups=("a", "b"), model="0" * 64 if bins > 1 else None, bins=bins,
        epsilon=1.0, rows_per_client=10_000,
    )  # fmt: skip


def write_uploads(folder: Path, setting: SumSetting) -> float:
    """Keys, task and uploads of every client; seconds of computing the uploads of one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = [make_aggregator_keys(folder / f"aggregator_{role}.key")[1] for role in range(2)]
    keys = [Ed25519PrivateKey.generate() for _ in range(setting.clients)]
    what = counts_of(setting.bins)
    known = [key.public_key().public_bytes_raw().hex() for key in keys]
    task = make_task(what, public, known, least_clients=setting.clients)
    task.write(folder / "task.json")
    rng, seconds = np.random.default_rng(0), 0.0
    for i, key in enumerate(keys):
        counts = rng.poisson(2.0, what.length).astype(np.int64)
        start = time.perf_counter()
        uploads = make_uploads(task, counts, key)
        seconds += time.perf_counter() - start
        for role, upload in enumerate(uploads):
            (folder / f"client_{i}.to_{role}").write_bytes(upload)
    return seconds / setting.clients


SUMS = Experiment(
    name="secure", settings=tuple(SumSetting(clients, 101) for clients in (10, 100, 1000, 10_000)),
    run=run_sum, summary=page_of("secure/secure"), smoke=(SumSetting(3, 5),),
    float64=False,
)  # fmt: skip

EXPERIMENTS = (SUMS,)

if __name__ == "__main__":
    main(__doc__, "secure", *EXPERIMENTS)
