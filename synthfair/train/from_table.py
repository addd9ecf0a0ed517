"""A training from a table to files: model.json, metrics.json, and what the server saw."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from synthfair.checkpoint import CheckpointFile
from synthfair.config import ServerConfig, TrainConfig
from synthfair.data.encode import encode
from synthfair.data.partition import partition
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import Evaluation, evaluate, evaluation_document
from synthfair.federated.algorithm import Record
from synthfair.federated.users import deal_rows
from synthfair.files import require_free, write_json, write_text
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.training import TrainingGuarantee
from synthfair.train.population import Population, other_groups, populate
from synthfair.train.routine import OnRounds, Training, promised, train
from synthfair.trained import write_model

if TYPE_CHECKING:
    import pandas as pd

TEST_SHARE = 0.2
"""Of the rows, where no test table is given."""


class Dealt(NamedTuple):
    """A table, dealt out.

    Attributes:
        train: rows to train on.
        user: [N] whose each of them is.
        tests: test tables by name.
    """

    train: pd.DataFrame
    user: np.ndarray
    tests: Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Dealing:
    """How rows become users: exactly one of three ways.

    Attributes:
        clients: so many users with equally many rows.
        rows_per_user: many users, with so many rows on average.
        user_column: the table says whose each row is.
    """

    clients: int | None = None
    rows_per_user: float | None = None
    user_column: str | None = None

    def __post_init__(self) -> None:
        """Refuses none and several."""
        given = [value for value in vars(self).values() if value is not None]
        if len(given) != 1:
            raise InputError("users: give one of clients, rows_per_user and user_column")


def deal(
    table: pd.DataFrame,
    dealing: Dealing,
    *,
    seed: int,
    tests: Mapping[str, pd.DataFrame] | None = None,
) -> Dealt:
    """Deals a table out to users, and keeps rows for testing where no test tables are given.

    Clients test on rows of their own; of many users, a fifth of the rows, or of the users where
    the table names them, is kept.

    Raises:
        InputError: there are too few rows, no such column, or numbers out of range.
    """
    if dealing.clients is not None and tests is None:
        return _dealt_to_clients(table, dealing.clients, seed)
    user, table = _owners(table, dealing, seed)
    if tests is not None:
        return Dealt(table, user, tests)
    names = np.unique(user) if dealing.user_column else np.arange(len(table))
    kept = np.random.default_rng(seed).permutation(names)[: int(len(names) * TEST_SHARE)]
    is_test = np.isin(user if dealing.user_column else np.arange(len(table)), kept)
    if not is_test.any() or is_test.all():
        raise InputError(f"{len(table)} rows of {len(np.unique(user))} users: too few to test on")
    return Dealt(table[~is_test], user[~is_test], {"test": table[is_test]})


def _dealt_to_clients(table: pd.DataFrame, clients: int, seed: int) -> Dealt:
    import pandas as pd

    parts = partition(table, clients=clients, seed=seed)
    user = np.repeat(np.arange(clients), [len(part.train) for part in parts])
    tests = {f"client_{i}": part.test for i, part in enumerate(parts)}
    return Dealt(pd.concat([part.train for part in parts]), user, tests)


def _owners(table: pd.DataFrame, dealing: Dealing, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    if dealing.user_column is not None:
        return _named_owners(table, dealing.user_column)
    if dealing.rows_per_user is not None:
        return deal_rows(len(table), mean=dealing.rows_per_user, seed=seed), table
    clients = dealing.clients or 0
    if not 1 <= clients <= len(table):
        raise InputError(f"clients = {clients}: must be 1 to {len(table)}, the number of rows")
    return np.random.default_rng(seed).permutation(len(table)) % clients, table


def _named_owners(table: pd.DataFrame, column: str) -> tuple[np.ndarray, pd.DataFrame]:
    if column not in table.columns:
        raise InputError(f"user column {column!r}: the table has no such column")
    names = table[column]
    if names.isna().any():
        row = int(np.argmax(names.isna())) + 1
        raise InputError(f"user column {column!r}, row {row}: missing; each row needs a user")
    return names.astype("string").to_numpy(object), table.drop(columns=column)


@dataclass(frozen=True)
class TrainFiles:
    """Where a training writes to.

    Attributes:
        output: folder, made if need be.
        ledger: in which the training is booked.
        force: whether existing files are overwritten.
        noise_seed: for tests; with it, epsilon promises nothing.
    """

    output: Path
    ledger: Path
    force: bool = False
    noise_seed: int | None = None

    @property
    def model(self) -> Path:
        """The model file."""
        return self.output / "model.json"

    @property
    def metrics(self) -> Path:
        """Written last."""
        return self.output / "metrics.json"

    @property
    def rounds(self) -> Path:
        """What the server saw in each round; with an epsilon, covered by it."""
        return self.output / "rounds.csv"


class Trained(NamedTuple):
    """What :func:`train_table` has written."""

    training: Training
    evaluation: Evaluation


def train_table(
    dealt: Dealt,
    schema: Schema,
    config: TrainConfig,
    files: TrainFiles,
    *,
    source: str,
    on_rounds: OnRounds | None = None,
) -> Trained:
    """Trains and writes; an interrupted run is taken up where it stopped.

    What is promised is booked before the first round.

    Raises:
        InputError: rows, settings or budget are refused, or a file exists or cannot be written.
        KeyboardInterrupt: after a checkpoint is written beside the output.
    """
    require_free(files.model, files.metrics, files.rounds, force=files.force)
    began = time.perf_counter()
    rows = encode(dealt.train, schema, source=source)
    others = other_groups(dealt.train, schema, config, source=source)
    population = populate(rows, dealt.user, schema, config, others=others)
    guarantee = promised(config, len(population.users))
    run = _fingerprint(population, config, files.noise_seed)
    checkpoint = CheckpointFile.beside(files.model, run)
    _book(files, run, None if files.noise_seed is not None else guarantee, checkpoint)
    training = train(
        population,
        config,
        noise_seed=files.noise_seed,
        guarantee=guarantee,
        on_rounds=on_rounds,
        checkpoint=checkpoint,
    )
    report = ServerConfig(seed=config.seed)
    evaluation = evaluate(training.model, dict(dealt.tests), report)
    write_model(training.model, files.model)
    write_text(files.rounds, rounds_csv(training.history))
    document = {
        **evaluation_document(evaluation, schema, report),
        **training_document(training, config, private=files.noise_seed is None),
        "seconds": time.perf_counter() - began,
    }
    write_json(files.metrics, document)
    checkpoint.path.unlink(missing_ok=True)
    return Trained(training, evaluation)


def _book(
    files: TrainFiles,
    run: str,
    guarantee: TrainingGuarantee | None,
    checkpoint: CheckpointFile,
) -> None:
    """Unless it is an interrupted run, which was booked before."""
    if checkpoint.path.exists():
        return
    booking = Booking(kind="training", output=files.output.name, run=run, guarantee=guarantee)
    Ledger(files.ledger).book(booking)


def _fingerprint(population: Population, config: TrainConfig, noise_seed: int | None) -> str:
    """sha256 of all that a run depends on. Private: who guesses the rows could confirm them."""
    digest = hashlib.sha256(f"{noise_seed} {config.model_dump_json()}".encode())
    for leaf in jax.tree.leaves(population.users):
        digest.update(np.ascontiguousarray(leaf).data)
    digest.update(population.schema.hash.encode())
    return digest.hexdigest()


def training_document(training: Training, config: TrainConfig, *, private: bool) -> dict[str, Any]:
    """What metrics.json says of a training beside its metrics."""
    promise = training.guarantee if private else None
    return {
        "method": config.method,
        "config": {"all users": config.model_dump(mode="json")},
        "converged": training.model.converged,
        "cost": training.cost._asdict(),
        **({"promise": promise.model_dump(mode="json")} if promise else {}),
    }


def rounds_csv(history: Record) -> str:
    """The records of all rounds, one line each, every number of them in a column of its own."""
    columns: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(history)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        for index in np.ndindex(leaf.shape[1:]):
            columns[".".join([name, *map(str, index)])] = leaf[(slice(None), *index)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["round", *columns])
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        writer.writerow([number, *(f"{value:.10g}" for value in row)])
    return text.getvalue()
