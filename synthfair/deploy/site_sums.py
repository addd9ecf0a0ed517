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
from synthfair.secure.upload import make_uploads
from synthfair.task.settings import Claim
from synthfair.task.site import RefusedError, Request, Work, refused_as

if TYPE_CHECKING:
    from synthfair.trained import TrainedModel

MODELS = "models"
"""Folder in the site's own, of models that jobs sent back."""


def read_task(request: Request) -> Task:
    """The sum that a question is for. Raises RefusedError: it is none."""
    with refused_as("settings"):
        return validated(Task, request.ask.settings.get("task"))


def agreed_task(request: Request) -> Task:
    """The task of a question, if its aggregators are those that the site trusts.

    Raises:
        RefusedError: it is none, has other aggregators, or does not know the site.
    """
    task = read_task(request)
    if request.settings.aggregators is None:
        raise RefusedError("aggregators")
    with refused_as("aggregators"):
        pinned = read_aggregator_folder(request.settings.aggregators)
        task.require_agreed(list(pinned.values()))
    if request.settings.signing_key().public_key().public_bytes_raw() not in task.known:
        raise RefusedError("settings")
    return task


def answer_counts(request: Request) -> Work:
    """The site's histogram of a model's scores, in one encrypted share for each aggregator.

    Guarantee: that of the task's counts, which the site books once for a task.

    Raises:
        RefusedError: the task is none that the site agrees to, or not of the model that comes with
            it.
    """
    from synthfair.secure.counting import schema_groups
    from synthfair.trained import parse_model

    task = agreed_task(request)
    what = task.what
    if not isinstance(what, GroupCounts) or what.unit != "row":
        raise RefusedError("settings")
    with refused_as("message"):
        model = parse_model(request.carried, "model")
    schema = request.schema
    known = model.schema_.hash, model.sha256, schema.hash, schema_groups(schema)
    if known != (what.schema_hash, what.model, what.schema_hash, what.groups):
        raise RefusedError("settings")
    claim = Claim("counts", what.epsilon)
    return Work(claim, what.epsilon, lambda: _counts(request, task, what, model))


def _counts(request: Request, task: Task, what: GroupCounts, model: TrainedModel) -> bytes:
    from synthfair.data.tables import read_table
    from synthfair.jax_setup import start_jax
    from synthfair.secure.counting import count_table, counts_booking

    settings, key = request.settings, request.settings.signing_key()
    client = key.public_key().public_bytes_raw().hex()
    booking = counts_booking(what, task, client=client, output=request.ask.job)
    request.require_affordable(booking)
    start_jax()
    table = read_table(settings.data, request.schema)
    request.book(booking)  # first: whether the rows are too many for the task is an answer, too
    counts = count_table(what, table, request.schema, model=model, source=str(settings.data))
    return b"".join(make_uploads(task, counts, key))


def answer_model(request: Request) -> Work:
    """Stores the model that a job has made; nothing leaves.

    Raises:
        RefusedError: the site stores none; it is none, too large, or of another schema.
    """
    from synthfair.trained import parse_model

    if not request.settings.limits.store_models:
        raise RefusedError("kind")
    with refused_as("message"):
        model = parse_model(request.carried, "model")
    if model.schema_.hash != request.schema.hash:
        raise RefusedError("schema")
    return Work(None, None, lambda: _stored(request))


def _stored(request: Request) -> bytes:
    folder = request.folder / MODELS
    folder.mkdir(mode=0o700, exist_ok=True)
    with whole_file(folder / f"{request.ask.job}.json", mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(request.carried)
    return b""
