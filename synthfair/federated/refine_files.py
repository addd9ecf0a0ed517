"""Exact refinement by files: questions and answers that people carry, replayed from the first.

A folder holds one for each exchange, 1, 2, ..., with the server's ``question.json`` and a JSON file
of each client. The server's state is a function of these files alone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

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
from synthfair.release.keys import Keys, Signature, require_signer, sign, verify
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DOMAIN = b"synthfair-sums/1\0"
"""The prefix of all that is signed: a signature made for something else never fits."""

MAX_BYTES = 100_000_000
"""The largest size of a question or an answer; those of 500 inputs take less."""

CLOSE = 1e-6
"""Most by which candidates that are computed anew, maybe on another machine, may differ."""

MANY_MEDIANS = 20.0
"""Rows that one client may have, in lower medians of all, where it is not set: as of releases."""

_KEY = jax.random.key
_Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Question(BaseModel):
    """The server's question of an exchange, public: sums at some params, under a penalty."""

    model_config = STRICT

    format: Literal["synthfair-question/1"] = "synthfair-question/1"
    exchange: int = Field(ge=1, lt=2**31)
    schema_hash: _Hex32
    penalty: Literal["covariance", "selection_rate"]
    notion: Notion
    temperature: float = Field(gt=0)
    candidates: tuple[_Numbers, ...] = Field(strict=False, min_length=1, max_length=10)


class SumsFile(BaseModel):
    """A client's answer, not private by itself: the sha256 of the question's file, and the sums."""

    model_config = STRICT

    format: Literal["synthfair-sums/1"] = "synthfair-sums/1"
    question: _Hex32
    numbers: _Numbers  # of :class:`synthfair.federated.refine.Sums`, one array after the other
    signature: Signature


def _digest(question: str, numbers: np.ndarray) -> bytes:
    """What is signed."""
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
        # The question must be of this schema, and of as many params as rows have inputs.
        text = read_bytes(question_path, MAX_BYTES)
        question = parse_as(text, Question, str(question_path))
        if question.schema_hash != schema.hash:
            raise InputError(
                f"{question_path}: schema_hash {question.schema_hash}: is of another schema than"
                f" {schema_path}, {schema.hash}"
            )
        settings = question.model_dump(include={"penalty", "notion", "temperature"})
        config = RefineSettings(**settings)
        rows = in_content_order(encode(read_table(data, schema), schema, source=str(data)))
        user = np.zeros(len(rows.y), int)
        one = make_user_data(rows, user, schema, config, all_groups=False)
        refine, n_inputs = cast(Refine, config.plan(one).algorithm), one.users.a.shape[1]
        if any(len(theta) != n_inputs for theta in question.candidates):
            raise InputError(
                f"{question_path}: candidates: must have {n_inputs} numbers each, one an input"
            )

        # The sums, in which no group is small.
        candidates = jnp.asarray(question.candidates)
        state = refine.init(_KEY(0))._replace(candidates=candidates)
        sums = jax.device_get(jax.jit(refine.report)(state, one.users.rows_of(0), _KEY(0)))
        require_large_groups(sums, k_min, schema, str(data))
        numbers = np.concatenate([part.ravel() for part in sums])
        if not np.isfinite(numbers).all():
            raise InputError(f"{question_path}: candidates: are so large that sums are no numbers")

        # What leaves is booked, signed, and written whole.
        asked = hashlib.sha256(text).hexdigest()
        run = hashlib.sha256(f"{asked} {content_sha256([rows])}".encode()).hexdigest()
        book.book(Booking(output=output.name, run=run, guarantee=None))
        signature = sign(_digest(asked, numbers), key, domain=DOMAIN)
        found = SumsFile(question=asked, numbers=tuple(numbers.tolist()), signature=signature)
        write_json(output, found.model_dump(mode="json"))
    return sums


# Server


class Refinement(NamedTuple):
    """How far exchanges have come: the model after those done, and what is to be answered next."""

    model: TrainedModel
    exchanges: int
    objective: float | None  # of the central problem; None before the first exchange
    question: Path
    missing: int  # clients who have not answered it


def replay(
    folder: Path,
    model: TrainedModel,
    config: ServerConfig,
    *,
    rho: float,
    clients: int,
    keys: Keys | None = None,
) -> Refinement:
    """Replays the exchanges that every client has answered, and writes the next question.

    Answers count by their rows, of which no client has more than ``config.max_rows``, by default
    20 lower medians of all.

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
    asked: dict[str, Any] = config.model_dump(include={"penalty", "notion", "temperature"})
    penalty = named_penalty(**asked, n_groups=len(schema.groups))
    refine = Refine(jnp.asarray(model.theta), penalty, rho, config.lambda_theta)
    state = refine.init(_KEY(0))
    one_row = UserRows(jnp.zeros((1, len(model.theta))), jnp.zeros((1, 1)), *jnp.ones((2, 1)))
    like = jax.eval_shape(refine.report, state, one_row, _KEY(0))
    number = 0
    while True:
        number += 1
        # The question that all before leads to; that of an earlier run is there already.
        candidates = np.asarray(state.candidates)
        question = Question(
            exchange=number,
            schema_hash=schema.hash,
            **asked,
            candidates=tuple(map(tuple, candidates.tolist())),
        )
        path = folder / str(number) / "question.json"
        if not path.exists():
            with claimed(path, force=False):
                write_json(path, question.model_dump(mode="json"))
        text = read_bytes(path, MAX_BYTES)
        there = parse_as(text, Question, str(path))
        lengths = [len(theta) for theta in there.candidates]
        if (
            there.model_copy(update={"candidates": question.candidates}) != question
            or lengths != [len(theta) for theta in candidates]
            or not np.allclose(np.asarray(there.candidates), candidates, rtol=CLOSE, atol=CLOSE)
        ):
            raise InputError(
                f"{path}: is not the question that these releases, settings and answers lead to;"
                " give those that it was asked with, or take another folder"
            )

        # Its answers are sums at the very candidates of the file, whatever rounding gives here.
        state = state._replace(candidates=jnp.asarray(there.candidates))
        paths = sorted(file for file in path.parent.glob("[!.]*.json") if file != path)
        if len(paths) > clients:
            raise InputError(f"{path.parent}: {len(paths)} answers, but {clients} clients")
        if len(paths) < clients:
            return Refinement(model, number - 1, objective, path, clients - len(paths))
        total = _total(paths, hashlib.sha256(text).hexdigest(), like, config.max_rows, keys)
        state, record = jax.jit(refine.update)(state, total, float(clients))
        model, objective = refined(model, state), float(record.objective)


def _total(
    paths: list[Path], question: str, like: Sums, max_rows: float | None, keys: Keys | None
) -> Sums:
    """The sum of answers, each scaled to the rows that a client may have. Raises InputError."""
    zeros, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), like))
    parts, signers = [], {}
    for path in paths:
        answer = parse_as(read_bytes(path, MAX_BYTES), SumsFile, str(path))
        if answer.question != question:
            raise InputError(f"{path}: is no answer to {path.with_name('question.json')}")
        numbers = np.asarray(answer.numbers)
        verify(answer.signature, _digest(question, numbers), source=str(path), domain=DOMAIN)
        if keys is not None:
            client = require_signer(answer.signature, keys, source=str(path))
            if signers.setdefault(client, path) != path:
                raise InputError(f"{path}: signed by {client!r}, as is {signers[client]}")
        if len(numbers) != zeros.size:
            raise InputError(f"{path}: {len(numbers)} numbers; must be {zeros.size}")
        try:
            require_counts(unravel(jnp.asarray(numbers)), np.inf)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        parts.append(numbers)
    rows = [part[0] for part in parts]
    most = max_rows or MANY_MEDIANS * sorted(rows)[(len(rows) - 1) // 2]
    return unravel(jnp.asarray(sum(part * min(1.0, most / part[0]) for part in parts)))
