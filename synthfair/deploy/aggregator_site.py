"""An aggregator that is a site: its settings and limits, and how it adds up shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from synthfair.deploy.party import Request
from synthfair.deploy.site_sums import read_task
from synthfair.errors import InputError
from synthfair.privacy.ledger import is_complete
from synthfair.release.keys import read_keys
from synthfair.secure.aggregator import ANSWER, UploadSum, answer, receive, record_of
from synthfair.secure.aggregator_keys import (
    RECORDS,
    AggregatorKeys,
    read_aggregator_folder,
    read_aggregator_secret,
)
from synthfair.secure.summands import GroupCounts
from synthfair.secure.task import Task
from synthfair.secure.upload import upload_bytes
from synthfair.settings import LARGEST_EPSILON, LEAST_EPSILON, Checked
from synthfair.task.limits import PartySettings, RefusedError, refused_as

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class AggregatorLimits(Checked):
    """The most that jobs may have of an aggregator; by default nothing.

    Attributes:
        most_tasks: sums over all jobs; a training takes one a round.
        most_epsilon: of one sum of counts; None where there may be none.
        most_rho: of one sum of vectors, such as of a round's reports; None where there may be none.
        without_noise: whether there may be sums of vectors without noise, which protect parts but
            not the total.
        least_clients: in one sum.
    """

    most_tasks: int = Field(default=0, ge=0)
    most_epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    most_rho: float | None = Field(default=None, gt=0, le=10_000)
    without_noise: bool = False
    least_clients: int = Field(default=2, ge=1)


AGGREGATOR = "synthfair-aggregator-site/1"
"""The format of its file."""


class AggregatorSettings(PartySettings):
    """Settings of an aggregator that is a site.

    Attributes:
        server: host and port that it connects to.
        key: its private keys, of ``python -m synthfair keygen --aggregator``, with the folder of
            its answers next to them.
        clients: folder of the public keys of those who may be in a sum, NAME.pub: whoever could
            add clients of its own would learn, without noise, what is left of the sum.
        limits: see there.
    """

    format: Literal["synthfair-aggregator-site/1"] = AGGREGATOR
    server: str | None = None
    key: Path
    clients: Path
    limits: AggregatorLimits = AggregatorLimits()

    @property
    def records(self) -> Path:
        """The folder of the aggregator's answers."""
        return self.key.with_suffix(RECORDS)

    def signing_key(self) -> Ed25519PrivateKey:
        """Read the key that signs its answers. Raises InputError: it cannot be read."""
        return read_aggregator_secret(self.key).signing_key


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
    task, settings = read_task(request), cast(AggregatorSettings, request.party.settings)
    secret = read_aggregator_secret(settings.key)
    if not is_complete(record_of(task, secret, settings.records)):
        _require_allowed(settings, task)
    size, content = upload_bytes(task), request.carried
    uploads = [content[at : at + size] for at in range(0, len(content), size)]

    def received() -> UploadSum:
        with refused_as("uploads"):
            return receive(task, secret, ((f"upload {i}", u) for i, u in enumerate(uploads)))

    return answer(task, secret, received, settings.records).model_dump_json().encode()


def _require_allowed(settings: AggregatorSettings, task: Task) -> None:
    limits, what = settings.limits, task.what
    if sum(map(is_complete, settings.records.glob(f"*{ANSWER}"))) >= limits.most_tasks:
        raise RefusedError("tasks")
    if isinstance(what, GroupCounts):
        within = what.epsilon <= (limits.most_epsilon or 0)
    elif what.rho is None:
        within = limits.without_noise
    else:
        within = what.rho <= (limits.most_rho or 0)
    if not within:
        raise RefusedError("epsilon")
    clients = read_keys([settings.clients]).keys()
    if task.least_clients < limits.least_clients or not clients >= set(task.clients):
        raise RefusedError("settings")
