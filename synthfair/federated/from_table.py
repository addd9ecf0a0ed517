"""A training from a table to files: model.json, metrics.json, and what the server saw."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import synthfair
from synthfair.checkpoint import CheckpointFile
from synthfair.config import ServerConfig, TrainConfig
from synthfair.data.encode import encode
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import Evaluation, evaluate, evaluation_document
from synthfair.federated.algorithm import Record
from synthfair.federated.assignment import Dealing, Dealt
from synthfair.federated.methods import Plan, make_plan
from synthfair.federated.population import Population, other_groups, populate
from synthfair.federated.training import SECRET_BITS, OnRounds, Training, is_begun, train_rounds
from synthfair.files import require_free, write_json, write_text
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.rounds import TrainingGuarantee
from synthfair.trained import write_model


@dataclass(frozen=True)
class TrainFiles:
    """Where a training writes to.

    Attributes:
        output: folder, made if need be.
        ledger: in which the training is booked.
        force: whether existing files are overwritten.
        noise_seed: for tests, 0 to 2^128 - 1; with it, epsilon promises nothing.

    Raises:
        InputError: no such seed.
    """

    output: Path
    ledger: Path
    force: bool = False
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        """Refuses seeds that are none."""
        if self.noise_seed is not None and not 0 <= self.noise_seed < 2**SECRET_BITS:
            raise InputError(f"noise seed = {self.noise_seed}: must be 0 to 2^{SECRET_BITS} - 1")

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
    plan = make_plan(population, config)
    run = _fingerprint(population, config, plan, files.noise_seed)
    checkpoint = CheckpointFile.beside(files.model, run)
    if not is_begun(population, plan, checkpoint):  # if it is, it was booked before
        _book(files, run, None if files.noise_seed is not None else plan.guarantee)
    training = train_rounds(
        population,
        config,
        noise_seed=files.noise_seed,
        plan=plan,
        on_rounds=on_rounds,
        checkpoint=checkpoint,
    )
    report = ServerConfig(seed=config.seed)
    evaluation = evaluate(training.model, dict(dealt.tests), report)
    write_model(training.model, files.model)
    write_text(files.rounds, rounds_csv(training.history))
    document = {
        **evaluation_document(evaluation, schema, report),
        **training_document(training, config, dealt.dealing, private=files.noise_seed is None),
        "seconds": time.perf_counter() - began,
    }
    write_json(files.metrics, document)
    checkpoint.path.unlink(missing_ok=True)
    return Trained(training, evaluation)


def _book(files: TrainFiles, run: str, guarantee: TrainingGuarantee | None) -> None:
    booking = Booking(kind="training", output=files.output.name, run=run, guarantee=guarantee)
    Ledger(files.ledger).book(booking)


def _fingerprint(
    population: Population, config: TrainConfig, plan: Plan, noise_seed: int | None
) -> str:
    """sha256 of all that a run depends on. Private: who guesses the rows could confirm them.

    The noise and the version are part of it: the same seed with noise of another size would tell
    both the noise and what it hides.
    """
    promise = plan.guarantee.model_dump_json() if plan.guarantee else None
    settings = f"{synthfair.__version__} {noise_seed} {config.model_dump_json()} {promise}"
    digest = hashlib.sha256(settings.encode())
    for leaf in jax.tree.leaves(population.users):
        digest.update(np.ascontiguousarray(leaf).data)
    digest.update(population.schema.hash.encode())
    return digest.hexdigest()


def training_document(
    training: Training, config: TrainConfig, dealing: Dealing, *, private: bool
) -> dict[str, Any]:
    """What metrics.json says of a training beside its metrics."""
    promise = training.guarantee if private else None
    return {
        "method": config.method,
        "config": {},
        "train": {**config.model_dump(mode="json"), **dealing.given},
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
