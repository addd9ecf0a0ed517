"""A site's side of a training in rounds: its report in each, within its limits, booked once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from synthfair.config.rules import FROZEN
from synthfair.deploy.agreed import Agreed, Planned, adds_noise, make_planned, packed, unpacked
from synthfair.deploy.messages import Hex32, sha256
from synthfair.deploy.site import Asked, Made, RefusedError
from synthfair.errors import InputError, refusal
from synthfair.files import OWNER_ONLY, whole_file
from synthfair.privacy.ledger import Booking, Ledger

if TYPE_CHECKING:
    import jax

    from synthfair.federated.algorithm import Algorithm
    from synthfair.federated.users import Users

FOLDER = "trainings"
"""In the site's own: what was answered in trainings with an epsilon."""


class SiteTraining:
    """A site's side. It reads its table once, and remembers it from round to round of a job.

    Guarantee: that of the method's plan, for the rounds that one booking in the ledger covers.
    These are one question a round: the same question again, after a failure or in a new job, gets
    the very same answer, and another one is booked as a new training.
    """

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._ready: _Ready | None = None

    def __call__(self, asked: Asked) -> Made:
        """The site's clipped report in one round.

        Raises:
            RefusedError: a limit of the site, or of its ledger.
            InputError: the table is refused.
        """
        from synthfair.jax_setup import start_jax

        agreed = _allowed(asked)
        start_jax()
        if self._ready is None or self._ready.agreed != agreed:
            self._ready = _read(asked, agreed)
        ready = self._ready
        try:
            state = unpacked(asked.carried, ready.state)
        except ValueError as error:
            raise RefusedError("message") from error
        report = ready.report(state, _key(asked, ready))
        return Made(packed(report), agreed.config.epsilon if adds_noise(agreed.config) else None)


class _Ready(NamedTuple):
    """What a site remembers.

    Attributes:
        agreed: as it was asked.
        planned: from that.
        run: fingerprint of the training on this very table. Private: who guesses the rows could
            confirm them.
        state: shapes of the server's.
        report: clipped, of a state and a key.
    """

    agreed: Agreed
    planned: Planned
    run: str
    state: Any
    report: Callable[[Any, jax.Array], Any]


def _allowed(asked: Asked) -> Agreed:
    """What is asked for, if the site's limits allow it."""
    limits, ask = asked.settings.limits, asked.ask
    try:
        agreed = Agreed.model_validate(ask.settings)
    except ValidationError as error:
        raise RefusedError("settings") from error
    config = agreed.config
    if asked.site not in agreed.sites:
        raise RefusedError("settings")
    if config.epsilon is None and not limits.without_epsilon:
        raise RefusedError("epsilon")
    if config.epsilon is not None and config.epsilon > (limits.most_epsilon or 0):
        raise RefusedError("epsilon")
    if ask.round >= config.rounds:
        raise RefusedError("rounds")
    if not adds_noise(config) and asked.bare_rounds >= limits.most_rounds:
        raise RefusedError("rounds")
    return agreed


def _read(asked: Asked, agreed: Agreed) -> _Ready:
    """Reads the table, whose rows are all of one user."""
    import jax

    from synthfair.data.encode import encode
    from synthfair.data.tables import read_table
    from synthfair.federated.user_data import make_user_data

    try:
        planned = make_planned(agreed, asked.schema)
    except InputError as error:
        raise RefusedError("settings") from error
    path, plan = asked.settings.data, planned.plan
    rows = encode(read_table(path, asked.schema), asked.schema, source=str(path))
    if len(rows.y) < (agreed.least_rows or 0):
        raise InputError(f"{path}: {len(rows.y)} rows; the job says at least {agreed.least_rows}")
    user = np.zeros(len(rows.y), int)
    data = make_user_data(rows, user, asked.schema, agreed.config, all_groups=False)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(data.users):
        digest.update(np.ascontiguousarray(leaf).data)

    compiled, protection = _compiled_report(), plan.protection
    return _Ready(
        agreed,
        planned,
        agreed.run(asked.schema, digest.hexdigest()),
        jax.eval_shape(plan.algorithm.init, jax.random.key(0)),
        lambda state, key: compiled(plan.algorithm, protection.clip, state, data.users, key),
    )


@cache
def _compiled_report() -> Callable[..., Any]:
    """Once for all sites of a process, which in tests are several."""
    import jax

    from synthfair.federated.engine import clip_report

    @jax.jit
    def report(
        algorithm: Algorithm, clip: float | None, state: Any, users: Users, key: jax.Array
    ) -> Any:
        return clip_report(algorithm.report(state, users.rows_of(0), key), clip)

    return report


def _key(asked: Asked, ready: _Ready) -> jax.Array:
    """Of the round and the site, as the engine in one process has it; the training is booked."""
    import jax

    from synthfair.federated.engine import key_from

    seed = _booked_seed(asked, ready)
    of_round = jax.random.fold_in(key_from(seed, 1), asked.ask.round)
    return jax.random.fold_in(of_round, ready.agreed.sites.index(asked.site))


# Booking


class _Answered(BaseModel):
    """What one booking has covered so far.

    Attributes:
        seed: of the site's noise, in hexadecimal: whoever reads it can undo the privacy.
        states: sha256 of what was asked in each round.
    """

    model_config = FROZEN

    seed: str = Field(pattern="^[0-9a-f]{32}$")
    states: dict[int, Hex32]


def _booked_seed(asked: Asked, ready: _Ready) -> int:
    """The seed of the site's draws, when the training is booked.

    Without an epsilon, a job is booked once, and the seed is the settings'. With one, a seed of the
    operating system's is stored with the sha256 of each round's question, before it is used.
    """
    config, number = ready.agreed.config, asked.ask.round
    if config.epsilon is None:
        _book(asked, ready)
        return config.seed
    folder = asked.folder / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path, question = folder / f"{ready.run}.json", sha256(asked.carried)
    found = _read_answered(path)
    if found is None or found.states.get(number, question) != question:
        _book(asked, ready)
        found = _Answered(seed=secrets.token_hex(16), states={})
    if number not in found.states:
        found = _Answered(seed=found.seed, states=found.states | {number: question})
        with whole_file(path, mode=OWNER_ONLY) as temporary:
            temporary.write_text(found.model_dump_json(), encoding="utf-8")
    return int(found.seed, 16)


def _read_answered(path: Path) -> _Answered | None:
    try:
        return _Answered.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise refusal(str(path), error) from error


def _book(asked: Asked, ready: _Ready) -> None:
    guarantee = ready.planned.plan.guarantee
    run = ready.run if guarantee else sha256(f"{asked.ask.job} {ready.run}".encode())
    booking = Booking(kind="training", output=asked.ask.job, run=run, guarantee=guarantee)
    ledger = Ledger(asked.settings.ledger_file)
    try:
        if guarantee:
            ledger.require_affordable(booking, reserve=asked.settings.limits.least_epsilon_left)
        ledger.book(booking)
    except InputError as error:
        raise RefusedError("budget") from error
