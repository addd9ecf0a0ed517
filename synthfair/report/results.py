"""What a report shows: folders with a metrics.json, and what may stand next to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.client.history import ENDING, History, read_history
from synthfair.config import Asked, DistillConfig
from synthfair.config.server import FOR_SURROGATES
from synthfair.errors import InputError
from synthfair.federation_file import FILE as FEDERATION
from synthfair.federation_file import FederationFile
from synthfair.run_files import (
    FrontierLine,
    GapsFile,
    MetricsFile,
    read_frontier,
    read_run_file,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

METRICS = "metrics.json"
"""Name of the file in a run's folder."""

GAPS = "gaps.json"
"""Name of the file next to it that ``gap simulate --model`` writes; it may be missing."""

FRONTIER = "frontier.csv"
"""Name of the file that ``server --frontier`` writes there; it may be missing."""


class Result(NamedTuple):
    """One run.

    Attributes:
        folder: it comes from.
        name: of that; fit to name files.
        metrics: from metrics.json.
        histories: of the clients, by name; only where they were written.
        gaps: measured over devices, where they were.
        frontier: other weights of a server's penalty, and what they reach; often none.
        federation: how the sites of a federation have answered, where it was one.
    """

    folder: Path
    name: str
    metrics: MetricsFile
    histories: dict[str, History]
    gaps: GapsFile | None = None
    frontier: tuple[FrontierLine, ...] = ()
    federation: FederationFile | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds there are: of the report, and of the clients."""
        train = [self.metrics.train] if self.metrics.train else []
        return (self.metrics.seed, *(c.seed for c in (*self.metrics.config.values(), *train)))

    @property
    def settings(self) -> dict[str, tuple[Any, ...]]:
        """The different values that the clients have of each setting; usually one.

        Of surrogates, fairness is the server's setting.
        """
        configs: list[BaseModel] = list(self.metrics.config.values())
        if not configs:
            configs += [c for c in (self.metrics.train, self.metrics.decision) if c]
        values = [config.model_dump() for config in configs]
        own = {key: tuple(dict.fromkeys(v[key] for v in values)) for key in values[0]}
        if server := self.metrics.server:
            own |= {key: (getattr(server, key),) for key in FOR_SURROGATES}
            own["rho_o"] = own.pop("rho")
        return own

    @property
    def asked(self) -> Asked:
        """How much fairness; where an older file does not say so, by its settings."""
        metrics = self.metrics
        if metrics.asked:
            return metrics.asked
        if metrics.weights:
            return Asked(by="row_weights")
        if metrics.decision:
            return Asked(by="tolerance", amounts=(metrics.decision.alpha,))
        if config := metrics.train or metrics.server:
            return config.asked
        configs = metrics.config.values()
        return Asked.of(c.asked for c in configs if isinstance(c, DistillConfig))

    @property
    def epsilon(self) -> float | None:
        """The largest of all users or clients; None where one of them has no guarantee."""
        if self.metrics.guarantee:
            return None if self.metrics.guarantee.condition else self.metrics.guarantee.epsilon
        guarantees = [statement.guarantee for statement in self.metrics.privacy.values()]
        known = [guarantee.epsilon for guarantee in guarantees if guarantee]
        return max(known) if known and len(known) == len(guarantees) else None


def read_results(folders: Sequence[Path]) -> list[Result]:
    """Runs from their folders: metrics.json and what else a run may have left there.

    Raises:
        InputError: a folder is given twice, its metrics.json is unreadable or not what a server
            writes, or another of these files is not.
    """
    places = [os.path.realpath(folder) for folder in folders]
    for folder in folders:
        if places.count(os.path.realpath(folder)) > 1:
            raise InputError(f"{folder}: given more than once; give each run once")
    return [
        _read_result(folder, name) for name, folder in zip(run_names(folders), folders, strict=True)
    ]


def _read_result(folder: Path, name: str) -> Result:
    metrics, gaps = read_run_file(folder / METRICS, MetricsFile), folder / GAPS
    measured = read_run_file(gaps, GapsFile) if gaps.exists() else None
    lines = folder / FRONTIER
    frontier = read_frontier(lines) if lines.exists() else ()
    sites = folder / FEDERATION
    federation = read_run_file(sites, FederationFile) if sites.exists() else None
    return Result(folder, name, metrics, read_histories(folder), measured, frontier, federation)


def run_names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, with as many of those above them as make them differ."""
    parts = [
        tuple(map(shown, Path(os.path.realpath(folder)).parts[1:])) or ("run",)
        for folder in folders
    ]
    names: list[str] = []
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["-".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{i}" for i, name in enumerate(names)]


def read_histories(folder: Path) -> dict[str, History]:
    """Every ``*.history.csv`` of a folder, by what stands for the star.

    Raises:
        InputError: one is not a history.
    """
    return {
        shown(file.name.removesuffix(ENDING)): read_history(file)
        for file in sorted(folder.glob(f"*{ENDING}"))
    }


def inputs_of(folder: Path) -> list[Path]:
    """The files that are read from a run's folder."""
    named = [folder / name for name in (METRICS, GAPS, FRONTIER, FEDERATION)]
    return [*named, *sorted(folder.glob(f"*{ENDING}"))]


def shown(name: str) -> str:
    """A file's name with a mark in place of what cannot be printed."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
