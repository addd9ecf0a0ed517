"""A site's side of a training in rounds: its report in each, within its limits, booked once.

What a method does before the rounds, as ``two_phase`` trains a teacher, the site does when it is
asked for the first time.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from pydantic import Field

from synthfair.deploy.agreement import (
    Agreement,
    TrainingSetup,
    has_guarantee,
    is_private,
    make_setup,
    pack,
    unpack,
)
from synthfair.deploy.site_sums import agreed_task
from synthfair.errors import InputError
from synthfair.files import parse_as, validated
from synthfair.privacy.ledger import Booking, purchase_of
from synthfair.release.keys import Hex32
from synthfair.secure.upload import make_uploads
from synthfair.settings import Checked
from synthfair.task.limits import Claim
from synthfair.task.messages import sha256
from synthfair.task.site import RefusedError, Request, Work, refused_as

if TYPE_CHECKING:
    from synthfair.federated.users import Users
    from synthfair.secure.task import Task

FOLDER = "trainings"
"""The folder, in the site's own, of answers in trainings with an epsilon."""


class SiteTraining:
    """A site's side. It reads its table once, and remembers it from round to round of a job.

    Guarantee: that of the method's plan, for the rounds that one booking in the ledger covers.
    These are one question a round: the same question again, after a failure or in a new job, gets
    the very same answer, and another one is booked as a new training.
    """

    def __init__(self) -> None:
        """Read nothing yet."""
        self._training: _LocalTraining | None = None
        self._rows: tuple[str, Users] | None = None

    def __call__(self, request: Request) -> Work:
        """Return the work for a question of a round: the site's clipped report.

        Raises:
            RefusedError: the question's settings are none, or it is of no round of the training.
        """
        settings, ask = dict(request.ask.settings), request.ask
        settings.pop("task", None)
        with refused_as("settings"):
            agreement = validated(Agreement, settings)
        config = agreement.config
        if request.site.name not in agreement.sites:
            raise RefusedError("settings")
        if ask.round >= config.rounds:
            raise RefusedError("rounds")
        claim = Claim(
            "training",
            config.get("epsilon") if has_guarantee(config) else None,
            config.get("delta"),
            least_rows=0 if config.get("epsilon") is None else agreement.least_rows or 0,
            rounds=config.rounds,
            width=max(config.hidden, default=0),
        )
        epsilon = config.get("epsilon") if is_private(config) else None
        return Work(claim, epsilon, lambda: self._report(request, agreement))

    def _report(self, request: Request, agreement: Agreement) -> bytes:
        """Return the report; of sums by shares, one upload an aggregator."""
        from synthfair.jax_setup import start_jax

        start_jax()
        import jax

        from synthfair.federated.engine import key_from, report_of
        from synthfair.federated.single_rows import require_alike

        if self._training is None or self._training.agreement != agreement:
            self._training, self._rows = _read(request, agreement), None
        training = self._training
        with refused_as("message"):
            state = unpack(request.carried, training.state)
        plan, task = training.setup.plan, None
        if plan.algorithm.additive and agreement.config.get("epsilon") is None:
            limits, path = request.site.settings.limits, str(request.site.settings.data)
            least, own = (limits.k_min, limits.value_rows), training.users.rows_of(0)
            of_rows = jax.jit(
                type(cast(Any, plan.algorithm)).weights
            )  # compiled once for all rounds
            weights = jax.device_get(of_rows(plan.algorithm, state, own))
            require_alike(weights, own, request.site.schema, source=path, least=least)
        if plan.secure:  # the round's sum, as the site plans it
            task = agreed_task(request)
            if task.what != plan.secure.what:
                raise RefusedError("settings")
        record = _book(request, training, task)
        if self._rows is None or self._rows[0] != record.seed:
            self._rows = record.seed, _labelled_rows(request, training, record)
        # The key of the round and the site is that of the engine in one process.
        key = jax.random.fold_in(key_from(int(record.seed, 16), 1), request.ask.round)
        key = jax.random.fold_in(key, agreement.sites.index(request.site.name))
        content = pack(report_of(plan.algorithm, plan.protection.clip, state, self._rows[1], key))
        if plan.secure and task:
            part = plan.secure.what.integers(np.frombuffer(content, "<f8"))
            content = b"".join(make_uploads(task, part, request.site.settings.signing_key()))
        return content


class _LocalTraining(NamedTuple):
    """A training as a site remembers it from round to round.

    Attributes:
        agreement: what was asked for.
        setup: from that.
        run: fingerprint of the training on this very table. Private: who guesses the rows could
            confirm them.
        users: one, the site, with its rows.
        state: shapes of the server's.
    """

    agreement: Agreement
    setup: TrainingSetup
    run: str
    users: Users
    state: Any


def _read(request: Request, agreement: Agreement) -> _LocalTraining:
    """Read the table, whose rows are all of one user."""
    import jax

    from synthfair.data.encode import content_sha256, encode, in_content_order
    from synthfair.data.tables import read_table
    from synthfair.federated.user_data import make_user_data

    with refused_as("settings"):
        setup = make_setup(agreement, request.site.schema)
    path = request.site.settings.data
    table = read_table(path, request.site.schema)
    rows = in_content_order(encode(table, request.site.schema, source=str(path)))
    # With an epsilon, no answer may depend on how the question compares with the table.
    private = agreement.config.get("epsilon") is not None
    least = request.site.settings.limits.least_rows if private else agreement.least_rows
    if len(rows.y) < (least or 0):
        who = "the site's limits say" if private else "the job says"
        raise InputError(f"{path}: {len(rows.y)} rows; {who} at least {least}")
    user = np.zeros(len(rows.y), int)
    data = make_user_data(rows, user, request.site.schema, agreement.config, all_groups=False)
    run = agreement.run(request.site.schema, content_sha256([rows]))
    state = jax.eval_shape(setup.plan.algorithm.init, jax.random.key(0))
    return _LocalTraining(agreement, setup, run, data.users, state)


def _labelled_rows(request: Request, training: _LocalTraining, earlier: _AnswerRecord) -> Users:
    """Return the site's rows with the labels that are learned: of ``two_phase``, its teacher's.

    With an epsilon, they are stored before they are used. A teacher that is trained again, on
    another machine or by another version of JAX, may decide some row differently, and two answers
    with the same noise would show that row by their difference.
    """
    import jax.numpy as jnp

    rows, prepare = training.users, training.setup.plan.prepare
    if prepare is None:
        return rows
    if earlier.labels is not None:
        bits = np.frombuffer(bytes.fromhex(earlier.labels), np.uint8)
        labels = 2.0 * np.unpackbits(bits, count=len(rows.y)) - 1.0
        return replace(rows, y=jnp.asarray(labels, rows.y.dtype))
    number = training.agreement.sites.index(request.site.name)
    users = prepare(rows, int(earlier.seed, 16), [number])
    if training.agreement.config.get("epsilon") is not None:
        bits = np.packbits(np.asarray(users.y) > 0)
        record = earlier.model_copy(update={"labels": bits.tobytes().hex()})
        request.site.store(FOLDER, ".json").save(training.run, record.model_dump_json().encode())
    return users


# Booking


class _AnswerRecord(Checked):
    """The answers that one booking has covered so far.

    Attributes:
        seed: of the site's noise, in hexadecimal: whoever reads it can undo the privacy.
        states: sha256 of what was asked in each round.
        labels: that the site learns in the place of its own, eight rows a byte, in hexadecimal.
    """

    seed: str = Field(pattern="^[0-9a-f]{32}$")
    states: dict[int, Hex32] = Field(default_factory=dict)
    labels: str | None = Field(default=None, pattern="^([0-9a-f]{2})*$")


def _book(request: Request, training: _LocalTraining, task: Task | None) -> _AnswerRecord:
    """Book the training, and return the record of its answers.

    Without an epsilon, a job is booked once, and one that goes on from another has the same
    training, which needs no further consent; the seed is the settings'. With one, a seed of the
    operating system's is stored with the sha256 of each round's question, and booked by its name,
    before it is used: a site that ends between the two, or whose disk is full, books nothing twice.
    """
    job, number, ledger = request.ask.job, request.ask.round, request.site.ledger
    guarantee = training.setup.plan.guarantee
    booking = Booking(kind="training", output=job, run=training.run, guarantee=guarantee)
    if training.agreement.config.get("epsilon") is None:
        ledger.book(booking)
        return _AnswerRecord(seed=f"{training.agreement.config.seed:032x}")
    # In another sum the same report would get other noise.
    question = sha256(request.carried + (task.id if task else b""))
    store = request.site.store(FOLDER, ".json")
    content = store.read(training.run)
    record = None
    if content is not None:
        record = parse_as(content, _AnswerRecord, str(store.path(training.run)))
    if record is None or record.states.get(number, question) != question:
        record = _AnswerRecord(seed=secrets.token_hex(16))
    booking = booking.model_copy(update={"purchase": purchase_of(int(record.seed, 16))})
    if number not in record.states:
        ledger.require_next(booking)  # else the training before is forgotten for nothing
        record = record.model_copy(update={"states": record.states | {number: question}})
        store.save(training.run, record.model_dump_json().encode())
    ledger.book(booking)
    return record
