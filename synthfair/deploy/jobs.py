"""The kinds of jobs: what a site answers, and what the server asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from synthfair.deploy.federation import Federation
from synthfair.deploy.gap import GapJob, answer_gap, run_gap
from synthfair.deploy.messages import TaskName
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site import Routine
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
}
"""By name of the job, which is also that of its task."""
