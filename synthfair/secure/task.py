"""The task of a secure sum: its summand, its clients, its aggregators with their keys.

An aggregator has one key to decrypt what clients send, one to sign its sums, and the folder of its
answers.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationError, model_validator

from synthfair.errors import InputError
from synthfair.files import (
    ORDINARY,
    OWNER_ONLY,
    claimed,
    parse_as,
    read_bytes,
    read_document,
    write_json,
    write_text,
)
from synthfair.privacy.guarantee import Guarantee
from synthfair.release.keys import MAX_KEY_BYTES, PRIVATE_ENDING, PUBLIC_ENDING, Hex32
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import MAX_CLIENTS, AnySummand, ClippedVectors, RowSums, Summand
from synthfair.settings import Checked, JsonFile

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

RECORDS, OWNER = ".answers", "owner.id"
"""The ending of an aggregator's folder of answers; the file in it that says whose it is."""


class AggregatorKeys(Checked):
    """The public keys of an aggregator.

    Attributes:
        encryption: X25519 public key, to which clients encrypt (HPKE).
        signature: Ed25519 public key, with which partial sums are verified.
    """

    format: Literal["synthfair-aggregator/1"] = "synthfair-aggregator/1"
    encryption: Hex32
    signature: Hex32


class AggregatorSecret(Checked):
    """The private keys of an aggregator.

    Attributes:
        encryption: X25519 private key.
        signature: Ed25519 private key.
        records: random, also in the folder of answers, so that one made anew is not taken for it.
    """

    format: Literal["synthfair-aggregator-secret/3"] = "synthfair-aggregator-secret/3"
    encryption: Hex32 = Field(repr=False)
    signature: Hex32 = Field(repr=False)
    records: Hex32 = Field(repr=False)

    @property
    def decryption_key(self) -> X25519PrivateKey:
        """The private key that decrypts uploads (HPKE)."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(bytes.fromhex(self.encryption))

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """The private key that signs partial sums."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.signature))

    @cached_property
    def public(self) -> AggregatorKeys:
        """The public keys of both."""
        require_hpke("an aggregator's key")
        keys = self.decryption_key.public_key(), self.signing_key.public_key()
        encryption, signature = (key.public_bytes_raw().hex() for key in keys)
        return AggregatorKeys(encryption=encryption, signature=signature)


def make_aggregator_keys(path: Path, *, force: bool = False) -> tuple[Path, AggregatorKeys]:
    """Write new private keys, which only their owner may read, and the public ones; return these.

    Their folder of answers is made, too, and no other folder is taken for it: an aggregator without
    it does not know what it has answered.

    Args:
        path: of the private keys, NAME.key; the public ones are in NAME.pub, the answers in
            NAME.answers.
        force: whether existing files are overwritten.

    Returns:
        The public file, and the keys in it.

    Raises:
        InputError: another ending, a file exists or cannot be written, or cryptography is missing.
    """
    if path.suffix != PRIVATE_ENDING:
        raise InputError(f"{path}: the name of a private key must end in {PRIVATE_ENDING}")
    secret, public_path = new_aggregator_secret(), path.with_suffix(PUBLIC_ENDING)
    with claimed(path, public_path, path.with_suffix(RECORDS) / OWNER, force=force):
        write_text(path.with_suffix(RECORDS) / OWNER, secret.records, mode=OWNER_ONLY)
        write_json(path, secret.model_dump(mode="json"), mode=OWNER_ONLY)
        write_json(public_path, secret.public.model_dump(mode="json"))
    return public_path, secret.public


def require_records(folder: Path, secret: AggregatorSecret) -> None:
    """Refuse a folder of answers that was not made with these keys.

    Raises:
        InputError: it is missing, or another aggregator's.
    """
    with suppress(InputError):
        if read_bytes(folder / OWNER, MAX_KEY_BYTES) == secret.records.encode():
            return
    raise InputError(
        f"{folder}: not the folder of this key's answers, as keygen makes one with a key. If that"
        " is lost, nobody knows what this key has answered: make new keys"
    )


def new_aggregator_secret() -> AggregatorSecret:
    """Return new keys, by the system's entropy; they have no folder of answers yet.

    Example:
        >>> from synthfair import secure
        >>> len(secure.new_aggregator_secret().public.encryption)
        64
    """
    encryption, signature, records = (secrets.token_hex(32) for _ in range(3))
    return AggregatorSecret(encryption=encryption, signature=signature, records=records)


def read_aggregator_secret(path: Path) -> AggregatorSecret:
    """Return the private keys in a file that :func:`make_aggregator_keys` wrote.

    Raises:
        InputError: unreadable, or not such a file; no key is shown.
    """
    try:
        return AggregatorSecret.model_validate(read_document(path, MAX_KEY_BYTES))
    except ValidationError as error:  # whose message would show the keys
        raise InputError(
            f"{path}: not an aggregator's private keys, as python -m synthfair keygen writes them"
            " for an aggregator"
        ) from error


def read_aggregator_keys(path: Path) -> AggregatorKeys:
    """Return the public keys in a file that :func:`make_aggregator_keys` wrote.

    Raises:
        InputError: unreadable, or not such a file.
    """
    content = read_bytes(path, MAX_KEY_BYTES)
    if b"synthfair-aggregator-secret/" in content:
        raise InputError(f"{path}: private keys, which stay secret; give the {PUBLIC_ENDING}")
    return parse_as(content, AggregatorKeys, str(path))


def read_aggregator_folder(folder: Path) -> dict[str, AggregatorKeys]:
    """Return the public keys in a folder, by name, NAME.pub, in the order of the roles.

    Raises:
        InputError: there are not two or three, or one is unreadable, or not such a file.
    """
    paths = sorted(folder.glob(f"*{PUBLIC_ENDING}"))
    keys = {path.stem: read_aggregator_keys(path) for path in paths}
    if len(keys) not in (2, 3):
        raise InputError(f"{folder}: has {len(keys)} keys of aggregators; must have two or three")
    return keys


def require_hpke(purpose: str) -> None:
    """Refuse to go on without a version of ``cryptography`` that has HPKE.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    try:
        from cryptography.hazmat.primitives import hpke  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{purpose} needs cryptography 47 or later: pip install 'synthfair[secure]'"
        ) from error


# Tasks


class SumTask(JsonFile):
    """A secure sum. Two tasks with the same settings differ, by their nonce.

    Attributes:
        nonce: random; drawn anew by :func:`make_task`.
        what: is summed, and the noise with its guarantee.
        aggregators: two or three that do not collude; the first has the role 0, and gets full
            shares.
        clients: Ed25519 public keys of those that may send.
        least_clients: with fewer, nothing is answered or opened.

    Raises:
        ValueError: the parts do not fit together.
    """

    # Four totals of the most entries and clients.
    max_file_bytes: ClassVar[int] = 150_000_000

    format: Literal["synthfair-task/1"] = "synthfair-task/1"
    nonce: Hex32
    what: Summand
    aggregators: tuple[AggregatorKeys, ...] = Field(strict=False, min_length=2, max_length=3)
    clients: tuple[Hex32, ...] = Field(strict=False, min_length=1, max_length=MAX_CLIENTS)
    least_clients: int = Field(ge=1, le=MAX_CLIENTS)

    @cached_property
    def id(self) -> bytes:
        """The sha256 of all of it; every file of the protocol carries it."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"synthfair-task/1\0" + text.encode()).digest()

    @cached_property
    def client_keys(self) -> frozenset[bytes]:
        """The clients' keys as bytes."""
        return frozenset(map(bytes.fromhex, self.clients))

    def write(self, path: Path, *, mode: int = ORDINARY) -> None:
        """Write the task as JSON without spaces, whole or not at all: totals are long."""
        write_text(path, self.model_dump_json() + "\n", mode=mode)

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
        """Return the role of the aggregator with these keys.

        Raises:
            InputError: the task does not know it.
        """
        if keys not in self.aggregators:
            raise InputError("key: belongs to none of the task's aggregators")
        return self.aggregators.index(keys)

    def require_agreed(self, aggregators: Sequence[AggregatorKeys]) -> None:
        """Refuse a task of other aggregators than its parties agreed: its file can be replaced.

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
        source, guarantee = f"task {self.id.hex()}", self.guarantee
        for name, bound in (("epsilon", most_epsilon), ("delta", most_delta)):
            if not (value := getattr(guarantee, name)) <= bound:
                raise InputError(
                    f"{source}: {name} = {value:g}; must be at most {bound:g}", f"most_{name}"
                )
        if guarantee.relation != "add_or_remove":
            raise InputError(f"{source}: relation = {guarantee.relation}; must be add_or_remove")

    @model_validator(mode="after")
    def _fits(self) -> SumTask:
        keys = [key for pair in self.aggregators for key in (pair.encryption, pair.signature)]
        if len(set(keys)) < len(keys):
            raise ValueError("aggregators: each must have keys of its own")
        if len(set(self.clients)) < len(self.clients):
            raise ValueError("clients: a key comes twice")
        if len(self.clients) * self.what.entries[1] > 2**62:
            raise ValueError("clients: so many could sum to more than fits into 64 bits")
        if self.least_clients > len(self.clients):
            raise ValueError(f"least_clients: only {len(self.clients)} clients may send")
        if isinstance(self.what, RowSums):
            if self.what.clients > len(self.clients):
                raise ValueError(f"clients: the sum is of {self.what.clients}, more than may send")
            if any(total.aggregators != len(self.aggregators) for total in self.what.opened):
                raise ValueError("aggregators: not as many as added noise to the totals before")
        return self


def make_task(
    summand: AnySummand,
    aggregators: Sequence[AggregatorKeys],
    clients: Sequence[str],
    *,
    least_clients: int,
    label: str | None = None,
) -> SumTask:
    """Return the task of a sum.

    Args:
        summand: what is summed.
        aggregators: their public keys, two or three.
        clients: Ed25519 public keys in hexadecimal.
        least_clients: with fewer, nothing is answered or opened.
        label: with the same label and all else the task is the same, so that aggregators give the
            answer that they have given, and no second one; each task is new if not given.

    Raises:
        InputError: the parts do not fit together.
    """
    seed = f"synthfair-sum/1 {label}".encode() if label else secrets.token_bytes(32)
    return SumTask(
        nonce=hashlib.sha256(seed).hexdigest(),
        what=summand,
        aggregators=tuple(aggregators),
        clients=tuple(sorted(clients)),
        least_clients=least_clients,
    )
