"""Several runs compared: means over the seeds of runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.config import Asked
from synthfair.errors import InputError
from synthfair.fairness.intervals import Shares, gap_interval, size
from synthfair.fairness.metrics import METRIC_OF as MEASURED_BY
from synthfair.fairness.metrics import Metric
from synthfair.report.results import Result
from synthfair.run_files import MetricsFile

ACCURACY_GAP = "accuracy_difference"
"""Largest minus smallest accuracy of groups; no metric by itself, it follows from their rates."""

METRIC_OF = MEASURED_BY | {"accuracy_parity": ACCURACY_GAP}
"""The metric by which a notion of fairness is measured, those of methods in rounds too."""

WEIGHT = ("rho_o", "max_gap", "alpha")
"""Settings that say how much fairness a run was asked for."""


class Effort(NamedTuple):
    """Means over runs; not-a-number where no run reports them.

    Attributes:
        rounds: between clients and server.
        bytes_sent: by all clients together.
        seconds: of wall time.
    """

    rounds: float
    bytes_sent: float
    seconds: float


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
        converged: whether all did, as far as their metrics.json says; None where none says.
        cost: rounds, bytes sent and seconds, means where they are known.
        epsilon: the largest guaranteed, if all runs guarantee one.
    """

    method: str
    asked: Asked
    runs: tuple[Result, ...]
    accuracy: Metric
    gap: Metric
    accuracy_spread: float
    gap_spread: float
    converged: bool | None
    cost: Effort
    epsilon: float | None

    @property
    def name(self) -> str:
        """Method and setting of fairness, for a legend."""
        return f"{self.method}, {self.setting}" if self.setting else self.method

    @property
    def setting(self) -> str:
        """How much fairness was asked for, in words; empty where no setting says so."""
        return _asked_in_words(self.asked)

    @property
    def gap_size(self) -> Metric:
        """Of the mean gap, which is not the mean of the sizes."""
        return size(self.gap)

    @property
    def wanted(self) -> float | None:
        """The largest gap that training aimed at; of several clients' the smallest."""
        return min(self.asked.amounts) if self.asked.by == "gap" else None

    @property
    def labelled(self) -> bool:
        """Whether the test rows have labels."""
        return not np.isnan(self.accuracy.value)

    @property
    def constant(self) -> float:
        """Mean accuracy of one decision for everybody; not-a-number where it is not known."""
        known = [run.metrics.constant_classifier for run in self.runs]
        return sum(one["accuracy"] if one else np.nan for one in known) / len(known)

    def is_like(self, other: Summary) -> bool:
        """Whether nothing but the weight of the penalty and the seed may differ."""
        return _all_but(self.runs[0], "seed", *WEIGHT) == _all_but(other.runs[0], "seed", *WEIGHT)


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
    """One for each schema and notion, in the order of the results.

    Raises:
        InputError: two runs differ in nothing, not even the seed.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        gap = METRIC_OF[result.settings["notion"][0]]
        groups.setdefault((result.metrics.schema_hash, gap), []).append(result)
    return [Overview(*key, _summaries(group, key[1])) for key, group in groups.items()]


def _summaries(results: Sequence[Result], gap: str) -> list[Summary]:
    differing = [key for key in _differing(results) if key not in WEIGHT]
    if len({_clients(result) for result in results}) > 1:
        differing.append("clients")
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_all_but(result, "seed"), []).append(result)
    for group in groups.values():
        _refuse_repeated_seeds(group)
    return [_summary(group, gap, differing) for group in groups.values()]


def _all_but(result: Result, *keys: str) -> tuple[object, ...]:
    """What a run is, without some settings."""
    metrics = result.metrics
    settings = [value for key, value in result.settings.items() if key not in keys]
    data: tuple[object, ...] = (metrics.table,)
    if not (metrics.table and metrics.table.skew):  # else they differ between seeds
        data += (metrics.n_test, tuple(metrics.config), tuple(metrics.per_client))
    train = metrics.train.model_dump_json(exclude=set(keys)) if metrics.train else None
    weights = metrics.weights.model_dump_json() if metrics.weights else None
    return (metrics.method, *data, train, weights, *settings)


def _clients(result: Result) -> int:
    """How many there are; of unlike ones, of which some may be left out, how many to be."""
    table = result.metrics.table
    if table and table.skew and table.clients:
        return table.clients
    return len(result.metrics.per_client)


def _refuse_repeated_seeds(runs: Sequence[Result]) -> None:
    seen: dict[tuple[int, ...], Result] = {}
    for run in runs:
        if run.seeds in seen:
            raise InputError(
                f"{run.folder}: differs from {seen[run.seeds].folder} neither in settings nor in"
                " seed; over seeds only different runs are averaged: report them apart"
            )
        seen[run.seeds] = run


def _differing(results: Sequence[Result]) -> list[str]:
    """Settings of which there are several values; methods of one kind may not have another's."""
    keys = dict.fromkeys(key for result in results for key in result.settings if key != "seed")
    values = {key: {r.settings[key] for r in results if key in r.settings} for key in keys}
    return [key for key in keys if len(values[key]) > 1]


def _summary(runs: Sequence[Result], gap: str, differing: Sequence[str]) -> Summary:
    metrics, settings = [run.metrics for run in runs], runs[0].settings
    epsilons = [run.epsilon for run in runs if run.epsilon is not None]
    accuracies, gaps = [m.accuracy for m in metrics], [_gap(m, gap) for m in metrics]
    method = metrics[0].method.replace("_", "-") + (", surrogates" if metrics[0].server else "")
    own = [f"{key} = {_words(settings[key])}" for key in differing if key in settings]
    clients = [f"{len(metrics[0].per_client)} clients"] if "clients" in differing else []
    known = [m.converged for m in metrics if m.converged is not None]
    return Summary(
        method="; ".join([method, *clients, *own]),
        asked=runs[0].asked,
        runs=tuple(runs),
        accuracy=_mean(accuracies),
        gap=_mean(gaps),
        accuracy_spread=_spread(accuracies),
        gap_spread=_spread(gaps),
        converged=all(known) if known else None,
        cost=_effort(metrics),
        epsilon=max(epsilons) if len(epsilons) == len(runs) else None,
    )


def _mean(values: Sequence[Metric]) -> Metric:
    """Of values, and of lower and of upper bounds: the interval of one run, not of their mean."""
    return Metric(*(sum(column) / len(values) for column in zip(*values, strict=True)))


def _spread(values: Sequence[Metric]) -> float:
    return float(np.std([v.value for v in values], ddof=1)) if len(values) > 1 else 0.0


def _gap(metrics: MetricsFile, name: str) -> Metric:
    if name != ACCURACY_GAP:
        return getattr(metrics, name)
    groups = metrics.by_group.values()
    rows = np.array([rates.n for rates in groups])
    errors = Shares(np.array([rates.error_rate for rates in groups]) * rows, rows)
    return gap_interval(errors.of_at_least(metrics.min_group_rows))


def _effort(metrics: Sequence[MetricsFile]) -> Effort:
    costs = [m.cost for m in metrics if m.cost]
    seconds = [m.seconds for m in metrics if m.seconds is not None]
    columns = ([cost.rounds for cost in costs], [cost.bytes_sent for cost in costs], seconds)
    return Effort(*(float(np.mean(column)) if column else np.nan for column in columns))


def _asked_in_words(asked: Asked) -> str:
    """Empty for a method that has no setting of fairness."""
    value = _words(asked.amounts) if asked.amounts else None
    return {
        "weight": f"penalty weight {value}",
        "tolerance": f"tolerance {value}" if value else "no constraint",
        "gap": f"gap at most {value}",
        "row_weights": "reweighted rows",
        "nothing": "",
    }[asked.by]


def _words(values: tuple[object, ...]) -> str:
    """The value that all clients have."""
    if len(values) > 1:
        return "several"
    value = next(iter(values))
    return f"{value:g}" if isinstance(value, float) else str(value)
