"""The error against epsilon, and against the sizes of the groups: figures 1 and 2 of the paper."""

from __future__ import annotations

import csv
import io

import numpy as np
from matplotlib.figure import Figure

from benchmarks.gap.published import PUBLISHED
from benchmarks.gap.tables import KINDS, corrected, known_error
from synthfair.measure.estimate import mean_variance
from synthfair.measure.mechanisms import LocalMechanism
from synthfair.measure.plan import best_split, largest_variance
from synthfair.report.plots import as_svg

CLIENTS = 20_000
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
SURE = 3.0
EPSILONS = np.geomspace(0.1, 10, 25)
COLORS = {"M_R": "#0072B2", "M_L": "#D55E00"}


def bounds(mechanism: LocalMechanism) -> tuple[float, float]:
    """Least and largest mean squared error of the gap of equal groups, over nu^2; sizes known."""
    sizes = np.full(2, CLIENTS / 2)
    both = 2 * mean_variance(mechanism, sizes, CLIENTS, np.array([0.0, 1.0]))
    return float(both.min()), float(both.max())


def by_epsilon() -> tuple[str, str]:
    """Figure 1 as SVG, and its numbers as CSV."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    lines: list[tuple] = [("accounting", "mechanism", "epsilon", "least", "largest")]
    makers = {"published (false)": PUBLISHED, "true": {name: corrected(name) for name in KINDS}}
    axes_of = figure.subplots(1, 2, sharey=True)
    for axes, (title, makes) in zip(axes_of, makers.items(), strict=True):
        for name, make in makes.items():
            found = [bounds(make(float(epsilon))) for epsilon in EPSILONS]
            low, high = zip(*found, strict=True)
            axes.fill_between(EPSILONS, low, high, color=COLORS[name], alpha=0.25, linewidth=0)
            axes.plot(EPSILONS, high, color=COLORS[name], label=name)
            lines += [(title, name, f"{e:.4g}", *map(_short, b)) for e, b in zip(EPSILONS, found)]  # noqa: B905
        axes.set(xscale="log", yscale="log", xlabel="epsilon", title=title)
        axes.spines[["top", "right"]].set_visible(False)
    axes_of[0].set_ylabel("MSE of the gap")
    axes_of[0].legend(frameon=False)
    return as_svg(figure), _as_csv(lines)


def by_share() -> tuple[str, str]:
    """Figure 2: largest error against the smaller group's share, sizes known and estimated.

    An error to first order means something where the share is sure to be above 0: from
    :data:`SURE` of its own errors on. Below, nothing is shown.
    """
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    lines: list[tuple] = [("mechanism", "epsilon", "share", "known_sizes", "estimated_sizes")]
    axes_of = figure.subplots(1, 2, sharey=True)
    for axes, (name, kind) in zip(axes_of, KINDS.items(), strict=True):
        for epsilon, color in ((0.5, "0.6"), (1.0, "0.3"), (2.0, COLORS[name])):
            mechanism = best_split(kind, 2, epsilon)
            known, unknown = [], []
            for share in SHARES:
                shares = np.array([1 - share, share])
                known.append(known_error(mechanism, CLIENTS, shares))
                error = np.sqrt(mechanism.share_variance(shares, CLIENTS)[1])
                variance = largest_variance(mechanism, shares, CLIENTS)
                unknown.append(variance if share > SURE * error else np.nan)
                numbers = map(_short, (known[-1], unknown[-1]))
                lines.append((name, f"{epsilon:g}", f"{share:g}", *numbers))
            axes.plot(SHARES, known, "o--", color=color, markersize=3)
            axes.plot(SHARES, unknown, "o-", color=color, label=f"epsilon = {epsilon:g}")
        axes.set(xscale="log", yscale="log", xlabel="share of the smaller group", title=name)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    axes_of[0].set_ylabel("largest MSE of the gap")
    return as_svg(figure), _as_csv(lines)


def _short(number: float) -> str:
    return f"{number:.4g}" if np.isfinite(number) else ""


def _as_csv(lines: list[tuple]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()
