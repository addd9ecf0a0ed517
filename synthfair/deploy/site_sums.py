"""The site's side of sums by shares: its summand, which it cuts into shares.

A share alone is random, and each is encrypted to its aggregator by the site. The server sees no
more of a site's summand than a stranger does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthfair.deploy.model_file import model_of
from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.secure.summands import GroupCounts, RowSums
from synthfair.secure.task import SumTask, read_aggregator_folder
from synthfair.task.limits import RefusedError, refused_as

if TYPE_CHECKING:
    from synthfair.deploy.party import Request

MODELS_FOLDER = "models"
"""Folder in the site's own, of models that jobs sent back."""


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
        RefusedError: the question is for no sum over rows that the site agrees to, or of another
            schema, or of another model than comes with it.
    """
    from synthfair.secure.part import part_task

    task, schema, model = agreed_task(request), request.party.schema, None
    summand = task.what
    if isinstance(summand, GroupCounts):
        with refused_as("message"):
            model = model_of(request.question.carried, schema)
        counted = summand.model, summand.schema_hash, summand.groups, summand.unit
        if counted != (model.sha256, schema.hash, tuple(map(str, schema.groups)), "row"):
            raise RefusedError("settings")
    elif isinstance(summand, RowSums) and summand.table_schema.hash != schema.hash:
        raise RefusedError("schema")
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
