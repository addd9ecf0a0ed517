"""A site's side of a training in rounds: its report in each, within its limits, booked once.

What a method does before the rounds, as ``two_phase`` trains a teacher, the site does when it is
asked for the first time.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from synthfair.client.page import Site
from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema
from synthfair.deploy.agreement import (
    Agreement,
    TrainingSetup,
    has_guarantee,
    is_private,
    make_setup,
    pack,
    unpack,
)
from synthfair.deploy.party import Request
from synthfair.deploy.site_sums import agreed_task
from synthfair.errors import InputError
from synthfair.files import validated
from synthfair.privacy.ledger import compute_once
from synthfair.secure.upload import make_uploads
from synthfair.task.limits import Claim, RefusedError, refused_as
from synthfair.task.messages import sha256
from synthfair.task.protocol import ReadRows, Run, Task, fingerprint, read_rows

if TYPE_CHECKING:
    from synthfair.federated.users import Users
    from synthfair.secure.task import Task as SumTask

SEED_BYTES = 16
"""The length of a site's seed of noise: whoever reads it can undo the privacy."""


class SiteTraining:
    """A site's side of trainings, which remembers the last one from round to round.

    Guarantee: that of the method's plan, for the rounds that one line of cost in the ledger covers.
    These are one question a round: the same question again, after a failure or in a new job, gets
    the very same answer, and another one is bought as a new training. What is bought is the seed
    of the site's noise.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._training: _Training | None = None

    def __call__(self, request: Request) -> bytes:
        """Return the site's clipped report of a round; of sums by shares, its uploads.

        Raises:
            RefusedError: the question's settings are none, it is of no round of the training, or
                beyond the site's limits.
        """
        settings, ask = dict(request.ask.settings), request.ask
        settings.pop("task", None)
        with refused_as("settings"):
            agreement = validated(Agreement, settings)
        if request.party.name not in agreement.sites:
            raise RefusedError("settings")
        if ask.round >= agreement.config.rounds:
            raise RefusedError("rounds")
        # What the site remembers is made of public knowledge, where it is not of the last round.
        training = self._training
        if training is None or training.agreement != agreement:
            training = self._training = _remember(agreement, request.party.schema)
        plan, sums = training.setup.plan, None
        if plan.protection.vectors:  # the round's sum, as the site plans it
            sums = agreed_task(request)
            if sums.what != plan.protection.vectors:
                raise RefusedError("settings")

        def read(site: Site, clipping: Clipping) -> ReadRows:
            with refused_as("message"):
                state = unpack(request.carried, training.state)
            users, sha256 = self._read(site, clipping)
            return ReadRows((users, state), sha256)

        def report(rows: ReadRows, bought: bytes | None, _run: Run) -> bytes:
            users, state = rows.real
            return self._report(request, users, state, bought, sums=sums)

        def seed(_rows: ReadRows, _run: Run) -> bytes:
            return secrets.token_bytes(SEED_BYTES)

        return request.answer(
            Task(
                _claim(agreement, ask.round),
                agreement.run(request.party.schema),
                report,
                plan.guarantee,
                seed if plan.guarantee else None,
                SEED_BYTES,
                read,
                # In another sum the same report would get other noise.
                question=sha256(request.carried + (sums.id if sums else b"")),
            )
        )

    def _read(self, site: Site, clipping: Clipping) -> ReadRows:
        """Return the site's rows, all of one user; they are read once for all rounds.

        Raises:
            InputError: they do not fit the schema, or are too few.
        """
        from synthfair.federated.users import make_user_data

        training = cast(_Training, self._training)
        if training.rows is None:
            rows, sha256 = read_rows(site, clipping)
            # With an epsilon, no answer may depend on how the question compares with the table.
            config, least = training.agreement.config, training.agreement.least_rows
            private = config.get("epsilon") is not None
            if private and site.limits:
                least = site.limits.least_rows
            if len(rows.y) < (least or 0):
                who = "the site's limits say" if private else "the job says"
                raise InputError(f"{site.data}: {len(rows.y)} rows; {who} at least {least}")
            user = np.zeros(len(rows.y), int)
            data = make_user_data(rows, user, site.schema, config, all_groups=False)
            training = training._replace(rows=ReadRows(data.users, sha256))
            self._training = training
        return cast(ReadRows, training.rows)

    def _report(
        self,
        request: Request,
        users: Users,
        state: Any,
        bought: bytes | None,
        *,
        sums: SumTask | None,
    ) -> bytes:
        """Return the report.

        Raises:
            InputError: exact sums of it would tell single rows.
        """
        import jax

        from synthfair.federated.engine import key_from, report_of
        from synthfair.federated.single_rows import require_alike

        agreement, setup = cast(_Training, self._training)[:2]
        plan, limits = setup.plan, request.party.settings.limits
        if plan.additive and agreement.config.get("epsilon") is None:
            least, own = (limits.k_min, limits.value_rows), users.rows_of(0)
            path = str(request.party.settings.data)
            of_rows = jax.jit(type(cast(Any, plan)).weights)  # compiled once for all rounds
            weights = jax.device_get(of_rows(plan, state, own))
            require_alike(weights, own, request.party.schema, source=path, least=least)
        seed = int.from_bytes(bought) if bought else agreement.config.seed
        users = self._labelled(request, users, seed)
        # The key of the round and the site is that of the engine in one process.
        key = jax.random.fold_in(key_from(seed, 1), request.ask.round)
        key = jax.random.fold_in(key, agreement.sites.index(request.party.name))
        content = pack(report_of(plan, plan.protection.clip, state, users, key))
        if plan.protection.vectors and sums:
            part = plan.protection.vectors.integers(np.frombuffer(content, "<f8"))
            content = b"".join(make_uploads(sums, part, request.party.key))
        return content

    def _labelled(self, request: Request, users: Users, seed: int) -> Users:
        """Return the site's rows with the labels that are learned: of ``two_phase``, its teacher's.

        With an epsilon, they are stored before they are used. A teacher that is trained again, on
        another machine or by another version of JAX, may decide some row differently, and two
        answers with the same noise would show that row by their difference.
        """
        import jax.numpy as jnp

        training = cast(_Training, self._training)
        agreement, plan = training.agreement, training.setup.plan
        if not plan.teaches:
            return users
        if training.seed == seed and training.labelled is not None:
            return training.labelled

        def labels() -> bytes:
            number = agreement.sites.index(request.party.name)
            return np.packbits(np.asarray(plan.teach(users, seed, [number]).y) > 0).tobytes()

        if agreement.config.get("epsilon") is None:
            content = labels()
        else:
            digest = fingerprint("labels", seed)
            path = request.party.site.ledger.bought(digest)
            content = compute_once(path, digest, labels, max_bytes=len(users.y) // 8 + 1)
        signs = 2.0 * np.unpackbits(np.frombuffer(content, np.uint8), count=len(users.y)) - 1.0
        labelled = replace(users, y=jnp.asarray(signs, users.y.dtype))
        self._training = training._replace(seed=seed, labelled=labelled)
        return labelled


class _Training(NamedTuple):
    """A training as a site remembers it from round to round.

    Attributes:
        agreement: what was asked for.
        setup: from that.
        state: shapes of the server's.
        rows: one user, the site, with its rows; None before they are read. Private.
        seed: with which labels were learned.
        labelled: the rows with these labels.
    """

    agreement: Agreement
    setup: TrainingSetup
    state: Any
    rows: ReadRows | None = None
    seed: int = -1
    labelled: Users | None = None


def _remember(agreement: Agreement, schema: Schema) -> _Training:
    """Return the training that was agreed. Raises RefusedError: its settings do not fit."""
    from synthfair.jax_setup import start_jax

    start_jax()
    import jax

    with refused_as("settings"):
        setup = make_setup(agreement, schema)
    return _Training(agreement, setup, jax.eval_shape(setup.plan.init, jax.random.key(0)))


def _claim(agreement: Agreement, number: int) -> Claim:
    """Return what a site's limits look at."""
    config = agreement.config
    epsilon = config.get("epsilon")
    return Claim(
        "training",
        epsilon if has_guarantee(config) else None,
        config.get("delta"),
        least_rows=0 if epsilon is None else agreement.least_rows or 0,
        rounds=config.rounds,
        number=number,
        seen=not is_private(config),
        width=max(config.hidden, default=0),
    )
