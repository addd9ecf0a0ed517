"""The server's side of sums by shares: it carries uploads that aggregators alone can read.

Each site answers with one upload for each aggregator, encrypted to it; each aggregator answers with
its noisy sum of shares; the sums open to the noisy total, and to nothing else. All routines are
those of :mod:`synthfair.secure`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, parse_as, whole_file
from synthfair.privacy.ledger import compute_once
from synthfair.secure.aggregator import NoisyTotal, PartialSum, open_sums
from synthfair.secure.summands import AnySummand
from synthfair.secure.task import AggregatorKeys, SumTask, make_task, read_aggregator_folder
from synthfair.secure.upload import upload_bytes, verify_upload
from synthfair.task.job_sites import JobSites, TooFewError
from synthfair.task.messages import Question, sha256

LABEL_BYTES = 16
"""The length of a label."""


def job_label(
    federation: JobSites, settings: BaseModel, folder: Path, name: str, *, least: int | None
) -> tuple[str, Path]:
    """Return the label of a job's sums, by which a job that ended early asks for the same ones.

    Args:
        federation: of the sites and the aggregators.
        settings: what the sums depend on; with another timeout the sums are the same.
        folder: of the folders of labels.
        name: of the kind of job.
        least: sites that must be in the first sum; all if not given.

    Returns:
        The label, and its folder, with room for the uploads to the sums. Whoever removes it says
        that the job has come to its end.
    """
    aggregators = [keys.model_dump_json() for keys in federation.aggregators.values()]
    sums = settings.model_dump_json(), federation.schema.hash, least or len(federation.sites)
    digest = sha256(repr((sums, site_names(federation), aggregators)).encode())
    folder = folder / f"{name}.{digest[:16]}.sums"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draw = partial(secrets.token_bytes, LABEL_BYTES)
    label = compute_once(folder / "label", digest, draw, max_bytes=LABEL_BYTES)
    return label.hex(), folder


def read_aggregators(folder: Path | None, names: Sequence[str]) -> dict[str, AggregatorKeys]:
    """Return the public keys of those that a job names, in the order of their roles.

    Raises:
        InputError: one has none.
    """
    all_keys = read_aggregator_folder(folder) if folder and names else {}
    if missing := sorted(set(names) - all_keys.keys()):
        raise InputError(f"{folder}: no key of the aggregators {', '.join(missing)}")
    return {name: keys for name, keys in all_keys.items() if name in names}


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
) -> SumTask:
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
    federation: JobSites, task: SumTask, question: Question, *, folder: Path, anew: Path | None
) -> NoisyTotal:
    """Return the total that opens from the aggregators' sums of the sites' shares.

    A site is asked once: its upload stays in ``folder``, from which the same sum is opened again.
    Where an aggregator has answered and another one refuses the uploads, their senders are asked
    again, and nobody else: a sum has one set of clients.

    Guarantee: that of ``task.what``, against any single aggregator together with the server, which
    sees encrypted shares and the sums.

    Args:
        federation: of the sites and the aggregators.
        task: of the sum.
        question: to the sites, for their shares; the task of the sum is added.
        folder: of the server's own, where uploads lie until the caller removes them.
        anew: what holds a job to this very task; None where the next job has another one.

    Raises:
        TooFewError: fewer sites than the task asks, or not all aggregators, have answered well;
            where these refuse the uploads, with what to do.
        InputError: the sums do not open, see :func:`synthfair.secure.open_sums`; the task is spent.
    """
    store, least, sites = folder / f"{task.id.hex()}.uploads", task.least_clients, None
    refused, document = store.with_suffix(".refused"), task.model_dump(mode="json")
    if not store.exists():
        settings = question.settings | {"task": document}
        sum_question = question.model_copy(update={"settings": settings})
        if refused.exists():
            shares, names = _of_role(task, refused.read_bytes(), 0), site_names(federation)
            sites = tuple(names[verify_upload(share, task, 0)[0].hex()] for share in shares)
            least = len(sites)
        verified = partial(_verified, task, federation.keys)
        uploads = federation.ask(sum_question, verified, least=least, sites=sites)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(store, mode=OWNER_ONLY) as temporary:
            temporary.write_bytes(b"".join(uploads.values()))
    content = store.read_bytes()
    sums = []
    for role, aggregator in enumerate(federation.aggregators):
        shares = b"".join(_of_role(task, content, role))
        changes = {"task": "add", "settings": {"task": document}, "carried": shares}
        try:
            answers = federation.ask(question.model_copy(update=changes), sites=(aggregator,))
            sums.append(parse_as(answers[aggregator], PartialSum, aggregator))
        except TooFewError as error:
            if federation.booked[aggregator].code != "uploads":  # may be added up later
                raise
            if sums:
                store.replace(refused)
            else:
                store.unlink()
            raise TooFewError(
                f"{error}; its log names the key whose upload it cannot read: have that site"
                " mended, and submit the same job again, which asks the sites again"
            ) from error
    try:
        return open_sums(task, sums, sources=list(federation.aggregators))
    except InputError as error:  # somebody has answered for other uploads: a task has one answer
        store.unlink()
        first = f"remove {anew.name} at the server, and " if anew else ""
        raise InputError(
            f"{error}; the task is spent: {first}submit the job again, which all book anew"
        ) from error


def _verified(task: SumTask, keys: Mapping[str, str], site: str, content: bytes) -> bytes:
    """Return what a site has sent, if it can be one upload for each aggregator."""
    size, roles = upload_bytes(task), len(task.aggregators)
    if len(content) != roles * size:
        raise InputError(f"{len(content)} bytes; must be {roles} times {size}")
    uploads = (_of_role(task, content, role)[0] for role in range(roles))
    senders = {verify_upload(upload, task, role)[:2] for role, upload in enumerate(uploads)}
    if len(senders) != 1 or senders.pop()[0].hex() != keys[site]:
        raise InputError("uploads: of another client, or of different sharings")
    return content


def _of_role(task: SumTask, content: bytes, role: int) -> list[bytes]:
    """Return the uploads for one aggregator; those of a client follow each other."""
    size, roles = upload_bytes(task), len(task.aggregators)
    starts = range(role * size, len(content), roles * size)
    return [content[start : start + size] for start in starts]
