"""A grid of methods, weights and seeds, each point run into a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.client.history import write_history
from synthfair.compare.compared_methods import (
    DEFAULT_ROUNDS,
    METHODS,
    RoundOptions,
    require_method,
    run_method,
)
from synthfair.compare.federation import federate
from synthfair.config import DistillConfig, ServerConfig
from synthfair.data.partition import partition
from synthfair.data.schema import Schema
from synthfair.errors import InputError, reason
from synthfair.evaluation import evaluation_document
from synthfair.files import write_json

if TYPE_CHECKING:
    import pandas as pd


MOST_SEEDS = 10_000
"""Of one grid."""


class GridPoint(NamedTuple):
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
    def results(self) -> Path:
        """The file that is written last, and whole."""
        return self.folder / "metrics.json"

    def settings(self, config: DistillConfig) -> DistillConfig:
        """The configuration of this run."""
        return config.model_copy(update={"rho_o": self.rho_o, "seed": self.seed})


def make_grid(
    methods: Sequence[str], weights: Sequence[float], seeds: int, output: Path
) -> list[GridPoint]:
    """All points of a grid, seeds first, so that an interrupted one has whole comparisons.

    Methods and weights that are given twice are run once.

    Raises:
        InputError: an unknown method, or one that needs a package that is not installed; too few or
            too many seeds; or a weight that is not allowed.
    """
    for method in methods:
        require_method(method)
    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"seeds = {seeds}: must be 1 to {MOST_SEEDS}")
    if any(not 0 <= weight < float("inf") for weight in weights):
        raise InputError(f"weights {list(weights)}: each must be at least 0 and finite")
    return [
        GridPoint(method, rho_o, seed, output / f"{method}-rho_{_shortest(rho_o)}-seed_{seed}")
        for seed in range(seeds)
        for method in dict.fromkeys(methods)
        for rho_o in dict.fromkeys(weights)
    ]


def _shortest(weight: float) -> str:
    """Text that is read as this very number."""
    short = f"{weight:g}"
    return short if float(short) == weight else repr(weight)


def is_done(
    point: GridPoint,
    schema: Schema,
    config: DistillConfig,
    *,
    clients: int,
    rounds: RoundOptions = DEFAULT_ROUNDS,
) -> bool:
    """Whether the results are there.

    Raises:
        InputError: there are results, but of other settings, clients, or another schema.
    """
    if not point.results.exists():
        return False
    wanted = _identity(point, schema, config, clients, rounds)
    try:
        found = json.loads(point.results.read_bytes())
        same = {name: found.get(name) for name in wanted} == wanted and (
            "train" in wanted or found.get("train") is None
        )
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{point.results}: not a result: {reason(error)}") from error
    if not same:
        raise InputError(
            f"{point.results}: is of another table or other settings; name another folder, or"
            " delete that one"
        )
    return True


def _identity(
    point: GridPoint, schema: Schema, config: DistillConfig, clients: int, rounds: RoundOptions
) -> dict[str, Any]:
    """What metrics.json says of settings and schema, by which a run is known again."""
    own = point.settings(config)
    found: dict[str, Any] = {
        "config": {f"client_{i}": own.model_dump(mode="json") for i in range(clients)},
        "schema_hash": schema.hash,
    }
    if point.method not in METHODS:
        assigned = rounds.assignment.given if rounds.assignment else {}
        settings = rounds.settings(point.method, own)
        found["train"] = settings.model_dump(mode="json") | assigned
    return found


def run_point(
    point: GridPoint,
    table: pd.DataFrame,
    schema: Schema,
    config: DistillConfig,
    *,
    name: str,
    clients: int,
    rounds: RoundOptions = DEFAULT_ROUNDS,
) -> None:
    """Splits, runs, evaluates, and writes metrics.json and, where it distils, the histories.

    Args:
        point: what to run.
        table: all rows.
        schema: of the table.
        config: settings, but for the point's own.
        name: of the table, for the report.
        clients: number of clients.
        rounds: how methods in rounds train.
    """
    federation = federate(partition(table, clients=clients, seed=point.seed), schema)
    settings = point.settings(config)
    report = ServerConfig(seed=point.seed)
    outcome, fitted = run_method(point.method, federation, settings, report, rounds=rounds)
    point.folder.mkdir(parents=True, exist_ok=True)
    for i, distillation in enumerate(fitted.distillations):
        write_history(distillation.history, point.folder / f"client_{i}.history.csv")
    statements = {
        f"client_{i}": distillation.release.header.privacy.model_dump(mode="json")
        for i, distillation in enumerate(fitted.distillations)
    }
    document = {
        **evaluation_document(outcome.evaluation, schema, report),
        "method": point.method,
        "table": {"name": name, "sensitive": schema.sensitive, "clients": clients},
        **_identity(point, schema, config, clients, rounds),
        "cost": fitted.cost._asdict(),
        **({"privacy": statements} if statements else {}),
        **({"guarantee": fitted.guarantee.model_dump(mode="json")} if fitted.guarantee else {}),
        "converged": outcome.converged,
        "seconds": outcome.seconds,
    }
    write_json(point.results, document)
