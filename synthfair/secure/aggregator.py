"""The aggregator: it verifies uploads, adds shares, adds its noise, and answers once.

A task is answered once for each key: the answer is recorded before it leaves, and asked again, the
aggregator gives the same one. After a crash, even one by kill -9 between noise and answer, it
answers: nothing of the answer that was lost has left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from synthfair.errors import InputError, printable, reason
from synthfair.files import open_file, parse_as, read_as
from synthfair.privacy.ledger import compute_once
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.keys import Hex32, is_signed, sign_bytes
from synthfair.secure.aggregator_keys import AggregatorSecret, require_records
from synthfair.secure.summands import MAX_LENGTH
from synthfair.secure.task import Task
from synthfair.secure.upload import read_upload, upload_bytes
from synthfair.settings import Checked

DOMAIN, COMMITMENT = b"synthfair-partial-sum/1\0", b"synthfair-commitment/1\0"

MAX_ENTRY_BYTES, MAX_OTHER_BYTES = 21, 1000
"""The size of an entry of an answer, and of the rest of it."""

ANSWER = ".answer"
"""The ending of a record."""

_Entry = Annotated[int, Field(ge=0, lt=2**64)]


class UploadSum(NamedTuple):
    """Verified uploads, added up. Only the aggregator may see the total.

    Attributes:
        total: [k] uint64, of the shares mod 2^64.
        clients: how many there are.
        clients_hash: of their keys and nonces; equal for all aggregators of the same uploads.
    """

    total: np.ndarray
    clients: int
    clients_hash: str


class PartialSum(Checked):
    """An aggregator's answer: its sum of shares with its noise.

    Alone it is uniformly random. It may be shown to anybody.

    Attributes:
        task: its id.
        role: of the aggregator.
        clients: whose shares are in it.
        clients_hash: see :class:`UploadSum`.
        total: [k] mod 2^64.
        signature: of all the rest, by the aggregator.
    """

    format: Literal["synthfair-partial-sum/1"] = "synthfair-partial-sum/1"
    task: Hex32
    role: int = Field(ge=0, le=2)
    clients: int = Field(ge=1)
    clients_hash: Hex32
    total: tuple[_Entry, ...] = Field(strict=False, min_length=1, max_length=MAX_LENGTH)
    signature: str = Field(pattern="^[0-9a-f]{128}$")

    def signed_bytes(self) -> bytes:
        """The bytes that the signature covers, after its domain."""
        head = f"{self.task} {self.role} {self.clients} {self.clients_hash} {len(self.total)}\n"
        return head.encode() + np.array(self.total, "<u8").tobytes()

    @property
    def commitment(self) -> str:
        """sha256 of all of it, that aggregators publish before any of them publishes its sum.

        So none can choose its noise when it knows another's sum. The hash says nothing of the sum,
        as the signature is in it, and cannot be guessed.
        """
        signature = bytes.fromhex(self.signature)
        return hashlib.sha256(COMMITMENT + DOMAIN + self.signed_bytes() + signature).hexdigest()


def receive(
    task: Task, secret: AggregatorSecret, uploads: Iterable[Path | tuple[str, bytes]]
) -> UploadSum:
    """Verifies uploads and adds their shares, one file in memory at a time.

    If any is refused, nothing is answered, and all such can be taken out at every aggregator.
    Spends nothing.

    Args:
        task: of the uploads.
        secret: of the aggregator.
        uploads: files, or pairs of a name for errors and what is uploaded; in any order.

    Raises:
        InputError: uploads cannot be read or are refused, see :func:`read_upload`; come twice, or
            are second ones of a client; the message has a line for each. Or there are fewer clients
            than the task asks.
    """
    task.role_of(secret.public)  # else each upload would be refused for it
    total, nonces, problems = np.zeros(task.what.length, np.uint64), dict[bytes, bytes](), []
    for upload in uploads:
        try:
            source, content = upload if isinstance(upload, tuple) else _content(upload, task)
            client, nonce, share = read_upload(content, task, secret, source=source)
        except InputError as error:
            problems.append(str(error))
            continue
        if client in nonces:
            again = "repeats an upload" if nonces[client] == nonce else "a second upload"
            problems.append(f"{source}: {again} of the client {client.hex()}; each sends one")
            continue
        nonces[client] = nonce
        total += share  # arrays of uint64 wrap around: mod 2^64
    if problems:
        raise InputError("\n".join(problems))
    if len(nonces) < task.least_clients:
        raise InputError(
            f"uploads: of {len(nonces)} clients; the task asks for {task.least_clients} at least"
        )
    pairs = b"".join(client + nonces[client] for client in sorted(nonces))
    return UploadSum(total, len(nonces), hashlib.sha256(DOMAIN + pairs).hexdigest())


def _content(path: Path, task: Task) -> tuple[str, bytes]:
    """The name of a file for errors, and no more than one byte more than an upload has."""
    # In one line: clients choose the names of their files.
    name = printable(str(path)).replace("\n", r"\n")
    try:
        with open_file(path) as file:
            return name, file.read(upload_bytes(task) + 1)
    except OSError as error:
        raise InputError(f"{name}: cannot read: {reason(error)}") from error


def answer(
    task: Task,
    secret: AggregatorSecret,
    uploads: UploadSum | Callable[[], UploadSum],
    records: Path,
    *,
    source: RandomBytes = system_entropy,
) -> PartialSum:
    """Return the partial sum with noise, which is computed once for a task and key.

    A task that was answered gets the same answer, whatever the uploads are now; one whose answer a
    crash cut off is answered, as nothing of it has left.

    Guarantee: that of ``task.what``, by this aggregator's noise alone, whoever colludes with
    whom, as long as it colludes with nobody, and as long as ``records`` is never put back to an
    older state.

    Args:
        task: that is answered.
        secret: of the aggregator.
        uploads: of :func:`receive`; or what returns them, called where there is no answer yet.
        records: folder of the aggregator's answers so far, of :func:`make_records`.
        source: of the noise; another one than the system's is for tests alone.

    Raises:
        InputError: the folder is missing or another aggregator's, or the record is damaged or
            cannot be written.
    """

    def compute() -> bytes:
        received = uploads() if callable(uploads) else uploads
        total = received.total + task.what.noise(source).astype(np.uint64)
        draft = PartialSum(
            task=task.id.hex(),
            role=task.role_of(secret.public),
            clients=received.clients,
            clients_hash=received.clients_hash,
            total=tuple(total.tolist()),
            signature="0" * 128,
        )
        signature = sign_bytes(DOMAIN, draft.signed_bytes(), secret.signing_key).hex()
        return draft.model_copy(update={"signature": signature}).model_dump_json().encode()

    record = record_of(task, secret, records)
    max_bytes = MAX_ENTRY_BYTES * task.what.length + MAX_OTHER_BYTES
    try:
        content = compute_once(record, task.id.hex(), compute, max_bytes=max_bytes)
    except OSError as error:
        raise InputError(f"{records}: cannot write: {reason(error)}") from error
    return parse_as(content, PartialSum, str(record))


def record_of(task: Task, secret: AggregatorSecret, records: Path) -> Path:
    """Return the path of the record of this key's answer to a task.

    Raises:
        InputError: the folder is missing, or another aggregator's.
    """
    require_records(records, secret)
    return records / f"{task.id.hex()}.{secret.public.signature[:16]}{ANSWER}"


def read_partial_sum(path: Path) -> PartialSum:
    """Reads an answer; its signature is verified by :func:`open_sums`.

    Raises:
        InputError: unreadable, or not a partial sum; the message names the entry.
    """
    return read_as(path, PartialSum, 30 * MAX_LENGTH)


def verify_partial_sum(partial: PartialSum, task: Task, *, source: str = "sum") -> None:
    """Refuses a partial sum of another task, or that is not signed by its aggregator.

    Raises:
        InputError: so it is, or its length or role is none of the task's.
    """
    if partial.task != task.id.hex():
        raise InputError(f"{source}: of another task, {partial.task}; must be of {task.id.hex()}")
    if len(partial.total) != task.what.length or partial.role >= len(task.aggregators):
        raise InputError(
            f"{source}: {len(partial.total)} entries of aggregator {partial.role}; must be"
            f" {task.what.length}, of one of {len(task.aggregators)}"
        )
    key, signature = task.aggregators[partial.role].signature, partial.signature
    if not is_signed(DOMAIN, partial.signed_bytes(), bytes.fromhex(signature), bytes.fromhex(key)):
        raise InputError(f"{source}: altered, or not signed by aggregator {partial.role}")
