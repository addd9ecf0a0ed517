"""Results for a report: folders with a metrics.json, and the files that may stand next to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from synthfair.errors import InputError
from synthfair.files import read_as
from synthfair.measure.gaps_file import GAPS, GapsFile, read_gaps
from synthfair.metrics_file import (
    FRONTIER,
    MAX_BYTES,
    METRICS,
    FrontierLine,
    MetricsFile,
    read_frontier,
    read_metrics,
)
from synthfair.report.text_table import as_text
from synthfair.settings import FOR_SURROGATES
from synthfair.task.federation_file import FILE as FEDERATION
from synthfair.task.federation_file import FederationFile
from synthfair.trained import TrainedModel, read_model

if TYPE_CHECKING:
    from pydantic import BaseModel

_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "gaps": (GAPS, read_gaps),  # of gap aggregate or a deployment's job
    "frontier": (FRONTIER, read_frontier),  # of server --frontier
    "federation": (FEDERATION, lambda path: read_as(path, FederationFile, MAX_BYTES)),
    "model": ("model.json", read_model),
}
"""Names and readers of the files that may stand next to metrics.json."""

FILES = (METRICS, *(name for name, _ in _READERS.values()))
"""Names of all files that are read from a run's folder; only the first must be there."""


class Result(NamedTuple):
    """The files of one run.

    Attributes:
        folder: it comes from.
        name: of that; fit to name files.
        metrics: from metrics.json.
        gaps: measured in private, where they were.
        frontier: other weights of a server's penalty, and what they reach; often none.
        federation: how the sites of a federation have answered, where it was one.
        model: that was trained, where its file is there.
    """

    folder: Path
    name: str
    metrics: MetricsFile
    gaps: GapsFile | None = None
    frontier: tuple[FrontierLine, ...] = ()
    federation: FederationFile | None = None
    model: TrainedModel | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return all seeds of the run: of the report, and of the clients."""
        train = [self.metrics.train] if self.metrics.train else []
        return (self.metrics.seed, *(c.seed for c in (*self.metrics.config.values(), *train)))

    @property
    def settings(self) -> dict[str, tuple[Any, ...]]:
        """Return the different values that the clients have of each setting; usually one.

        Of surrogates, fairness is the server's setting.
        """
        metrics = self.metrics
        configs: list[BaseModel] = list(metrics.config.values())
        configs = configs or [c for c in (metrics.train, metrics.decision) if c]
        values = [config.model_dump() for config in configs]
        keys = dict.fromkeys(key for value in values for key in value)
        settings = {key: tuple(dict.fromkeys(v.get(key) for v in values)) for key in keys}
        if not any(settings.get("notion", ())):  # methods that read none
            settings["notion"] = ("statistical_parity",)
        if metrics.server:
            settings |= {key: (getattr(metrics.server, key),) for key in FOR_SURROGATES}
            settings["rho_o"] = settings.pop("rho")
        if metrics.groups_by:
            settings["groups_by"] = (metrics.groups_by,)
        return settings

    @property
    def reads_groups(self) -> bool:
        """Return whether a decision takes the group: the model reads it, or decides by group."""
        return any(self.settings.get("group_input", ())) or self.metrics.decision is not None

    @property
    def epsilon(self) -> float | None:
        """Return the largest epsilon of all users or clients; None where one has no guarantee."""
        if whole := self.metrics.guarantee:
            return None if whole.condition else whole.epsilon
        guarantees = self.metrics.guarantees.values()
        return max((g.epsilon for g in guarantees if g), default=None) if all(guarantees) else None


def read_results(folders: Sequence[Path]) -> list[Result]:
    """Return runs from their folders: metrics.json and what else a run may have left there.

    Raises:
        InputError: a folder is given twice, its metrics.json is unreadable or not what a server
            writes, or another of these files is not.
    """
    places = [os.path.realpath(folder) for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{folder}: given more than once; give each run once")
    results = []
    for name, folder in zip(run_names(folders), folders, strict=True):
        there = {key: of for key, of in _READERS.items() if (folder / of[0]).exists()}
        others = {key: read(folder / file) for key, (file, read) in there.items()}
        results.append(Result(folder, name, read_metrics(folder / METRICS), **others))
    return results


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' own names, with as many of those above them as make them differ."""
    parts = [
        tuple(map(as_text, Path(os.path.realpath(folder)).parts[1:])) or ("run",)
        for folder in folders
    ]
    names: list[str] = []
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["-".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{i}" for i, name in enumerate(names)]
