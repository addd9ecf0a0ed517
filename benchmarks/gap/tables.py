"""Tables 1 and 2 of Juarez and Korolova (2022): as published, and with true guarantees."""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gap.published import PUBLISHED
from synthfair.measure.estimate import (
    estimate_gaps,
    largest_mean_variance,
    mean_variance,
)
from synthfair.measure.mechanisms import LARGEST_EPSILON, Kind, LocalMechanism
from synthfair.measure.plan import best_split
from synthfair.measure.tally import collect
from synthfair.privacy.noise import seeded

KINDS: dict[str, Kind] = {"M_R": "randomized", "M_L": "laplace"}
HALVES = np.array([0.5, 0.5])
SHARE_WRONG = 0.01
"""One minus the probability of the bounds."""

Make = Callable[[float], LocalMechanism]


def known_error(mechanism: LocalMechanism, clients: float, shares: np.ndarray = HALVES) -> float:
    """Largest mean squared error of the gap, sizes known, clients given; theorem 5.4."""
    return float(largest_mean_variance(mechanism, shares * clients, clients).sum())


def corrected(name: str) -> Make:
    """The best split of a true epsilon, by the same error as the paper's."""
    return lambda epsilon: best_split(KINDS[name], 2, epsilon, lambda m: known_error(m, 1.0))


def least_epsilon(make: Make, clients: float, alpha: float) -> float:
    """For which Chebyshev's inequality keeps the gap within alpha; infinite where none does."""

    def enough(epsilon: float) -> bool:
        return known_error(make(epsilon), clients) <= SHARE_WRONG * alpha**2

    low, high = 1e-3, LARGEST_EPSILON - 1
    if not enough(high):
        return math.inf
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


class Cell(NamedTuple):
    """Of table 1; None is the paper's dash."""

    clients: float
    mechanism: str
    alpha: float
    printed: float | None
    published: float
    true: float
    corrected: float


def table_1(expected: Path) -> list[Cell]:
    """Every cell of the paper's table, recomputed, and what is true."""
    with expected.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [_cell(line) for line in lines]


def _cell(line: dict[str, str]) -> Cell:
    clients, name, alpha = float(line["clients"]), line["mechanism"], float(line["alpha"])
    found = least_epsilon(PUBLISHED[name], clients, alpha)
    printed = float(line["epsilon"]) if line["epsilon"] else None
    true = PUBLISHED[name](found).epsilon if math.isfinite(found) else math.inf
    return Cell(
        clients, name, alpha, printed, found, true, least_epsilon(corrected(name), clients, alpha)
    )


def sensor_clients(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Group (sex) and performance (false negative rate) of the paper's synthetic clients."""
    from pyarrow import csv as arrow

    with (
        zipfile.ZipFile(folder / "bed_exit_sensors.zip") as archive,
        archive.open("data.csv") as file,
    ):
        table = arrow.read_csv(file)
    return table["sex"].to_numpy().astype(np.int64), table["fnr"].to_numpy()


class Errors(NamedTuple):
    """A row of table 2, for one mechanism; errors in units of the rate, half of those of v.

    Attributes:
        epsilon: nominal.
        mechanism: M_R or M_L.
        true: epsilon of the mechanism that was run.
        mean: of |estimated - true gap| over the runs, sizes known as in the paper.
        deviation: of the same.
        expected: of the mean, from the variance in closed form.
        bound: Chebyshev's of probability 0.99, for equal groups and any values.
        unknown: the mean error where the sizes are estimated.
        normal: half the width of the 99 % interval then, on average.
    """

    epsilon: float
    mechanism: str
    true: float
    mean: float
    deviation: float
    expected: float
    bound: float
    unknown: float
    normal: float


UNIT = 0.5
"""Of a rate in [0, 1], mapped to v = 2 rate - 1 in [-1, 1]: a difference of 1 in v."""


def table_2(make: Make, name: str, epsilon: float, data: tuple, runs: int) -> Errors:
    """Perturbs all clients so many times."""
    group, rate = data
    mechanism, clients, value = make(epsilon), len(group), rate / UNIT - 1
    sizes = np.bincount(group)
    true = float(np.diff(np.bincount(group, weights=value) / sizes)[0])
    known, unknown, widths = [], [], []
    for run in range(runs):
        told = collect(mechanism, group, value, seeded(1000 * run + round(100 * epsilon)))
        for shares, errors in (((sizes / clients).tolist(), known), (None, unknown)):
            gap = estimate_gaps(told, mechanism, confidence=0.99, shares=shares).gaps[0]
            errors.append(UNIT * abs(gap.value - true))
        widths.append(UNIT * (gap.interval.high - gap.interval.low) / 2)
    squares = np.bincount(group, weights=value**2) / sizes
    error = UNIT * math.sqrt(mean_variance(mechanism, sizes, clients, squares).sum())
    bound = UNIT * math.sqrt(known_error(mechanism, clients) / SHARE_WRONG)
    return Errors(
        epsilon, name, mechanism.epsilon, float(np.mean(known)), float(np.std(known)),
        math.sqrt(2 / math.pi) * error, bound, float(np.mean(unknown)), float(np.mean(widths)),
    )  # fmt: skip
