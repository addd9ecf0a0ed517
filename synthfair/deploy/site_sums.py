"""The parties' side of sums by shares: sites cut summands into shares, aggregators add these up.

A share alone is random, and each is encrypted to its aggregator by the site. The server sees no
more of a site's summand than a stranger does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthfair.deploy.model_file import model_of
from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.privacy.ledger import is_complete
from synthfair.release.keys import read_keys
from synthfair.secure.aggregator import ANSWER_SUFFIX, UploadSum, answer, receive, record_of
from synthfair.secure.summands import ClippedVectors, GroupCounts
from synthfair.secure.task import RECORDS, SumTask, read_aggregator_folder, read_aggregator_secret
from synthfair.secure.upload import upload_bytes
from synthfair.task.limits import AggregatorSettings, RefusedError, refused_as

if TYPE_CHECKING:
    from synthfair.deploy.party import Request

MODELS_FOLDER = "models"
"""The folder, in the site's own, of models that jobs sent back."""


def read_task(request: Request) -> SumTask:
    """Return the sum that a question is for. Raises RefusedError: it is none."""
    with refused_as("settings"):
        return validated(SumTask, request.question.settings.get("task"))


def agreed_task(request: Request) -> SumTask:
    """Return the sum of a question, if its aggregators are those that the site trusts.

    Raises:
        RefusedError: it is none, has other aggregators, or does not know the site.
    """
    task = read_task(request)
    folder = request.party.settings.aggregators
    if folder is None:
        raise RefusedError("aggregators")
    with refused_as("aggregators"):
        task.require_agreed([*read_aggregator_folder(folder).values()])
    if request.party.key.public_key().public_bytes_raw() not in task.client_keys:
        raise RefusedError("settings")
    return task


def answer_part(request: Request) -> bytes:
    """Answer with the site's part of a sum over rows, in one encrypted share for each aggregator.

    Parts are histograms of a model's scores, or the sums of a surrogate of all sites' rows.

    Raises:
        RefusedError: the question is for no sum over rows that the site agrees to, or no model
            comes with it.
    """
    from synthfair.secure.part import part_task

    task, model = agreed_task(request), None
    if isinstance(task.what, GroupCounts):
        with refused_as("message"):
            model = model_of(request.question.carried, request.party.schema)
    with refused_as("settings"):
        question = part_task(task, request.party.key, model)
    return request.answer(question)


def answer_model(request: Request) -> bytes:
    """Store the model that a job has made; nothing leaves.

    Raises:
        RefusedError: the site stores none, or it is none of the site's schema.
    """
    if not request.party.settings.limits.store_models:
        raise RefusedError("kind")
    with refused_as("message"):
        model_of(request.question.carried, request.party.schema)
    folder = request.party.folder / MODELS_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    with whole_file(folder / f"{request.question.job}.json", mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(request.question.carried)
    return b""


def answer_add(request: Request) -> bytes:
    """Answer with the noisy sum of the shares for this aggregator: one for a task, however often.

    Guarantee: that of ``task.what``, by this aggregator's noise alone.

    Raises:
        RefusedError: the question is for no sum, beyond the limits, or has bad uploads.
    """
    task, settings = read_task(request), request.party.settings
    secret, records = read_aggregator_secret(settings.key), settings.key.with_suffix(RECORDS)
    if not is_complete(record_of(task, secret, records)):
        _require_allowed(settings, task, sum(map(is_complete, records.glob(f"*{ANSWER_SUFFIX}"))))
    size, content = upload_bytes(task), request.question.carried
    uploads = [content[start : start + size] for start in range(0, len(content), size)]

    def received() -> UploadSum:
        with refused_as("uploads"):
            return receive(task, secret, ((f"upload {i}", u) for i, u in enumerate(uploads)))

    return answer(task, secret, received, records).model_dump_json().encode()


def _require_allowed(settings: AggregatorSettings, task: SumTask, answers: int) -> None:
    limits, summand = settings.limits, task.what
    if answers >= limits.most_tasks:
        raise RefusedError("tasks")
    if not isinstance(summand, ClippedVectors):
        epsilon, delta = task.guarantee.epsilon, task.guarantee.delta
        within = epsilon <= (limits.most_epsilon or 0) and delta <= limits.most_delta
    elif summand.rho is None:
        within = limits.without_noise
    else:
        within = summand.rho <= (limits.most_rho or 0)
    if not within:
        raise RefusedError("epsilon")
    clients = read_keys([settings.clients]).keys()
    if task.least_clients < limits.least_clients or not clients >= set(task.clients):
        raise RefusedError("settings")
