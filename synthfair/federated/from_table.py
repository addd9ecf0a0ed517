"""A training from a table to files: model.json, metrics.json, and what the server saw."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import synthfair
from synthfair.checkpoint import CheckpointFile
from synthfair.config import Asked, ServerConfig, TrainConfig
from synthfair.data.encode import encode_own
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import Evaluation, evaluate, evaluation_document
from synthfair.federated.algorithm import RoundRecord
from synthfair.federated.methods import TrainingPlan, make_plan
from synthfair.federated.training import (
    SECRET_BITS,
    OnRounds,
    Training,
    begin,
    read_begun,
    to_save,
    train_rounds,
)
from synthfair.federated.user_data import (
    AssignedTable,
    UserData,
    make_user_data,
    other_groups,
)
from synthfair.files import claimed, whole_file, write_json, write_text
from synthfair.postprocess.weights import RowWeights
from synthfair.privacy.ledger import Booking, Ledger, purchase_of
from synthfair.trained import write_model


@dataclass(frozen=True)
class TrainFiles:
    """Where a training writes to.

    Attributes:
        output: folder, made if need be.
        ledger: in which the training is booked.
        force: whether existing files are overwritten.
        noise_seed: for tests, 0 to 2^128 - 1; with it, epsilon guarantees nothing.

    Raises:
        InputError: no such seed.

    Example:
        >>> from pathlib import Path
        >>> import synthfair as sf
        >>> files = sf.federated.TrainFiles(Path("fpfl"), ledger=Path("people.ledger.jsonl"))
        >>> files.model.name, files.metrics.name, files.rounds.name
        ('model.json', 'metrics.json', 'rounds.csv')
    """

    output: Path
    ledger: Path
    force: bool = False
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        """Refuses seeds out of range."""
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


def train_table(
    table: AssignedTable,
    schema: Schema,
    config: TrainConfig,
    files: TrainFiles,
    *,
    source: str,
    weights: RowWeights | None = None,
    on_rounds: OnRounds | None = None,
) -> tuple[Training, Evaluation]:
    """Trains and writes; an interrupted run continues where it stopped.

    The guarantee is booked before the first round, by a name of the run's seed, which is saved
    before that: where a run ends without its results, by a full disk or killed, the next one books
    nothing. A run is forgotten once its results have their names: its seed gives no others. One
    with noise that is drawn anew is forgotten just before that, so that no other results can be had
    for the same booking.

    Args:
        table: rows of users, and test tables; of :func:`synthfair.federated.assign_users`.
        schema: of the table.
        config: the method and its settings.
        files: where to write.
        source: name of the table, for error messages.
        weights: of rows, by group and label; of :func:`synthfair.postprocess.make_weights`.
        on_rounds: called after each chunk of rounds.

    Raises:
        InputError: rows, settings or budget are refused, or a file exists or cannot be written.
        KeyboardInterrupt: after a checkpoint is written next to the output.
    """
    with claimed(files.model, files.metrics, files.rounds, force=files.force):
        began = time.perf_counter()
        rows = encode_own(table.train, schema, source=source)
        others = other_groups(table.train, schema, config, source=source)
        data = make_user_data(rows, table.user, schema, config, others=others, weights=weights)
        plan = make_plan(data, config)
        run = _fingerprint(data, config, plan, files.noise_seed)
        checkpoint = CheckpointFile.next_to(files.model, run)
        begun = read_begun(plan, data, checkpoint)
        fresh, begun = begun is None, begun or begin(plan, data, config, files.noise_seed)
        guarantee = plan.guarantee if files.noise_seed is None else None
        ledger, booking = Ledger(files.ledger), Booking(
            kind="training",
            output=files.output.name,
            run=run,
            guarantee=guarantee,
            purchase=purchase_of(begun.seed) if guarantee else None,
        )  # fmt: skip
        if guarantee and fresh:
            ledger.require_affordable(booking)
            checkpoint.save(to_save(begun))
        ledger.book(booking)
        resumes = config.method != "privfairfl_pre"  # whose weights have noise that is drawn anew
        training = train_rounds(
            data,
            config,
            noise_seed=files.noise_seed,
            plan=plan,
            begun=begun,
            on_rounds=on_rounds,
            checkpoint=checkpoint if resumes else None,
        )
        report = ServerConfig(seed=config.seed)
        evaluation = evaluate(training.model, dict(table.tests), report)
        document: dict[str, Any] = {
            **evaluation_document(evaluation, schema, report),
            "method": config.method,
            "config": {},
            "train": {**config.model_dump(mode="json"), **table.assignment.given},
            "asked": (Asked(by="row_weights") if weights else config.asked).model_dump(mode="json"),
            "converged": training.model.converged,
            "cost": training.cost._asdict(),
            "seconds": time.perf_counter() - began,
        }
        if weights is not None:
            document["weights"] = weights.model_dump(mode="json")
        if training.counts is not None:
            document["counts"] = training.counts.statement
        if training.guarantee is not None:
            document["guarantee"] = training.guarantee.model_dump(mode="json")
        if plan.secure:
            document["secure_sums"] = plan.secure.shares.model_dump()
        with ExitStack() as outputs:
            paths = files.metrics, files.rounds, files.model  # which get their names in reverse
            metrics, rounds, model = (outputs.enter_context(whole_file(path)) for path in paths)
            write_json(metrics, document)
            write_text(rounds, rounds_csv(training.history))
            write_model(training.model, model)
            if plan.secure or config.method.startswith("privfairfl"):
                # Their noise does not follow from the seed: a run that goes on with what is booked
                # would have other results, of which some files may be read already.
                checkpoint.path.unlink(missing_ok=True)
        checkpoint.path.unlink(missing_ok=True)
        return training, evaluation


def _fingerprint(
    data: UserData, config: TrainConfig, plan: TrainingPlan, noise_seed: int | None
) -> str:
    """sha256 of all that a run depends on. Private: who guesses the rows could confirm them.

    The noise and the version are part of it: the same seed with noise of another size would give
    away both the noise and what it hides.
    """
    guarantee = plan.guarantee.model_dump_json() if plan.guarantee else None
    settings = f"{synthfair.__version__} {noise_seed} {config.model_dump_json()} {guarantee}"
    digest = hashlib.sha256(settings.encode())
    for leaf in jax.tree.leaves((data.users, data.row_weights, data.held_out)):
        digest.update(np.ascontiguousarray(leaf).data)
    digest.update(data.schema.hash.encode())
    return digest.hexdigest()


def rounds_csv(history: RoundRecord) -> str:
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
