"""A grid of methods, weights and seeds, run cell by cell into folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synthfair.client.history import write_history
from synthfair.compare.federation import federate
from synthfair.compare.methods import METHODS, measure
from synthfair.config import DistillConfig, ServerConfig
from synthfair.data.partition import partition
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.evaluation import evaluation_document
from synthfair.files import write_json

if TYPE_CHECKING:
    import pandas as pd


class Cell(NamedTuple):
    """One run.

    Attributes:
        method: its name.
        rho_o: weight of the penalty.
        seed: of the split and of everything random.
        folder: of its results.
    """

    method: str
    rho_o: float
    seed: int
    folder: Path

    @property
    def done(self) -> bool:
        """Whether its results are there; they are written last, and whole."""
        return (self.folder / "metrics.json").exists()


def plan(methods: Sequence[str], weights: Sequence[float], seeds: int, output: Path) -> list[Cell]:
    """All cells of a grid, seeds first, so that an interrupted one has whole comparisons.

    Raises:
        InputError: an unknown method, no seed, or a weight that is not allowed.
    """
    for method in methods:
        if method not in METHODS:
            raise InputError(f"method {method!r}: must be one of {', '.join(METHODS)}")
    if seeds < 1:
        raise InputError(f"seeds = {seeds}: must be at least 1")
    if any(not 0 <= weight < float("inf") for weight in weights):
        raise InputError(f"weights {list(weights)}: each must be at least 0 and finite")
    return [
        Cell(method, rho_o, seed, output / f"{method}-rho_{rho_o:g}-seed_{seed}")
        for seed in range(seeds)
        for method in methods
        for rho_o in weights
    ]


def run_cell(
    cell: Cell, table: pd.DataFrame, schema: Schema, config: DistillConfig, *, clients: int
) -> None:
    """Splits, runs, evaluates, and writes metrics.json and, where it distils, the histories."""
    federation = federate(partition(table, clients=clients, seed=cell.seed), schema)
    settings = config.model_copy(update={"rho_o": cell.rho_o, "seed": cell.seed})
    report = ServerConfig(seed=cell.seed)
    outcome, fitted = measure(cell.method, federation, settings, report)
    cell.folder.mkdir(parents=True, exist_ok=True)
    for i, distillation in enumerate(fitted.distillations):
        write_history(distillation.history, cell.folder / f"client_{i}.history.csv")
    document = {
        **evaluation_document(outcome.evaluation, schema, report),
        "method": cell.method,
        "config": {f"client_{i}": settings.model_dump(mode="json") for i in range(clients)},
        "converged": outcome.converged,
        "seconds": outcome.seconds,
    }
    write_json(cell.folder / "metrics.json", document)
