"""Exact refinement by files: questions and answers that people carry, replayed from the first.

A folder holds one for each exchange, 1, 2, ..., with the server's ``question.json`` and a JSON file
of each client. The server's state is a function of these files alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from pydantic import BaseModel, Field

from synthfair.config.rules import STRICT, GroupsBy, Notion
from synthfair.config.server_settings import ServerConfig
from synthfair.data.encode import content_sha256, encode_own, in_content_order
from synthfair.data.schema import read_schema
from synthfair.data.tables import read_table
from synthfair.errors import InputError
from synthfair.fairness.penalties import Grouping, named_penalty
from synthfair.federated.refine import (
    Refine,
    RefineSettings,
    RefineState,
    Sums,
    refined,
    require_counts,
)
from synthfair.federated.single_rows import LEAST_ROWS, require_alike
from synthfair.federated.user_data import make_user_data
from synthfair.federated.users import UserRows
from synthfair.files import OWNER_ONLY, claimed, parse_as, read_bytes, write_json
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.release.keys import Keys, Signature, require_signer, sign, verify
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DOMAIN = b"synthfair-sums/1\0"
"""The prefix of all that is signed: a signature made for something else never fits."""

MAX_BYTES = 100_000_000
"""The largest size of a question or an answer; those of 500 inputs take less."""

CLOSE = 1e-3
"""Most by which params and weight may differ that are computed anew, maybe on another machine."""

_KEY = jax.random.key
_Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Question(BaseModel):
    """The server's question of an exchange, public: sums at some params, under a penalty.

    Attributes:
        exchange: 1, 2, ...
        follows: sha256 of the question and the answers of the exchange before.
        answers: that complete an exchange.
        releases: sha256 of the surrogates.
        schema_hash: of the schema.
        penalty, notion, temperature, rho, max_gap, groups_by, lambda_theta: of the problem.
        max_rows: that a client counts as, at most; None for no limit.
        candidates: params; those of the first question are the start alone.
    """

    model_config = STRICT

    format: Literal["synthfair-question/1"] = "synthfair-question/1"
    exchange: int = Field(ge=1, lt=2**31)
    follows: _Hex32 | None = None
    answers: int = Field(ge=1, lt=2**31)
    releases: _Hex32
    schema_hash: _Hex32
    penalty: Literal["covariance", "selection_rate"]
    notion: Notion
    temperature: float = Field(gt=0)
    rho: float = Field(ge=0)
    max_gap: float | None = None
    groups_by: tuple[str, ...] | None = GroupsBy
    lambda_theta: float = Field(gt=0)
    max_rows: float | None = Field(default=None, gt=0)
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
    again: bool = False,
    force: bool = False,
) -> Sums:
    """Writes a client's sums; they are booked in the table's ledger, as an answer without epsilon.

    Args:
        data: the private table.
        schema_path: the public schema.
        question_path: of the server.
        output: JSON file to write.
        k_min: rows that a pair of group and label has at least, unless it has none.
        key: to sign with.
        ledger: next to the table if not given.
        again: consent to answer although the ledger holds an epsilon, or sums of another job.
        force: whether an existing output is overwritten.

    Raises:
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: an input is refused, a pair is too small, a row stands out, or the output exists
            or cannot be written.
    """
    schema = read_schema(schema_path)
    book = Ledger(ledger or Ledger.for_table(data).path, again=again)
    inputs = (data, schema_path, question_path, book.path)
    with claimed(output, inputs=inputs, force=force):
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
        rows = in_content_order(encode_own(read_table(data, schema), schema, source=str(data)))
        user = np.zeros(len(rows.y), int)
        one = make_user_data(rows, user, schema, config, all_groups=False)
        refine, n_inputs = cast(Refine, config.plan(one).algorithm), one.users.a.shape[1]
        if any(len(theta) != n_inputs for theta in question.candidates):
            raise InputError(
                f"{question_path}: candidates: must have {n_inputs} numbers each, one an input"
            )

        # The sums of rows of which no pair is small, and no row stands out.
        candidates = jnp.asarray(question.candidates)
        state = refine.init(_KEY(0))._replace(candidates=candidates)
        own = one.users.rows_of(0)
        require_alike(refine, state, own, schema, source=str(data), least=(k_min, LEAST_ROWS))
        sums = jax.device_get(jax.jit(refine.report)(state, own, _KEY(0)))
        numbers = np.concatenate([part.ravel() for part in sums])
        if not np.isfinite(numbers).all():
            raise InputError(f"{question_path}: candidates: are so large that sums are no numbers")

        # What leaves is booked, one job for all exchanges of the same rows, signed, written whole.
        asked = hashlib.sha256(text).hexdigest()
        job = question.model_dump_json(exclude={"exchange", "follows", "candidates"})
        run = hashlib.sha256(f"{job} {content_sha256([rows])}".encode()).hexdigest()
        name = f"{question.exchange}/{output.name}"
        book.book(Booking(kind="training", output=name, run=run, guarantee=None))
        signature = sign(_digest(asked, numbers), key, domain=DOMAIN)
        found = SumsFile(question=asked, numbers=tuple(numbers.tolist()), signature=signature)
        write_json(output, found.model_dump(mode="json"), mode=OWNER_ONLY)
    return sums


# Server


class Refinement(NamedTuple):
    """How far exchanges have come: the model after those done, and what is to be answered next."""

    model: TrainedModel
    exchanges: int
    objective: float | None  # of the central problem; None before the first exchange
    rho: float  # weight of its penalty
    question: Path
    missing: int  # answers to it


def replay(
    folder: Path,
    model: TrainedModel,
    config: ServerConfig,
    *,
    rho: float,
    by: tuple[Grouping, ...],
    max_rows: float,
    releases: Sequence[Path],
    answers: int,
    keys: Keys | None = None,
) -> Refinement:
    """Replays the exchanges that are complete, and writes the next question.

    Params and weight are those of the questions' files: computed anew, maybe on another machine,
    they have other last digits.

    Args:
        folder: of the exchanges.
        model: of surrogates, to start from.
        config: of the problem.
        rho: weight of the penalty.
        by: groupings that it compares, of several attributes.
        max_rows: that a client counts as, at most; may be infinite.
        releases: files of the surrogates.
        answers: that complete an exchange, at least 1.
        keys: of the clients; with them, every answer must be signed by another client.

    Raises:
        InputError: a question is not the one that releases, settings and the answers before lead
            to; an answer is refused; or there are too many.
    """
    if not model.intercept:
        raise InputError("refine: needs a model with an intercept")
    schema, objective = model.schema_, None
    names = "penalty", "notion", "temperature", "max_gap", "groups_by", "lambda_theta"
    contents = sorted(hashlib.sha256(path.read_bytes()).digest() for path in releases)
    expected = Question(
        exchange=1,
        answers=answers,
        releases=hashlib.sha256(b"".join(contents)).hexdigest(),
        schema_hash=schema.hash,
        rho=rho,
        max_rows=max_rows if np.isfinite(max_rows) else None,
        candidates=(model.theta,),
        **config.model_dump(include={*names}),
    )
    penalty = named_penalty(
        config.penalty, config.notion, config.temperature, n_groups=len(schema.groups), by=by
    )
    state: RefineState | None = None
    while True:
        # The question that all before leads to; that of an earlier run is there already.
        path = folder / str(expected.exchange) / "question.json"
        if not path.exists():
            with claimed(path, force=False):
                write_json(path, expected.model_dump(mode="json"))
        text = read_bytes(path, MAX_BYTES)
        question = parse_as(text, Question, str(path))
        if not _is_same(question, expected):
            raise InputError(
                f"{path}: is not the question that these releases, settings and answers lead to;"
                " give those that it was asked with, or take another folder"
            )
        start = jnp.asarray(question.candidates[0])
        refine = Refine(start, penalty, question.rho, question.lambda_theta)
        before = state or refine.init(_KEY(0))
        before = before._replace(candidates=jnp.asarray(question.candidates))

        # Its answers, once they are complete.
        paths = sorted(file for file in path.parent.glob("[!.]*.json") if file != path)
        if len(paths) > answers:
            raise InputError(
                f"{path.parent}: {len(paths)} answers; must be {answers}: move later ones away"
            )
        if len(paths) < answers:
            done, missing = question.exchange - 1, answers - len(paths)
            return Refinement(model, done, objective, question.rho, path, missing)
        total, digest = _total(paths, text, refine, before, max_rows=question.max_rows, keys=keys)
        after: RefineState = jax.jit(refine.update)(before, total, float(answers))[0]
        state, model, objective = after, refined(model, after), float(after.objective)
        candidates = tuple(map(tuple, np.asarray(after.candidates).tolist()))
        following = {"exchange": question.exchange + 1, "follows": digest, "candidates": candidates}
        expected = question.model_copy(update=following)


def _is_same(question: Question, expected: Question) -> bool:
    """Whether questions are the same, up to rounding of params and weight."""
    there, here = question.candidates, expected.candidates
    if [len(theta) for theta in there] != [len(theta) for theta in here]:
        return False
    computed = {"candidates": here, "rho": expected.rho}
    close = np.allclose(np.asarray(there), np.asarray(here), rtol=CLOSE, atol=CLOSE)
    close = close and np.isclose(question.rho, expected.rho, rtol=CLOSE)
    return bool(close and question.model_copy(update=computed) == expected)


def _total(
    paths: list[Path],
    question: bytes,
    refine: Refine,
    state: RefineState,
    *,
    max_rows: float | None,
    keys: Keys | None,
) -> tuple[Sums, str]:
    """The sum of answers, each scaled to the rows that a client may have; and a sha256 of all.

    Raises:
        InputError: an answer is refused, or two are of one client.
    """
    asked, n = hashlib.sha256(question).hexdigest(), state.candidates.shape[1]
    one_row = UserRows(jnp.zeros((1, n)), jnp.zeros((1, 1)), *jnp.ones((2, 1)))
    like = jax.eval_shape(refine.report, state, one_row, _KEY(0))
    zeros, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), like))
    parts, signers, contents = [], {}, {}
    for path in paths:
        answer = parse_as(read_bytes(path, MAX_BYTES), SumsFile, str(path))
        if answer.question != asked:
            raise InputError(f"{path}: is no answer to {path.with_name('question.json')}")
        numbers = np.asarray(answer.numbers)
        digest = _digest(asked, numbers)
        verify(answer.signature, digest, source=str(path), domain=DOMAIN)
        if keys is not None:
            client = require_signer(answer.signature, keys, source=str(path))
            if signers.setdefault(client, path) != path:
                raise InputError(f"{path}: signed by {client!r}, as is {signers[client]}")
        if contents.setdefault(digest, path) != path:
            raise InputError(f"{path}: has the same sums as {contents[digest]}")
        if len(numbers) != zeros.size:
            raise InputError(f"{path}: {len(numbers)} numbers; must be {zeros.size}")
        try:
            require_counts(unravel(jnp.asarray(numbers)), np.inf)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        parts.append(numbers * min(1.0, (max_rows or np.inf) / numbers[0]))
    every = hashlib.sha256(bytes.fromhex(asked) + b"".join(sorted(contents))).hexdigest()
    return unravel(jnp.asarray(np.sum(parts, axis=0))), every
