"""An aggregator's side of sums by shares: its noisy sum of them, within its limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.deploy.site_sums import read_task
from synthfair.errors import InputError
from synthfair.privacy.ledger import is_complete
from synthfair.release.keys import read_keys
from synthfair.secure.aggregator import ANSWER_SUFFIX, UploadSum, answer, receive, record_of
from synthfair.secure.summands import ClippedVectors
from synthfair.secure.task import (
    RECORDS,
    AggregatorKeys,
    SumTask,
    read_aggregator_folder,
    read_aggregator_secret,
)
from synthfair.secure.upload import upload_bytes
from synthfair.task.limits import AggregatorSettings, RefusedError, refused_as

if TYPE_CHECKING:
    from synthfair.deploy.party import Request


def read_aggregators(folder: Path | None, names: Sequence[str]) -> dict[str, AggregatorKeys]:
    """Return the public keys of those that a job names, in the order of their roles.

    Raises:
        InputError: one has none.
    """
    all_keys = read_aggregator_folder(folder) if folder and names else {}
    if missing := sorted(set(names) - all_keys.keys()):
        raise InputError(f"{folder}: no key of the aggregators {', '.join(missing)}")
    return {name: keys for name, keys in all_keys.items() if name in names}


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
