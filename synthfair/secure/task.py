"""A task: the public file that says what is summed, by whom, of whom, and with which guarantee."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from synthfair.errors import InputError
from synthfair.files import read_as, write_json
from synthfair.privacy.guarantee import Guarantee
from synthfair.release.keys import Hex32
from synthfair.secure.aggregator_keys import AggregatorKeys
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import MAX_CLIENTS, AnySummand, ClippedVectors, Summand
from synthfair.settings import Checked

MAX_BYTES = 10_000_000
"""The largest size of a task file that is read."""


class Task(Checked):
    """A secure sum. Two tasks with the same settings differ, by their nonce.

    Attributes:
        nonce: random; drawn anew by :func:`make_task`.
        what: is summed, and the noise with its guarantee.
        aggregators: two or three that do not collude; the first has the role 0, and gets full
            shares.
        clients: Ed25519 public keys of those that may send.
        least_clients: with fewer, nothing is answered or opened.
        without_noise: whether vectors may be summed without noise: then parts are hidden, and
            nothing is guaranteed of the total.

    Raises:
        ValueError: the parts do not fit together.
    """

    format: Literal["synthfair-task/1"] = "synthfair-task/1"
    nonce: Hex32
    what: Summand
    aggregators: tuple[AggregatorKeys, ...] = Field(strict=False, min_length=2, max_length=3)
    clients: tuple[Hex32, ...] = Field(strict=False, min_length=1, max_length=MAX_CLIENTS)
    least_clients: int = Field(ge=1, le=MAX_CLIENTS)
    without_noise: bool = False

    @cached_property
    def id(self) -> bytes:
        """sha256 of all of it; every file of the protocol carries it."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"synthfair-task/1\0" + text.encode()).digest()

    @cached_property
    def client_keys(self) -> frozenset[bytes]:
        """The clients' keys as bytes."""
        return frozenset(map(bytes.fromhex, self.clients))

    @property
    def sharing(self) -> Sharing:
        """The parameters by which the task's vectors are split into shares."""
        return Sharing(self.id, self.what.length, len(self.aggregators))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the total. Raises InputError: vectors are summed, which have none."""
        if isinstance(self.what, ClippedVectors):
            raise InputError(f"task {self.id.hex()}: sums vectors, which only Python does")
        return self.what.guarantee(len(self.aggregators))

    def role_of(self, keys: AggregatorKeys) -> int:
        """The role of the aggregator with these keys.

        Raises:
            InputError: the task does not know it.
        """
        if keys not in self.aggregators:
            raise InputError("key: belongs to none of the task's aggregators")
        return self.aggregators.index(keys)

    def require_agreed(self, aggregators: Sequence[AggregatorKeys]) -> None:
        """Refuses a task of other aggregators than its parties agreed: its file can be replaced.

        Args:
            aggregators: whose keys came by a way on which nobody can replace them, by role.

        Raises:
            InputError: the task has others, or in another order.
        """
        if tuple(aggregators) != self.aggregators:
            raise InputError(
                f"task {self.id.hex()}: its aggregators are not those that were given, in this"
                " order; another party may have replaced the file"
            )

    def require_within(self, most_epsilon: float, most_delta: float = 0.0) -> None:
        """Refuse a task that guarantees less than its parties agreed.

        Args:
            most_epsilon: largest epsilon that was agreed, for tables that differ in one row more or
                less (add_or_remove); the same epsilon guarantees half as much for add_or_remove as
                for replace.
            most_delta: largest delta that was agreed.

        Raises:
            InputError: the task sums vectors; epsilon or delta is larger; or the relation is
                another.
        """
        source, own = f"task {self.id.hex()}", self.guarantee
        for name, most in (("epsilon", most_epsilon), ("delta", most_delta)):
            if not (value := getattr(own, name)) <= most:
                raise InputError(
                    f"{source}: {name} = {value:g}; must be at most {most:g}", f"most_{name}"
                )
        if own.relation != "add_or_remove":
            raise InputError(f"{source}: relation = {own.relation}; must be add_or_remove")

    @model_validator(mode="after")
    def _fits(self) -> Task:
        keys = [key for one in self.aggregators for key in (one.encryption, one.signature)]
        if len(set(keys)) < len(keys):
            raise ValueError("aggregators: each must have keys of its own")
        if len(set(self.clients)) < len(self.clients):
            raise ValueError("clients: a key comes twice")
        bare = isinstance(self.what, ClippedVectors) and self.what.rho is None
        if bare and not self.without_noise:
            raise ValueError("rho: must be given; a total without noise protects nobody")
        if len(self.clients) * self.what.entries[1] > 2**62:
            raise ValueError("clients: so many could sum to more than fits into 64 bits")
        if self.least_clients > len(self.clients):
            raise ValueError(f"least_clients: only {len(self.clients)} clients may send")
        return self


def make_task(
    what: AnySummand,
    aggregators: Sequence[AggregatorKeys],
    clients: Sequence[str],
    *,
    least_clients: int,
    label: str | None = None,
    without_noise: bool = False,
) -> Task:
    """Return the task of a sum.

    Args:
        what: is summed.
        aggregators: their public keys, two or three.
        clients: Ed25519 public keys in hexadecimal.
        least_clients: with fewer, nothing is answered or opened.
        label: with the same label and all else the task is the same, so that aggregators give the
            answer that they have given, and no second one; each task is new if not given.
        without_noise: whether vectors may be summed without noise.

    Raises:
        InputError: the parts do not fit together.
    """
    seed = f"synthfair-sum/1 {label}".encode() if label else secrets.token_bytes(32)
    return Task(
        nonce=hashlib.sha256(seed).hexdigest(),
        what=what,
        aggregators=tuple(aggregators),
        clients=tuple(sorted(clients)),
        least_clients=least_clients,
        without_noise=without_noise,
    )


def write_task(task: Task, path: Path) -> None:
    """Writes the task as JSON, whole or not at all."""
    write_json(path, task.model_dump(mode="json"))


def read_task(path: Path) -> Task:
    """Reads a file that :func:`write_task` wrote.

    Raises:
        InputError: unreadable, or not a task; the message names the entry.
    """
    return read_as(path, Task, MAX_BYTES)
