"""Differences to central training, the goals, and SPD against skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness import Run
from benchmarks.papers.finding import NOTHING, nothing_learned
from benchmarks.showing import (
    COLORS,
    WORSE_NOTE,
    as_svg,
    by,
    legend,
    mark,
    means,
    n_seeds,
    page,
    panels,
    select,
    table,
    verdict,
)
from benchmarks.unlike.training import METHODS

if TYPE_CHECKING:
    from benchmarks.unlike.comparison import UnlikeSetting, UnlikeValues

    UnlikeRuns = Sequence[Run[UnlikeSetting, UnlikeValues]]


class Goal(NamedTuple):
    """Largest difference to central training, on test rows.

    Attributes:
        accuracy: mean size over seeds.
        spd: mean size over seeds.
        every: size of the SPD's on each seed.
    """

    accuracy: float
    spd: float
    every: float = np.inf

    def __str__(self) -> str:
        """Its parts."""
        return " / ".join(f"{part:g}" for part in self if np.isfinite(part))


def goal_of(setting: UnlikeSetting) -> Goal | None:
    """The goal of a setting, if it has one."""
    main_tables = setting.task != "adult"
    if setting.method == "surrogate" and not main_tables:
        return Goal(0.005, 0.015, 0.03)
    if setting.method == "surrogate":
        by_penalty = {"covariance": Goal(0.002, 0.005, 0.015)}
        return by_penalty.get(setting.penalty, Goal(0.003, 0.006, 0.015))
    if setting.method == "private" and main_tables:
        by_penalty = {"covariance": Goal(0.005, 0.015)}
        return by_penalty.get(setting.penalty, Goal(0.01, 0.03))
    return None


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

    def meets(self, goal: Goal) -> bool:
        """In all its parts."""
        return (
            self.accuracy <= goal.accuracy and self.spd <= goal.spd and self.spd_most <= goal.every
        )


def difference(runs: UnlikeRuns, central: UnlikeRuns) -> Difference | None:
    """Of the runs of a setting to those of central training; None without a common seed."""
    ceiling = {run.seed: run.values for run in central}
    off = np.array(
        [
            (run.values.accuracy - c.accuracy, run.values.spd - c.spd)
            for run in runs
            if (c := ceiling.get(run.seed))
        ]
    )
    if not len(off):
        return None
    (accuracy, spd), (accuracy_most, spd_most) = abs(off).mean(axis=0), abs(off).max(axis=0)
    return Difference(accuracy, accuracy_most, spd, spd_most)


class Compared(NamedTuple):
    """All runs of a setting, next to central training.

    Attributes:
        setting: theirs.
        runs: of all seeds.
        off: difference to central training, if that was run.
        constants: runs of the constant classifier on the same cut, if that was run.
    """

    setting: UnlikeSetting
    runs: UnlikeRuns
    off: Difference | None
    constants: UnlikeRuns = ()

    @property
    def goal(self) -> Goal | None:
        """Of the setting, if it has one and can be compared."""
        return goal_of(self.setting) if self.off else None

    @property
    def met(self) -> bool | None:
        """Whether there is a goal that is met; of a model that learned nothing, neither."""
        if nothing_learned(self.runs, self.constants):
            return None
        return bool(self.off and self.goal and self.off.meets(self.goal))


def compare_all(runs: UnlikeRuns) -> list[Compared]:
    """Every setting next to central training with the same penalty on the same splits."""
    groups = by(runs, lambda setting: setting)
    constants = by(select(runs, method="constant"), lambda one: one[:3])
    return [
        Compared(
            setting,
            own,
            difference(own, groups.get(setting._replace(method="central"), [])),
            constants.get(setting[:3], []) if setting.method != "constant" else [],
        )
        for setting, own in groups.items()
    ]


def show(runs: UnlikeRuns) -> dict[str, str]:
    """The goals, all settings, and a plot for each penalty."""
    found = compare_all(runs)
    before = (
        f"`python -m benchmarks.unlike`: up to {n_seeds(runs)} seeds, test rows of all clients"
        " together, accuracy and signed SPD as means over seeds. A difference is to central"
        " training with the same penalty on the same split, its size: mean (largest) over the"
        " seeds that both have. Goals are for the mean in accuracy, the mean in SPD, and the"
        " SPD's largest. Out: clients whose training rows took no part and training rows that took"
        " none, means over seeds. A setting that is marked * did not converge on some seed."
        f" Clients with fewer than 5 rows are nobody's. {WORSE_NOTE} Where a model is not more"
        " accurate by two standard errors, nothing was learned, and no goal is met or missed."
    )
    parts = ["# Fair across unlike clients", before, "## Goals", goals_table(found)]
    with_goals = [one for one in found if goal_of(one.setting)]
    parts += ["## Surrogates", differences_table(with_goals)]
    parts += [
        "## Other methods",
        OTHERS,
        differences_table([o for o in found if o not in with_goals]),
    ]
    plots = {
        f"spd_{penalty}_{rho:g}.svg": plot(own)
        for (penalty, rho), own in by(runs, lambda one: (one.penalty, one.rho)).items()
    }
    return {"unlike.md": page(*parts), **plots}


OTHERS = (
    "Fair releases: each client distils 800 rows with the penalty, and refuses where it has one"
    " label or one group. FedAvg: 1,000 rounds, each client with the penalty on its own rows. Each"
    " client alone: its own model with the penalty, on its own test rows; accuracy and SPD are of"
    " these decisions over all test rows, and where clients have other shares of labels, knowing"
    " one's own helps accuracy beyond central training. The constant classifier decides the more"
    " frequent label."
)


def goals_table(found: Sequence[Compared]) -> str:
    """How many settings of a method and penalty meet their goal."""
    groups: dict[tuple[str, str, Goal], list[Compared]] = {}
    for one in found:
        if one.goal:
            what = "Adult" if one.setting.task == "adult" else "Dutch, Law School"
            key = f"{METHODS[one.setting.method].label}: {what}", one.setting.penalty, one.goal
            groups.setdefault(key, []).append(one)
    rows = []
    for (name, penalty, goal), own in groups.items():
        deciding = [one.met for one in own if one.met is not None]
        rows.append((
            name, penalty, goal, *_worst(own), f"{sum(deciding)} of {len(deciding)}",
            len(own) - len(deciding) or "", verdict(all(deciding)) if deciding else "",
        ))  # fmt: skip
    header = (
        "what | penalty | at most | worst accuracy | worst SPD, mean | worst SPD | settings"
        f" | {NOTHING} | "
    )
    return table(header, rows)


def _worst(some: Sequence[Compared]) -> Iterator[str]:
    off = [one.off for one in some if one.off]
    for part in ("accuracy", "spd", "spd_most"):
        yield f"{max(getattr(one, part) for one in off):.4f}"


def differences_table(found: Sequence[Compared]) -> str:
    """A line for each setting."""
    rows = []
    for one in found:
        setting, own, off, constants = one
        accuracy, met = means(own, "accuracy"), NOTHING if one.met is None else verdict(one.met)
        values, texts = [run.values for run in own], ("", "")
        if off and setting.method != "central":
            texts = (
                f"{off.accuracy:.4f} ({off.accuracy_most:.4f})",
                f"{off.spd:.4f} ({off.spd_most:.4f})",
            )
        out = [np.mean([getattr(v, name) for v in values]) for name in ("clients_out", "rows_out")]
        rows.append(
            (
                setting.task, setting.clients, setting.split,
                METHODS[setting.method].label + " *" * (not all(v.converged for v in values)),
                f"{setting.penalty} {setting.rho:g}", len(own),
                f"{accuracy.mean:.4f}"
                + mark(accuracy, means(constants, "accuracy") if constants else None),
                f"{np.mean([v.spd for v in values]):+.4f}",
                *texts,
                f"{out[0]:.1f}, {out[1]:.0f}" if out[1] else "",
                f"{one.goal}: {met}" if one.goal else "",
            )
        )  # fmt: skip
    header = (
        "task | clients | split | method | penalty | seeds | accuracy | SPD | off in accuracy"
        " | off in SPD | clients, rows out | goal"
    )
    return table(header, rows)


SKEWS = ("alike", "0.3", "0.1")


def plot(runs: UnlikeRuns) -> str:
    """Mean |SPD| against skew: a panel for each table and number of clients, a line a method."""
    shown = [r for r in runs if r.setting.split in SKEWS and r.setting.method != "constant"]
    methods, cuts = (
        by(shown, lambda one: one.method),
        by(shown, lambda one: (one.task, one.clients)),
    )
    columns = min(2, len(cuts)) or 1
    lines = -(-len(cuts) // columns) or 1
    figure, grid = panels(lines, columns, 4.2 * columns, 2.8 * lines + 0.6)
    looks = dict(zip(METHODS, zip(cycle(COLORS), "xo^sDv<>", strict=False), strict=True))
    for axes, ((task, clients), own) in zip(grid, cuts.items(), strict=False):
        for name in methods:
            splits = by(select(own, method=name), lambda one: one.split)
            places = [SKEWS.index(split) for split in splits]
            heights = [np.mean([abs(run.values.spd) for run in some]) for some in splits.values()]
            look: Any = dict(zip(("color", "marker"), looks[name], strict=True))
            axes.plot(places, heights, label=METHODS[name].label, linewidth=1, **look)
        axes.set_xticks(range(len(SKEWS)), ["alike", "Dirichlet 0.3", "Dirichlet 0.1"])
        axes.set(title=f"{task.replace('_', ' ')}, {clients} clients", ylabel="mean |SPD|")
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    for axes in grid[len(cuts) :]:
        axes.set_visible(False)
    legend(figure, 3)
    return as_svg(figure)
