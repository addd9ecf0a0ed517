"""The training of one model in rounds, from users to files."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

import synthfair
from synthfair.data.encode import encode, encode_own
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import evaluate
from synthfair.fairness.target import Target
from synthfair.federated import engine
from synthfair.federated.engine import CheckpointFile, RoundRecord, RunProgress
from synthfair.federated.method import TrainConfig
from synthfair.federated.users import UserData, Users, assign_users, make_user_data
from synthfair.files import claimed, whole_file, write_text
from synthfair.metrics_file import METRICS, Cost, MetricsFile, RoundSettings, write_metrics
from synthfair.postprocess.histogram import RowWeights, ScoreHistogram
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.secure.shares import Sharing
from synthfair.server.settings import ServerConfig
from synthfair.trained import Layer, TrainedModel, input_names, write_model

if TYPE_CHECKING:
    import pandas as pd

TRAINING_FILES = "model.json", METRICS, "rounds.csv"
"""The files of a training: the model, its metrics, and the server's view of each round, which a
guarantee covers. The metrics are written last."""

SECRET_BITS = 128
"""Length of the seed of noise that protects."""

OnRounds = Callable[[int, int, str], None]
"""Called after each round: rounds done, rounds in all, and the state in words."""


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
    cost: Cost
    guarantee: Guarantee | None
    resumed_at: int = 0
    counts: ScoreHistogram | None = None


def train_table(
    table: pd.DataFrame,
    schema: Schema,
    config: TrainConfig,
    output: Path,
    *,
    ledger: Path,
    users: Mapping[str, Any],
    tests: Mapping[str, pd.DataFrame] | None = None,
    source: str = "table",
    weights: RowWeights | None = None,
    force: bool = False,
    again: bool = False,
    noise_seed: int | None = None,
    on_rounds: OnRounds | None = None,
) -> tuple[Training, MetricsFile]:
    """Train, write files, and return both results; an interrupted run continues where it stopped.

    The guarantee is booked before the first round, and buys the seed of the noise, which is kept
    next to the ledger: the same training once more, also where a run ended without its results, by
    a full disk or killed, has the same results and books nothing. One with noise that is drawn anew
    is forgotten just before its results have their names, so that no others can be had for the
    same booking.

    Args:
        table: the rows.
        schema: of the table.
        config: the method and its settings.
        output: folder of the files :data:`TRAINING_FILES`, made if need be.
        ledger: in which the training is booked.
        users: the rule of :func:`synthfair.federated.assign_users` by which rows become users'.
        tests: test tables by name; rows are held out if not given.
        source: name of the table, for error messages.
        weights: of rows, by group and label; of :func:`synthfair.postprocess.make_weights`.
        force: whether existing files are overwritten.
        again: consent to a training without an epsilon although the ledger holds another answer.
        noise_seed: for tests, 0 to 2^128 - 1; with it, epsilon guarantees nothing.
        on_rounds: called after each round.

    Raises:
        InputError: rows, settings or budget are refused, or a file exists or cannot be written.
        KeyboardInterrupt: after a checkpoint is written next to the output.
    """
    if noise_seed is not None and not 0 <= noise_seed < 2**SECRET_BITS:
        raise InputError(f"noise seed = {noise_seed}: must be 0 to 2^{SECRET_BITS} - 1")
    paths = [output / name for name in TRAINING_FILES]
    with claimed(*paths, force=force):
        # Who trains on what, and how.
        start = time.perf_counter()
        settings = RoundSettings(**config.model_dump(), **users)
        train, user, tests = assign_users(table, seed=config.seed, tests=tests, **users)
        rows = encode_own(train, schema, source=source)
        attributes = [schema.with_sensitive(name) for name in config.get("also", ())]
        also = [encode(train, attribute, source=source).s for attribute in attributes]
        data = make_user_data(rows, user, schema, config, also=also, weights=weights)
        method = config.plan(data)

        # A guarantee is booked once, and buys the seed of the noise.
        fingerprint = _fingerprint(data, method, noise_seed)
        book, seed = Ledger(ledger, again=again), noise_seed
        guarantee = method.guarantee if seed is None else None
        purchase = Purchase(
            kind="training", output=output.name, run=fingerprint, guarantee=guarantee
        )
        if guarantee:
            size = SECRET_BITS // 8
            bought = book.buy(purchase, lambda: secrets.token_bytes(size), max_bytes=size)
            seed = int.from_bytes(bought)
        else:
            book.book(purchase)
        checkpoint = CheckpointFile.next_to(paths[0], fingerprint)

        # Rounds, and what the model does on test rows.
        training = train_rounds(
            data,
            method,
            noise_seed=noise_seed,
            seed=seed,
            on_rounds=on_rounds,
            checkpoint=checkpoint,
        )
        evaluation = evaluate(training.model, dict(tests), ServerConfig(seed=config.seed))
        document = MetricsFile.of(
            evaluation,
            method=config.method,
            config={},
            train=settings,
            asked=Target(by="row_weights") if weights else config.asked,
            converged=training.model.converged,
            cost=training.cost,
            seconds=time.perf_counter() - start,
            weights=weights,
            counts=training.counts and training.counts.origin,
            guarantee=training.guarantee,
            secure_sums=method.protection.shares,
        )

        # All files are written before the first gets its name; metrics.json gets its own last.
        with ExitStack() as outputs:  # they get their names in reverse
            metrics, rounds, model = (
                outputs.enter_context(whole_file(paths[i])) for i in (1, 2, 0)
            )
            write_metrics(document, metrics)
            write_text(rounds, rounds_csv(training.history))
            write_model(training.model, model)
            if method.protection.vectors or training.counts:
                # Their noise does not follow from the seed: a run with what is booked would have
                # other results, of which some files may be read already.
                book.bought(fingerprint).unlink(missing_ok=True)
        checkpoint.path.unlink(missing_ok=True)
        return training, document


def train_rounds(
    data: UserData,
    config: TrainConfig,
    *,
    noise_seed: int | None = None,
    seed: int | None = None,
    on_rounds: OnRounds | None = None,
    checkpoint: CheckpointFile | None = None,
) -> Training:
    """Train in all rounds, and return the model with its history.

    Guarantee: what the plan's says, for all that the server sees in the rounds, the model and the
    history among them, unless ``noise_seed`` is given.

    Args:
        data: users and their rows.
        config: settings; or the method as ``config.plan(data)`` has bound it.
        noise_seed: for tests: noise that anybody can repeat. If not given, noise that protects has
            a seed from the operating system, and so have the cohorts.
        seed: that was bought for the noise.
        on_rounds: called after each round.
        checkpoint: where a run is saved if it is interrupted, and goes on from. The file holds the
            seed of the noise: whoever reads it can undo the privacy of the run.

    Raises:
        InputError: the settings do not fit the users, or training diverged.
        KeyboardInterrupt: after the checkpoint is written.

    Example:
        Gradient descent on the rows of three users.

        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> config = sf.TrainConfig(method="fedsgd", rounds=20)
        >>> user = sf.federated.draw_users(len(table), clients=3, seed=0)
        >>> data = sf.federated.make_user_data(sf.encode(table, schema), user, schema, config)
        >>> training = sf.federated.train_rounds(data, config)
        >>> training.cost.rounds, training.model.loss
        (20, 'logistic; trained by fedsgd')
    """
    # Before the rounds: the plan, counts that weigh rows, the labels that are learned.
    planned = config if config.cohorts else config.plan(data)
    method, counts = planned.count_first(data, noise_seed)
    method = method.bound(protection=method.protection._replace(seed=noise_seed))
    saved = checkpoint and checkpoint.load(engine.start(method, data.users, 0))
    seed = seed if noise_seed is None else noise_seed
    first = progress = saved or first_progress(method, data, seed)
    users = method.teach(data.users, first.seed)

    # The rounds, which Ctrl-C interrupts and a checkpoint continues.
    def on_round(after: RunProgress) -> None:
        nonlocal progress
        progress = after
        if on_rounds is not None:
            on_rounds(after.rounds, method.rounds, method.progress(after.history))

    try:
        progress = engine.run(
            method,
            users,
            method.cohorts,
            rounds=method.rounds,
            seed=first.seed,
            protection=method.protection,
            progress=first,
            on_round=on_round,
        )
    except KeyboardInterrupt as stop:
        # Counts with noise that is drawn anew would lead to other rounds.
        if checkpoint is None or counts or progress.rounds == 0:
            raise
        checkpoint.save(progress)
        message = (
            f"{checkpoint.path} holds {progress.rounds} rounds; the same run continues from there"
        )
        raise KeyboardInterrupt(message) from stop

    # After the rounds: the model, and decisions by group from counts of its scores.
    model = make_model(method, data, progress)
    model, histogram = method.decide(model, method.params(progress.state), data, noise_seed)
    counts = counts or histogram

    guarantee, cost = method.guarantee if noise_seed is None else None, _cost(method, users, counts)
    return Training(model, progress.history, cost, guarantee, first.rounds, counts)


def _cost(method: TrainConfig, users: Users, counts: ScoreHistogram | None) -> Cost:
    """Return what each user of a cohort sends in all rounds, with the counts of all users."""
    n, senders, rounds = len(users), method.cohorts.size, method.rounds

    def shares_bytes(length: int) -> int:
        """Return the bytes of a user's shares of so many numbers."""
        return engine.AGGREGATORS * Sharing(bytes(32), length, engine.AGGREGATORS).message_bytes

    if method.one_place:  # rows are sent once
        return Cost(n, 1, users.nbytes)
    size = engine.report_size(method, users)[1]
    if vectors := method.protection.vectors:
        # Where noise hides who was drawn, all users send; the others' are zeros.
        size, senders = shares_bytes(vectors.length), n if method.guarantee else senders
    counted = n * shares_bytes(counts.array().size) if counts else 0
    return Cost(n, rounds + (counts is not None), size * senders * rounds + counted)


def first_progress(method: TrainConfig, data: UserData, seed: int | None = None) -> RunProgress:
    """Return a run before its first round; without a seed, noise that protects has a secret one."""
    if seed is None:
        seed = method.seed if method.guarantee is None else secrets.randbits(SECRET_BITS)
    return engine.start(method, data.users, seed)


def make_model(method: TrainConfig, data: UserData, progress: RunProgress) -> TrainedModel:
    """Return the model of a run that has ended, as it is written to a file.

    Raises:
        InputError: its parameters are not finite.
    """
    params = jax.device_get(method.params(progress.state))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise InputError(
            f"learning_rate = {method.learning_rate:g}: training diverged, and its parameters are"
            " no numbers; take a smaller one"
        )
    hidden, theta = (), params
    if method.hidden:
        *layers, last = params
        hidden = tuple(Layer(weight=weight.tolist(), bias=bias.tolist()) for weight, bias in layers)
        theta = np.append(*last)  # the intercept stands last
    return TrainedModel(
        schema=data.schema,
        version=synthfair.__version__,
        loss=f"logistic; trained by {method.method}",
        intercept=True,
        inputs=input_names(
            data.schema, intercept=not method.hidden, group_input=method.group_input
        ),
        group_input=method.group_input,
        hidden=hidden,
        theta=tuple(theta.tolist()),
        gradient_norm=None,
        converged=method.converged(progress.history),
    )


def rounds_csv(history: RoundRecord) -> str:
    """Return the records of all rounds, one line each, every number in a column of its own."""
    columns: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(history)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        for index in np.ndindex(leaf.shape[1:]):
            columns[".".join([name, *map(str, index)])] = leaf[(slice(None), *index)]
    import pandas as pd

    table = pd.DataFrame(columns)
    table.index = pd.RangeIndex(1, len(table) + 1, name="round")
    return table.to_csv(float_format="%.10g", na_rep="nan", lineterminator="\n")


def _fingerprint(data: UserData, method: TrainConfig, noise_seed: int | None) -> str:
    """Return a sha256 of all that a run depends on; private, as it confirms guesses of the rows.

    The noise and the version are part of it: the same seed with noise of another size would give
    away both the noise and what it hides.
    """
    promise = method.guarantee and method.guarantee.model_dump_json()
    settings = f"{synthfair.__version__} {noise_seed} {method.model_dump_json()} {promise}"
    digest = hashlib.sha256(settings.encode())
    for leaf in jax.tree.leaves((data.users, data.row_weights, data.held_out)):
        digest.update(np.ascontiguousarray(leaf).data)
    digest.update(data.schema.hash.encode())
    return digest.hexdigest()
