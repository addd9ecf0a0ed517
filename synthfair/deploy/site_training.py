"""A site's side of a training in rounds: its report in each, within its limits, booked once.

What a method does before the rounds, as ``two_phase`` trains a teacher, the site does when it is
asked for the first time.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from synthfair.client.page import Site
from synthfair.data.encode import Clipping
from synthfair.data.schema import Schema
from synthfair.deploy.site_sums import agreed_task
from synthfair.deploy.train_job import Agreement, pack, unpack
from synthfair.errors import InputError
from synthfair.files import validated
from synthfair.privacy.bought import compute_once
from synthfair.secure.upload import make_uploads
from synthfair.task.limits import Claim, RefusedError, refused_as
from synthfair.task.messages import sha256
from synthfair.task.protocol import ReadRows, Run, Task, fingerprint, read_rows

if TYPE_CHECKING:
    from synthfair.deploy.party import Request
    from synthfair.federated.users import Users
    from synthfair.secure.task import Task as SumTask

SEED_BYTES = 16
"""The length of a site's seed of noise: whoever reads it can undo the privacy."""


def answer_train(request: Request) -> bytes:
    """Return the site's clipped report of a round; of sums by shares, its uploads.

    Guarantee: that of the method's plan, for the rounds that one line of cost in the ledger covers.
    These are one question a round: the same question again, after a failure or in a new job, gets
    the very same answer, and another one is bought as a new training. What is bought is the seed
    of the site's noise.

    Raises:
        RefusedError: the question's settings are none, it is of no round of the training, or
            beyond the site's limits.
    """
    party, settings = request.party, dict(request.question.settings)
    settings.pop("task", None)
    with refused_as("settings"):
        agreement = validated(Agreement, settings)
    if party.name not in agreement.sites:
        raise RefusedError("settings")
    if request.question.round >= agreement.config.rounds:
        raise RefusedError("rounds")
    # What the site remembers is made of public knowledge, where it is not of the last round.
    if party.training is None or party.training.agreement != agreement:
        with refused_as("settings"):
            party.training = SiteTraining(agreement, party.schema)
    return request.answer(party.training.task(request))


class SiteTraining:
    """A training as a site remembers it from round to round.

    Attributes:
        agreement: what was asked for.
    """

    def __init__(self, agreement: Agreement, schema: Schema) -> None:
        """Plan it. Raises InputError: the settings do not fit."""
        from synthfair.jax_setup import start_jax

        start_jax()
        import jax

        self.agreement, self._config = agreement, agreement.config
        self._plan = agreement.plan(schema)[1]
        self._state = jax.eval_shape(self._plan.algorithm.init, jax.random.key(0))  # its shapes
        self._rows: ReadRows | None = None  # one user, the site; private
        self._labelled: dict[int, Users] = {}  # the same with labels that are learned, by the seed

    def task(self, request: Request) -> Task:
        """Return what a round asks of the site's rows. Raises RefusedError: it is none."""
        config, plan, question = self._config, self._plan, request.question
        sums = agreed_task(request) if plan.secure else None  # the round's, as the site plans it
        if plan.secure and sums and sums.what != plan.secure.what:
            raise RefusedError("settings")

        def read(site: Site, clipping: Clipping) -> ReadRows:
            with refused_as("message"):
                state = unpack(question.carried, self._state)
            self._rows = self._rows or self._read(site, clipping)
            return ReadRows((self._rows.real, state), self._rows.sha256)

        def report(rows: ReadRows, bought: bytes | None, _run: Run) -> bytes:
            users, state = rows.real
            return self._report(request, users, state, bought, sums)

        # The guarantee of two_phase holds on no condition end to end alone. It holds against the
        # server, too, where each site adds the noise itself, or aggregators add it to shares.
        epsilon, least_rows = config.get("epsilon"), self.agreement.least_rows or 0
        guaranteed = epsilon is not None and config.get("end_to_end", True)
        claim = Claim(
            "training",
            epsilon if guaranteed else None,
            config.get("delta"),
            least_rows=0 if epsilon is None else least_rows,
            rounds=config.rounds,
            number=question.round,
            seen=not (guaranteed and (config.local_passes or config.get("secure", False))),
            width=max(config.hidden, default=0),
        )
        return Task(
            claim,
            self.agreement.run(request.party.schema),
            report,
            plan.guarantee,
            (lambda _rows, _run: secrets.token_bytes(SEED_BYTES)) if plan.guarantee else None,
            SEED_BYTES,
            read,
            # In another sum the same report would get other noise.
            question=sha256(question.carried + (sums.id if sums else b"")),
        )

    def _read(self, site: Site, clipping: Clipping) -> ReadRows:
        """Return the site's rows, all of one user; they are read once for all rounds.

        Raises:
            InputError: they do not fit the schema, or are too few.
        """
        from synthfair.federated.user_data import make_user_data

        rows, sha256 = read_rows(site, clipping)
        # With an epsilon, no answer may depend on how the question compares with the table.
        least, who = self.agreement.least_rows, "the job says"
        if self._config.get("epsilon") is not None and site.limits:
            least, who = site.limits.least_rows, "the site's limits say"
        if len(rows.y) < (least or 0):
            raise InputError(f"{site.data}: {len(rows.y)} rows; {who} at least {least}")
        user = np.zeros(len(rows.y), int)
        data = make_user_data(rows, user, site.schema, self._config, all_groups=False)
        return ReadRows(data.users, sha256)

    def _report(
        self, request: Request, users: Users, state: Any, bought: bytes | None, sums: SumTask | None
    ) -> bytes:
        """Return the report.

        Raises:
            InputError: exact sums of it would tell single rows.
        """
        import jax

        from synthfair.federated.engine import key_from, report_of
        from synthfair.federated.single_rows import require_alike

        plan, party, config = self._plan, request.party, self._config
        if plan.algorithm.additive and config.get("epsilon") is None:
            least = party.settings.limits.k_min, party.settings.limits.value_rows
            own, of_rows = users.rows_of(0), jax.jit(type(plan.algorithm).weights)
            weights = jax.device_get(of_rows(plan.algorithm, state, own))
            require_alike(weights, own, party.schema, source=str(party.site.data), least=least)
        seed = int.from_bytes(bought) if bought else config.seed
        number = self.agreement.sites.index(party.name)
        if plan.prepare:
            if seed not in self._labelled:
                self._labelled[seed] = self._learn_labels(party.site, users, seed, number)
            users = self._labelled[seed]
        # The key of the round and the site is that of the engine in one process.
        key = jax.random.fold_in(key_from(seed, 1), request.question.round)
        key = jax.random.fold_in(key, number)
        content = pack(report_of(plan.algorithm, plan.protection.clip, state, users, key))
        if plan.secure and sums:
            part = plan.secure.what.integers(np.frombuffer(content, "<f8"))
            content = b"".join(make_uploads(sums, part, party.key))
        return content

    def _learn_labels(self, site: Site, users: Users, seed: int, number: int) -> Users:
        """Return the site's rows with the labels that are learned: of ``two_phase``, its teacher's.

        With an epsilon, they are stored before they are used. A teacher that is trained again, on
        another machine or by another version of JAX, may decide some row differently, and two
        answers with the same noise would show that row by their difference.
        """
        import jax.numpy as jnp

        prepare: Any = self._plan.prepare

        def labels() -> bytes:
            return np.packbits(np.asarray(prepare(users, seed, [number]).y) > 0).tobytes()

        if self._config.get("epsilon") is None:
            content = labels()
        else:
            digest = fingerprint("labels", seed)
            path = site.ledger.bought(digest)
            content = compute_once(path, digest, labels, max_bytes=len(users.y) // 8 + 1)
        signs = 2.0 * np.unpackbits(np.frombuffer(content, np.uint8), count=len(users.y)) - 1.0
        return replace(users, y=jnp.asarray(signs, users.y.dtype))
