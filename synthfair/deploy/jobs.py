"""The kinds of jobs: what a site answers, and what the server asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from synthfair.deploy.gap_job import GapJob, answer_gap, run_gap
from synthfair.deploy.privfairfl_job import PrivFairFLJob, run_privfairfl
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site_sums import answer_counts
from synthfair.deploy.site_training import answer_train
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.task.job_sites import JobSites
from synthfair.task.messages import TaskName

if TYPE_CHECKING:
    from synthfair.deploy.party import Request


class JobKind(NamedTuple):
    """A kind of jobs.

    Attributes:
        settings: what ``project.yml`` says of such a job.
        answer: the site's side: returns the content of an answer; raises RefusedError where the
            question is none that it answers.
        run: the server's side, with the settings, a folder that stays at the server, and one that
            the submitter downloads.
    """

    settings: type[BaseModel]
    answer: Callable[[Request], bytes]
    run: Callable[[JobSites, Any, Path, Path], object]


KINDS: dict[TaskName, JobKind] = {
    "single_shot": JobKind(SingleShotJob, answer_single_shot, run_single_shot),
    "train": JobKind(TrainJob, answer_train, run_train),
    "gap": JobKind(GapJob, answer_gap, run_gap),
    "privfairfl": JobKind(PrivFairFLJob, answer_counts, run_privfairfl),
}
"""The kinds by the name of the job, which is also that of its first task."""
