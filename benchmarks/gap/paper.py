"""Tables 1 and 2 and figures 1 and 2 of Juarez and Korolova (2022): as published, and in truth."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from benchmarks.gap.devices import collect
from benchmarks.harness import Experiment
from benchmarks.runs import Runs
from benchmarks.showing import as_svg, page, panels, published
from synthfair.data.datasets import DATA_VARIABLE
from synthfair.measure.estimate import estimate_means, gap_interval, limits_of_means
from synthfair.measure.mechanisms import (
    MAX_BUDGET,
    Kind,
    LaplaceValue,
    LocalMechanism,
    RandomizedValue,
)
from synthfair.measure.plan import best_split, largest_variance
from synthfair.privacy.noise import RandomBytes, seeded, uniform


def mean_variance(
    mechanism: LocalMechanism, size: np.ndarray, clients: float, square: np.ndarray
) -> np.ndarray:
    """Variance [d] of the estimated means over the mechanism's noise alone, sizes n known.

        (n (a E[v'^2 | kept] - a^2 gain^2 nu^2) + (K - n) q E[v'^2 | changed]) / (a gain n)^2,

    with ``square`` nu^2, the mean of v^2 in each group, and K clients in all. Juarez and Korolova
    (2022), equations (19) and (20), here for any number of groups.
    """
    a, gain = mechanism.keep, mechanism.gain
    same_group = a * mechanism.noisy_square(square) - a**2 * gain**2 * square
    other = (clients - size) / size * mechanism.change * mechanism.changed_square
    return (same_group + other) / (a * gain) ** 2 / size


def largest_mean_variance(
    mechanism: LocalMechanism, size: np.ndarray, clients: float
) -> np.ndarray:
    """Return the largest :func:`mean_variance` [d] over nu^2 in [0, 1], in which it is linear."""
    ends = (np.zeros_like(size), np.ones_like(size))
    return np.maximum(*(mean_variance(mechanism, size, clients, square) for square in ends))


# The paper's own accounting, for the reproduction of its tables alone: its guarantees are false.
# M_R is taken to be max(epsilon1, epsilon2)-private (theorem 4.1; truly it is up to ln 2 more), and
# M_L with k other than 2 to have a finite epsilon (theorem 4.3; it has none).


@dataclass(frozen=True)
class PublishedLaplace(LaplaceValue):
    """M_L with any k. Guarantee: none; no epsilon is finite."""

    k: float = 2.0

    def __post_init__(self) -> None:
        """Refuses nothing."""

    @property
    def epsilon(self) -> float:
        """Infinite, unless k = 2."""
        return super().epsilon if self.k == 2 else math.inf

    @property
    def changed_square(self) -> float:
        """2 (k / epsilon2)^2."""
        return 2 * (self.k / self.epsilon2) ** 2

    def perturb(
        self, group: np.ndarray, value: np.ndarray, source: RandomBytes
    ) -> tuple[np.ndarray, np.ndarray]:
        """As M_L. Guarantee: none, see above; unit and relation are without meaning."""
        reported = self.respond(group, source)
        one, other = -np.log(uniform(2 * len(group), source)).reshape(2, -1)
        noise = (one - other) / self.epsilon2  # continuous, as published
        return reported, np.where(reported == group, value + 2 * noise, self.k * noise)


def published_randomized(epsilon: float) -> RandomizedValue:
    """Return the paper's "M_R opt.": epsilon1 = epsilon2 = epsilon."""
    return RandomizedValue(2, epsilon, epsilon)


def published_laplace(epsilon: float) -> PublishedLaplace:
    """Return the paper's "M_L opt.", appendix B: epsilon2 = epsilon, and k = max(2/3, epsilon)."""
    if epsilon >= 2 / 3:
        return PublishedLaplace(2, math.log(2 / epsilon) + epsilon - 1, epsilon, k=epsilon)
    return PublishedLaplace(2, math.log(3.0) - epsilon / 2, epsilon, k=2 / 3)


PUBLISHED = {"M_R": published_randomized, "M_L": published_laplace}

# Errors of mechanisms, and what they ask of epsilon


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
    """Return a function from a true epsilon to the mechanism of least :func:`known_error`."""
    return lambda epsilon: best_split(KINDS[name], 2, epsilon, lambda m: known_error(m, 1.0))


def least_epsilon(make: Make, clients: float, alpha: float) -> float:
    """For which Chebyshev's inequality keeps the gap within alpha; infinite where none does."""

    def enough(epsilon: float) -> bool:
        return known_error(make(epsilon), clients) <= SHARE_WRONG * alpha**2

    low, high = 1e-3, MAX_BUDGET - 1
    if not enough(high):
        return math.inf
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# Table 1


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
    make = PUBLISHED[cell.mechanism]
    least, true = (
        least_epsilon(one, cell.clients, cell.alpha) for one in (make, corrected(cell.mechanism))
    )
    return EpsilonValues(least, make(least).epsilon if math.isfinite(least) else math.inf, true)


def show_epsilons(runs: Runs) -> dict[str, str]:
    """Table 1."""

    def text(value: float, otherwise: str = "-") -> str:
        return f"{value:.2f}" if math.isfinite(value) else otherwise

    def more(cell: EpsilonSetting, values: EpsilonValues) -> dict[str, str]:
        printed, recomputed = text(cell.printed), text(values.published)
        none = "-" if math.isinf(values.published) else "none is finite"
        return {
            "printed": printed, "recomputed": recomputed, "true": text(values.true, none),
            "same": "yes" if printed == recomputed else "NO", "corrected": text(values.corrected),
        }  # fmt: skip

    return {"table1.md": page("gap/table1", runs, more)}


TABLE1 = Experiment(
    name="table1",
    settings=tuple(
        EpsilonSetting(
            float(line["clients"]), line["mechanism"], float(line["alpha"]),
            float(line["epsilon"] or "inf"),
        )
        for line in published("juarez_2022_table1")
    ),
    run=run_epsilon, summary=show_epsilons, smoke=(EpsilonSetting(1e5, "M_R", 0.1, 1.86),),
)  # fmt: skip


# Table 2


@cache
def sensor_clients() -> tuple[np.ndarray, np.ndarray]:
    """Group (sex) and performance (false negative rate) of the paper's synthetic clients."""
    from pyarrow import csv as arrow

    path = Path(os.environ[DATA_VARIABLE]) / "bed_exit_sensors.zip"
    with zipfile.ZipFile(path) as archive, archive.open("data.csv") as file:
        clients = arrow.read_csv(file)
    return clients["sex"].to_numpy().astype(np.int64), clients["fnr"].to_numpy()


class ErrorSetting(NamedTuple):
    """A row of table 2; epsilon is nominal."""

    accounting: str
    mechanism: str
    epsilon: float

    @property
    def mechanism_of_clients(self) -> LocalMechanism:
        """What clients do."""
        make = PUBLISHED[self.mechanism]
        return (make if self.accounting == "published" else corrected(self.mechanism))(self.epsilon)

    @property
    def bound(self) -> float:
        """Chebyshev's, of the error, with probability 0.99, for equal groups and any values."""
        return UNIT * math.sqrt(known_error(self.mechanism_of_clients, 1e7) / SHARE_WRONG)


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
    mechanism, value = setting.mechanism_of_clients, rate / UNIT - 1
    sizes = np.bincount(group)
    true = float(np.diff(np.bincount(group, weights=value) / sizes)[0])
    source = seeded(1000 * seed + round(100 * setting.epsilon))
    tally = collect(mechanism, group, value, source)
    known = estimate_means(tally, mechanism, (sizes / len(group)).tolist())
    unknown = estimate_means(tally, mechanism)
    limits = limits_of_means(tally, mechanism, unknown, NormalDist().inv_cdf(0.995))
    low, high = gap_interval(0, 1, unknown, limits)
    squares = np.bincount(group, weights=value**2) / sizes
    variance = mean_variance(mechanism, sizes, len(group), squares).sum()
    return ErrorValues(
        UNIT * abs(float(np.diff(known.values)[0]) - true),
        UNIT * abs(float(np.diff(unknown.values)[0]) - true),
        UNIT * (high - low) / 2,
        math.sqrt(2 / math.pi) * UNIT * math.sqrt(variance),
    )


PRINTED = {
    (line["mechanism"], float(line["epsilon"])): line for line in published("juarez_2022_table2")
}
"""Lines of table 2, by mechanism and epsilon."""


def show_errors(runs: Runs) -> dict[str, str]:
    """Table 2."""
    lines = []
    for setting, own in runs.by().items():
        epsilon, known = setting.mechanism_of_clients.epsilon, own.values("known")
        error = bound = ""
        if setting.accounting == "published":
            line = PRINTED[setting[1:]]
            error, bound = f"{line['mean_error']} ({line['error_sd']})", line["chebyshev_alpha"]
        true = f"{epsilon:.3f}" if math.isfinite(epsilon) else "none is finite"
        cells = (
            f"{true} | {error} | {np.mean(known):.4f} ({np.std(known):.4f})"
            f" | {own[0].values.expected:.4f} | {own.mean('unknown').mean:.4f} | {bound}"
            f" | {setting.bound:.4f} | {own.mean('half_width').mean:.4f}"
        )
        lines.append((*setting, cells))
    return {"table2.md": page("gap/table2", runs, rows=lines)}


EPSILONS = (0.01, 0.1, 1.0, 10.0)

TABLE2 = Experiment(
    name="table2",
    settings=tuple(
        ErrorSetting(accounting, name, epsilon)
        for name in KINDS
        for accounting in ("published", "true")
        for epsilon in EPSILONS
    ),
    run=run_errors, summary=show_errors,
    smoke=tuple(ErrorSetting(accounting, "M_L", 1.0) for accounting in ("published", "true")),
    seeds=10,
)  # fmt: skip

# Figure 1


CLIENTS = 20_000
SURE = 3.0
COLORS = {"M_R": "#0072B2", "M_L": "#D55E00"}


class ErrorPoint(NamedTuple):
    """A point of figure 1."""

    accounting: str
    mechanism: str
    epsilon: float


class ErrorBounds(NamedTuple):
    """Least and largest mean squared error of the gap of equal groups; sizes known."""

    least: float
    largest: float


def run_bounds(point: ErrorPoint, _seed: int, *, smoke: bool) -> ErrorBounds:
    """In closed form."""
    make = corrected(point.mechanism) if point.accounting == "true" else PUBLISHED[point.mechanism]
    sizes = np.full(2, CLIENTS / 2)
    both = 2 * mean_variance(make(point.epsilon), sizes, CLIENTS, np.array([0.0, 1.0]))
    return ErrorBounds(_short(both.min()), _short(both.max()))


def draw_bounds(runs: Runs) -> dict[str, str]:
    """Return the plot of errors against epsilon by file name, a panel for each accounting."""
    accountings = runs.by("accounting")
    figure, across = panels(1, len(accountings), 8, 3.6)
    for axes, (title, here) in zip(across, accountings.items(), strict=True):
        for name, own in here.by("mechanism").items():
            epsilons, high = [*own.by("epsilon")], own.values("largest")
            low, color = own.values("least"), COLORS[name]
            axes.fill_between(epsilons, low, high, color=color, alpha=0.25, linewidth=0)
            axes.plot(epsilons, high, color=color, label=name)
        axes.set(xscale="log", yscale="log", xlabel="epsilon", title=title)
        axes.sharey(across[0])
    across[0].set_ylabel("MSE of the gap")
    across[0].legend(frameon=False)
    return {"mse.svg": as_svg(figure)}


# Figure 2


class SharePoint(NamedTuple):
    """A point of figure 2: the smaller group's share."""

    mechanism: str
    epsilon: float
    share: float


class ShareErrors(NamedTuple):
    """Largest mean squared error of the gap.

    An error to first order means something where the share is sure to be above 0: from
    :data:`SURE` of its own errors on. Below, it is not-a-number.
    """

    known_sizes: float
    estimated_sizes: float


def run_share(point: SharePoint, _seed: int, *, smoke: bool) -> ShareErrors:
    """In closed form, at the best split."""
    mechanism = best_split(KINDS[point.mechanism], 2, point.epsilon)
    shares = np.array([1 - point.share, point.share])
    sure = point.share > SURE * np.sqrt(mechanism.share_variance(shares, CLIENTS)[1])
    variance = largest_variance(mechanism, shares, CLIENTS) if sure else np.nan
    return ShareErrors(_short(known_error(mechanism, CLIENTS, shares)), _short(variance))


def draw_shares(runs: Runs) -> dict[str, str]:
    """Sizes known (dashed) and estimated, a panel for each mechanism."""
    mechanisms = runs.by("mechanism")
    figure, across = panels(1, len(mechanisms), 8, 3.6)
    for axes, (name, here) in zip(across, mechanisms.items(), strict=True):
        colors, epsilons = ("0.6", "0.3", COLORS[name]), here.by("epsilon").items()
        for color, (epsilon, own) in zip(colors, epsilons, strict=False):
            shares, known = [*own.by("share")], own.values("known_sizes")
            axes.plot(shares, known, "o--", color=color, markersize=3)
            unknown, label = own.values("estimated_sizes"), f"epsilon = {epsilon:g}"
            axes.plot(shares, unknown, "o-", color=color, label=label)
        axes.set(xscale="log", yscale="log", xlabel="share of the smaller group", title=name)
        axes.sharey(across[0])
        axes.legend(frameon=False, fontsize=8)
    across[0].set_ylabel("largest MSE of the gap")
    return {"unbalanced.svg": as_svg(figure)}


def _short(number: float) -> float:
    return float(f"{number:.4g}")


MSE = Experiment(
    name="mse",
    settings=tuple(
        ErrorPoint(accounting, name, _short(epsilon))
        for accounting in ("published (false)", "true")
        for name, epsilon in product(KINDS, np.geomspace(0.1, 10, 25))
    ),
    run=run_bounds, summary=draw_bounds,
    smoke=tuple(ErrorPoint("true", name, 1.0) for name in KINDS),
)  # fmt: skip

SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)

UNBALANCED = Experiment(
    name="unbalanced",
    settings=tuple(SharePoint(*one) for one in product(KINDS, (0.5, 1.0, 2.0), SHARES)),
    run=run_share, summary=draw_shares,
    smoke=tuple(SharePoint("M_R", 2.0, share) for share in (0.5, 0.1)),
)  # fmt: skip
