"""Sums by shares at a site, which counts and shares.

A share alone is random, and each is encrypted to its aggregator by the site. The server sees no
more of a site's part than a stranger does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.secure.aggregator_keys import read_aggregator_folder
from synthfair.secure.summands import GroupCounts
from synthfair.secure.task import Task
from synthfair.task.limits import RefusedError, refused_as

if TYPE_CHECKING:
    from synthfair.deploy.party import Request

MODELS = "models"
"""Folder in the site's own, of models that jobs sent back."""


def read_task(request: Request) -> Task:
    """Return the sum that a question is for. Raises RefusedError: it is none."""
    with refused_as("settings"):
        return validated(Task, request.question.settings.get("task"))


def agreed_task(request: Request) -> Task:
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


def answer_counts(request: Request) -> bytes:
    """Answer with the histogram of a model's scores, in one encrypted share for each aggregator.

    Raises:
        RefusedError: the question is for no sum of counts of rows that the site agrees to, or of
            another model than comes with it.
    """
    from synthfair.jax_setup import start_jax
    from synthfair.secure.counting import counts_task, schema_groups
    from synthfair.trained import parse_model

    task, schema = agreed_task(request), request.party.schema
    what = task.what
    if not isinstance(what, GroupCounts) or what.unit != "row":
        raise RefusedError("settings")
    start_jax()
    with refused_as("message"):
        model = parse_model(request.question.carried, "model")
    known = model.schema_.hash, model.sha256, schema.hash, schema_groups(schema)
    if known != (what.schema_hash, what.model, what.schema_hash, what.groups):
        raise RefusedError("settings")
    return request.answer(counts_task(task, what, request.party.key, model))


def answer_model(request: Request) -> bytes:
    """Store the model that a job has made; nothing leaves.

    Raises:
        RefusedError: the site stores none, or it is none of the site's schema.
    """
    from synthfair.trained import parse_model

    if not request.party.settings.limits.store_models:
        raise RefusedError("kind")
    with refused_as("message"):
        model = parse_model(request.question.carried, "model")
    if model.schema_.hash != request.party.schema.hash:
        raise RefusedError("schema")
    folder = request.party.folder / MODELS
    folder.mkdir(mode=0o700, exist_ok=True)
    with whole_file(folder / f"{request.question.job}.json", mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(request.question.carried)
    return b""
