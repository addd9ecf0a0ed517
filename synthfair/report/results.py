"""The runs of a report, averaged over seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.intervals import Shares, gap_interval, size
from synthfair.fairness.metrics import NOTION_METRICS, Metric
from synthfair.fairness.target import Target
from synthfair.files import read_as
from synthfair.measure.gaps_file import GAPS_NAME, GapsFile
from synthfair.metrics_file import (
    FRONTIER,
    MAX_METRICS_BYTES,
    METRICS,
    FrontierLine,
    MetricsFile,
    read_frontier,
    read_metrics,
)
from synthfair.report.text_table import as_text
from synthfair.report.words import render
from synthfair.server.settings import FOR_SURROGATES
from synthfair.task.federation_file import FEDERATION, FederationFile
from synthfair.trained import TrainedModel, read_model

ACCURACY_GAP = "accuracy_difference"
"""Largest minus smallest accuracy of groups; no metric by itself, it follows from their rates."""

GAP_OF = NOTION_METRICS | {"accuracy_parity": ACCURACY_GAP}
"""The metric by which a notion of fairness is measured, those of methods in rounds too."""

FAIRNESS_SETTINGS = ("rho_o", "max_gap", "max_client_gap", "min_ratio", "alpha")
"""Settings that say how much fairness a run was asked for."""


_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "gaps": (GAPS_NAME, GapsFile.read),  # of gap aggregate or a deployment's job
    "frontier": (FRONTIER, read_frontier),  # of server --frontier
    "federation": (FEDERATION, lambda path: read_as(path, FederationFile, MAX_METRICS_BYTES)),
    "model": ("model.json", read_model),
}
"""Names and readers of the files that may stand next to metrics.json."""

RUN_FILES = (METRICS, *(name for name, _ in _READERS.values()))
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

    def metric(self, name: str) -> Metric:
        """Return a metric over all test rows, the difference of the groups' accuracies too."""
        if name != ACCURACY_GAP:
            return self.metrics.overall[name]
        n, *_, rate = np.array([*self.metrics.by_group.values()], float).T
        return gap_interval(Shares(rate * n, n).of_at_least(self.metrics.min_group_rows))

    @property
    def gap(self) -> str:
        """Return the name of the metric by which the run's notion of fairness is measured."""
        return GAP_OF[self.settings["notion"][0]]

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
        configs: list[Any] = list(metrics.config.values())
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
        table, n_tables = metrics.table, len(metrics.per_client)
        if table and table.skew and table.clients:  # unlike ones, of which some may be left out
            n_tables = table.clients
        return settings | {"tables": (n_tables,)}

    def identity(self, *keys: str) -> tuple[object, ...]:
        """Return all that a run is, without its seeds and some settings."""
        metrics, keys = self.metrics, (*keys, "seed")
        settings = [value for key, value in self.settings.items() if key not in keys]
        data: tuple[object, ...] = (metrics.table,)
        if not (metrics.table and metrics.table.skew):  # else they differ between seeds
            data += (metrics.n_test, tuple(metrics.config), tuple(metrics.per_client))
        train = metrics.train.model_dump_json(exclude=set(keys)) if metrics.train else None
        weights = metrics.weights.model_dump_json() if metrics.weights else None
        return (metrics.method, *data, train, weights, *settings)

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
    paths = [Path(os.path.realpath(folder)) for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise InputError(f"{folder}: given more than once; give each run once")
    root = os.path.commonpath([path.parent for path in paths] or [""])
    names = ["-".join(map(as_text, path.relative_to(root).parts)) for path in paths]
    if len({*names}) < len(names):
        names = [f"{name}-{i}" for i, name in enumerate(names)]
    results = []
    for name, folder in zip(names, folders, strict=True):
        files = {
            key: read(folder / file)
            for key, (file, read) in _READERS.items()
            if (folder / file).exists()
        }
        results.append(Result(folder, name, read_metrics(folder / METRICS), **files))
    return results


class Summary(NamedTuple):
    """A summary of runs that differ in the seed alone.

    Attributes:
        method: its name, and the settings in which it differs from other runs, but for those that
            ask for fairness.
        metric: by which the gap is measured.
        runs: at least one.
    """

    method: str
    metric: str
    runs: tuple[Result, ...]

    def metrics(self, name: str) -> list[Metric]:
        """Return a metric of each run."""
        return [run.metric(name) for run in self.runs]

    @property
    def accuracy(self) -> Metric:
        """Return the mean accuracy; its interval's bounds are the means of the runs' bounds."""
        return mean_metric(self.metrics("accuracy"))

    @property
    def gap(self) -> Metric:
        """Return the mean of the signed gap, with bounds as of the accuracy."""
        return mean_metric(self.metrics(self.metric))

    @property
    def ratio(self) -> Metric:
        """Return the mean ratio of the lowest selection rate to the highest."""
        return mean_metric(self.metrics("selection_ratio"))

    @property
    def asked(self) -> Target:
        """Return how much fairness was asked for."""
        return self.runs[0].metrics.asked

    @property
    def name(self) -> str:
        """Return method and setting of fairness, for a legend."""
        return f"{self.method}, {self.setting}" if self.setting else self.method

    @property
    def setting(self) -> str:
        """Return the fairness that was asked for, in words; empty where no setting says so."""
        return render("setting.txt.j2", asked=self.asked)

    @property
    def gap_size(self) -> Metric:
        """Return the size of the mean gap, which is not the mean of the sizes."""
        return size(self.gap)

    @property
    def constant(self) -> float:
        """Return the mean accuracy of one decision for everybody; not-a-number if unknown."""
        return fmean(run.metrics.constant_accuracy for run in self.runs)

    @property
    def effort(self) -> dict[str, object]:
        """Return the means of the runs' costs, by name; None where a cost is not known.

        Rounds between clients and server, bytes sent by all clients together, seconds of wall time,
        the largest epsilon, if all runs guarantee one, and whether those that say so converged.
        """
        flags = {run.metrics.converged for run in self.runs} - {None}
        costs = [run.metrics.cost for run in self.runs if run.metrics.cost]
        seconds = [r.metrics.seconds for r in self.runs if r.metrics.seconds is not None]
        epsilons = [run.epsilon for run in self.runs if run.epsilon is not None]
        _, rounds, sent = [round(fmean(each)) for each in zip(*costs, strict=True)] or [None] * 3
        return {
            "rounds": rounds,
            "bytes sent": sent,
            "seconds": f"{fmean(seconds):.1f}" if seconds else None,
            "epsilon": f"{max(epsilons):g}" if len(epsilons) == len(self.runs) else None,
            "converged": ("NO" if False in flags else "yes") if flags else None,
        }

    def is_like(self, other: Summary) -> bool:
        """Return whether nothing but the weight of the penalty and the seed may differ."""
        ours, theirs = (s.runs[0].identity(*FAIRNESS_SETTINGS) for s in (self, other))
        return ours == theirs


class Overview(NamedTuple):
    """An overview of runs that can be compared: of one schema and one notion of fairness.

    Attributes:
        schema_hash: of the schema.
        gap: name of the metric that belongs to the notion.
        summaries: of the runs.
    """

    schema_hash: str
    gap: str
    summaries: list[Summary]


def overviews(results: Sequence[Result]) -> list[Overview]:
    """Return an overview of each schema and notion, in the order of the results.

    Raises:
        InputError: two runs differ in nothing, not even the seed.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.metrics.schema_hash, result.gap), []).append(result)
    return [Overview(*key, _summaries(group, key[1])) for key, group in groups.items()]


def _summaries(results: Sequence[Result], gap: str) -> list[Summary]:
    """Return runs of one schema and notion, by all that they are but for the seed."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        runs = groups.setdefault(result.identity(), [])
        for twin in (run for run in runs if run.seeds == result.seeds):
            raise InputError(
                f"{result.folder}: differs from {twin.folder} neither in settings nor in seed; over"
                " seeds only different runs are averaged: report them apart"
            )
        runs.append(result)
    # Settings, and numbers of clients, of which there are several tell a method from others.
    settings = [result.settings for result in results]
    keys = {key for values in settings for key in values} - {"seed", *FAIRNESS_SETTINGS}
    differences = {key for key in keys if len({v[key] for v in settings if key in v}) > 1}
    summaries = []
    for runs in groups.values():
        first = runs[0].metrics
        names = [first.method.replace("_", "-") + (", surrogates" if first.server else "")]
        values = runs[0].settings.items()
        names += [f"{key} = {_words(value)}" for key, value in values if key in differences]
        summaries.append(Summary("; ".join(names), gap, tuple(runs)))
    return summaries


def mean_metric(metrics: Iterable[Metric]) -> Metric:
    """Return the mean of several runs' metrics; its interval is that of one run, not of a mean."""
    return Metric(*map(fmean, zip(*metrics, strict=True)))


def _words(values: tuple[object, ...]) -> str:
    """Return the value that all clients have."""
    first, *rest = values
    if rest:
        return "several"
    return f"{first:g}" if isinstance(first, float) else str(first)
