"""The participants of a federation, and the jobs that it may run: ``project.yml``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from synthfair.config.rules import STRICT
from synthfair.deploy.aggregator_site import AggregatorLimits
from synthfair.deploy.gap_job import GapJob
from synthfair.deploy.privfairfl_job import PrivFairFLJob
from synthfair.deploy.single_shot import SingleShotJob
from synthfair.deploy.train_job import TrainJob
from synthfair.errors import InputError, reason, refusal
from synthfair.files import read_bytes
from synthfair.task.limits import Limits

VERSION = "2.9.0"
"""The engine's version, the same at all sites: hardened kits were derived for this one."""

MAX_BYTES = 1_000_000
"""The largest size of a project file."""

SiteName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Host = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Organisation = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Mail = Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,64}@[a-z0-9-]+(\.[a-z0-9-]+)+$")]


class Party(BaseModel):
    """A participant."""

    model_config = STRICT

    name: str
    org: Organisation


class Server(Party):
    """The server; the sites and the submitters connect to ``name`` at ``port``."""

    name: Host
    port: int = Field(default=8002, ge=1024, le=65535)


class SiteEntry(Party):
    """A site, and what is proposed for its own file, which it reviews before it joins."""

    name: SiteName
    limits: Limits = Limits()


class AggregatorEntry(Party):
    """A site that adds up shares and holds no table, and what is proposed for its own file."""

    name: SiteName
    limits: AggregatorLimits = AggregatorLimits()


class Submitter(Party):
    """A person who may submit jobs, and download their results."""

    name: Mail


Job = SingleShotJob | TrainJob | GapJob | PrivFairFLJob


def needs_aggregators(job: BaseModel) -> bool:
    """Whether a job sums by shares."""
    if isinstance(job, TrainJob):
        return bool(job.train.get("secure"))
    return isinstance(job, PrivFairFLJob)


class Jobs(BaseModel):
    """The jobs whose folders are written, by kind."""

    model_config = STRICT

    single_shot: SingleShotJob | None = None
    train: TrainJob | None = None
    gap: GapJob | None = None
    privfairfl: PrivFairFLJob | None = None


class Project(BaseModel):
    """The description of a federation.

    Attributes:
        name: of it.
        schema_path: ``schema`` in the file; the public schema, relative to the file.
        server: see there.
        sites: at least one.
        aggregators: two or three, of other organisations, where a job needs sums by shares.
        submitters: at least one.
        jobs: see there.
    """

    model_config = STRICT | {"populate_by_name": True}

    name: SiteName
    schema_path: Path = Field(alias="schema")
    server: Server
    sites: tuple[SiteEntry, ...] = Field(min_length=1, max_length=1000)
    aggregators: tuple[AggregatorEntry, ...] = Field(default=(), max_length=3)
    submitters: tuple[Submitter, ...] = Field(min_length=1, max_length=100)
    jobs: Jobs = Jobs()

    @field_validator("schema_path")
    @classmethod
    def _is_named(cls, path: Path) -> Path:
        if not path.name:
            raise ValueError("must name a file")
        return path

    @model_validator(mode="after")
    def _names_differ(self) -> Project:
        parties = *self.sites, *self.aggregators, *self.submitters
        names = [self.server.name, *(party.name for party in parties)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice")
        return self

    @model_validator(mode="after")
    def _aggregators_suffice(self) -> Project:
        kinds = [kind for kind, job in self.jobs if job is not None and needs_aggregators(job)]
        if len(self.aggregators) == 1 or (kinds and not self.aggregators):
            cause = f"the job {kinds[0]} needs" if kinds else "sums by shares need"
            raise ValueError(f"aggregators: {cause} two or three that do not collude")
        orgs = [one.org for one in self.aggregators]
        if len(set(orgs)) < len(orgs):
            raise ValueError("aggregators: of one organisation; together they see every part")
        return self

    @property
    def site_names(self) -> list[str]:
        """The names of the sites, in the order of the file."""
        return [site.name for site in self.sites]


def read_project(path: Path) -> Project:
    """A project from a YAML file; the path of its schema is made absolute.

    Raises:
        InputError: unreadable, not YAML, an unknown key, or a value that is not allowed.
    """
    require_engine()
    import yaml

    content = read_bytes(path, MAX_BYTES)
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


def require_engine() -> None:
    """Refuses to go on without the engine, or with another version of it.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("nvflare")
    except PackageNotFoundError as error:
        raise InputError(
            "deploy: needs the package nvflare: pip install 'synthfair[nvflare]'"
        ) from error
    if installed != VERSION:
        raise InputError(f"deploy: needs nvflare {VERSION} at all sites; found {installed}")
