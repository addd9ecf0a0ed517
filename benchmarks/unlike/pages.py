"""Differences to central training, and SPD against skew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Experiment
from benchmarks.runs import NO_RUNS, Runs
from benchmarks.showing import COLORS, as_svg, legend, mark, page, panels
from benchmarks.unlike.clients import TASKS
from benchmarks.unlike.training import METHODS, behind, run_unlike, settings_of_all
from synthfair.data.datasets import SOURCES


class Difference(NamedTuple):
    """To central training with the same penalty, on the seeds that both have; sizes.

    Attributes:
        accuracy: mean.
        accuracy_most: largest.
        spd: mean.
        spd_most: largest.
    """

    accuracy: float
    accuracy_most: float
    spd: float
    spd_most: float


def difference(runs: Runs, central: Runs) -> Difference | None:
    """Of the runs of a setting to those of central training; None without a common seed."""
    sizes = [np.abs(np.diff(np.array(runs.pairs(central, name)))) for name in ("accuracy", "spd")]
    if not len(sizes[0]):
        return None
    return Difference(*(float(f(some)) for some in sizes for f in (np.mean, np.max)))


def show(runs: Runs) -> dict[str, str]:
    """Return the page of all settings, and a plot for each penalty, by file name."""
    lines = [(setting.method in SURROGATES, line) for setting, line in differences(runs)]
    parts = [[line for is_one, line in lines if is_one == kind] for kind in (True, False)]
    text = page("unlike/unlike", runs, surrogates=parts[0], others=parts[1])
    plots = {
        f"spd_{penalty}_{rho:g}.svg": plot(own)
        for (penalty, rho), own in runs.by("penalty", "rho").items()
    }
    return {"unlike.md": text, **plots}


def differences(runs: Runs) -> Iterator[tuple[Any, str]]:
    """Yield each setting and its line: next to central training with the same penalty and split."""
    groups = runs.by()
    cuts = runs.select(method="constant").by("task", "clients", "split")
    for setting, own in groups.items():
        off = difference(own, groups.get(setting._replace(method="central"), NO_RUNS))
        constants = NO_RUNS if setting.method == "constant" else cuts.get(setting[:3], NO_RUNS)
        label = METHODS[setting.method].label + " *" * (False in own.values("converged"))
        accuracy = own.mean("accuracy")
        worse = mark(accuracy, constants.mean("accuracy") if constants else None)
        texts = " | "
        if off and setting.method != "central":
            sizes = f"{off.accuracy:.4f} ({off.accuracy_most:.4f})"
            texts = f"{sizes} | {off.spd:.4f} ({off.spd_most:.4f})"
        clients, out = (own.mean(name).mean for name in ("clients_out", "rows_out"))
        yield (
            setting,
            f"{setting.task} | {setting.clients} | {setting.split} | {label}"
            f" | {setting.penalty} {setting.rho:g} | {len(own)} | {accuracy.mean:.4f}{worse}"
            f" | {own.mean('spd').mean:+.4f} | {texts}"
            f" | {f'{clients:.1f}, {out:.0f}' if out else ''}",
        )


SURROGATES = "surrogate", "private"
"""The methods whose clients upload surrogates."""

SKEWS = {"alike": "alike", "0.3": "Dirichlet 0.3", "0.1": "Dirichlet 0.1"}


def plot(runs: Runs) -> str:
    """Mean |SPD| against skew: a panel for each table and number of clients, a line a method."""
    shown = Runs(r for r in runs if r.setting.split in SKEWS and r.setting.method != "constant")
    cuts = shown.by("task", "clients")
    columns = min(2, len(cuts)) or 1
    lines = -(-len(cuts) // columns) or 1
    figure, grid = panels(lines, columns, 4.2 * columns, 2.8 * lines + 0.6)
    looks = dict(zip(METHODS, zip(cycle(COLORS), "xo^sDv<>", strict=False), strict=True))
    for axes, ((task, clients), own) in zip(grid, cuts.items(), strict=False):
        for name in shown.by("method"):
            splits = own.select(method=name).by("split")
            places = [[*SKEWS].index(split) for split in splits]
            heights = [np.mean(np.abs(some.values("spd"))) for some in splits.values()]
            look: Any = dict(zip(("color", "marker"), looks[name], strict=True))
            axes.plot(places, heights, label=METHODS[name].label, linewidth=1, **look)
        axes.set_xticks(range(len(SKEWS)), [*SKEWS.values()])
        axes.set(title=f"{task.replace('_', ' ')}, {clients} clients", ylabel="mean |SPD|")
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    for axes in grid[len(cuts) :]:
        axes.set_visible(False)
    legend(figure, 3)
    return as_svg(figure)


UNLIKE = Experiment(
    name="runs", settings=tuple(settings_of_all()), run=run_unlike, summary=show,
    smoke=tuple(one for one in settings_of_all() if one[:3] == ("law_school_race", 4, "0.3")),
    seeds=3, sources=lambda setting: SOURCES[TASKS[setting.task][0]], behind=behind,
)  # fmt: skip
