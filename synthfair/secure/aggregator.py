"""The aggregators of a secure sum, whose answers open to a total.

Each adds up shares, adds its noise, answers once.

A task is answered once for each key: the answer is recorded before it leaves, and asked again, the
aggregator gives the same one. After a crash, even one by kill -9 between noise and answer, it
answers: nothing of the answer that was lost has left.

:func:`open_sums` opens what all aggregators have answered; :func:`noisy_sum` simulates the whole
protocol over arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from synthfair.errors import InputError, printable, reason
from synthfair.files import parse_as, read_bytes
from synthfair.postprocess.histogram import Origin, ScoreHistogram
from synthfair.privacy.ledger import compute_once
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.keys import Hex32, is_signed, sign_bytes
from synthfair.secure.shares import Sharing
from synthfair.secure.summands import MAX_CLIENTS, MAX_LENGTH, AnySummand, GroupCounts
from synthfair.secure.task import AggregatorSecret, SumTask, require_records
from synthfair.secure.upload import read_upload, upload_bytes
from synthfair.settings import JsonFile

PARTIAL_SUM_DOMAIN, COMMITMENT_DOMAIN = b"synthfair-partial-sum/2\0", b"synthfair-commitment/1\0"

ANSWER_SUFFIX = ".answer"
"""The ending of a record."""

_Entry = Annotated[int, Field(ge=0, lt=2**64)]


class UploadSum(NamedTuple):
    """The sum of verified uploads, which only the aggregator may see.

    Attributes:
        total: [k] uint64, of the shares mod 2^64.
        clients: public keys of those who sent them, in order.
        clients_hash: of their keys and nonces; equal for all aggregators of the same uploads.
    """

    total: np.ndarray
    clients: tuple[str, ...]
    clients_hash: str


class PartialSum(JsonFile):
    """An aggregator's answer: its sum of shares with its noise.

    Alone it is uniformly random. It may be shown to anybody.

    Attributes:
        task: its id.
        role: of the aggregator.
        clients: public keys of those whose shares are in it.
        clients_hash: see :class:`UploadSum`.
        total: [k] mod 2^64.
        signature: of all the rest, by the aggregator.
    """

    max_file_bytes: ClassVar[int] = 30 * MAX_LENGTH

    format: Literal["synthfair-partial-sum/2"] = "synthfair-partial-sum/2"
    task: Hex32
    role: int = Field(ge=0, le=2)
    clients: tuple[Hex32, ...] = Field(strict=False, min_length=1, max_length=MAX_CLIENTS)
    clients_hash: Hex32
    total: tuple[_Entry, ...] = Field(strict=False, min_length=1, max_length=MAX_LENGTH)
    signature: str = Field(pattern="^[0-9a-f]{128}$")

    def signed_bytes(self) -> bytes:
        """Return the bytes that the signature covers, after its domain."""
        head = f"{self.task} {self.role} {' '.join(self.clients)} {self.clients_hash}\n"
        return head.encode() + np.array(self.total, "<u8").tobytes()

    @property
    def commitment(self) -> str:
        """The sha256 of all of it, that aggregators publish before any of them publishes its sum.

        So none can choose its noise when it knows another's sum. The hash says nothing of the sum,
        as the signature is in it, and cannot be guessed.
        """
        signature = bytes.fromhex(self.signature)
        return hashlib.sha256(
            COMMITMENT_DOMAIN + PARTIAL_SUM_DOMAIN + self.signed_bytes() + signature
        ).hexdigest()


class NoisyTotal(NamedTuple):
    """The sum over clients with the noise of every aggregator.

    Attributes:
        total: [k] int64; of vectors and rows, in steps.
        variance: of each entry's noise, all aggregators together.
        clients: public keys of those whose parts are in it; of a simulation, numbers.
        aggregators: number of those that each added noise.
        simulated: whether all of them ran in one process, which saw everything.
        seeded: whether anybody can repeat the noise, which then protects nothing.
    """

    total: np.ndarray
    variance: float
    clients: tuple[str, ...]
    aggregators: int
    simulated: bool = False
    seeded: bool = False


# What an aggregator does


def receive(
    task: SumTask, secret: AggregatorSecret, uploads: Iterable[Path | tuple[str, bytes]]
) -> UploadSum:
    """Return verified uploads, added up, one file in memory at a time.

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
            is_file = isinstance(upload, Path)
            content = read_bytes(upload, upload_bytes(task)) if is_file else upload[1]
            source = str(upload if is_file else upload[0])
            client, nonce, share = read_upload(content, task, secret, source=source)
        except InputError as error:
            problems.append(str(error))
            continue
        if client in nonces:
            repeat = "repeats an upload" if nonces[client] == nonce else "a second upload"
            problems.append(f"{source}: {repeat} of the client {client.hex()}; each sends one")
            continue
        nonces[client] = nonce
        total += share  # arrays of uint64 wrap around: mod 2^64
    if problems:
        # A line for each: clients choose the names of their files.
        raise InputError("\n".join(printable(line).replace("\n", r"\n") for line in problems))
    if len(nonces) < task.least_clients:
        raise InputError(
            f"uploads: of {len(nonces)} clients; the task asks for {task.least_clients} at least"
        )
    clients = sorted(nonces)
    pairs = b"".join(client + nonces[client] for client in clients)
    digest = hashlib.sha256(PARTIAL_SUM_DOMAIN + pairs).hexdigest()
    return UploadSum(total, tuple(client.hex() for client in clients), digest)


def answer(
    task: SumTask,
    secret: AggregatorSecret,
    uploads: UploadSum | Callable[[], UploadSum],
    records: Path,
    *,
    source: RandomBytes = system_entropy,
) -> PartialSum:
    """Return the partial sum with noise, which is computed once for a task and key.

    A task that was answered gets the same answer, whatever the uploads are now; one whose answer a
    crash cut off is answered, as nothing of it has left. A task of vectors with ``rho = None`` has
    no noise, and a total without noise protects nobody: who does not agree to that looks at
    ``task.what.rho`` first.

    Guarantee: that of ``task.what``, by this aggregator's noise alone, whoever colludes with
    whom, as long as it colludes with nobody, and as long as ``records`` is never put back to an
    older state.

    Args:
        task: that is answered.
        secret: of the aggregator.
        uploads: of :func:`receive`; or what returns them, called where there is no answer yet.
        records: folder of the aggregator's answers so far, which is made with its key.
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
        signature = sign_bytes(PARTIAL_SUM_DOMAIN, draft.signed_bytes(), secret.signing_key).hex()
        return draft.model_copy(update={"signature": signature}).model_dump_json().encode()

    record = record_of(task, secret, records)
    # The most digits of an entry, a client's key, and all the rest.
    max_bytes = 21 * task.what.length + 67 * len(task.clients) + 1000
    try:
        content = compute_once(record, task.id.hex(), compute, max_bytes=max_bytes)
    except OSError as error:
        raise InputError(f"{records}: cannot write: {reason(error)}") from error
    return parse_as(content, PartialSum, str(record))


def record_of(task: SumTask, secret: AggregatorSecret, records: Path) -> Path:
    """Return the path of the record of this key's answer to a task.

    Raises:
        InputError: the folder is missing, or another aggregator's.
    """
    require_records(records, secret)
    return records / f"{task.id.hex()}.{secret.public.signature[:16]}{ANSWER_SUFFIX}"


# What the answers open to


def open_sums(
    task: SumTask,
    sums: Sequence[PartialSum],
    *,
    commitments: Sequence[str] | None = None,
    sources: Sequence[object] | None = None,
) -> NoisyTotal:
    """Return the sum of all aggregators' partial sums: shares cancel, and total and noise remain.

    Args:
        task: of the sums.
        sums: one of each aggregator, in any order.
        commitments: that the aggregators published before any sum, by role; None if none did.
        sources: their files, for errors.

    Raises:
        InputError: a sum of another task, altered or not signed; an aggregator's is missing or
            comes twice; one is not what its aggregator had committed to; they saw different
            uploads, or fewer clients than the task asks; or the total cannot be.
    """
    # One verified sum of each aggregator, of those that they committed to.
    names = [str(name) for name in sources or [f"sum {i}" for i in range(len(sums))]]
    for partial, name in zip(sums, names, strict=True):
        _verify(partial, task, name)
    all_names, in_order = ", ".join(names), sorted(sums, key=lambda partial: partial.role)
    if (roles := [partial.role for partial in in_order]) != [*range(len(task.aggregators))]:
        raise InputError(
            f"{all_names}: of aggregators {roles}; must be one of each of the"
            f" {len(task.aggregators)}"
        )
    by_role = [partial.commitment for partial in in_order]
    if commitments is not None and by_role != list(commitments):
        raise InputError(
            f"{all_names}: have the commitments {', '.join(by_role)}; published before were"
            f" {', '.join(commitments)}: a sum was chosen after another was known"
        )
    # All saw the same uploads, and enough of them.
    if len({(partial.clients, partial.clients_hash) for partial in sums}) > 1:
        raise InputError(
            f"{all_names}: the aggregators saw different uploads, of"
            f" {' and '.join(str(len(partial.clients)) for partial in sums)} clients"
        )
    clients = sums[0].clients
    if not task.least_clients <= len({*task.clients}.intersection(clients)) == len(clients):
        raise InputError(
            f"{names[0]}: of {len(clients)} clients; the task asks for {task.least_clients} to"
            f" {len(task.clients)}, each once"
        )
    total = np.array([partial.total for partial in sums], np.uint64).sum(axis=0).view(np.int64)
    return noisy_total(task.what, total, aggregators=len(sums), clients=clients)


def _verify(partial: PartialSum, task: SumTask, source: str) -> None:
    """Refuse a partial sum of another task, or that is not signed by its aggregator."""
    if partial.task != task.id.hex():
        raise InputError(f"{source}: of another task, {partial.task}; must be of {task.id.hex()}")
    if len(partial.total) != task.what.length or partial.role >= len(task.aggregators):
        raise InputError(
            f"{source}: {len(partial.total)} entries of aggregator {partial.role}; must be"
            f" {task.what.length}, of one of {len(task.aggregators)}"
        )
    key = bytes.fromhex(task.aggregators[partial.role].signature)
    signature = bytes.fromhex(partial.signature)
    if not is_signed(PARTIAL_SUM_DOMAIN, partial.signed_bytes(), signature, key):
        raise InputError(f"{source}: altered, or not signed by aggregator {partial.role}")


def noisy_sum(
    vectors: Iterable[np.ndarray],
    summand: AnySummand,
    *,
    aggregators: int = 2,
    source: RandomBytes = system_entropy,
) -> NoisyTotal:
    """Return what all shares, summed by aggregator, open to with every aggregator's noise.

    As the protocol by files, without its encryption and signatures: all happens in one process,
    which sees everything. It is for simulations and benchmarks. What is returned has the guarantee
    of ``summand``, with the system's entropy alone.

    Args:
        vectors: the clients' parts, [k] int64; of :func:`count_table` or ``summand.integers``.
        summand: what is summed.
        aggregators: 2 or 3.
        source: of seeds and noise; another one than the system's is for tests alone.

    Raises:
        InputError: no vectors, one that the summand refuses, or a total that cannot be.

    Example:
        >>> import numpy as np
        >>> from synthfair import secure
        >>> summand = secure.GroupCounts(
        ...     schema_hash="0" * 64, groups=("f", "m"), epsilon=1.0, rows_per_client=100
        ... )
        >>> result = secure.noisy_sum([np.array([10, 20, 30, 40])] * 50, summand)
        >>> bool(np.all(np.abs(result.total - [500, 1000, 1500, 2000]) < 100))
        True
    """
    sharing = Sharing(source(32), summand.length, aggregators)
    totals = np.zeros((aggregators, summand.length), np.uint64)
    clients: list[str] = []
    for vector in vectors:
        clients.append(f"{len(clients):064x}")
        summand.require_part(vector)
        for role, message in enumerate(sharing.split(vector, source)):
            totals[role] += sharing.share(message, role)
    if not clients:
        raise InputError("vectors: there are none")
    for role in range(aggregators):
        totals[role] += summand.noise(source).astype(np.uint64)
    total = totals.sum(axis=0).view(np.int64)
    result = noisy_total(summand, total, aggregators=aggregators, clients=tuple(clients))
    return result._replace(simulated=True, seeded=source is not system_entropy)


def noisy_total(
    summand: AnySummand, total: np.ndarray, *, aggregators: int, clients: tuple[str, ...]
) -> NoisyTotal:
    """Return a total with the variance of its noise.

    A total that honest clients and aggregators do not have, but for a chance of 1e-12, is refused.
    Counts are at least 0, and at most clients rows_per_client, one by one and all together;
    entries of vectors are bounded on both sides. False inputs within that pass.

    Raises:
        InputError: an entry, or the sum of all counts, is outside.
    """
    low, high = int(total.min()), int(total.max())
    bounds = [(f"has entries from {low} to {high}", low, high, aggregators)]
    least, most = (len(clients) * entry for entry in summand.entries)
    if isinstance(summand, GroupCounts):
        rows = int(total.sum())
        bounds.append((f"{rows} rows in all", rows, rows, aggregators * summand.length))
    for problem, low, high, terms in bounds:
        margin = summand.noise_bound(terms)
        if low < least - margin or high > most + margin:
            raise InputError(
                f"total: {problem}; {len(clients)} clients and the noise can make {least - margin}"
                f" to {most + margin}: an input was false, or an upload damaged"
            )
    return NoisyTotal(total, float(aggregators * summand.variance), clients, aggregators)


def score_histogram(summand: GroupCounts, total: NoisyTotal) -> ScoreHistogram:
    """Return an opened total of counts as a histogram, of which thresholds and weights are made."""
    guarantee = summand.guarantee(total.aggregators, simulated=total.simulated)
    guarantees = (None if total.seeded else guarantee,)
    counts: Any = total.total.reshape(len(summand.groups), 2, summand.bins).tolist()
    return ScoreHistogram(
        schema_hash=summand.schema_hash,
        model=summand.model,
        groups=summand.groups,
        counts=counts,
        variance=total.variance,
        origin=Origin(clients=len(total.clients), guarantees=guarantees),
    )
