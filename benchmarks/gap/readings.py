"""What may table 2 of the paper mean? Several readings, each against every printed number.

Bounds are Chebyshev's for any values. Of the errors, mean and standard deviation over ten runs are
compared with what ten normal numbers have, of the variance in closed form.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gap.published import PUBLISHED
from benchmarks.gap.tables import HALVES, SHARE_WRONG, known_error
from synthfair.measure.estimate import mean_variance
from synthfair.measure.mechanisms import LocalMechanism

RUNS = 10
CLIENTS = 10**7
MALES = 25 / 87
"""Share of the recordings from which the paper's clients are drawn."""

DIGIT = 1e-4
"""The last that is printed."""


class Reading(NamedTuple):
    """One way to read the table.

    Attributes:
        title: in words.
        value: v of a false negative rate.
        unit: of the error and the bound, in units of v.
        clients: K.
        shares: of the groups.
        signed: errors are averaged, and the size of that is printed; not an average of sizes.
    """

    title: str
    value: Callable[[np.ndarray], np.ndarray]
    unit: float = 1.0
    clients: float = CLIENTS
    shares: np.ndarray = HALVES
    signed: bool = False


def _same(rate: np.ndarray) -> np.ndarray:
    return rate


READINGS = (
    Reading("rates as they are", _same),
    Reading("true positive rates as they are", lambda rate: 1 - rate),
    Reading("**rates mapped to [-1, 1], the gap in units of the rate**", lambda x: 2 * x - 1, 0.5),
    Reading("rates mapped to [-1, 1], the gap there", lambda x: 2 * x - 1),
    Reading("rates as they are, half of the gap", _same, 0.5),
    Reading("rates as they are, K clients in each group", _same, clients=2 * CLIENTS),
    Reading(
        "rates as they are, 25 males to 62 females", _same, shares=np.array([1 - MALES, MALES])
    ),
    Reading("rates as they are, size of the mean signed error", _same, signed=True),
)


class Fit(NamedTuple):
    """How near a reading comes to the eight cells.

    Attributes:
        title: of the reading.
        bounds: that have the printed digits, of 8.
        ratio: of the mean errors, printed over expected: least and largest.
        squares: sum of squared deviations of 16 means and standard deviations, in their own.
        chance: that so large a sum comes by chance, were the reading right.
    """

    title: str
    bounds: int
    ratio: tuple[float, float]
    squares: float
    chance: float


class Cell(NamedTuple):
    """The bound, and the deviation of the estimated gap."""

    bound: float
    deviation: float


def fit(reading: Reading, data: tuple[np.ndarray, np.ndarray], printed: Path) -> Fit:
    """A reading against the printed table."""
    group, rate = data
    squares = np.bincount(group, weights=reading.value(rate) ** 2) / np.bincount(group)
    told = _ten_runs(signed=reading.signed)
    drawn = np.zeros(len(told))
    bounds, ratios, found = 0, [], 0.0
    with printed.open(newline="") as file:
        for i, line in enumerate(csv.DictReader(file)):
            cell = _cell(line, reading, squares)
            wanted = np.array([float(line["mean_error"]), float(line["error_sd"])])
            bounds += abs(cell.bound - float(line["chebyshev_alpha"])) <= DIGIT
            ratios.append(wanted[0] / cell.deviation / told[:, 0].mean())
            found += _distance(wanted, cell.deviation * told).item()
            others = cell.deviation * np.roll(told, i, axis=0)
            drawn += _distance(np.round(others, 4), cell.deviation * told)
    chance = float(np.mean(drawn >= found))
    return Fit(reading.title, bounds, (min(ratios), max(ratios)), found, chance)


def _ten_runs(*, signed: bool, draws: int = 4000) -> np.ndarray:
    """[draws, 2] what is printed of ten standard normal errors: mean and standard deviation."""
    errors = np.random.default_rng(0).standard_normal((draws, RUNS))
    if signed:
        return np.stack([np.abs(errors.mean(axis=1)), errors.std(axis=1)], axis=1)
    return np.stack([np.abs(errors).mean(axis=1), np.abs(errors).std(axis=1)], axis=1)


def _distance(found: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Sum over both of the squared deviation beyond what rounding hides, in standard deviations."""
    off = np.maximum(np.abs(found - drawn.mean(axis=0)) - DIGIT / 2, 0.0)
    return ((off / drawn.std(axis=0)) ** 2).sum(axis=-1)


def _cell(line: dict[str, str], reading: Reading, squares: np.ndarray) -> Cell:
    made: LocalMechanism = PUBLISHED[line["mechanism"]](float(line["epsilon"]))
    square = known_error(made, reading.clients, reading.shares)
    sizes = reading.shares * reading.clients
    variance = mean_variance(made, sizes, reading.clients, squares).sum()
    return Cell(
        reading.unit * math.sqrt(square / SHARE_WRONG), reading.unit * math.sqrt(float(variance))
    )


def table(fits: list[Fit]) -> str:
    """As Markdown."""
    lines = [
        "# What table 2 of Juarez and Korolova (2022) may mean",
        "",
        "`python -m benchmarks.gap table2`: every reading tried, in closed form, against the eight"
        " printed bounds (the same to one of the last digit), and against the mean and standard"
        " deviation of ten errors in each of eight cells: *squares* is the sum of the 16 squared"
        " deviations beyond rounding, each in its own standard deviation, and *chance* how often"
        " ten normal errors of this reading have as large a sum (of 4,000).",
        "",
        "| reading | bounds met, of 8 | mean errors, printed over expected | squares | chance |",
        "|---|---|---|---|---|",
    ]
    for one in fits:
        low, high = one.ratio
        lines.append(
            f"| {one.title} | {one.bounds} | {low:.2f} to {high:.2f} | {one.squares:.1f} |"
            f" {one.chance:.4f} |"
        )
    return "\n".join(lines) + "\n"
