"""Time and bytes of a federation on one machine: one upload, and training in rounds.

    python -m benchmarks.deploy                 # five minutes

A server and its sites are processes of this machine, as `python -m synthfair deploy demo` starts
them, with the loan applications of unlike lenders, or of eight alike ones. The machine's load is
taken before the first process starts: on a busy machine the times are the load's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Experiment, Run, main
from benchmarks.showing import page, table
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition
from synthfair.task.messages import TaskName

GOAL = "Goal for a round of FPFL on one machine: 0.5 s."


class DeploySetting(NamedTuple):
    """Which job, from how many sites."""

    job: TaskName
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


def run_job(setting: DeploySetting, seed: int, *, smoke: bool) -> DeployValues:
    """Starts the processes, runs the job, and stops them."""
    from synthfair.deploy.demo import demonstrate, unlike_lenders

    del smoke
    load = os.getloadavg()[0]
    if setting.sites == 2:
        lenders = unlike_lenders()
    else:
        parts = partition(load_dataset("loanapp")[0], clients=setting.sites, seed=seed)
        lenders = {f"lender{i}": part for i, part in enumerate(parts)}
    with tempfile.TemporaryDirectory() as folder:
        shown = demonstrate(
            Path(folder), lambda _: None, lambda *_: None, job=setting.job, lenders=lenders
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


def show_jobs(runs: Sequence[Run[DeploySetting, DeployValues]]) -> dict[str, str]:
    """As Markdown."""
    rows = []
    for (job, sites), _, found, _ in runs:
        share = 1 - found.site / found.whole
        rows.append(
            (
                job, sites, f"{found.load:.0f} on {found.cores}", f"{found.start:.0f}",
                f"{found.whole:.0f}", found.rounds, f"{found.median_round:.2f}",
                f"{found.site:.1f}", f"{share:.0%}", f"{found.megabytes:.2f}",
            )
        )  # fmt: skip
    text = table(
        "job | sites | load before, on cores | start, s | job, s | rounds | median round, s"
        " | slowest site, s | not at the sites | MB received",
        rows,
    )
    note = (
        "Not at the sites: the share of a job's time in which the slowest site does not work: the"
        " engine, the server's own work, and processes that start."
    )
    return {"deploy.md": page("## A federation on one machine", GOAL, text, note)}


DEPLOY = Experiment(
    name="deploy",
    settings=(
        DeploySetting("single_shot", 2),
        DeploySetting("train", 2),
        DeploySetting("single_shot", 8),
    ),
    run=run_job,
    summary=show_jobs,
    smoke=(),  # processes take too long; .ci/run has the demonstration itself
    float64=False,
)

EXPERIMENTS = (DEPLOY,)

if __name__ == "__main__":
    main(__doc__, "deploy", *EXPERIMENTS)
