"""Exact refinement by files: questions and answers that people carry, replayed from the first.

A folder holds a folder for each exchange, 1, 2, ..., with ``question.json`` of the server and a
JSON file of each client. The state of the server is a function of these files alone.
"""

from __future__ import annotations

import hashlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from pydantic import BaseModel, Field

from synthfair.config import Notion, ServerConfig
from synthfair.config.rules import STRICT
from synthfair.data.encode import content_sha256, encode, in_content_order
from synthfair.data.schema import read_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError
from synthfair.fairness.penalties import named_penalty
from synthfair.federated.refine import (
    Refine,
    RefineSettings,
    Sums,
    refined,
    require_counts,
    require_large_groups,
)
from synthfair.federated.user_data import make_user_data
from synthfair.federated.users import UserRows
from synthfair.files import claimed, parse_as, read_bytes, require_distinct, write_json
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.release.keys import Keys, Signature, is_signed, sign_bytes
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DOMAIN = b"synthfair-sums/1\0"
"""The prefix of all that is signed: a signature made for something else never fits."""

QUESTION = "question.json"
"""Name of the question's file in the folder of an exchange; every other JSON file is an answer."""

MAX_BYTES = 100_000_000
"""The largest size of a question or an answer; those of 500 inputs take less."""

CLOSE = 1e-6
"""Most by which candidates that are computed anew, maybe on another machine, may differ."""

MANY_MEDIANS = 20.0
"""Rows that one client may have, in lower medians of all, where it is not set: as of releases."""

_Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Question(BaseModel):
    """The question of an exchange; public.

    Attributes:
        exchange: its number, from 1.
        schema_hash: of the schema that the clients must have.
        penalty: what is summed by group, like the next two; see
            :class:`synthfair.federated.RefineSettings`.
        notion: likewise.
        temperature: likewise.
        candidates: params at which sums are asked for.
    """

    model_config = STRICT

    format: Literal["synthfair-question/1"] = "synthfair-question/1"
    exchange: int = Field(ge=1, lt=2**31)
    schema_hash: _Hex32
    penalty: Literal["covariance", "selection_rate"]
    notion: Notion
    temperature: float = Field(gt=0)
    candidates: tuple[_Numbers, ...] = Field(strict=False, min_length=1, max_length=10)


class SumsFile(BaseModel):
    """A client's answer: not private by itself.

    Attributes:
        question: sha256 of the question's file.
        numbers: of :class:`synthfair.federated.refine.Sums`, one array after the other.
        signature: of both; its sha256 is that of the question's and the numbers as float64,
            little-endian.
    """

    model_config = STRICT

    format: Literal["synthfair-sums/1"] = "synthfair-sums/1"
    question: _Hex32
    numbers: _Numbers
    signature: Signature


def _digest(question: str, numbers: np.ndarray) -> bytes:
    return hashlib.sha256(bytes.fromhex(question) + numbers.astype("<f8").tobytes()).digest()


# Client


def answer_question(
    data: Path,
    schema_path: Path,
    question_path: Path,
    output: Path,
    *,
    k_min: int,
    key: Ed25519PrivateKey | None = None,
    ledger: Path | None = None,
    force: bool = False,
) -> Sums:
    """Writes a client's sums; they are booked in the table's ledger, as an answer without epsilon.

    Args:
        data: the private table.
        schema_path: the public schema.
        question_path: of the server.
        output: JSON file to write.
        k_min: rows that a group has at least, of those that are compared, unless it has none.
        key: to sign with.
        ledger: next to the table if not given.
        force: whether an existing output is overwritten.

    Raises:
        InputError: an input is refused, a group is too small, the ledger's limit forbids what has
            no epsilon, or the output exists or cannot be written.
    """
    book, schema = Ledger(ledger or Ledger.for_table(data).path), read_schema(schema_path)
    require_distinct(output, data, schema_path, question_path, book.path)
    with claimed(output, force=force):
        # The question is of this schema, and of as many params as rows have inputs.
        text = read_bytes(question_path, MAX_BYTES)
        question = parse_as(text, Question, str(question_path))
        if question.schema_hash != schema.hash:
            raise InputError(
                f"{question_path}: schema_hash {question.schema_hash}: is of another schema than"
                f" {schema_path}, {schema.hash}"
            )
        rows = in_content_order(encode(read_table(data, schema), schema, source=str(data)))
        asked = question.model_dump(include={"penalty", "notion", "temperature"})
        settings, user = RefineSettings(**asked), np.zeros(len(rows.y), int)
        data_of = make_user_data(rows, user, schema, settings, all_groups=False)
        refine, own = cast(Refine, settings.plan(data_of).algorithm), data_of.users.rows_of(0)
        if {len(theta) for theta in question.candidates} != {own.a.shape[1]}:
            raise InputError(
                f"{question_path}: candidates: must have {own.a.shape[1]} numbers each, one for"
                " each input of the model, with its intercept"
            )

        # The sums, in which no group is small.
        none = jax.random.key(0)  # nothing is random
        state = refine.init(none)._replace(candidates=jnp.asarray(question.candidates))
        sums: Sums = jax.device_get(jax.jit(refine.report)(state, own, none))
        require_large_groups(sums, k_min, schema, str(data))
        numbers = np.concatenate([part.ravel() for part in sums])
        if not np.isfinite(numbers).all():
            raise InputError(f"{question_path}: candidates: are so large that sums are no numbers")

        # What leaves is booked, signed, and written whole.
        asker = hashlib.sha256(text).hexdigest()
        run = hashlib.sha256(f"{asker} {content_sha256([rows])}".encode()).hexdigest()
        book.book(Booking(output=output.name, run=run, guarantee=None))
        digest, signer = _digest(asker, numbers), {}
        if key:
            signer["public_key"] = key.public_key().public_bytes_raw().hex()
            signer["signature"] = sign_bytes(DOMAIN, digest, key).hex()
        answer = SumsFile(
            question=asker,
            numbers=tuple(numbers.tolist()),
            signature=Signature(sha256=digest.hex(), **signer),
        )
        write_json(output, answer.model_dump(mode="json"))
    return sums


# Server


class Refinement(NamedTuple):
    """How far exchanges have come.

    Attributes:
        model: after them.
        exchanges: done.
        objective: of the central problem; None before the first exchange.
        question: the file that is to be answered next.
        missing: answers to it that are not there yet.
    """

    model: TrainedModel
    exchanges: int
    objective: float | None
    question: Path
    missing: int


def replay(
    folder: Path,
    model: TrainedModel,
    config: ServerConfig,
    *,
    rho: float,
    clients: int,
    keys: Keys | None = None,
) -> Refinement:
    """Replays all exchanges that are whole, and writes the next question unless it is there.

    An exchange is whole once every client has answered; its answers count by their rows, of which
    no client has more than ``config.max_rows``, by default 20 lower medians of all.

    Args:
        folder: of the exchanges.
        model: of surrogates, to start from.
        config: of the problem; its rho or max_gap are not read.
        rho: weight of the penalty.
        clients: how many there are.
        keys: of the clients; with them, every answer must be signed by another client.

    Raises:
        InputError: a question is another one, as releases or settings were; an answer is refused;
            or there are more answers than clients.
    """
    if not model.intercept:
        raise InputError("refine: needs a model with an intercept")
    schema, objective = model.schema_, None
    asked = {name: getattr(config, name) for name in ("penalty", "notion", "temperature")}
    penalty = named_penalty(**asked, n_groups=len(schema.groups))
    refine = Refine(jnp.asarray(model.theta), penalty, rho, config.lambda_theta)
    state = refine.init(jax.random.key(0))
    one_row = UserRows(jnp.zeros((1, len(model.theta))), jnp.zeros((1, 1)), *jnp.ones((2, 1)))
    like = jax.eval_shape(refine.report, state, one_row, jax.random.key(0))
    for number in count(1):
        # The question that all before leads to; that of an earlier run is there already.
        question = Question(
            exchange=number,
            schema_hash=schema.hash,
            **asked,
            candidates=tuple(map(tuple, np.asarray(state.candidates).tolist())),
        )
        path = folder / str(number) / QUESTION
        if not path.exists():
            with claimed(path, force=False):
                write_json(path, question.model_dump(mode="json"))
        text = read_bytes(path, MAX_BYTES)
        there = parse_as(text, Question, str(path))
        if not _is_same(there, question):
            raise InputError(
                f"{path}: is not the question that these releases, settings and answers lead to;"
                " give those that it was asked with, or take another folder"
            )

        # Its answers are sums at the very candidates of the file, whatever rounding gives here.
        state = state._replace(candidates=jnp.asarray(there.candidates))
        paths = sorted(one for one in path.parent.glob("[!.]*.json") if one != path)
        if len(paths) > clients:
            raise InputError(f"{path.parent}: {len(paths)} answers, but {clients} clients")
        if len(paths) < clients:
            return Refinement(model, number - 1, objective, path, clients - len(paths))
        answers = _read_answers(paths, hashlib.sha256(text).hexdigest(), keys)
        total = _total(answers, like, config)
        state, record = jax.jit(refine.update)(state, total, float(clients))
        model, objective = refined(model, state), float(record.objective)
    raise AssertionError  # there is always a next question


def _is_same(there: Question, question: Question) -> bool:
    """Whether questions are the same, up to rounding of candidates."""
    one, other = np.asarray(question.candidates), there.candidates
    if [len(theta) for theta in other] != [len(theta) for theta in one]:
        return False
    close = np.allclose(np.asarray(other), one, rtol=CLOSE, atol=CLOSE)
    return close and there.model_copy(update={"candidates": question.candidates}) == question


def _read_answers(paths: list[Path], question: str, keys: Keys | None) -> dict[Path, SumsFile]:
    """Answers to this question, with keys each signed by another client."""
    answers, signers = {}, {}
    for path in paths:
        answer = parse_as(read_bytes(path, MAX_BYTES), SumsFile, str(path))
        if answer.question != question:
            raise InputError(f"{path}: is no answer to {path.parent / QUESTION}, as it is now")
        answers[path], signed = answer, answer.signature
        if keys is None:
            continue
        public, signature = signed.public_key or "", bytes.fromhex(signed.signature or "")
        digest = _digest(question, np.asarray(answer.numbers))
        if public not in keys or not is_signed(DOMAIN, digest, signature, bytes.fromhex(public)):
            raise InputError(f"{path}: is not signed by a client whose key is given")
        if public in signers:
            raise InputError(f"{path}: signed by {keys[public]!r}, as is {signers[public]}")
        signers[public] = path
    return answers


def _total(answers: dict[Path, SumsFile], like: Sums, config: ServerConfig) -> Sums:
    """The sum of all answers, each scaled to the rows that a client may have."""
    zeros, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), like))
    found = []
    for path, answer in answers.items():
        if len(answer.numbers) != zeros.size:
            raise InputError(f"{path}: {len(answer.numbers)} numbers; must be {zeros.size}")
        found.append(np.asarray(answer.numbers))
        try:
            require_counts(unravel(jnp.asarray(found[-1])), np.inf)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
    rows = [float(numbers[0]) for numbers in found]  # the first number of all
    most = config.max_rows or MANY_MEDIANS * sorted(rows)[(len(rows) - 1) // 2]
    scaled = [n * min(1.0, most / own) for n, own in zip(found, rows, strict=True)]
    return unravel(jnp.asarray(np.sum(scaled, axis=0)))
