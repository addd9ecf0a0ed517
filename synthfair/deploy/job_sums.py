"""Sums by shares over sites: the server carries what it cannot read to aggregators of their own.

Each site answers with one upload for each aggregator, encrypted to it; each aggregator answers with
its noisy sum of shares; the sums open to the noisy total, and to nothing else. All routines are
those of :mod:`synthfair.secure`.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from pydantic import BaseModel

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, parse_as, whole_file
from synthfair.privacy.ledger import compute_once
from synthfair.secure.aggregator import NoisyTotal, PartialSum, open_sums
from synthfair.secure.summands import AnySummand
from synthfair.secure.task import SumTask as Task
from synthfair.secure.task import make_task
from synthfair.secure.upload import upload_bytes, verify_upload
from synthfair.task.job_sites import JobSites, TooFewError
from synthfair.task.messages import Question, sha256


def job_label(federation: JobSites, job: BaseModel, folder: Path, name: str) -> tuple[Path, str]:
    """Return the label of a job's sums, and its file: the same until the file is removed.

    So the same job, submitted again after it ended early, asks for the very same sums.
    """
    known = federation.schema.hash, federation.sites, job.model_dump_json()
    digest = sha256(repr(known).encode())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.{digest[:16]}.label"
    label = compute_once(path, digest, lambda: secrets.token_bytes(16), max_bytes=16)
    return path, label.hex()


def site_names(federation: JobSites) -> dict[str, str]:
    """Return the names of the sites by their keys. Raises InputError: a key is missing."""
    if missing := sorted(set(federation.sites) - federation.keys.keys()):
        raise InputError(f"sums by shares: no key, or a revoked one, of {', '.join(missing)}")
    return {federation.keys[site]: site for site in federation.sites}


def make_sum(
    federation: JobSites,
    what: AnySummand,
    *,
    label: str,
    least: int | None,
) -> Task:
    """Return the task of one sum over all sites of a job.

    Args:
        federation: of the sites and the aggregators.
        what: is summed.
        label: of the job and its round. The task is the same where label and all else are, so that
            a job that goes on gets the answer that the aggregators have given, and no second one.
        least: sites that must be in it; all if not given.

    Raises:
        InputError: a site's key is missing, or the parts do not fit together.
    """
    return make_task(
        what,
        [*federation.aggregators.values()],
        [*site_names(federation)],
        least_clients=least or len(federation.sites),
        label=label,
    )


def secure_sum(
    federation: JobSites, task: Task, question: Question, *, folder: Path, anew: Path | None
) -> NoisyTotal:
    """Ask the sites for shares and the aggregators for their sums, and opens these.

    Guarantee: that of ``task.what``, against any single aggregator together with the server, which
    sees encrypted shares and the sums.

    Args:
        federation: of the sites and the aggregators.
        task: of the sum.
        question: to the sites, for their shares; the task of the sum is added.
        folder: of the server's own, where uploads lie until the sum is opened: a job that stops in
            between goes on with the same ones, and so can the aggregators.
        anew: file that holds a job to this very task; None where the next job has another one.

    Raises:
        TooFewError: fewer sites than the task asks, or not all aggregators, have answered well;
            where these refuse the uploads, with what to do.
        InputError: the sums do not open, see :func:`synthfair.secure.open_sums`; the task is spent.
    """

    def verified(site: str, content: bytes) -> bytes:
        _require_uploads(task, content, federation.keys[site])
        return content

    store = folder / f"{task.id.hex()}.uploads"
    if not store.exists():
        settings = question.settings | {"task": task.model_dump(mode="json")}
        asked = question.model_copy(update={"settings": settings})
        uploads = federation.ask(asked, verified, least=task.least_clients)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(store, mode=OWNER_ONLY) as temporary:
            temporary.write_bytes(b"".join(uploads.values()))
    content = store.read_bytes()
    sums = []
    for role, aggregator in enumerate(federation.aggregators):
        shares = _of_role(task, content, role)
        try:
            sums.append(_partial_sum(federation, aggregator, task, question, shares))
        except TooFewError as error:
            if federation.booked[aggregator].code != "uploads":  # may be added up later
                raise
            store.unlink()
            raise TooFewError(
                f"{error}; its log names the key whose upload it cannot read: have that site"
                " mended, and submit the same job again, which asks the sites again"
                f"{', which book nothing more' * bool(anew)}"
            ) from error
    store.unlink()
    try:
        return open_sums(task, sums, sources=list(federation.aggregators))
    except InputError as error:  # somebody has answered for other uploads: a task has one answer
        first = f"remove {anew.name} at the server, and " if anew else ""
        raise InputError(
            f"{error}; the task is spent: {first}submit the job again, for a new task, which all"
            " book anew"
        ) from error


def _partial_sum(
    federation: JobSites, name: str, task: Task, question: Question, uploads: list[bytes]
) -> PartialSum:
    """Return an aggregator's answer. Raises TooFewError: nothing, or no sum."""
    settings = {"task": task.model_dump(mode="json")}
    changes = {"task": "add", "settings": settings, "carried": b"".join(uploads)}
    answers = federation.ask(question.model_copy(update=changes), sites=(name,))
    return parse_as(answers[name], PartialSum, name)


def _require_uploads(task: Task, content: bytes, client: str) -> None:
    """Refuse what a client cannot have sent as one upload for each aggregator."""
    roles = len(task.aggregators)
    if len(content) != roles * upload_bytes(task):
        raise InputError(f"{len(content)} bytes; must be {roles} times {upload_bytes(task)}")
    senders = {
        verify_upload(upload, task, role)[:2]
        for role in range(roles)
        for upload in _of_role(task, content, role)
    }
    if len(senders) != 1 or next(iter(senders))[0].hex() != client:
        raise InputError("uploads: of another client, or of different sharings")


def _of_role(task: Task, content: bytes, role: int) -> list[bytes]:
    """Return the uploads for one aggregator; those of a client follow each other."""
    size, roles = upload_bytes(task), len(task.aggregators)
    return [content[at : at + size] for at in range(role * size, len(content), roles * size)]
