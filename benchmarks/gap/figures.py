"""The error against epsilon, and against the sizes of the groups: figures 1 and 2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.gap.published import PUBLISHED
from benchmarks.gap.tables import KINDS, corrected, known_error
from benchmarks.harness import Experiment, Run
from benchmarks.showing import as_svg, by, panels
from synthfair.measure.estimate import mean_variance
from synthfair.measure.plan import best_split, largest_variance

CLIENTS = 20_000
SURE = 3.0
COLORS = {"M_R": "#0072B2", "M_L": "#D55E00"}


class ErrorPoint(NamedTuple):
    """Of figure 1."""

    accounting: str
    mechanism: str
    epsilon: float


class ErrorBounds(NamedTuple):
    """Least and largest mean squared error of the gap of equal groups; sizes known."""

    least: float
    largest: float


def run_bounds(point: ErrorPoint, _seed: int, *, smoke: bool) -> ErrorBounds:
    """In closed form."""
    del smoke
    make = corrected(point.mechanism) if point.accounting == "true" else PUBLISHED[point.mechanism]
    sizes = np.full(2, CLIENTS / 2)
    both = 2 * mean_variance(make(point.epsilon), sizes, CLIENTS, np.array([0.0, 1.0]))
    return ErrorBounds(_short(both.min()), _short(both.max()))


def draw_bounds(runs: Sequence[Run[ErrorPoint, ErrorBounds]]) -> dict[str, str]:
    """A panel for each accounting."""
    accountings = by(runs, lambda point: point.accounting)
    figure, across = panels(1, len(accountings), 8, 3.6)
    for axes, (title, here) in zip(across, accountings.items(), strict=True):
        for name, own in by(here, lambda point: point.mechanism).items():
            epsilons = [run.setting.epsilon for run in own]
            low, high = ([run.values[i] for run in own] for i in (0, 1))
            axes.fill_between(epsilons, low, high, color=COLORS[name], alpha=0.25, linewidth=0)
            axes.plot(epsilons, high, color=COLORS[name], label=name)
        axes.set(xscale="log", yscale="log", xlabel="epsilon", title=title)
        axes.sharey(across[0])
    across[0].set_ylabel("MSE of the gap")
    across[0].legend(frameon=False)
    return {"mse.svg": as_svg(figure)}


class SharePoint(NamedTuple):
    """Of figure 2: the smaller group's share."""

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
    del smoke
    mechanism = best_split(KINDS[point.mechanism], 2, point.epsilon)
    shares = np.array([1 - point.share, point.share])
    error = np.sqrt(mechanism.share_variance(shares, CLIENTS)[1])
    variance = (
        largest_variance(mechanism, shares, CLIENTS) if point.share > SURE * error else np.nan
    )
    return ShareErrors(_short(known_error(mechanism, CLIENTS, shares)), _short(variance))


def draw_shares(runs: Sequence[Run[SharePoint, ShareErrors]]) -> dict[str, str]:
    """Sizes known (dashed) and estimated, a panel for each mechanism."""
    mechanisms = by(runs, lambda point: point.mechanism)
    figure, across = panels(1, len(mechanisms), 8, 3.6)
    for axes, (name, here) in zip(across, mechanisms.items(), strict=True):
        epsilons = by(here, lambda point: point.epsilon).items()
        for color, (epsilon, own) in zip(("0.6", "0.3", COLORS[name]), epsilons, strict=False):
            shares = [run.setting.share for run in own]
            known, unknown = ([run.values[i] for run in own] for i in (0, 1))
            axes.plot(shares, known, "o--", color=color, markersize=3)
            axes.plot(shares, unknown, "o-", color=color, label=f"epsilon = {epsilon:g}")
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
        for accounting, name, epsilon in product(
            ("published (false)", "true"), KINDS, np.geomspace(0.1, 10, 25)
        )
    ),
    run=run_bounds,
    summary=draw_bounds,
    smoke=tuple(ErrorPoint("true", name, 1.0) for name in KINDS),
)

UNBALANCED = Experiment(
    name="unbalanced",
    settings=tuple(
        SharePoint(*one)
        for one in product(KINDS, (0.5, 1.0, 2.0), (0.5, 0.2, 0.1, 0.05, 0.02, 0.01))
    ),
    run=run_share,
    summary=draw_shares,
    smoke=tuple(SharePoint("M_R", 2.0, share) for share in (0.5, 0.1)),
)
