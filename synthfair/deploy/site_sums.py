"""Sums by shares at a site, which counts and shares, and at an aggregator, which adds and answers.

A share alone is random, and each is encrypted to its aggregator by the site. The server sees no
more of a site's part than a stranger does.
"""

from __future__ import annotations

from pydantic import ValidationError

from synthfair.deploy.settings import AggregatorSettings, SiteSettings
from synthfair.deploy.site import Asked, Made, RefusedError
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, validated, whole_file
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.aggregator import (
    answer,
    read_partial_sum,
    receive,
    record_of,
    verify_partial_sum,
)
from synthfair.secure.aggregator_keys import read_aggregator_folder, read_aggregator_secret
from synthfair.secure.summands import GroupCounts
from synthfair.secure.task import Task
from synthfair.secure.upload import make_uploads, upload_bytes

MODELS = "models"
"""Folder in the site's own, of models that jobs sent back."""


def _task(asked: Asked) -> Task:
    try:
        return validated(Task, asked.ask.settings.get("task"))
    except ValidationError as error:
        raise RefusedError("settings") from error


# At a site


def agreed_task(asked: Asked[SiteSettings]) -> Task:
    """The task of a question, if its aggregators are those that the site trusts.

    Raises:
        RefusedError: it is none, has other aggregators, or does not know the site.
    """
    task = _task(asked)
    if asked.settings.aggregators is None:
        raise RefusedError("aggregators")
    try:
        pinned = read_aggregator_folder(asked.settings.aggregators)
        task.require_agreed(list(pinned.values()))
    except InputError as error:
        raise RefusedError("aggregators") from error
    if read_signing_key(asked.settings.key).public_key().public_bytes_raw() not in task.known:
        raise RefusedError("settings")
    return task


def answer_counts(asked: Asked[SiteSettings]) -> Made:
    """The site's histogram of a model's scores, in one encrypted share for each aggregator.

    Guarantee: that of the task's counts, which the site books once for a task.

    Raises:
        RefusedError: a limit of the site, or of its ledger.
        InputError: the table is refused.
    """
    from synthfair.data.tables import read_table
    from synthfair.jax_setup import start_jax
    from synthfair.secure.counting import count_table, counts_booking, schema_groups
    from synthfair.trained import parse_model

    task, settings = agreed_task(asked), asked.settings
    what = task.what
    if not isinstance(what, GroupCounts) or what.unit != "row":
        raise RefusedError("settings")
    asked.require_allowed("counts", what.epsilon)
    try:
        model = parse_model(asked.carried, "model")
    except InputError as error:
        raise RefusedError("message") from error
    found = model.schema_.hash, model.sha256, asked.schema.hash, schema_groups(asked.schema)
    if found != (what.schema_hash, what.model, what.schema_hash, what.groups):
        raise RefusedError("settings")
    key = read_signing_key(settings.key)
    client = key.public_key().public_bytes_raw().hex()
    booking = counts_booking(what, task, client=client, output=asked.ask.job)
    asked.require_affordable(booking)
    start_jax()
    table = read_table(settings.data, asked.schema)
    asked.book(booking)  # first: whether the rows are too many for the task is an answer, too
    counts = count_table(what, table, asked.schema, model=model, source=str(settings.data))
    return Made(b"".join(make_uploads(task, counts, key)), what.epsilon)


def answer_model(asked: Asked[SiteSettings]) -> Made:
    """Stores the model that a job has made; nothing leaves.

    Raises:
        RefusedError: the site stores none; it is none, too large, or of another schema.
    """
    from synthfair.trained import parse_model

    if not asked.settings.limits.store_models:
        raise RefusedError("kind")
    try:
        model = parse_model(asked.carried, "model")
    except InputError as error:
        raise RefusedError("message") from error
    if model.schema_.hash != asked.schema.hash:
        raise RefusedError("schema")
    folder = asked.folder / MODELS
    folder.mkdir(mode=0o700, exist_ok=True)
    with whole_file(folder / f"{asked.ask.job}.json", mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(asked.carried)
    return Made(b"")


# At an aggregator


def answer_add(asked: Asked[AggregatorSettings]) -> Made:
    """The noisy sum of the shares for this aggregator: one for a task, whoever asks how often.

    Guarantee: that of ``task.what``, by this aggregator's noise alone.

    Raises:
        RefusedError: a limit of the aggregator, uploads that are refused, or a task that is spent.
    """
    settings, task = asked.settings, _task(asked)
    secret = read_aggregator_secret(settings.key)
    epsilon = task.what.epsilon if isinstance(task.what, GroupCounts) else None
    record = record_of(task, secret, settings.records)
    if record.exists():
        try:
            partial = read_partial_sum(record)
            verify_partial_sum(partial, task)
        except InputError as error:
            raise RefusedError("answered") from error
        return Made(partial.model_dump_json().encode(), epsilon)
    _require_allowed(settings, task)
    size = upload_bytes(task)
    uploads = [asked.carried[at : at + size] for at in range(0, len(asked.carried), size)]
    try:
        received = receive(task, secret, ((f"upload {i}", u) for i, u in enumerate(uploads)))
    except InputError as error:
        raise RefusedError("uploads") from error
    partial = answer(task, secret, received, settings.records)
    return Made(partial.model_dump_json().encode(), epsilon)


def _require_allowed(settings: AggregatorSettings, task: Task) -> None:
    limits, what = settings.limits, task.what
    if sum(1 for _ in settings.records.glob("*.json")) >= limits.most_tasks:
        raise RefusedError("tasks")
    if isinstance(what, GroupCounts):
        allowed = what.epsilon <= (limits.most_epsilon or 0)
    elif what.rho is None:
        allowed = limits.without_noise
    else:
        allowed = what.rho <= (limits.most_rho or 0)
    if not allowed:
        raise RefusedError("epsilon")
    known = read_keys([settings.clients]).keys()
    if task.least_clients < limits.least_clients or not known >= set(task.clients):
        raise RefusedError("settings")
