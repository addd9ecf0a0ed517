"""Tables and plots of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from synthfair.report.plots import as_svg

if TYPE_CHECKING:
    from benchmarks.privacy.__main__ import Run

COLORS = {"private": "#0072B2", "randomised": "#D55E00", "plain": "0.4"}
NAMES = {
    "private": "private single-shot",
    "randomised": "local randomisation of (s, y)",
    "plain": "not private",
}
GOALS = {0.5: (0.010, 0.030), 1.0: (0.005, 0.020)}
"""Largest loss of accuracy and change of SPD, by epsilon."""


class Summary(NamedTuple):
    """Mean and standard error over seeds, of accuracy and SPD."""

    accuracy: float
    accuracy_error: float
    spd: float
    spd_error: float


def summary(runs: Sequence[Run]) -> Summary:
    """Of runs that differ in the seed alone."""
    values = np.array([(run.accuracy, run.spd) for run in runs])
    errors = values.std(axis=0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(2)
    (accuracy, spd), (accuracy_error, spd_error) = values.mean(axis=0), errors
    return Summary(accuracy, accuracy_error, spd, spd_error)


def table(runs: Sequence[Run]) -> str:
    """All means beside the non-private run, as Markdown."""
    lines = [
        "# Accuracy and SPD against epsilon",
        "",
        "`python -m benchmarks.privacy`: mean ± standard error over"
        f" {len({run.seed for run in runs})} seeds, all clients' test rows. Differences are between"
        " the means and those of the non-private run on the same splits.",
        "",
        "| task | method | epsilon | accuracy | SPD | accuracy lost | SPD changed by | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in dict.fromkeys(run.task for run in runs):
        own = [run for run in runs if run.task == task]
        base = summary([run for run in own if run.method == "plain"])
        for method, epsilon in dict.fromkeys((run.method, run.epsilon) for run in own):
            same = [run for run in own if (run.method, run.epsilon) == (method, epsilon)]
            lines.append(_line(task, method, epsilon, summary(same), base))
    return "\n".join(lines) + "\n"


def _line(task: str, method: str, epsilon: float, found: Summary, base: Summary) -> str:
    lost, changed = base.accuracy - found.accuracy, found.spd - base.spd
    goal = ""
    if method == "private" and epsilon in GOALS:
        most_lost, most_changed = GOALS[epsilon]
        met = lost <= most_lost and abs(changed) <= most_changed
        goal = f"{most_lost:g} and {most_changed:g}: {'met' if met else 'MISSED'}"
    cells = (
        task,
        NAMES[method],
        f"{epsilon:g}",
        f"{found.accuracy:.4f} ± {found.accuracy_error:.4f}",
        f"{found.spd:.4f} ± {found.spd_error:.4f}",
        f"{lost:.4f}",
        f"{changed:+.4f}",
        goal,
    )
    return "| " + " | ".join(cells) + " |"


def plot(runs: Sequence[Run]) -> str:
    """Accuracy and SPD over epsilon, with the non-private run as a band."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, field in zip(figure.subplots(1, 2), ("accuracy", "spd"), strict=True):
        base = summary([run for run in runs if run.method == "plain"])
        value, error = getattr(base, field), getattr(base, f"{field}_error")
        axes.axhline(value, color=COLORS["plain"], linestyle="--", label=NAMES["plain"])
        axes.axhspan(value - error, value + error, color=COLORS["plain"], alpha=0.2, linewidth=0)
        for marker, method in zip("os", ("private", "randomised"), strict=True):
            own = [run for run in runs if run.method == method]
            epsilons = sorted({run.epsilon for run in own})
            means = [summary([run for run in own if run.epsilon == e]) for e in epsilons]
            axes.errorbar(
                epsilons,
                [getattr(mean, field) for mean in means],
                yerr=[getattr(mean, f"{field}_error") for mean in means],
                color=COLORS[method], marker=marker, capsize=2, label=NAMES[method],
            )  # fmt: skip
        axes.set(xscale="log", xlabel="epsilon", ylabel=field.replace("spd", "SPD"))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return as_svg(figure)
