"""Sums by shares at a site, which counts and shares.

A share alone is random, and each is encrypted to its aggregator by the site. The server sees no
more of a site's part than a stranger does.
"""

from __future__ import annotations

from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.secure.aggregator_keys import read_aggregator_folder
from synthfair.secure.summands import GroupCounts
from synthfair.secure.task import Task
from synthfair.secure.upload import make_uploads
from synthfair.task.limits import Claim
from synthfair.task.site import RefusedError, Request, Work, refused_as

MODELS = "models"
"""Folder in the site's own, of models that jobs sent back."""


def read_task(request: Request) -> Task:
    """Return the sum that a question is for. Raises RefusedError: it is none."""
    with refused_as("settings"):
        return validated(Task, request.ask.settings.get("task"))


def agreed_task(request: Request) -> Task:
    """Return the task of a question, if its aggregators are those that the site trusts.

    Raises:
        RefusedError: it is none, has other aggregators, or does not know the site.
    """
    task = read_task(request)
    if request.site.settings.aggregators is None:
        raise RefusedError("aggregators")
    with refused_as("aggregators"):
        aggregators = read_aggregator_folder(request.site.settings.aggregators)
        task.require_agreed(list(aggregators.values()))
    if request.site.settings.signing_key().public_key().public_bytes_raw() not in task.client_keys:
        raise RefusedError("settings")
    return task


def answer_counts(request: Request) -> Work:
    """Answer with the histogram of a model's scores, in one encrypted share for each aggregator.

    Guarantee: that of the task's counts, which the site books once for a task.

    Raises:
        RefusedError: the question is for no sum of counts of rows.
    """
    what = read_task(request).what
    if not isinstance(what, GroupCounts) or what.unit != "row":
        raise RefusedError("settings")
    return Work(Claim("counts", what.epsilon), what.epsilon, lambda: _counts(request, what))


def _counts(request: Request, what: GroupCounts) -> bytes:
    from synthfair.data.tables import read_table
    from synthfair.jax_setup import start_jax
    from synthfair.secure.counting import count_table, counts_booking, schema_groups
    from synthfair.trained import parse_model

    # The sum is one that the site agrees to, of the very model that comes with the question.
    task, settings, schema = agreed_task(request), request.site.settings, request.site.schema
    with refused_as("message"):
        model = parse_model(request.carried, "model")
    known = model.schema_.hash, model.sha256, schema.hash, schema_groups(schema)
    if known != (what.schema_hash, what.model, what.schema_hash, what.groups):
        raise RefusedError("settings")

    # Its rows are counted, once that is booked: whether they are too many is an answer, too.
    key = settings.signing_key()
    client = key.public_key().public_bytes_raw().hex()
    booking = counts_booking(what, task, client=client, output=request.ask.job)
    request.site.ledger.require_next(booking)
    start_jax()
    table = read_table(settings.data, schema)
    request.site.ledger.book(booking)  # first
    counts = count_table(what, table, schema, model=model, source=str(settings.data))
    return b"".join(make_uploads(task, counts, key))


def answer_model(request: Request) -> Work:
    """Store the model that a job has made; nothing leaves.

    Raises:
        RefusedError: the site stores none.
    """
    if not request.site.settings.limits.store_models:
        raise RefusedError("kind")
    return Work(None, None, lambda: _store(request))


def _store(request: Request) -> bytes:
    from synthfair.trained import parse_model

    with refused_as("message"):
        model = parse_model(request.carried, "model")
    if model.schema_.hash != request.site.schema.hash:
        raise RefusedError("schema")
    folder = request.site.folder / MODELS
    folder.mkdir(mode=0o700, exist_ok=True)
    with whole_file(folder / f"{request.ask.job}.json", mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(request.carried)
    return b""
