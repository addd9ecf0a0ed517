"""The job ``single_shot``: every site makes a release in one upload, the server a model of all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, model_validator

from synthfair.client.page import release_task
from synthfair.deploy.job_sums import job_label, secure_sum, site_names
from synthfair.deploy.site_sums import answer_part
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.release.format import release_bytes, write_release
from synthfair.release.settings import DistillConfig, SurrogateConfig, release_settings
from synthfair.server.settings import ServerConfig
from synthfair.settings import Checked
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import refused_as

if TYPE_CHECKING:
    from synthfair.deploy.party import Request


class SingleShotJob(Checked):
    """The settings of a job.

    Attributes:
        release: settings of the releases: ``release``, fair or surrogate, and those of its kind.
        shared_noise: whether aggregators make one surrogate of all sites' rows, with one noise for
            all of them, by sums that nobody sees the parts of; it needs an epsilon.
        server: settings of the server.
        least_answers: sites that must have answered well for the job to go on; all if not given.
        timeout: seconds to wait for answers.
    """

    release: dict[str, Any]
    shared_noise: bool = False
    server: ServerConfig = ServerConfig()
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=3600, ge=1, le=7 * 24 * 3600)

    @model_validator(mode="after")
    def _has_settings_that_fit(self) -> SingleShotJob:
        config = release_config(self.release)
        if self.shared_noise and (config.epsilon is None or isinstance(config, DistillConfig)):
            raise ValueError("shared_noise: is for a surrogate with epsilon")
        return self


def release_config(settings: dict[str, Any]) -> DistillConfig | SurrogateConfig:
    """Return settings of a release as a job has them.

    Raises:
        ValueError: of no kind, an unknown key, or a value that is not allowed.
    """
    rest = {key: value for key, value in settings.items() if key != "release"}
    return validated(release_settings(settings.get("release")), rest)


def answer_single_shot(request: Request) -> bytes:
    """Return a site's release file, as ``python -m synthfair.client`` makes it, or a part of one.

    With an epsilon, the same rows, epsilon, delta and k_min give the same private records, in any
    job, of which any release is made at no cost; others are booked anew.

    Raises:
        RefusedError: the question's settings are none, or beyond the site's limits.
    """
    if "task" in request.question.settings:
        return answer_part(request)
    with refused_as("settings"):
        config = release_config(request.question.settings)
        if isinstance(config, DistillConfig):
            from synthfair.jax_setup import start_jax

            start_jax()
        task = release_task(config, request.party.schema)
    return release_bytes(request.answer(task).release, request.party.key)


def run_single_shot(federation: JobSites, job: SingleShotJob, private: Path, output: Path) -> None:
    """Run the server's side: ask for releases, then the routine of ``python -m synthfair.server``.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: folder for the releases, which stay at the server.
        output: folder for model.json, metrics.json and federation.json.

    Raises:
        TooFewError: fewer sites than the job says have answered well.
        InputError: the server's routine refuses the releases.
    """
    from synthfair.release.format import read_release

    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    config, settings = release_config(job.release), federation.settings

    def stored(site: str, content: bytes) -> Path:
        """Store a release that the site itself has signed, of the settings asked for."""
        path = private / f"{site}.parquet"
        with whole_file(path, mode=OWNER_ONLY) as temporary:
            temporary.write_bytes(content)
        release = read_release(path, federation.schema, keys={federation.keys[site]: site})
        if release.header.config != config:
            raise InputError(f"{path}: made with other settings than were asked for")
        return path

    folder = None
    if job.shared_noise:
        release, folder = _shared_surrogate(federation, job, private)
        releases = [release]
    else:
        question = federation.question(
            task="single_shot", settings=job.release, timeout=job.timeout
        )
        releases = [*federation.ask(question, stored, least=job.least_answers).values()]
    from synthfair.server.page import serve

    serve(
        releases,
        settings.schema_path,
        settings.tests,
        output,
        job.server,
        keys=() if job.shared_noise else [settings.keys / f"{p.stem}.pub" for p in releases],
        trusted=settings.trusted,
    )
    if folder:  # only now: until then the same job goes on, and nobody pays twice
        shutil.rmtree(folder, ignore_errors=True)


def _shared_surrogate(federation: JobSites, job: SingleShotJob, private: Path) -> tuple[Path, Path]:
    """Return the file of one surrogate of all sites' rows, and the folder of its sums.

    The sites of the first sum must be in all others; the job goes on with them alone.
    """
    from synthfair.secure.summands import RowSums
    from synthfair.secure.surrogate import next_tasks, opened_sum, surrogate_from_sums

    config, schema = cast(SurrogateConfig, release_config(job.release)), federation.schema
    aggregators, names = [*federation.aggregators.values()], site_names(federation)
    least, opened = job.least_answers or len(names), ()
    label, folder = job_label(federation, config, private.parent, "single_shot", least=least)
    while tasks := next_tasks(opened, config, schema, aggregators, names, least=least, label=label):
        task = next(iter(tasks.values()))
        federation.sites = tuple(sorted(names[key] for key in task.clients))
        question = federation.question(task="single_shot", round=len(opened), timeout=job.timeout)
        total = secure_sum(federation, task, question, folder=folder, anew=folder)
        opened = (*opened, opened_sum(cast(RowSums, task.what), total))
    write_release(surrogate_from_sums(opened, config, schema), private / "surrogate.parquet")
    return private / "surrogate.parquet", folder
