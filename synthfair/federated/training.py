"""One training in rounds: settings and users in, a model, its history and its cost out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import synthfair
from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.config import TrainConfig
from synthfair.errors import InputError
from synthfair.federated import engine
from synthfair.federated.algorithm import Algorithm, Record
from synthfair.federated.engine import Progress
from synthfair.federated.methods import Plan, make_plan
from synthfair.federated.population import Population
from synthfair.federated.two_phase import TwoPhase
from synthfair.federated.users import Users
from synthfair.model import Params
from synthfair.privacy.rounds import TrainingGuarantee
from synthfair.run_files import Cost
from synthfair.trained import Layer, TrainedModel, input_names

SECRET_BITS = 128
"""Of the seed of noise that protects."""

OnRounds = Callable[[int, int, str], None]
"""Told after each chunk: rounds done, rounds in all, and in words how it goes."""


class Training(NamedTuple):
    """What came of it.

    Attributes:
        model: trained.
        history: of every round, as the server saw it.
        cost: in rounds and bytes.
        guarantee: of privacy, if one was asked for.
        resumed_at: the round at which an interrupted run was taken up, or 0.
        checkpoint: the file that may be removed now.
    """

    model: TrainedModel
    history: Record
    cost: Cost
    guarantee: TrainingGuarantee | None
    resumed_at: int = 0
    checkpoint: CheckpointFile | None = None


def train_rounds(
    population: Population,
    config: TrainConfig,
    *,
    noise_seed: int | None = None,
    plan: Plan | None = None,
    on_rounds: OnRounds | None = None,
    checkpoint: CheckpointFile | None = None,
) -> Training:
    """Runs all rounds.

    Guarantee: what the plan's says, for all that the server sees in the rounds, the model and the
    history among them, unless ``noise_seed`` is given.

    Args:
        population: users.
        config: settings.
        noise_seed: for tests: noise that anybody can repeat. If not given, noise that protects has
            a seed from the operating system, and so have the cohorts.
        plan: of :func:`synthfair.federated.methods.make_plan`, if there is one already.
        on_rounds: told how it goes.
        checkpoint: where an interrupted run is kept, and taken up from. It holds the seed of the
            noise: whoever reads it can undo the privacy of the run.

    Raises:
        InputError: the settings do not fit the population, or training diverged.
        KeyboardInterrupt: after the checkpoint is written.
    """
    plan = plan or make_plan(population, config)
    begun, seed = _begin(plan, population, _seed(config, noise_seed), checkpoint)
    done = begun

    def on_chunk(progress: Progress) -> None:
        nonlocal done
        done = progress
        if on_rounds is not None:
            on_rounds(progress.rounds, config.rounds, told(config, progress.history))

    try:
        done = engine.run(
            plan.algorithm,
            _taught(plan.algorithm, population.users, seed),
            plan.cohorts,
            rounds=config.rounds,
            seed=seed,
            protection=plan.protection,
            progress=begun,
            chunk=plan.chunk,
            on_chunk=on_chunk,
        )
    except KeyboardInterrupt as stop:
        _keep(done, seed, checkpoint, stop)
    model = _trained(plan, config, population, done)
    cost = _cost(plan, config, population, done)
    return Training(model, done.history, cost, plan.guarantee, begun.rounds, checkpoint)


def _taught(algorithm: Algorithm, users: Users, seed: int) -> Users:
    """Of two phases, the first happens once, on the users' side."""
    return algorithm.teach(users, seed) if isinstance(algorithm, TwoPhase) else users


def _seed(config: TrainConfig, noise_seed: int | None) -> int:
    if noise_seed is not None:
        return noise_seed
    return config.seed if config.epsilon is None else secrets.randbits(SECRET_BITS)


class _Kept(NamedTuple):
    rounds: Any
    seed: Any
    state: Any


def _begin(
    plan: Plan, population: Population, seed: int, file: CheckpointFile | None
) -> tuple[Progress, int]:
    """From the checkpoint, with its seed, if there is one."""
    fresh = engine.start(plan.algorithm, population.users, seed)
    if file is None:
        return fresh, seed
    saved = file.load(Saved(_packed(fresh, seed), fresh.history))
    if saved is None:
        return fresh, seed
    kept = saved.state
    progress = Progress(int(kept.rounds), kept.state, saved.history)
    return progress, int.from_bytes(np.asarray(kept.seed).tobytes(), "little")


def is_begun(population: Population, plan: Plan, checkpoint: CheckpointFile) -> bool:
    """Whether an interrupted run can be taken up: its checkpoint is there, and can be read."""
    return _begin(plan, population, 0, checkpoint)[0].rounds > 0


def _packed(progress: Progress, seed: int) -> _Kept:
    words = np.frombuffer(seed.to_bytes(SECRET_BITS // 8, "little"), np.uint32)
    return _Kept(np.int32(progress.rounds), words, progress.state)


def _keep(done: Progress, seed: int, file: CheckpointFile | None, stop: KeyboardInterrupt) -> None:
    """Keeps how far it came, and stops."""
    if file is None or done.rounds == 0:
        raise stop
    file.save(Saved(_packed(done, seed), done.history))
    kept = f"{file.path} keeps {done.rounds} rounds, and the same run goes on from there"
    raise KeyboardInterrupt(kept) from stop


def told(config: TrainConfig, history: Record) -> str:
    """How the last round went, in a few words."""
    if config.method == "fedavg":
        return f"drift {history.drift[-1]:.1e}"
    if config.averaged:
        return f"moved by {history.moved[-1]:.2f}"
    quality = float(history.quality[-1])
    if quality <= -1:
        return "too few rows of a group"
    return f"accuracy {quality:.3f}" if quality >= 0 else f"violation {-quality:.3f}"


def has_met(config: TrainConfig, plan: Plan, history: Record) -> bool | None:
    """Whether it ended well, or None where there is no test.

    FedAvg on all users and without noise must have settled; under a constraint some params must
    have met it on what the server saw of their cohorts.
    """
    if config.method == "fedavg":
        still = plan.cohorts.size == plan.cohorts.population and plan.guarantee is None
        return history.settled if still else None
    return bool(history.quality.max() >= 0) if config.in_steps else None


def _cost(plan: Plan, config: TrainConfig, population: Population, done: Progress) -> Cost:
    """Each user of a cohort sends a report a round; for one place, rows are sent once."""
    users = population.users
    if config.method == "mmdm":
        return Cost(len(users), 1, rows_bytes(users))
    size = engine.report_bytes(plan.algorithm, done.state, users)
    return Cost(len(users), done.rounds, size * plan.cohorts.size * done.rounds)


def rows_bytes(users: Users) -> int:
    """Size of all rows, as plain numbers."""
    return int(users.a.nbytes + users.s.nbytes + users.y.nbytes)


def _trained(
    plan: Plan, config: TrainConfig, population: Population, done: Progress
) -> TrainedModel:
    params = jax.device_get(plan.algorithm.params(done.state))
    _require_finite(params, config)
    hidden, theta = _layers(params, config)
    names = input_names(
        population.schema, intercept=not config.hidden, group_input=config.group_input
    )
    return TrainedModel(
        schema=population.schema,
        version=synthfair.__version__,
        loss=f"logistic; trained by {config.method}",
        intercept=True,
        inputs=names,
        group_input=config.group_input,
        hidden=hidden,
        theta=tuple(theta.tolist()),
        gradient_norm=None,
        converged=has_met(config, plan, done.history),
    )


def _require_finite(params: Params, config: TrainConfig) -> None:
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise InputError(
            f"learning_rate = {config.learning_rate:g}: training diverged, and its parameters are"
            " no numbers; take a smaller one"
        )


def _layers(params: Params, config: TrainConfig) -> tuple[tuple[Layer, ...], np.ndarray]:
    """Hidden layers, and the parameters after them with the intercept last."""
    if not config.hidden:
        return (), np.asarray(params)
    *hidden, last = params.layers[::2]  # between them are the activations
    layers = tuple(
        Layer(weight=layer.weight.tolist(), bias=layer.bias.tolist()) for layer in hidden
    )
    return layers, np.append(last.weight, last.bias)
