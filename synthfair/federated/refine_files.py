"""Exact refinement by files that people carry, replayed from the first.

A folder holds one for each exchange, 1, 2, ..., with the server's ``question.json`` and a JSON file
of each client. The server's state is a function of these files alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field

from synthfair.client.page import Site, answer
from synthfair.data.batches import other_inputs
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.fairness.penalties import Grouping, named_penalty
from synthfair.federated.exchange import Exchange, ExchangeState, ExchangeSums, first_state, refined
from synthfair.federated.single_rows import MIN_VALUE_ROWS, UserRows, require_alike
from synthfair.files import OWNER_ONLY, claimed, parse_as, read_bytes, write_json
from synthfair.metrics_file import Exchanges
from synthfair.release.keys import Hex32, Keys, Signature, require_signer, sign, verify
from synthfair.server.page import Refinement
from synthfair.server.pooling import Pool
from synthfair.server.settings import ServerConfig
from synthfair.settings import STRICT, GroupsBy, Notion
from synthfair.surrogate.fair import FrontierPoint
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task
from synthfair.trained import TrainedModel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUMS_DOMAIN = b"synthfair-sums/1\0"
"""The prefix of all that is signed: a signature made for something else never fits."""

QUESTION_FORMAT = "synthfair-question/1"
"""The format of a question."""

MAX_EXCHANGE_BYTES = 100_000_000
"""The largest size of a question or an answer; those of 500 inputs take less."""

MAX_RELATIVE_CHANGE = 1e-3
"""Most by which params and weight may differ that are computed anew, maybe on another machine."""

_Numbers = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


class SumsQuestion(BaseModel):
    """The server's question of an exchange, public: sums at some params, under a penalty.

    Attributes:
        exchange: 1, 2, ...
        follows: sha256 of the question and the answers of the exchange before.
        answers: that complete an exchange.
        releases: sha256 of the surrogates.
        schema_hash: of the schema.
        penalty, notion, temperature, groups_by, C: of the problem.
        rho, free: the price of a gap, see :class:`synthfair.surrogate.fair.Price`.
        max_gap: that was asked for.
        group_input: whether the model reads the groups.
        max_rows: that a client counts as, at most; None for no limit.
        candidates: params; those of the first question are the start alone.
    """

    model_config = STRICT

    format: Literal["synthfair-question/1"] = "synthfair-question/1"
    exchange: int = Field(ge=1, lt=2**31)
    follows: Hex32 | None = None
    answers: int = Field(ge=1, lt=2**31)
    releases: Hex32
    schema_hash: Hex32
    penalty: Literal["covariance", "selection_rate"]
    notion: Notion
    temperature: float = Field(gt=0)
    rho: float = Field(ge=0)
    free: float = Field(default=0.0, ge=0)
    max_gap: float | None = None
    groups_by: tuple[str, ...] | None = GroupsBy
    C: float = Field(gt=0)
    group_input: bool = False
    max_rows: float | None = Field(default=None, gt=0)
    candidates: tuple[_Numbers, ...] = Field(strict=False, min_length=1, max_length=10)

    def exchange_of(self, schema: Schema, by: tuple[Grouping, ...] = ()) -> Exchange:
        """Return the exchange; sums of rows are the same for all groupings."""
        gap = named_penalty(self, n_groups=len(schema.groups), by=by)
        return Exchange(gap, self.rho, self.C, self.free)

    def state(self, last: ExchangeState | None = None) -> ExchangeState:
        """Return the server's state as it asks, after the last one."""
        candidates = np.asarray(self.candidates)
        return (last or first_state(candidates[0]))._replace(candidates=candidates)

    def is_near(self, expected: SumsQuestion) -> bool:
        """Return whether questions are the same, up to rounding of params and price."""
        computed = {name: getattr(expected, name) for name in ("candidates", "rho", "free")}
        lengths, other = (list(map(len, q.candidates)) for q in (self, expected))
        if lengths != other or self.model_copy(update=computed) != expected:
            return False
        prices = (self.rho, self.free), (expected.rho, expected.free)
        near, params = partial(np.allclose, rtol=MAX_RELATIVE_CHANGE), expected.candidates
        return near(*prices) and near(self.candidates, params, atol=MAX_RELATIVE_CHANGE)


class SumsFile(BaseModel):
    """A client's answer, not private by itself: the sha256 of the question's file, and the sums."""

    model_config = STRICT

    format: Literal["synthfair-sums/1"] = "synthfair-sums/1"
    question: Hex32
    numbers: _Numbers  # of :class:`~synthfair.federated.exchange.ExchangeSums`, array after array
    signature: Signature


def _digest(question: str, numbers: np.ndarray) -> bytes:
    """Return what is signed."""
    return hashlib.sha256(bytes.fromhex(question) + numbers.astype("<f8").tobytes()).digest()


# Client


def answer_question(
    site: Site,
    question_path: Path,
    output: Path,
    *,
    k_min: int,
    key: Ed25519PrivateKey | None = None,
    force: bool = False,
) -> ExchangeSums:
    """Write a client's sums, and return them; they are booked as an answer without epsilon.

    Args:
        site: whose table it is.
        question_path: of the server.
        output: JSON file to write.
        k_min: rows that a pair of group and label has at least, unless it has none.
        key: to sign with.
        force: whether an existing output is overwritten.

    Raises:
        BudgetError: the ledger does not allow it, see :mod:`synthfair.privacy.ledger`.
        InputError: an input is refused, a pair is too small, a row stands out, or the output exists
            or cannot be written.
    """
    with claimed(output, inputs=(site.data, question_path, site.ledger.path), force=force):
        text, source = read_bytes(question_path, MAX_EXCHANGE_BYTES), str(question_path)
        question, digest = parse_as(text, SumsQuestion, source), hashlib.sha256(text).hexdigest()
        schema = site.schema
        if question.schema_hash != schema.hash:
            raise InputError(
                f"{source}: schema_hash {question.schema_hash}: is of another schema than this"
                f" site's, {schema.hash}"
            )

        def sums_of(rows: ReadRows, _bought: bytes | None, run: Run) -> ExchangeSums:
            """Return the sums of rows of which no pair is small, and no row stands out."""
            x, s, y = rows.real
            n_groups = len(schema.groups) if question.group_input else 1
            a = np.column_stack([x, other_inputs(s, n_groups=n_groups, intercept=True).T])
            if any(len(theta) != a.shape[1] for theta in question.candidates):
                raise InputError(
                    f"{source}: candidates: must have {a.shape[1]} numbers each, one an input"
                )
            encoded, state = UserRows(a, s[:, None], y, np.ones(len(a))), question.state()
            exchange, least = question.exchange_of(schema), (k_min, MIN_VALUE_ROWS)
            with np.errstate(all="ignore"):  # at params that are too large
                weights = exchange.weights(state, encoded)
                require_alike(weights, encoded, schema, source=run.source, least=least)
                sums = exchange.report(state, encoded)
            if not all(np.isfinite(leaf).all() for leaf in sums):
                raise InputError(f"{source}: candidates: are so large that sums are no numbers")
            return sums

        # One job for all exchanges of the same rows.
        job = question.model_dump_json(exclude={"exchange", "follows", "candidates"})
        claim = Claim("training", None, number=question.exchange)
        run = Run(str(site.data), on_rows=lambda clipping: clipping.warn(str(site.data)))
        sums = answer(Task(claim, job, sums_of, question=digest), site, output=output.name, run=run)
        numbers = np.concatenate([leaf.ravel() for leaf in sums])
        signature = sign(_digest(digest, numbers), key, domain=SUMS_DOMAIN)
        document = SumsFile(question=digest, numbers=tuple(numbers.tolist()), signature=signature)
        write_json(output, document.model_dump(mode="json"), mode=OWNER_ONLY)
    return sums


# Server


def replay(
    model: TrainedModel,
    point: FrontierPoint,
    pooled: Pool,
    *,
    folder: Path,
    config: ServerConfig,
    releases: Sequence[Path],
    answers: int,
    keys: Keys | None = None,
) -> Refinement:
    """Replay the exchanges that are complete, write the next question, and return how far they are.

    Params and weight are those of the questions' files: computed anew, maybe on another machine,
    they have other last digits.

    Args:
        model: of surrogates, to start from.
        point: of the same.
        pooled: the surrogates.
        folder: of the exchanges.
        config: of the problem.
        releases: files of the surrogates.
        answers: that complete an exchange, at least 1.
        keys: of the clients; with them, every answer must be signed by another client.

    Raises:
        InputError: a question is not the one that releases, settings and the answers before lead
            to; an answer is refused; or there are too many.
    """
    if not model.intercept:
        raise InputError("refine: needs a model with an intercept")
    schema, price, max_rows = model.schema_, point.price, pooled.max_rows
    names = "penalty", "notion", "temperature", "max_gap", "groups_by", "C"
    contents = sorted(hashlib.sha256(path.read_bytes()).digest() for path in releases)
    expected = SumsQuestion(
        exchange=1,
        answers=answers,
        releases=hashlib.sha256(b"".join(contents)).hexdigest(),
        schema_hash=schema.hash,
        rho=price.rho,
        free=price.free,
        group_input=model.group_input,
        max_rows=max_rows if np.isfinite(max_rows) else None,
        candidates=(model.theta,),
        **config.model_dump(include={*names}),
    )
    state, done = None, None
    while True:
        # The question that all before leads to; that of an earlier run is there already.
        path = folder / str(expected.exchange) / "question.json"
        if not path.exists():
            with claimed(path, force=False):
                write_json(path, expected.model_dump(mode="json"))
        text = read_bytes(path, MAX_EXCHANGE_BYTES)
        question = parse_as(text, SumsQuestion, str(path))
        if not question.is_near(expected):
            raise InputError(
                f"{path}: is not the question that these releases, settings and answers lead to;"
                " give those that it was asked with, or take another folder"
            )

        # Its answers, once they are complete.
        paths = sorted(file for file in path.parent.glob("[!.]*.json") if file != path)
        if len(paths) > answers:
            raise InputError(
                f"{path.parent}: {len(paths)} answers; must be {answers}: move later ones away"
            )
        if len(paths) < answers:
            return Refinement(model, done, question.rho, path, answers - len(paths))
        exchange, before = question.exchange_of(schema, pooled.by), question.state(state)
        read = partial(exchange.read, state=before)
        numbers, digest = _total(paths, text, read, question.max_rows or np.inf, keys)
        state, _ = exchange.update(before, read(numbers))
        model = refined(model, state)
        done = Exchanges(
            exchanges=question.exchange,
            objective=float(state.objective),
            gradient_norm=float(state.gradient_norm),
        )
        following = {
            "exchange": question.exchange + 1,
            "follows": digest,
            "candidates": tuple(map(tuple, state.candidates.tolist())),
        }
        expected = question.model_copy(update=following)


def _total(
    paths: list[Path],
    question: bytes,
    read: Callable[[np.ndarray], ExchangeSums],
    max_rows: float,
    keys: Keys | None,
) -> tuple[np.ndarray, str]:
    """Return the sum of answers, each scaled to the rows that a client may have, and their sha256.

    Raises:
        InputError: an answer is refused, or two are of one client.
    """
    question_sha256 = hashlib.sha256(question).hexdigest()
    total, signers, contents = np.zeros(()), {}, {}
    for path in paths:
        answer = parse_as(read_bytes(path, MAX_EXCHANGE_BYTES), SumsFile, str(path))
        if answer.question != question_sha256:
            raise InputError(f"{path}: is no answer to {path.with_name('question.json')}")
        numbers = np.asarray(answer.numbers)
        digest = _digest(question_sha256, numbers)
        verify(answer.signature, digest, source=str(path), domain=SUMS_DOMAIN)
        if keys is not None:
            client = require_signer(answer.signature, keys, source=str(path))
            if signers.setdefault(client, path) != path:
                raise InputError(f"{path}: signed by {client!r}, as is {signers[client]}")
        if contents.setdefault(digest, path) != path:
            raise InputError(f"{path}: has the same sums as {contents[digest]}")
        try:
            read(numbers)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        total = total + numbers * min(1.0, max_rows / numbers[0])
    signed = bytes.fromhex(question_sha256) + b"".join(sorted(contents))
    return total, hashlib.sha256(signed).hexdigest()
