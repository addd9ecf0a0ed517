"""The grid of a comparison, each of whose points is a run of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synthfair.compare import compared_methods
from synthfair.data.partition import Split
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.metrics_file import (
    METRICS,
    MetricsFile,
    RoundSettings,
    SplitTable,
    read_metrics,
    write_metrics,
)
from synthfair.release.settings import DistillConfig
from synthfair.server.settings import ServerConfig

if TYPE_CHECKING:
    import pandas as pd

MAX_SEEDS = 10_000
"""Of one grid."""


class ComparedTable(NamedTuple):
    """The rows on which methods are compared.

    Attributes:
        table: all rows.
        schema: of the table.
        name: a named table's, or the path of a file.
        split: how the rows become clients.
        sha256: of the file; None for a named table, which is what its name says.
        min_group_rows: gaps leave out groups with fewer test rows.
    """

    table: pd.DataFrame
    schema: Schema
    name: str
    split: Split = Split()
    sha256: str | None = None
    min_group_rows: int = 0

    @property
    def document(self) -> SplitTable:
        """Return what metrics.json says of the table."""
        file = {"sha256": self.sha256} if self.sha256 else {}
        named = {"name": self.name, "sensitive": self.schema.sensitive}
        return SplitTable.model_validate(named | self.split.arguments | file)


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
        """Return the file that is written last, and whole."""
        return self.folder / METRICS

    def settings(self, config: DistillConfig) -> DistillConfig:
        """Return the configuration of this run."""
        return config.model_copy(update={"rho_o": self.rho_o, "seed": self.seed})


def make_grid(
    methods: Sequence[str], weights: Sequence[float], seeds: int, output: Path
) -> list[GridPoint]:
    """Return a grid's points by seed, so that an interrupted one has whole comparisons.

    Methods and weights that are given twice are run once. Methods that read no weight have one run
    a seed, with rho_o = 0.

    Raises:
        InputError: an unknown method, or one that needs a package that is not installed; too few or
            too many seeds; or a weight that is not allowed.
    """
    for method in methods:
        compared_methods.require_method(method)
    if not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"seeds = {seeds}: must be 1 to {MAX_SEEDS}")
    if any(not 0 <= weight < float("inf") for weight in weights):
        raise InputError(f"weights {list(weights)}: each must be at least 0 and finite")
    named = {f"-rho_{float(weight)!r}".removesuffix(".0"): weight for weight in weights}
    return [
        GridPoint(method, rho_o, seed, output / f"{method}{name}-seed_{seed}")
        for seed in range(seeds)
        for method in dict.fromkeys(methods)
        for name, rho_o in ({"": 0.0} if method in compared_methods.UNWEIGHTED else named).items()
    ]


def is_done(point: GridPoint, compared: ComparedTable, config: DistillConfig) -> bool:
    """Return whether the results are there.

    Raises:
        InputError: there are results, but of other settings, clients, or another table.
    """
    if not point.results.exists():
        return False
    written, settings = read_metrics(point.results), point.settings(config)
    train = _train(point, config)
    wanted = compared.document, compared.schema.hash, compared.min_group_rows, train
    same = (written.table, written.schema_hash, written.min_group_rows, written.train) == wanted
    if not (same and all(config == settings for config in written.config.values())):
        raise InputError(
            f"{point.results}: is of another table or other settings; name another folder, or"
            " delete that one"
        )
    return True


def _train(point: GridPoint, config: DistillConfig) -> RoundSettings | None:
    """Return the settings of a method in rounds; None of others."""
    if point.method not in compared_methods.IN_ROUNDS:
        return None
    settings = compared_methods.round_settings(point.method, point.settings(config))
    return RoundSettings.model_validate(settings.model_dump())


def run_point(
    point: GridPoint,
    compared: ComparedTable,
    config: DistillConfig,
    *,
    shared: compared_methods.SurrogateCache | None = None,
) -> None:
    """Split, run, evaluate, and write metrics.json.

    Args:
        point: what to run.
        compared: the rows, and how they become clients.
        config: settings, but for the point's own.
        shared: surrogates of the same table, split and privacy, which other weights have made.
    """
    schema, settings = compared.schema, point.settings(config)
    federation = compared_methods.federate(
        compared.split.apply(compared.table, schema, seed=point.seed), schema
    )
    report = ServerConfig(
        seed=point.seed, min_group_rows=compared.min_group_rows, groups_by=config.groups_by
    )
    evaluation, fitted = compared_methods.run_method(
        point.method, federation, settings, report, shared=shared
    )
    point.folder.mkdir(parents=True, exist_ok=True)
    clients = zip(federation.names, fitted.distillations, strict=False)  # or none
    headers = {name: client.release.header for name, client in clients}
    document = MetricsFile.of(
        evaluation,
        method=point.method,
        config=dict.fromkeys(federation.names, settings),
        table=compared.document,
        train=_train(point, config),
        guarantees={name: header.guarantee for name, header in headers.items()},
        hides_pairs=tuple(name for name, header in headers.items() if header.hides_pairs),
        asked=fitted.target,
        converged=fitted.converged,
        cost=fitted.cost,
        seconds=fitted.seconds,
    )
    write_metrics(document, point.results)
