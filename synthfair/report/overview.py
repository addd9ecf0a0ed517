"""Several runs compared: means over the seeds of runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.fairness.intervals import Shares, gap_interval, size
from synthfair.fairness.metrics import METRIC_OF as MEASURED_BY
from synthfair.fairness.metrics import Metric
from synthfair.metrics_file import MetricsFile
from synthfair.report.results import Result
from synthfair.settings import Target

ACCURACY_GAP = "accuracy_difference"
"""Largest minus smallest accuracy of groups; no metric by itself, it follows from their rates."""

METRIC_OF = MEASURED_BY | {"accuracy_parity": ACCURACY_GAP}
"""The metric by which a notion of fairness is measured, those of methods in rounds too."""

WEIGHT = ("rho_o", "max_gap", "max_client_gap", "alpha")
"""Settings that say how much fairness a run was asked for."""


class Summary(NamedTuple):
    """Runs that differ in the seed alone.

    Attributes:
        method: its name, and the settings in which it differs from other runs, but for those that
            ask for fairness.
        asked: how much fairness.
        runs: at least one.
        accuracy: mean; its interval's bounds are the means of the runs' bounds.
        gap: the same, signed.
        accuracy_spread: standard deviation over runs; 0 for a single one.
        gap_spread: the same.
    """

    method: str
    asked: Target
    runs: tuple[Result, ...]
    accuracy: Metric
    gap: Metric
    accuracy_spread: float
    gap_spread: float

    @property
    def name(self) -> str:
        """Return method and setting of fairness, for a legend."""
        return f"{self.method}, {self.setting}" if self.setting else self.method

    @property
    def setting(self) -> str:
        """Return the fairness that was asked for, in words; empty where no setting says so."""
        amount = _words(self.asked.amounts) if self.asked.amounts else ""
        gaps = [f"gap at most {amount}"] if amount else []
        if most := self.asked.client_gap:
            gaps.append(f"gap of each client at most {most:g}")
        return {
            "weight": f"penalty weight {amount}",
            "tolerance": f"tolerance {amount}" if amount else "no constraint",
            "gap": ", ".join(gaps),
            "row_weights": "reweighted rows",
            "nothing": "",
        }[self.asked.by]

    @property
    def gap_size(self) -> Metric:
        """Return the size of the mean gap, which is not the mean of the sizes."""
        return size(self.gap)

    @property
    def constant(self) -> float:
        """Return the mean accuracy of one decision for everybody; not-a-number if unknown."""
        return fmean(run.metrics.constant_accuracy for run in self.runs)

    @property
    def converged(self) -> bool | None:
        """Return whether all runs that say so converged; None where none says."""
        flags = [r.metrics.converged for r in self.runs if r.metrics.converged is not None]
        return all(flags) if flags else None

    @property
    def effort(self) -> dict[str, object]:
        """Return the means of the runs' costs, by name; None where a cost is not known.

        Rounds between clients and server, bytes sent by all clients together, seconds of wall time,
        and the largest epsilon, if all runs guarantee one.
        """
        costs = [run.metrics.cost for run in self.runs if run.metrics.cost]
        seconds = [r.metrics.seconds for r in self.runs if r.metrics.seconds is not None]
        epsilons = [run.epsilon for run in self.runs if run.epsilon is not None]
        _, rounds, sent = [round(fmean(each)) for each in zip(*costs, strict=True)] or [None] * 3
        return {
            "rounds": rounds,
            "bytes sent": sent,
            "seconds": f"{fmean(seconds):.1f}" if seconds else None,
            "epsilon": f"{max(epsilons):g}" if len(epsilons) == len(self.runs) else None,
        }

    def is_like(self, other: Summary) -> bool:
        """Return whether nothing but the weight of the penalty and the seed may differ."""
        return _identity(self.runs[0], "seed", *WEIGHT) == _identity(other.runs[0], "seed", *WEIGHT)


class Overview(NamedTuple):
    """Runs that can be compared: of one schema and one notion of fairness.

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
        gap = METRIC_OF[result.settings["notion"][0]]
        groups.setdefault((result.metrics.schema_hash, gap), []).append(result)
    return [Overview(*key, _summaries(group, key[1])) for key, group in groups.items()]


def _summaries(results: Sequence[Result], gap: str) -> list[Summary]:
    """Return runs of one schema and notion, by all that they are but for the seed."""
    # Settings, and numbers of clients, of which there are several tell a method from others.
    values: dict[str, set[object]] = {}
    groups: dict[tuple[object, ...], dict[tuple[int, ...], Result]] = {}
    for result in results:
        table, clients = result.metrics.table, len(result.metrics.per_client)
        if table and table.skew and table.clients:  # unlike ones, of which some may be left out
            clients = table.clients
        for key, value in (result.settings | {"tables": clients}).items():
            values.setdefault(key, set()).add(value)
        runs = groups.setdefault(_identity(result, "seed"), {})
        if result.seeds in runs:
            raise InputError(
                f"{result.folder}: differs from {runs[result.seeds].folder} neither in settings nor"
                " in seed; over seeds only different runs are averaged: report them apart"
            )
        runs[result.seeds] = result
    differences = {k for k, v in values.items() if len(v) > 1} - {"seed", *WEIGHT}

    # Means of each group of runs, which is named by what tells it from the others.
    summaries = []
    for group in groups.values():
        runs = list(group.values())
        first, settings = runs[0].metrics, runs[0].settings
        names = [first.method.replace("_", "-") + (", surrogates" if first.server else "")]
        names += [f"{len(first.per_client)} clients"] if "tables" in differences else []
        names += [f"{key} = {_words(v)}" for key, v in settings.items() if key in differences]
        accuracies, gaps = [r.metrics.accuracy for r in runs], [_gap(r.metrics, gap) for r in runs]
        accuracy, mean_gap = mean_metric(accuracies), mean_metric(gaps)
        spreads = (
            float(np.std([m.value for m in metrics], ddof=1)) if len(runs) > 1 else 0.0
            for metrics in (accuracies, gaps)
        )
        method = "; ".join(names)
        summaries.append(Summary(method, first.asked, tuple(runs), accuracy, mean_gap, *spreads))
    return summaries


def mean_metric(metrics: Iterable[Metric]) -> Metric:
    """Return the mean of several runs' metrics; its interval is that of one run, not of a mean."""
    return Metric(*map(fmean, zip(*metrics, strict=True)))


def _identity(result: Result, *keys: str) -> tuple[object, ...]:
    """Return all that a run is, without some settings."""
    metrics = result.metrics
    settings = [value for key, value in result.settings.items() if key not in keys]
    data: tuple[object, ...] = (metrics.table,)
    if not (metrics.table and metrics.table.skew):  # else they differ between seeds
        data += (metrics.n_test, tuple(metrics.config), tuple(metrics.per_client))
    train = metrics.train.model_dump_json(exclude=set(keys)) if metrics.train else None
    weights = metrics.weights.model_dump_json() if metrics.weights else None
    return (metrics.method, *data, train, weights, *settings)


def _gap(metrics: MetricsFile, name: str) -> Metric:
    if name != ACCURACY_GAP:
        return metrics.overall[name]
    n, *_, rate = np.array([*metrics.by_group.values()], float).T
    errors = Shares(rate * n, n)
    return gap_interval(errors.of_at_least(metrics.min_group_rows))


def _words(values: tuple[object, ...]) -> str:
    """Return the value that all clients have."""
    first, *others = values
    if others:
        return "several"
    return f"{first:g}" if isinstance(first, float) else str(first)
