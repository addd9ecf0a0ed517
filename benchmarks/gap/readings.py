"""What may table 2 of the paper mean? Several readings, each against every printed number.

Bounds are Chebyshev's for any values. Of the errors, mean and standard deviation over ten runs are
compared with what ten normal numbers have, of the variance in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.gap.published import PUBLISHED
from benchmarks.gap.tables import HALVES, SHARE_WRONG, known_error, sensor_clients
from benchmarks.harness import Experiment, Run, page, published, table
from synthfair.measure.mechanisms import Mechanism
from synthfair.measure.variance import mean_variance

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


READINGS_TRIED = (
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


class ReadingSetting(NamedTuple):
    """Of one of READINGS."""

    title: str


class ReadingValues(NamedTuple):
    """How near a reading comes to the eight cells.

    Attributes:
        bounds: that have the printed digits, of 8.
        least: of the mean errors, printed over expected.
        largest: of the same.
        squares: sum of squared deviations of 16 means and standard deviations, in their own.
        chance: that so large a sum comes by chance, were the reading right.
    """

    bounds: int
    least: float
    largest: float
    squares: float
    chance: float


def run_reading(setting: ReadingSetting, _seed: int, *, smoke: bool) -> ReadingValues:
    """On the sensor data."""
    (reading,) = (one for one in READINGS_TRIED if one.title == setting.title)
    group, rate = (part[:: 200 if smoke else 1] for part in sensor_clients())
    return fit(reading, group, rate)


def fit(reading: Reading, group: np.ndarray, rate: np.ndarray) -> ReadingValues:
    """A reading against the printed table."""
    squares = np.bincount(group, weights=reading.value(rate) ** 2) / np.bincount(group)
    normal = _ten_runs(signed=reading.signed)
    drawn = np.zeros(len(normal))
    bounds, ratios, found = 0, [], 0.0
    for i, line in enumerate(published("juarez_2022_table2")):
        made: Mechanism = PUBLISHED[line["mechanism"]](float(line["epsilon"]))
        square = known_error(made, reading.clients, reading.shares)
        sizes = reading.shares * reading.clients
        variance = mean_variance(made, sizes, reading.clients, squares).sum()
        bound = reading.unit * math.sqrt(square / SHARE_WRONG)
        deviation = reading.unit * math.sqrt(float(variance))
        wanted = np.array([float(line["mean_error"]), float(line["error_sd"])])
        bounds += abs(bound - float(line["chebyshev_alpha"])) <= DIGIT
        ratios.append(wanted[0] / deviation / normal[:, 0].mean())
        found += _distance(wanted, deviation * normal).item()
        others = deviation * np.roll(normal, i, axis=0)
        drawn += _distance(np.round(others, 4), deviation * normal)
    return ReadingValues(
        int(bounds), min(ratios), max(ratios), found, float(np.mean(drawn >= found))
    )


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


def show(runs: Sequence[Run[ReadingSetting, ReadingValues]]) -> dict[str, str]:
    """As Markdown."""
    rows = [
        (
            *setting, one.bounds, f"{one.least:.2f} to {one.largest:.2f}", f"{one.squares:.1f}",
            f"{one.chance:.4f}",
        )
        for setting, _, one, _ in runs
    ]  # fmt: skip
    before = (
        "`python -m benchmarks.gap readings`: every reading tried, in closed form, against the"
        " eight printed bounds (the same to one of the last digit), and against the mean and"
        " standard deviation of ten errors in each of eight cells: *squares* is the sum of the 16"
        " squared deviations beyond rounding, each in its own standard deviation, and *chance* how"
        " often ten normal errors of this reading have as large a sum (of 4,000)."
    )
    header = "reading | bounds met, of 8 | mean errors, printed over expected | squares | chance"
    title = "# What table 2 of Juarez and Korolova (2022) may mean"
    return {"table2_readings.md": page(title, before, table(header, rows))}


READINGS = Experiment(
    name="readings",
    settings=tuple(ReadingSetting(reading.title) for reading in READINGS_TRIED),
    run=run_reading,
    summary=show,
    smoke=(ReadingSetting(READINGS_TRIED[0].title),),
)
