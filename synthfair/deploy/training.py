"""Training in rounds: every site is one user of a method of :mod:`synthfair.federated`.

The sites compute its ``report``, the server its ``update``: the numbers are those of the engine in
one process, to rounding. The server sees each site's report, so sites agree to that, and to how
many rounds, in their limits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, field_validator

from synthfair.config import ServerConfig, TrainConfig
from synthfair.config.rules import FROZEN
from synthfair.deploy.federation import Federation
from synthfair.deploy.site import Asked, Made, RefusedError
from synthfair.errors import InputError
from synthfair.privacy.ledger import Booking, Ledger

if TYPE_CHECKING:
    import jax

    from synthfair.data.schema import Schema
    from synthfair.federated.user_data import UserData
    from synthfair.federated.users import Users
    from synthfair.trained import TrainedModel

IN_ROUNDS = ("fedavg",)
"""Whose reports follow from the state and the rows, without a draw at the site."""


class TrainJob(BaseModel):
    """What a job asks for.

    Attributes:
        train: settings of the method, see :class:`synthfair.config.TrainConfig`.
        least_answers: sites that must answer well in every round; all if not given.
        timeout: seconds to wait for the answers of a round.
        save_each: rounds between two checkpoints; from the last, the same job submitted anew goes
            on.
    """

    model_config = FROZEN

    train: dict[str, Any]
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)
    save_each: int = Field(default=10, ge=1)

    @field_validator("train")
    @classmethod
    def _of_a_method(cls, found: dict[str, Any]) -> dict[str, Any]:
        train_config(found)
        return found


def train_config(settings: dict[str, Any]) -> TrainConfig:
    """Settings of a method as a job has them.

    Raises:
        ValueError: an unknown key, a value that is not allowed, or what a job cannot do.
    """
    config = TrainConfig.model_validate_json(json.dumps(settings))
    if config.method not in IN_ROUNDS:
        raise ValueError(
            f"method: {config.method!r} is not a job; must be {' or '.join(IN_ROUNDS)}"
        )
    if config.cohort is not None or config.secure or config.epsilon is not None:
        raise ValueError("cohort, secure and epsilon are not read by a job: all sites take part")
    return config


class SiteTraining:
    """A site's side. It reads its table once, and remembers it from round to round of a job."""

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

        config = _allowed(asked)
        start_jax()
        if self._ready is None or self._ready.config != config:
            self._ready = _read(asked, config)
        try:
            state = unpacked(asked.carried, self._ready.state)
        except ValueError as error:
            raise RefusedError("message") from error
        return Made(packed(self._ready.report(state)))


class _Ready(NamedTuple):
    """What a site remembers: settings, the shapes of a state, and its clipped report on one."""

    config: TrainConfig
    state: Any
    report: Callable[[Any], Any]


def _allowed(asked: Asked) -> TrainConfig:
    """The settings, if the site's limits and its ledger allow them; the training is booked."""
    limits, ask = asked.settings.limits, asked.ask
    try:
        config = train_config(ask.settings)
    except ValueError as error:
        raise RefusedError("settings") from error
    if not limits.without_epsilon:
        raise RefusedError("epsilon")
    if asked.rounds_answered >= limits.most_rounds:
        raise RefusedError("rounds")
    ledger = asked.settings.ledger_file
    run = hashlib.sha256(f"{ask.job} {config.model_dump_json()}".encode()).hexdigest()
    booking = Booking(kind="training", output=ask.job, run=run, guarantee=None)
    try:
        Ledger(ledger).book(booking)  # once a job
    except InputError as error:
        raise RefusedError("budget") from error
    return config


def _read(asked: Asked, config: TrainConfig) -> _Ready:
    """Reads the table, whose rows are all of one user."""
    import jax

    from synthfair.data.encode import encode
    from synthfair.data.tables import read_table
    from synthfair.federated.engine import clip_report
    from synthfair.federated.methods import make_plan
    from synthfair.federated.user_data import make_user_data

    path = asked.settings.data
    rows = encode(read_table(path, asked.schema), asked.schema, source=str(path))
    data = make_user_data(rows, np.zeros(len(rows.y), int), asked.schema, config)
    plan, key = make_plan(data, config), jax.random.key(0)  # of these methods, no report draws

    def report(state: Any, users: Users) -> Any:
        return clip_report(
            plan.algorithm.report(state, users.rows_of(0), key), plan.protection.clip
        )

    state, compiled = jax.eval_shape(plan.algorithm.init, key), jax.jit(report)
    return _Ready(config, state, lambda state: compiled(state, data.users))


def run_train(federation: Federation, job: TrainJob, private: Path, output: Path) -> None:
    """The server's side: rounds, checkpoints, a model and its metrics.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: a folder of the server's own, next to which checkpoints lie.
        output: folder for model.json, metrics.json and rounds.csv.

    Raises:
        TooFewError: in a round, fewer sites than the job says have answered well.
        InputError: training diverged.
    """
    from synthfair.checkpoint import CheckpointFile, Saved
    from synthfair.federated import engine
    from synthfair.federated.from_table import rounds_csv
    from synthfair.federated.methods import METHODS, make_plan
    from synthfair.federated.training import make_model
    from synthfair.files import write_text
    from synthfair.jax_setup import start_jax
    from synthfair.trained import write_model

    start_jax()
    import jax

    config, sites = train_config(job.train), sorted(federation.booked)
    data = _stand_in(federation.schema, config, len(sites))
    plan = make_plan(data, config)
    fresh = engine.start(plan.algorithm, data.users, config.seed)
    private.parent.mkdir(mode=0o700, exist_ok=True)
    settings = f"{federation.schema.hash} {sites} {config.model_dump_json()}"
    run = hashlib.sha256(settings.encode()).hexdigest()
    checkpoint = CheckpointFile.next_to(private.parent / "train", run)
    saved = checkpoint.load(Saved((np.int32(0), fresh.state), fresh.history))
    (done, state), history = saved or ((0, fresh.state), fresh.history)
    update, key = jax.jit(plan.algorithm.update), jax.random.key(0)
    like = jax.eval_shape(plan.algorithm.report, state, data.users.rows_of(0), key)
    expected = _Report(like, plan.protection.clip)
    for number in range(int(done), config.rounds):
        total = _total(federation, job, number, packed(state), expected)
        state, record = update(state, total, float(len(sites)))
        history = jax.tree.map(
            lambda old, new: np.concatenate([old, np.asarray(new)[None]]), history, record
        )
        if (number + 1) % job.save_each == 0:
            checkpoint.save(Saved((np.int32(number + 1), state), history))
    converged = METHODS[config.method].converged(plan, history)
    model = make_model(plan, config, data, state, converged=converged)
    output.mkdir(parents=True, exist_ok=True)
    _write_metrics(federation, config, model, output)
    write_text(output / "rounds.csv", rounds_csv(history))
    write_model(model, output / "model.json")
    checkpoint.path.unlink(missing_ok=True)


def _stand_in(schema: Schema, config: TrainConfig, sites: int) -> UserData:
    """Users of the shapes that the method needs, of public knowledge alone.

    The server has no rows: each site has one of zeros for every group and label.
    """
    from synthfair.data.encode import Encoded
    from synthfair.federated.user_data import make_user_data

    s, y = (part.ravel() for part in np.meshgrid(np.arange(len(schema.groups)), [-1.0, 1.0]))
    x = np.zeros((sites * len(s), len(schema.encoded_names)))
    rows = Encoded(x, np.tile(s, sites), np.tile(y, sites))
    return make_user_data(rows, np.repeat(np.arange(sites), len(s)), schema, config)


class _Report(NamedTuple):
    """What a report must be: its shapes and types, and the norm that it may have."""

    like: Any
    clip: jax.Array | float | None


def _total(
    federation: Federation, job: TrainJob, number: int, state: bytes, expected: _Report
) -> Any:
    """The sum of the sites' reports in a round; those that are none are refused."""
    import jax

    answers = federation.ask("train", number, job.train, state, timeout=job.timeout)
    reports = []
    for site, content in answers.items():
        try:
            reports.append(unpacked(content, expected.like, most_norm=expected.clip))
        except ValueError as error:
            federation.refuse(site, str(error))
    federation.require(job.least_answers)
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *reports)


def _write_metrics(
    federation: Federation, config: TrainConfig, model: TrainedModel, output: Path
) -> None:
    from synthfair.evaluation import evaluate, evaluation_document, read_tests
    from synthfair.files import write_json

    if not federation.settings.tests:
        return
    report, schema = ServerConfig(seed=config.seed), federation.schema
    evaluation = evaluate(model, read_tests(federation.settings.tests, schema), report)
    write_json(
        output / "metrics.json",
        {
            **evaluation_document(evaluation, schema, report),
            "method": config.method,
            "config": {},
            "train": config.model_dump(mode="json"),
            "converged": model.converged,
        },
    )


def packed(tree: Any) -> bytes:
    """The numbers of a pytree, float64, little-endian."""
    from jax.flatten_util import ravel_pytree

    return np.asarray(ravel_pytree(tree)[0], "<f8").tobytes()


def unpacked(content: bytes, like: Any, *, most_norm: jax.Array | float | None = None) -> Any:
    """A pytree from its numbers, of which nothing is believed.

    Args:
        content: of :func:`packed`.
        like: shapes and types of what it must be.
        most_norm: Euclidean norm that it may have, to rounding; None for any.

    Raises:
        ValueError: other lengths, numbers that are not finite, or too large a norm.
    """
    import jax.numpy as jnp
    from jax import tree
    from jax.flatten_util import ravel_pytree

    flat, unravel = ravel_pytree(tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
    if len(content) != 8 * flat.size:
        raise ValueError(f"has {len(content)} bytes; must have {8 * flat.size}")
    found = np.frombuffer(content, "<f8")
    norm = np.linalg.norm(found)
    if not np.isfinite(norm) or norm > (np.inf if most_norm is None else float(most_norm) * 1.001):
        raise ValueError("its numbers are not finite, or larger than the clip allows")
    return unravel(jnp.asarray(found, flat.dtype))
