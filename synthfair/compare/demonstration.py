"""Two lenders of the table ``loanapp``: single-shot against central training."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from synthfair.client.distillation import Distillation, Progress
from synthfair.client.from_file import Options, distill_file
from synthfair.compare.compared_methods import Outcome, run_method
from synthfair.compare.federation import federate
from synthfair.config import DistillConfig, ServerConfig
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition, write_clients
from synthfair.errors import InputError
from synthfair.evaluation import Evaluation
from synthfair.server.routine import serve

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Given a title, a context that shows the progress of one distillation."""


def demonstrate(
    folder: Path, config: DistillConfig, show: ShowProgress, *, force: bool = False
) -> list[Outcome]:
    """Runs both, with and without the penalty.

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
    plain = config.model_copy(update={"rho_o": 0.0})
    settings = {"fair": config, "plain": plain}
    outcomes = [
        _single_shot(folder, name, setting, show, force=force) for name, setting in settings.items()
    ]
    federation = federate(clients, schema)
    return outcomes + [run_method("central", federation, s)[0] for s in settings.values()]


def _require_empty(folder: Path, *, force: bool) -> None:
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"{folder}: exists and is not empty; name another, or --force to go on in it"
        )


def _single_shot(
    folder: Path, name: str, config: DistillConfig, show: ShowProgress, *, force: bool
) -> Outcome:
    """Two clients distil from their files, and the server trains, in ``folder / name``."""
    schema_path, releases, converged = folder / "schema.json", [], []
    start = time.perf_counter()
    for i in range(2):
        release = folder / name / f"client_{i}.parquet"
        with show(f"lender {i} {name}") as progress:
            data = folder / f"client_{i}_train.csv"
            distillation, _ = distill_file(
                data, schema_path, release, config, Options(force=force), progress=progress
            )
        releases.append(release)
        converged.append(cast(Distillation, distillation).converged)
    tests = [folder / f"client_{i}_test.csv" for i in range(2)]
    server = folder / name / "server"
    served = serve(releases, schema_path, tests, server, ServerConfig(), force=force)
    seconds = time.perf_counter() - start
    done = all([*converged, served.model.converged])
    evaluation = cast(Evaluation, served.evaluation)
    return Outcome("single_shot", config.rho_o, config.seed, evaluation, done, seconds)
