"""The session of a submitter with the server: a job, its progress, its results."""

from __future__ import annotations

import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.deploy.kit import PROGRESS_COMMAND, Kit
from synthfair.errors import InputError, reason
from synthfair.files import read_as, validated
from synthfair.metrics_file import MAX_METRICS_BYTES
from synthfair.task.federation_file import FEDERATION, FederationFile

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

COMPLETED = "FINISHED:COMPLETED"
"""The engine's status of a job that did all of its work."""

RESULTS = {
    FEDERATION, "model.json", "metrics.json", "rounds.csv", "gaps.json", "fair_model.json",
    "histogram.json",
}  # fmt: skip
"""Files that a job's result may have."""

MAX_RESULT_BYTES = 1_000_000_000
"""The largest size of such a file."""

POLL_SECONDS = 0.5
"""Seconds between questions of how the job goes."""

OnProgress = Callable[[str, FederationFile | None], None]
"""Called with the engine's status of a job, and how it goes, once it runs."""


class JobResult(NamedTuple):
    """A job that has ended.

    Attributes:
        job: the engine's name of it.
        status: as the engine says.
        federation: how the sites have answered; None where the job did not come so far.
    """

    job: str
    status: str
    federation: FederationFile | None

    @property
    def completed(self) -> bool:
        """Return whether the job did all of its work."""
        return self.status == COMPLETED


@contextmanager
def connect(folder: Path, *, timeout: float = 20.0) -> Iterator[Session]:
    """Open a session with the server.

    Args:
        folder: a submitter's kit.
        timeout: seconds to try for.

    Raises:
        InputError: it is no submitter's kit, or the server cannot be reached or does not know it.
    """
    kit = Kit(folder)
    from nvflare.fuel.flare_api.flare_api import new_secure_session  # the kit says if it is there

    if kit.role != "admin":
        raise InputError(f"{folder}: not a submitter's kit")
    try:
        with redirect_stdout(sys.stderr):  # it says that it connects
            session = new_secure_session(kit.party.name, str(kit.folder), timeout=timeout)
    except Exception as error:
        raise InputError(f"{folder}: cannot connect to the server: {reason(error)}") from error
    with closing(session):
        yield session


def submit(session: Session, job: Path) -> str:
    """Submit a job, and return the engine's name of it.

    Args:
        session: of :func:`connect`.
        job: its folder.

    Raises:
        InputError: the engine refuses the job.
    """
    from nvflare.fuel.flare_api.api_spec import InvalidJobDefinition

    if not (job / "meta.json").is_file():
        raise InputError(f"{job}: not a job: has no meta.json")
    with tempfile.TemporaryDirectory() as folder:  # the engine writes its signature into it
        copy = shutil.copytree(job, Path(folder) / job.name)
        try:
            return session.submit_job(str(copy))
        except InvalidJobDefinition as error:
            raise InputError(f"{job}: refused: {reason(error)}") from error


def attach(
    session: Session, job: str, output: Path, on_progress: OnProgress, *, most_seconds: float = 0
) -> JobResult:
    """Wait for the end of a job that was submitted, and fetch its results.

    Args:
        session: of :func:`connect`.
        job: the engine's name of it.
        output: folder for the results, made if need be.
        on_progress: see there.
        most_seconds: after which the job is aborted; 0 for never.

    Raises:
        InputError: the server knows no such job.
    """
    from nvflare.fuel.flare_api.api_spec import JobNotFound, JobNotRunning

    def watch(_session: Session, _job: str, meta: dict[str, Any]) -> bool:
        status, federation = str(meta.get("status")), None
        if status == "RUNNING":
            with suppress(Exception):  # it begins, or has just ended; there is nothing to show
                answer = session.do_app_command(job, PROGRESS_COMMAND, None)
                federation = validated(FederationFile, answer)
        on_progress(status, federation)
        return True

    try:
        meta = session.monitor_job_and_return_job_meta(
            job, timeout=most_seconds, poll_interval=POLL_SECONDS, cb=watch
        )[1]
    except (JobNotFound, JobNotRunning) as error:
        raise InputError(f"{job}: the server has no such job, or it has ended") from error
    if meta is None:
        session.abort_job(job)
        return JobResult(job, f"aborted after {most_seconds:g} s", None)
    return JobResult(job, str(meta.get("status")), _fetch(session, job, output))


def _fetch(session: Session, job: str, output: Path) -> FederationFile | None:
    """Download a job's results, and take the known files that are no links and not too large.

    They are moved, not copied: the engine unpacks them next to where they go.

    Raises:
        InputError: federation.json is none.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".download-") as folder:
        location = Path(session.download_job_result(job, folder) or folder)
        paths = [path for path in location.rglob(f"synthfair/{FEDERATION}") if _is_ordinary(path)]
        if not paths:
            return None
        for name in RESULTS:  # of an earlier job
            (output / name).unlink(missing_ok=True)
        for path in paths[0].parent.iterdir():
            if path.name in RESULTS and _is_ordinary(path):
                path.replace(output / path.name)
    return read_as(output / FEDERATION, FederationFile, MAX_METRICS_BYTES)


def _is_ordinary(path: Path) -> bool:
    """Return whether a path is a file, no link, and not larger than its kind may be."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_RESULT_BYTES
