"""The project of a federation, ``project.yml``: its sites, their limits, its jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError, model_validator

from synthfair.deploy.gap_job import GapJob
from synthfair.deploy.kit import MAX_KIT_FILE_BYTES, description, require_engine
from synthfair.deploy.privfairfl_job import PrivFairFLJob
from synthfair.deploy.single_shot import SingleShotJob
from synthfair.deploy.train_job import TrainJob
from synthfair.errors import InputError, reason, refusal
from synthfair.files import read_bytes, write_json
from synthfair.settings import STRICT, Checked
from synthfair.task.limits import AggregatorLimits, Limits

SiteName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Organisation = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class Entry(Checked):
    """A party by its name and its organisation, as in its certificate."""

    name: SiteName
    org: Organisation


class SiteEntry(Entry):
    """A site, and the limits that are proposed to it."""

    limits: Limits = Limits()


class AggregatorEntry(Entry):
    """A site that adds up shares and holds no table, and the limits that are proposed to it."""

    limits: AggregatorLimits = AggregatorLimits()


def needs_aggregators(job: BaseModel) -> bool:
    """Return whether a job sums by shares."""
    if isinstance(job, TrainJob):
        return bool(job.train.get("secure"))
    return isinstance(job, PrivFairFLJob) or getattr(job, "shared_noise", False)


class Jobs(Checked):
    """The jobs whose folders are written, by kind."""

    single_shot: SingleShotJob | None = None
    train: TrainJob | None = None
    gap: GapJob | None = None
    privfairfl: PrivFairFLJob | None = None


class Project(BaseModel):
    """The description of a federation.

    Attributes:
        schema_path: ``schema`` in the file; the public schema, relative to the file.
        sites: at least one.
        aggregators: two or three, of other organisations, where a job needs sums by shares.
        jobs: see there.
    """

    model_config = STRICT | {"populate_by_name": True}

    schema_path: Path = Field(alias="schema")
    sites: tuple[SiteEntry, ...] = Field(min_length=1, max_length=1000)
    aggregators: tuple[AggregatorEntry, ...] = Field(default=(), max_length=3)
    jobs: Jobs = Jobs()

    @model_validator(mode="after")
    def _is_whole(self) -> Project:
        names = [party.name for party in (*self.sites, *self.aggregators)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the name {twice[0]!r} is used twice")
        kinds = [kind for kind, job in self.jobs if job is not None and needs_aggregators(job)]
        if len(self.aggregators) == 1 or (kinds and not self.aggregators):
            cause = f"the job {kinds[0]} needs" if kinds else "sums by shares need"
            raise ValueError(f"aggregators: {cause} two or three that do not collude")
        if len({party.org for party in self.aggregators}) < len(self.aggregators):
            raise ValueError("aggregators: of one organisation; together they see every part")
        return self


def read_project(path: Path) -> Project:
    """Read a project from a YAML file; the path of its schema is made absolute.

    Raises:
        InputError: unreadable, not YAML, an unknown key, or a value that is not allowed.
    """
    require_engine()
    import yaml

    content = read_bytes(path, MAX_KIT_FILE_BYTES)
    try:
        project = yaml.safe_load(content.decode())
        text = json.dumps(project, default=str)  # a date is text, and is refused as such
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not YAML: {reason(error)}") from error
    try:
        project = Project.model_validate_json(text, context={"folder": path.parent})
    except ValidationError as error:
        raise refusal(str(path), error) from error
    return project.model_copy(update={"schema_path": path.parent.resolve() / project.schema_path})


def write_jobs(project: Project, output: Path) -> list[Path]:
    """Write a folder for each job of a project: three small files, and no code.

    Args:
        project: the jobs, and the sites that answer them.
        output: folder, new or empty.

    Returns:
        The folders, each named after its kind of job.

    Raises:
        InputError: the project has no jobs, a job is refused, or the folder is not empty.
    """
    jobs = {kind: job for kind, job in project.jobs if job is not None}
    if not jobs:
        raise InputError(f"jobs: there are none; must be of {', '.join(Jobs.model_fields)}")
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")
    from synthfair.deploy.job_validator import SERVER, has_braces  # loads the engine

    sites, documents = [site.name for site in project.sites], {}
    for kind, job in jobs.items():
        aggregators = [party.name for party in project.aggregators] * needs_aggregators(job)
        settings = {"sites": sites, "job": job.model_dump(mode="json"), "aggregators": aggregators}
        if has_braces(settings):
            raise InputError(f"jobs.{kind}: has a brace, which the engine takes for a variable's")
        app = description("job")
        app[SERVER]["workflows"][0]["args"] = {"kind": kind, **settings}
        documents |= {output / kind / "app" / name: document for name, document in app.items()}
        documents[output / kind / "meta.json"] = {
            "name": kind,
            "resource_spec": {},
            "deploy_map": {"app": ["server", *sites, *aggregators]},
            "min_clients": (job.least_answers or len(sites)) + len(aggregators),
            "mandatory_clients": aggregators,
        }
    for path, document in documents.items():
        write_json(path, document)
    return [output / kind for kind in sorted(jobs)]
