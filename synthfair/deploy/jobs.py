"""The kinds of jobs: what a site answers, and what the server asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from synthfair.deploy.federation import Federation
from synthfair.deploy.gap import GapJob, answer_gap, run_gap
from synthfair.deploy.messages import TaskName
from synthfair.deploy.privfairfl import PrivFairFLJob, run_privfairfl
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site import Routine
from synthfair.deploy.site_sums import answer_add, answer_counts, answer_model
from synthfair.deploy.site_training import SiteTraining
from synthfair.deploy.training import TrainJob, run_train


class JobKind(NamedTuple):
    """One kind.

    Attributes:
        settings: what ``project.yml`` says of such a job.
        routine: makes what answers at a site; anew for every job, so that it may remember rounds.
        run: the server's side, with the settings, a folder that stays at the server, and one that
            the submitter downloads.
    """

    settings: type[BaseModel]
    routine: Callable[[], Routine]
    run: Callable[[Federation, Any, Path, Path], None]


KINDS: dict[TaskName, JobKind] = {
    "single_shot": JobKind(SingleShotJob, lambda: answer_single_shot, run_single_shot),
    "train": JobKind(TrainJob, SiteTraining, run_train),
    "gap": JobKind(GapJob, lambda: answer_gap, run_gap),
    "privfairfl": JobKind(PrivFairFLJob, lambda: answer_counts, run_privfairfl),
}
"""By name of the job, which is also that of its first task."""

MORE: dict[TaskName, Routine] = {"add": answer_add, "deliver": answer_model}
"""Tasks of jobs of several kinds: sums at aggregators, and models that are sent back."""


def make_routines() -> dict[TaskName, Routine]:
    """What answers at a site, or an aggregator, by task."""
    return {**{name: kind.routine() for name, kind in KINDS.items()}, **MORE}
