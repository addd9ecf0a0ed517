"""Tables 1 and 2 of Juarez and Korolova (2022): as published, and with true guarantees."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.gap.published import PUBLISHED
from benchmarks.harness import Experiment, Run
from benchmarks.papers import juarez
from benchmarks.papers.finding import what_does_not
from benchmarks.showing import by, means, n_seeds, page, published, table
from synthfair.data.datasets import DATA_VARIABLE
from synthfair.measure.estimate import estimate_gaps, largest_mean_variance, mean_variance
from synthfair.measure.mechanisms import LARGEST_EPSILON, Kind, LocalMechanism
from synthfair.measure.plan import best_split
from synthfair.measure.tally import collect
from synthfair.privacy.noise import seeded

KINDS: dict[str, Kind] = {"M_R": "randomized", "M_L": "laplace"}
HALVES = np.array([0.5, 0.5])
SHARE_WRONG = 0.01
"""One minus the probability of the bounds."""

UNIT = 0.5
"""Of a rate in [0, 1], mapped to v = 2 rate - 1 in [-1, 1]: a difference of 1 in v."""

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


class EpsilonSetting(NamedTuple):
    """A cell of table 1; printed is infinite where the paper has a dash."""

    clients: float
    mechanism: str
    alpha: float
    printed: float


class EpsilonValues(NamedTuple):
    """Least epsilons: by the paper's accounting, that of its mechanism in truth, and corrected."""

    published: float
    true: float
    corrected: float


def run_epsilon(cell: EpsilonSetting, _seed: int = 0, *, smoke: bool = False) -> EpsilonValues:
    """In closed form."""
    del smoke
    make, true = PUBLISHED[cell.mechanism], corrected(cell.mechanism)
    found = least_epsilon(make, cell.clients, cell.alpha)
    in_truth = make(found).epsilon if math.isfinite(found) else math.inf
    return EpsilonValues(found, in_truth, least_epsilon(true, cell.clients, cell.alpha))


def show_epsilons(runs: Sequence[Run[EpsilonSetting, EpsilonValues]]) -> dict[str, str]:
    """Table 1."""

    def text(value: float) -> str:
        return f"{value:.2f}" if math.isfinite(value) else "-"

    rows = []
    for cell, _, values, _ in runs:
        printed, found = text(cell.printed), text(values.published)
        none = "-" if math.isinf(values.published) else "none is finite"
        true = text(values.true) if math.isfinite(values.true) else none
        same = "yes" if printed == found else "NO"
        start = (f"{cell.clients:.0e}", cell.mechanism, cell.alpha, printed, found, same)
        rows.append((*start, true, text(values.corrected)))
    before = (
        "`python -m benchmarks.gap table1`: the least epsilon for which Chebyshev's inequality"
        " keeps the gap within alpha with probability 0.99, two equal groups of known size."
        " *Recomputed* is the paper's own accounting, and *in truth* the exact epsilon of the"
        " mechanism it means: M_R is less private than printed, and M_L with k other than 2 has no"
        " finite epsilon. *Corrected* is the least true epsilon, at the best split of M_R, and of"
        " M_L with k = 2."
    )
    header = (
        "clients | mechanism | alpha | printed | recomputed | same digits | in truth | corrected"
    )
    title = "# Table 1 of Juarez and Korolova (2022)"
    return {"table1.md": page(title, before, table(header, rows))}


TABLE1 = Experiment(
    name="table1",
    settings=tuple(
        EpsilonSetting(
            float(line["clients"]),
            line["mechanism"],
            float(line["alpha"]),
            float(line["epsilon"] or "inf"),
        )
        for line in published("juarez_2022_table1")
    ),
    run=run_epsilon,
    summary=show_epsilons,
    smoke=(EpsilonSetting(1e5, "M_R", 0.1, 1.86),),
)


@cache
def sensor_clients() -> tuple[np.ndarray, np.ndarray]:
    """Group (sex) and performance (false negative rate) of the paper's synthetic clients."""
    from pyarrow import csv as arrow

    path = Path(os.environ[DATA_VARIABLE]) / "bed_exit_sensors.zip"
    with zipfile.ZipFile(path) as archive, archive.open("data.csv") as file:
        found = arrow.read_csv(file)
    return found["sex"].to_numpy().astype(np.int64), found["fnr"].to_numpy()


class ErrorSetting(NamedTuple):
    """A row of table 2; epsilon is nominal."""

    accounting: str
    mechanism: str
    epsilon: float

    @property
    def made(self) -> LocalMechanism:
        """What clients do."""
        make = PUBLISHED if self.accounting == "published" else {}
        return make.get(self.mechanism, corrected(self.mechanism))(self.epsilon)


class ErrorValues(NamedTuple):
    """In units of the rate, half of those of v.

    Attributes:
        known: |estimated - true gap|, sizes known as in the paper.
        unknown: the same where the sizes are estimated.
        half_width: of the 99 % interval then.
        expected: of ``known``, from the variance in closed form.
    """

    known: float
    unknown: float
    half_width: float
    expected: float


def run_errors(setting: ErrorSetting, seed: int, *, smoke: bool) -> ErrorValues:
    """All clients perturb once."""
    group, rate = (part[:: 200 if smoke else 1] for part in sensor_clients())
    mechanism, value, sizes = setting.made, rate / UNIT - 1, np.bincount(group)
    true = float(np.diff(np.bincount(group, weights=value) / sizes)[0])
    source = seeded(1000 * seed + round(100 * setting.epsilon))
    tally = collect(mechanism, group, value, source)
    known, unknown = (
        estimate_gaps(tally, mechanism, confidence=0.99, shares=shares).gaps[0]
        for shares in ((sizes / len(group)).tolist(), None)
    )
    squares = np.bincount(group, weights=value**2) / sizes
    variance = mean_variance(mechanism, sizes, len(group), squares).sum()
    return ErrorValues(
        UNIT * abs(known.value - true),
        UNIT * abs(unknown.value - true),
        UNIT * (unknown.interval.high - unknown.interval.low) / 2,
        math.sqrt(2 / math.pi) * UNIT * math.sqrt(variance),
    )


def chebyshev_bound(setting: ErrorSetting) -> float:
    """Of the error of the gap, with probability 0.99, for equal groups and any values."""
    return UNIT * math.sqrt(known_error(setting.made, 1e7) / SHARE_WRONG)


def show_errors(runs: Sequence[Run[ErrorSetting, ErrorValues]]) -> dict[str, str]:
    """Table 2."""
    lines = published("juarez_2022_table2")
    paper = {("published", line["mechanism"], float(line["epsilon"])): line for line in lines}
    rows = []
    for setting, own in by(runs, lambda setting: setting).items():
        line, made, known = paper.get(setting), setting.made, [run.values.known for run in own]
        rows.append(
            (
                *setting,
                f"{made.epsilon:.3f}" if math.isfinite(made.epsilon) else "none is finite",
                f"{line['mean_error']} ({line['error_sd']})" if line else "",
                f"{np.mean(known):.4f} ({np.std(known):.4f})",
                f"{own[0].values.expected:.4f}",
                f"{means(own, 'unknown').mean:.4f}",
                line["chebyshev_alpha"] if line else "",
                f"{chebyshev_bound(setting):.4f}",
                f"{means(own, 'half_width').mean:.4f}",
            )
        )
    before = (
        f"`python -m benchmarks.gap table2`: 10,000,000 clients of the sensor data, {n_seeds(runs)}"
        " runs, seeded. Mean error (standard deviation over runs) of the gap in false negative"
        " rates, which are mapped to v in [-1, 1] and back; *expected* is sqrt(2 / pi) standard"
        " deviations in closed form; *bound* is Chebyshev's of probability 0.99 for equal groups"
        " and any values; *normal* is half of our 99 % interval, sizes estimated. Under"
        " *published* accounting epsilon is the paper's, and *true epsilon* that of the mechanism."
    )
    header = (
        "accounting | mechanism | epsilon | true epsilon | printed error | error | expected"
        " | sizes estimated | printed bound | bound | normal"
    )
    title = "# Table 2 of Juarez and Korolova (2022)"
    missed = what_does_not(juarez.table2(runs))
    return {"table2.md": page(title, before, table(header, rows), missed)}


EPSILONS = (0.01, 0.1, 1.0, 10.0)

TABLE2 = Experiment(
    name="table2",
    settings=tuple(
        ErrorSetting(accounting, name, epsilon)
        for name in KINDS
        for accounting in ("published", "true")
        for epsilon in EPSILONS
    ),
    run=run_errors,
    summary=show_errors,
    smoke=tuple(ErrorSetting(accounting, "M_L", 1.0) for accounting in ("published", "true")),
    seeds=10,
)
