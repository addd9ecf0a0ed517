"""Time and bytes of a federation on one machine: one upload, and training in rounds.

    python -m benchmarks.deploy                 # five minutes

A server and its sites are processes of this machine, as `examples/deployment.py` starts them, with
the wages of two unlike regions, or of eight alike sites. The machine's load is taken before
the first process starts: on a busy machine the times are the load's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Experiment, main
from benchmarks.showing import page_of
from examples import deployment
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition


class DeploySetting(NamedTuple):
    """Which job, from how many sites."""

    job: deployment.Job
    sites: int


class DeployValues(NamedTuple):
    """What it took.

    Attributes:
        load: of the machine before, processes that run or wait to.
        cores: of the machine.
        start: seconds until the server knows all sites.
        whole: seconds of the job, from submission to results.
        rounds: that the server asked for.
        median_round: seconds from question to last answer.
        site: seconds that the slowest site worked, in all rounds.
        megabytes: that came from all sites together.
    """

    load: float
    cores: int
    start: float
    whole: float
    rounds: int
    median_round: float
    site: float
    megabytes: float

    @property
    def elsewhere(self) -> float:
        """The share of the job's time in which the slowest site does not work."""
        return 1 - self.site / self.whole


def run_job(setting: DeploySetting, seed: int, *, smoke: bool) -> DeployValues:
    """Start the processes, run the job, and stop them; return seconds and bytes."""
    load = os.getloadavg()[0]
    if setting.sites == 2:
        regions = deployment.unlike_regions()
    else:
        parts = partition(load_dataset("twoyear")[0], clients=setting.sites, seed=seed)
        regions = {f"site{i}": part for i, part in enumerate(parts)}
    with tempfile.TemporaryDirectory() as folder:
        shown = deployment.demonstrate(
            Path(folder), lambda _: None, lambda *_: None, job=setting.job, regions=regions
        )
    federation = shown.run.federation
    if not (shown.run.completed and shown.clean and federation):
        raise RuntimeError(f"{setting}: {shown.run.status}")
    booked = federation.sites.values()
    return DeployValues(
        load, os.cpu_count() or 1, shown.start_seconds, shown.job_seconds, federation.rounds,
        federation.median_round_seconds, max(one.site_seconds or 0.0 for one in booked),
        sum(one.carried_bytes for one in booked) / 1e6,
    )  # fmt: skip


JOBS: tuple[tuple[deployment.Job, int], ...] = (
    ("single_shot", 2),
    ("train", 2),
    ("single_shot", 8),
)

# Without a smoke run: .ci/run has the demonstration itself.
DEPLOY = Experiment(
    name="deploy", settings=tuple(DeploySetting(*job) for job in JOBS), run=run_job,
    summary=page_of("deploy/deploy"), float64=False,
)  # fmt: skip

EXPERIMENTS = (DEPLOY,)

if __name__ == "__main__":
    main(__doc__, "deploy", *EXPERIMENTS)
