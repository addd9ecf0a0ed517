"""One training in rounds: settings and users in, a model, its history and its cost out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

import synthfair
from synthfair.checkpoint import CheckpointFile, Saved
from synthfair.config import TrainConfig
from synthfair.errors import InputError
from synthfair.federated import engine
from synthfair.federated.algorithm import RoundRecord, ServerState
from synthfair.federated.engine import RunProgress
from synthfair.federated.methods import METHODS, TrainingPlan, make_plan, trainable
from synthfair.federated.privfairfl import counts_bytes, decide_by_group, weigh_rows
from synthfair.federated.user_data import UserData
from synthfair.model import Params
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.rounds import TrainingGuarantee
from synthfair.run_files import Communication
from synthfair.trained import Layer, TrainedModel, input_names

SECRET_BITS = 128
"""Of the seed of noise that protects."""

OnRounds = Callable[[int, int, str], None]
"""Called after each chunk: rounds done, rounds in all, and the state in words."""


class Training(NamedTuple):
    """The results of a training.

    Attributes:
        model: trained.
        history: of every round, as the server saw it.
        cost: in rounds and bytes.
        guarantee: of privacy, if one was asked for.
        resumed_at: the round at which an interrupted run was resumed, or 0.
        counts: over all clients, from which weights or decisions follow; None of other methods.
    """

    model: TrainedModel
    history: RoundRecord
    cost: Communication
    guarantee: TrainingGuarantee | None
    resumed_at: int = 0
    counts: ScoreHistogram | None = None


class Begun(NamedTuple):
    """An interrupted run that is to be continued.

    Attributes:
        progress: how far it has come.
        seed: of its cohorts and its noise.
    """

    progress: RunProgress
    seed: int


def begin(plan: TrainingPlan, data: UserData, config: TrainConfig, noise_seed: int | None) -> Begun:
    """A run before its first round, with a seed of its own where noise protects."""
    seed = config.seed if config.epsilon is None else secrets.randbits(SECRET_BITS)
    seed = seed if noise_seed is None else noise_seed
    return Begun(engine.start(plan.algorithm, data.users, seed), seed)


def train_rounds(
    data: UserData,
    config: TrainConfig,
    *,
    noise_seed: int | None = None,
    plan: TrainingPlan | None = None,
    begun: Begun | None = None,
    on_rounds: OnRounds | None = None,
    checkpoint: CheckpointFile | None = None,
) -> Training:
    """Runs all rounds.

    Guarantee: what the plan's says, for all that the server sees in the rounds, the model and the
    history among them, unless ``noise_seed`` is given.

    Args:
        data: users and their rows.
        config: settings.
        noise_seed: for tests: noise that anybody can repeat. If not given, noise that protects has
            a seed from the operating system, and so have the cohorts.
        plan: of :func:`synthfair.federated.methods.make_plan`, if there is one already.
        begun: an interrupted run to continue, see :func:`read_begun`; of privfairfl_pre, whose
            weights have noise that is drawn anew, only one before its first round.
        on_rounds: called after each chunk of rounds.
        checkpoint: where a run is saved if it is interrupted. The file holds the seed of the noise:
            whoever reads it can undo the privacy of the run.

    Raises:
        InputError: the settings do not fit the users, or training diverged.
        KeyboardInterrupt: after the checkpoint is written.

    Example:
        Gradient descent on the rows of three users.

        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> config = sf.TrainConfig(method="fedsgd", rounds=20)
        >>> user = sf.federated.UserAssignment(clients=3).row_users(len(table), seed=0)
        >>> data = sf.federated.make_user_data(sf.encode(table, schema), user, schema, config)
        >>> training = sf.federated.train_rounds(data, config)
        >>> training.cost.rounds, training.model.loss
        (20, 'logistic; trained by fedsgd')
    """
    counts = None
    if config.method == "privfairfl_pre":
        data, counts = weigh_rows(data, config, noise_seed)
        plan = None
    plan = plan or make_plan(data, config)
    if plan.secure and noise_seed is not None:
        plan = plan._replace(protection=plan.secure._replace(seed=noise_seed))
    begun = begun or begin(plan, data, config, noise_seed)
    done = begun.progress

    def on_chunk(progress: RunProgress) -> None:
        nonlocal done
        done = progress
        if on_rounds is not None:
            words = METHODS[config.method].progress(progress.history)
            on_rounds(progress.rounds, config.rounds, words)

    try:
        users = data.users
        if plan.prepare:
            users = plan.prepare(users, begun.seed, range(len(users)))
        done = engine.run(
            plan.algorithm,
            users,
            plan.cohorts,
            rounds=config.rounds,
            seed=begun.seed,
            protection=plan.protection,
            progress=begun.progress,
            chunk=plan.chunk,
            on_chunk=on_chunk,
        )
    except KeyboardInterrupt as stop:
        if checkpoint is None or done.rounds == 0:
            raise
        checkpoint.save(to_save(Begun(done, begun.seed)))
        saved = f"{checkpoint.path} holds {done.rounds} rounds; the same run continues from there"
        raise KeyboardInterrupt(saved) from stop
    converged = METHODS[config.method].converged(plan, done.history)
    model = make_model(plan, config, data, done.state, converged=converged)
    if config.method == "privfairfl_post":
        params = plan.algorithm.params(done.state)
        scores = trainable(data, config).scores(params, data.counted.a)
        model, counts = decide_by_group(model, scores, data, config, noise_seed)
    cost = _cost(plan, config, data, done, counts)
    guarantee = plan.guarantee if noise_seed is None else None
    return Training(model, done.history, cost, guarantee, begun.progress.rounds, counts)


def read_begun(plan: TrainingPlan, data: UserData, file: CheckpointFile) -> Begun | None:
    """The interrupted run that a checkpoint holds, if there is one of this very run."""
    fresh = Begun(engine.start(plan.algorithm, data.users, 0), 0)
    saved = file.load(to_save(fresh))
    if saved is None:
        return None
    rounds, words, state = saved.state
    seed = int.from_bytes(np.asarray(words).tobytes(), "little")
    return Begun(RunProgress(int(rounds), state, saved.history), seed)


def to_save(begun: Begun) -> Saved:
    """A run as a checkpoint holds it, for :func:`read_begun`."""
    progress, seed = begun
    words = np.frombuffer(seed.to_bytes(SECRET_BITS // 8, "little"), np.uint32)
    return Saved((np.int32(progress.rounds), words, progress.state), progress.history)


def _cost(
    plan: TrainingPlan,
    config: TrainConfig,
    data: UserData,
    done: RunProgress,
    counts: ScoreHistogram | None,
) -> Communication:
    """Each user of a cohort sends a report a round, and once its counts.

    For one place, rows are sent once.
    """
    users = data.users
    if config.method == "mmdm":
        return Communication(len(users), 1, users.nbytes)
    if plan.secure:  # where noise hides who was drawn, all users send; the others' are zeros
        senders = len(users) if plan.guarantee else plan.cohorts.size
        sent = plan.secure.upload_bytes * senders * done.rounds
        return Communication(len(users), done.rounds, sent)
    size = engine.report_bytes(plan.algorithm, done.state, users)
    reports = size * plan.cohorts.size * done.rounds
    once = len(users) * counts_bytes(counts) if counts else 0
    return Communication(len(users), done.rounds + (counts is not None), reports + once)


def make_model(
    plan: TrainingPlan,
    config: TrainConfig,
    data: UserData,
    state: ServerState,
    *,
    converged: bool | None = None,
) -> TrainedModel:
    """The model of a server's state, as it is written to a file.

    Raises:
        InputError: its parameters are not finite.
    """
    params = jax.device_get(plan.algorithm.params(state))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise InputError(
            f"learning_rate = {config.learning_rate:g}: training diverged, and its parameters are"
            " no numbers; take a smaller one"
        )
    hidden, theta = _layers(params, config)
    return TrainedModel(
        schema=data.schema,
        version=synthfair.__version__,
        loss=f"logistic; trained by {config.method}",
        intercept=True,
        inputs=input_names(
            data.schema, intercept=not config.hidden, group_input=config.group_input
        ),
        group_input=config.group_input,
        hidden=hidden,
        theta=tuple(theta.tolist()),
        gradient_norm=None,
        converged=converged,
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
