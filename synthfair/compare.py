"""Several methods on one table: same clients, same test rows, one result shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from synthfair.client import distill_file
from synthfair.client.routine import Progress
from synthfair.config import DistillConfig, ServerConfig
from synthfair.data.datasets import load_dataset
from synthfair.data.encode import encode
from synthfair.data.partition import ClientTable, partition, write_clients
from synthfair.data.schema import Schema
from synthfair.distill.inner import train
from synthfair.distill.problem import make_penalty, make_rows
from synthfair.errors import InputError
from synthfair.evaluation import Evaluation, evaluate
from synthfair.model import LinearModel
from synthfair.release import name_of
from synthfair.server import as_trained, serve
from synthfair.trained import TrainedModel

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Given a title, a context that shows the progress of one distillation."""


class Outcome(NamedTuple):
    """What one method reached.

    Attributes:
        method: in words.
        model: that it trained.
        evaluation: on the clients' test rows.
        converged: whether every problem solved on the way met its tolerance.
    """

    method: str
    model: TrainedModel
    evaluation: Evaluation
    converged: bool


def train_centrally(
    clients: Sequence[ClientTable], schema: Schema, config: DistillConfig, *, penalized: bool
) -> TrainedModel:
    """The same model trained on all clients' real rows in one place: what single-shot aims at.

    Minimises the regularised loss, with rho_o times the penalty added where ``penalized``.
    """
    table = pd.concat([client.train for client in clients])
    n_groups = len(schema.groups)
    rows = make_rows(encode(table, schema), n_groups=n_groups, intercept=config.intercept)
    penalty = make_penalty(config, n_groups=n_groups) if penalized else None
    model = LinearModel()
    solution = train(rows, config.lambda_theta, model=model, penalty=penalty, rho=config.rho_o)
    return as_trained(solution, schema, loss=name_of(model), intercept=config.intercept)


def demonstrate(
    folder: Path, config: DistillConfig, show: ShowProgress, *, force: bool = False
) -> list[Outcome]:
    """Two lenders of the table ``loanapp``: single-shot against central training.

    Args:
        folder: where clients' tables, releases, models and metrics are written.
        config: settings; the comparison runs them as given and with rho_o = 0.
        show: shows progress.
        force: whether existing files are overwritten.

    Raises:
        InputError: the folder is not empty and force is false, or it cannot be written to.
    """
    _require_empty(folder, force=force)
    table, schema = load_dataset("loanapp")
    clients = partition(table, clients=2, seed=config.seed)
    write_clients(clients, schema, folder, force=force)
    outcomes = []
    for name, rho_o in (("fair", config.rho_o), ("plain", 0.0)):
        title = f"single-shot, rho_o = {rho_o:g}"
        settings = config.model_copy(update={"rho_o": rho_o})
        outcomes.append(_single_shot(title, folder, name, settings, show, force=force))
    tests = {f"client_{i}_test": client.test for i, client in enumerate(clients)}
    for penalized in (True, False):
        model = train_centrally(clients, schema, config, penalized=penalized)
        title = f"central, rho_o = {config.rho_o if penalized else 0:g}"
        outcomes.append(Outcome(title, model, evaluate(model, tests), model.converged))
    return outcomes


def _require_empty(folder: Path, *, force: bool) -> None:
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"{folder}: exists and is not empty; name another, or --force to go on in it"
        )


def _single_shot(
    title: str, folder: Path, name: str, config: DistillConfig, show: ShowProgress, *, force: bool
) -> Outcome:
    """Two clients distil from their files, and the server trains, in ``folder / name``."""
    schema_path, releases, converged = folder / "schema.json", [], []
    for i in range(2):
        release = folder / name / f"client_{i}.parquet"
        with show(f"lender {i} {name}") as progress:
            data = folder / f"client_{i}_train.csv"
            distillation, _ = distill_file(
                data, schema_path, release, config, force=force, progress=progress
            )
        releases.append(release)
        converged.append(distillation.inner_converged)
    tests = [folder / f"client_{i}_test.csv" for i in range(2)]
    server = folder / name / "server"
    model, evaluation = serve(releases, schema_path, tests, server, ServerConfig(), force=force)
    return Outcome(title, model, evaluation, all([*converged, model.converged]))
