"""The kinds of jobs: what a site answers, and what the server asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from synthfair.deploy.aggregator_site import AGGREGATOR, AggregatorSettings, answer_add
from synthfair.deploy.gap_job import GapJob, answer_gap, run_gap
from synthfair.deploy.party import Party, Routine
from synthfair.deploy.privfairfl_job import PrivFairFLJob, run_privfairfl
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site_sums import answer_model, answer_part
from synthfair.deploy.site_training import SiteTraining
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.files import read_document
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import FILE, SiteSettings, read_settings
from synthfair.task.messages import TaskName


class JobKind(NamedTuple):
    """A kind of jobs.

    Attributes:
        settings: what ``project.yml`` says of such a job.
        routine: makes what answers at a site; anew for every job, so that it may remember rounds.
        run: the server's side, with the settings, a folder that stays at the server, and one that
            the submitter downloads.
    """

    settings: type[BaseModel]
    routine: Callable[[], Routine]
    run: Callable[[JobSites, Any, Path, Path], None]


KINDS: dict[TaskName, JobKind] = {
    "single_shot": JobKind(SingleShotJob, lambda: answer_single_shot, run_single_shot),
    "train": JobKind(TrainJob, SiteTraining, run_train),
    "gap": JobKind(GapJob, lambda: answer_gap, run_gap),
    "privfairfl": JobKind(PrivFairFLJob, lambda: answer_part, run_privfairfl),
}
"""The kinds by the name of the job, which is also that of its first task."""


def make_party(name: str, workspace: Path, log: Callable[[str], None]) -> Party:
    """Make the party that answers questions in a kit: a site with a table, or an aggregator.

    Args:
        name: of the site.
        workspace: folder of its kit.
        log: takes text that must not leave.

    Raises:
        InputError: its settings, the schema or the key are refused.
    """
    settings = read_site_settings(workspace / "local" / FILE)
    if isinstance(settings, AggregatorSettings):
        routines: dict[TaskName, Routine] = {"add": answer_add}
    else:
        routines = {name: kind.routine() for name, kind in KINDS.items()}
        routines["deliver"] = answer_model
    return Party(name, workspace, settings, routines, log)


def read_site_settings(path: Path) -> SiteSettings | AggregatorSettings:
    """Read settings of a site or an aggregator, as the file's format says. Raises InputError."""
    if read_document(path).get("format") == AGGREGATOR:
        return read_settings(path, AggregatorSettings)
    return read_settings(path, SiteSettings)
