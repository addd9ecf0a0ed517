"""Several runs compared: means over the seeds of runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from synthfair.config.train import is_read
from synthfair.errors import InputError
from synthfair.report.plots import Point
from synthfair.report.results import Result
from synthfair.run_files import MetricsFile

ACCURACY_GAP = "accuracy_difference"
"""Largest minus smallest accuracy of groups; no metric by itself, it follows from their rates."""

METRIC_OF = {
    "statistical_parity": "spd",
    "equal_opportunity": "equal_opportunity_difference",
    "equalized_odds": "equalized_odds_difference",
    "accuracy_parity": ACCURACY_GAP,
}
"""The metric by which a notion of fairness is measured."""

_WEIGHT = ("rho_o", "max_gap", "alpha")


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
        method: its name, and the settings in which it differs from other runs, but for the weight.
        weight: of the penalty, in words.
        runs: their names.
        accuracy: mean.
        gap: mean, signed.
        accuracy_spread: standard deviation over runs; 0 for a single one.
        gap_spread: the same.
        converged: whether all did, as far as their metrics.json says.
        cost: rounds, bytes sent and seconds, means where they are known.
        epsilon: the largest guaranteed, if all runs guarantee one.
    """

    method: str
    weight: str
    runs: tuple[str, ...]
    accuracy: float
    gap: float
    accuracy_spread: float
    gap_spread: float
    converged: bool
    cost: Effort
    epsilon: float | None

    @property
    def point(self) -> Point:
        """For the frontier."""
        return Point(abs(self.gap), self.accuracy, self.gap_spread, self.accuracy_spread)


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

    @property
    def curves(self) -> dict[str, list[Point]]:
        """A curve over the weights for each method."""
        curves: dict[str, list[Point]] = {}
        for summary in self.summaries:
            curves.setdefault(summary.method, []).append(summary.point)
        return curves


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
    differing = [key for key in _differing(results) if key not in _WEIGHT]
    if len({_clients(result) for result in results}) > 1:
        differing.append("clients")
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_all_but_the_seed(result), []).append(result)
    for group in groups.values():
        _refuse_repeated_seeds(group)
    return [_summary(group, gap, differing) for group in groups.values()]


def _all_but_the_seed(result: Result) -> tuple[object, ...]:
    metrics = result.metrics
    settings = [value for key, value in result.settings.items() if key != "seed"]
    data = (metrics.table,)
    if metrics.table is None:  # what a table is split into may differ between seeds
        data += (metrics.n_test, tuple(metrics.config), tuple(metrics.per_client))
    train = metrics.train.model_dump_json(exclude={"seed"}) if metrics.train else None
    weights = metrics.weights.model_dump_json() if metrics.weights else None
    return (metrics.method, *data, train, weights, *settings)


def _clients(result: Result) -> int:
    """How many there are; where small ones are left out, how many there were to be."""
    table = result.metrics.table
    return (table and table.clients) or len(result.metrics.per_client)


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
    values = np.array([(m.accuracy.value, _gap(m, gap)) for m in metrics])
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(2)
    method = metrics[0].method.replace("_", "-")
    own = [f"{key} = {_words(settings[key])}" for key in differing if key in settings]
    clients = [f"{len(metrics[0].per_client)} clients"] if "clients" in differing else []
    return Summary(
        method="; ".join([method, *clients, *own]),
        weight=_weight(settings),
        runs=tuple(run.name for run in runs),
        accuracy=float(mean[0]),
        gap=float(mean[1]),
        accuracy_spread=float(spread[0]),
        gap_spread=float(spread[1]),
        converged=all(m.converged is not False for m in metrics),
        cost=_effort(metrics),
        epsilon=max(epsilons) if len(epsilons) == len(runs) else None,
    )


def _gap(metrics: MetricsFile, name: str) -> float:
    if name != ACCURACY_GAP:
        return getattr(metrics, name).value
    errors = [rates.error_rate for rates in metrics.by_group.values()]
    return float(np.max(errors) - np.min(errors))  # not-a-number where one is


def _effort(metrics: Sequence[MetricsFile]) -> Effort:
    costs = [m.cost for m in metrics if m.cost]
    seconds = [m.seconds for m in metrics if m.seconds is not None]
    columns = ([cost.rounds for cost in costs], [cost.bytes_sent for cost in costs], seconds)
    return Effort(*(float(np.mean(column)) if column else np.nan for column in columns))


def _weight(settings: Mapping[str, tuple[Any, ...]]) -> str:
    if "rho_o" not in settings:  # of training in rounds, or of thresholds, which have no method
        constrained = all(is_read("alpha", method) for method in settings.get("method", ()))
        return f"alpha = {_words(settings['alpha'])}" if constrained else "none"
    if settings["max_gap"] == (None,):
        return f"rho_o = {_words(settings['rho_o'])}"
    return f"gap at most {_words(settings['max_gap'])} wanted"


def _words(values: tuple[object, ...]) -> str:
    """The value that all clients have."""
    if len(values) > 1:
        return "several"
    value = next(iter(values))
    return f"{value:g}" if isinstance(value, float) else str(value)
