"""Runs of an experiment, and their means over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple


class Mean(NamedTuple):
    """The mean of numbers over seeds, their standard deviation (0 of one number), and how many."""

    mean: float
    spread: float
    n: int

    @property
    def error(self) -> float:
        """The standard error of the mean, which no number has not."""
        return self.spread / self.n**0.5 if self.n else math.nan

    def text(self, form: str = ".4f", *, error: bool = False) -> str:
        """Mean ± standard deviation, or error; one number, or an infinite one, claims neither."""
        uncertain = self.error if error else self.spread
        if self.n < 2 or math.isnan(uncertain):
            return f"{self.mean:{form}}"
        return f"{self.mean:{form}} ± {uncertain:{form.lstrip('+')}}"


NO_MEAN = Mean(math.nan, math.nan, 0)
"""The mean of no number."""


def mean_of(numbers: Iterable[float]) -> Mean:
    """Return the mean of numbers, which may be infinite; then it has no spread."""
    values = [float(number) for number in numbers]
    if not values:
        return NO_MEAN
    if not all(map(math.isfinite, values)):
        return Mean(statistics.fmean(values), math.nan, len(values))
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Mean(statistics.fmean(values), spread, len(values))


class Run(NamedTuple):
    """One line of a CSV file.

    Attributes:
        setting: what was run, a named tuple of text and numbers.
        seed: of all that is random; a repeat where nothing is.
        values: what was measured, a named tuple.
        made_with: all else that the values depend on; see ``Experiment.made_with``.
    """

    setting: Any
    seed: int
    values: Any
    made_with: str = ""


class AccuracySpd(NamedTuple):
    """What many experiments measure: accuracy, and the signed SPD, of decisions on test rows."""

    accuracy: float
    spd: float


class Runs(tuple[Run, ...]):
    """Runs in some order."""

    __slots__ = ()

    def select(self, **entries: object) -> Runs:
        """Return the runs whose setting has these entries."""
        wanted = entries.items()
        return Runs(r for r in self if all(getattr(r.setting, k) == v for k, v in wanted))

    def by(self, *names: str) -> dict[Any, Runs]:
        """Return the runs by some entries of their setting; without a name, by all of it."""
        groups: dict[Any, list[Run]] = {}
        for run in self:
            entries = tuple(getattr(run.setting, name) for name in names) or run.setting
            groups.setdefault(entries[0] if len(names) == 1 else entries, []).append(run)
        return {key: Runs(group) for key, group in groups.items()}

    def values(self, name: str) -> list[Any]:
        """One value of each run."""
        return [getattr(run.values, name) for run in self]

    def mean(self, name: str) -> Mean:
        """Return the mean of one value over the runs."""
        return mean_of(self.values(name))

    @property
    def n_seeds(self) -> int:
        """How many seeds there are."""
        return len({run.seed for run in self})

    def pairs(self, other: Runs, name: str) -> list[tuple[float, float]]:
        """One value of both, seed by seed, where both have a number."""
        theirs = {run.seed: getattr(run.values, name) for run in other}
        ours = [(getattr(run.values, name), theirs.get(run.seed, math.nan)) for run in self]
        return [pair for pair in ours if not math.isnan(sum(pair))]

    def less(self, other: Runs, name: str) -> Mean:
        """Return the mean of one value minus the other runs', over the seeds that both have."""
        return mean_of(mine - theirs for mine, theirs in self.pairs(other, name))


NO_RUNS = Runs()
