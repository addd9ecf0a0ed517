"""Table 2: the published numbers next to ours, as Markdown and plots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks import findings as rules
from benchmarks.findings import Finding, of_learned, verdict_of, verdict_of_cells, what_does_not
from benchmarks.harness import Experiment
from benchmarks.runs import Mean, Runs, mean_of
from benchmarks.showing import Point, frontier, mark, page, table, verdict
from benchmarks.table2.beaten import beaten, curve, published_cells, published_next_to
from benchmarks.table2.cells import (
    OTHERS,
    SIZES,
    TASKS,
    TableCell,
    behind,
    cells,
    run_cell,
)
from synthfair.data.datasets import SOURCES

ACCURACY_LOST, SPD_LOST = 0.005, 0.01
"""What single-shot may lose against central training."""


class CeilingGap(NamedTuple):
    """How a method differs from central training at one weight.

    Attributes:
        rho_o: the weight.
        accuracy: difference over the seeds that both have.
        spd: the same.
        spd_more: how much larger |mean SPD| is, not the mean |SPD|.
    """

    rho_o: float
    accuracy: Mean
    spd: Mean
    spd_more: float

    @property
    def met(self) -> bool:
        """Whether it is near enough."""
        return self.accuracy.mean >= -ACCURACY_LOST and self.spd_more <= SPD_LOST


def gaps_to_ceiling(single: Runs, central: Runs) -> Iterator[CeilingGap]:
    """One for each weight at which both were run."""
    for rho_o, own in single.by("rho_o").items():
        ceiling = central.select(rho_o=rho_o)
        if pairs := own.pairs(ceiling, "spd"):
            ours, theirs = np.abs(np.mean(pairs, axis=0))
            accuracy, spd = (own.less(ceiling, name) for name in ("accuracy", "spd"))
            yield CeilingGap(rho_o, accuracy, spd, float(ours - theirs))


def show(runs: Runs) -> dict[str, str]:
    """table2.md and the plots."""
    faithful, ours = (runs.select(recipe=recipe) for recipe in ("faithful", "ours"))
    single = ours.select(method="single_shot")
    counts = beaten(published_next_to(runs)).items()
    constants = runs.select(method="constant").by("task").items()
    near = {names: own.values("nearest") for names, own in _blocks(runs)}
    text = page(
        "table2/table2",
        faithful_seeds=faithful.n_seeds,
        our_seeds=single.n_seeds,
        n_weights=len(single.by("rho_o")),
        cells=_cells(runs),
        counts=[(how, sum(count), *count) for how, count in counts],
        constants=[(name, own.mean("accuracy").text(error=True), 0) for name, own in constants],
        surrogates=_surrogates(runs),
        **_against_ceiling(ours),
        excesses=_excesses(runs),
        nearest=[(*names, f"{min(n):.2f}", f"{max(n):.2f}") for names, n in near.items()],
        unconverged=[
            (*cell, f"{n} of {len(own)}")
            for cell, own in sorted(runs.by().items())
            if (n := own.values("converged").count(False))
        ],
        missed=what_does_not([*claims(runs)]),
    )
    plots = {f"{task}-{size}.svg": _plot(runs, task, size) for task in TASKS for size in SIZES}
    return {"table2.md": text} | plots


def _blocks(runs: Runs) -> Iterator[tuple[tuple[str, str, str], Runs]]:
    """Recipe, task and size, and the runs of single-shot."""
    for recipe in ("faithful", "ours"):
        for task in TASKS:
            for size in SIZES:
                if own := runs.select(recipe=recipe, task=task, size=size):
                    yield (recipe, task, size), own


def _cells(runs: Runs) -> Iterator[str]:
    yield " |  |  | accuracy | SPD | accuracy | SPD | accuracy | SPD |  | "
    for one in published_next_to(runs):
        ours, faithful = " | | | not run", " | "
        if answer := one.answer():
            best, word = answer
            ours = f"{best.text(mark(best.accuracy, one.constant))} | {best.rho_o:g} | {word}"
        for point in one.faithful:
            faithful = point.text(mark(point.accuracy, one.constant))
        theirs = f"{one.accuracy:.4f}{mark(one.accuracy, one.constant)} | {one.spd:+.4f}"
        where = f"{one.cell.task} | {one.cell.size} | {one.cell.rho_o:g}"
        yield f"{where} | {theirs} | {faithful} | {ours}"


def _surrogates(runs: Runs) -> Iterator[str]:
    """Our small fair releases, surrogates and central training at each weight."""
    methods = (
        {"recipe": "ours", "method": "single_shot", "size": "small"},
        {"method": "surrogate"},
        {"method": "central"},
    )
    for task in TASKS:
        fair, surrogates, central = (
            {point.rho_o: point.text() for point in curve(runs.select(task=task, **which))}
            for which in methods
        )
        for rho, text in surrogates.items():
            both = fair.get(rho, " | "), central.get(rho, " | ")
            yield f"{task} | {rho:g} | {both[0]} | {text} | {both[1]}"


def _against_ceiling(ours: Runs) -> dict[str, Any]:
    """Differences to central training, and spreads over seeds: of both, and of the differences."""
    ceiling, spreads, met, larger = [], [], [], []
    for (_, task, size), own in _blocks(ours):
        central = ours.select(method="central", task=task)
        for gap in gaps_to_ceiling(own, central):
            spd = gap.spd._replace(mean=gap.spd_more)
            off = (one.text("+.4f", error=True) for one in (gap.accuracy, spd))
            ceiling.append((task, size, gap.rho_o, gap.accuracy.n, *off, verdict(gap.met)))
            met.append(gap.met)
            alone = (some.select(rho_o=gap.rho_o).mean("spd").spread for some in (own, central))
            texts = [f"{spread:.4f}" for spread in (*alone, gap.spd.spread)]
            spreads.append((task, size, gap.rho_o, *texts))
            larger += [f"{task} {size} {gap.rho_o:g}"] * (texts[2] > texts[1])
    return {
        "accuracy_lost": ACCURACY_LOST,
        "spd_lost": SPD_LOST,
        "ceiling": ceiling,
        "met": sum(met),
        "points": len(met),
        "spreads": spreads,
        "n_larger": len(larger),
        "larger": ", ".join(larger),
    }


def _excesses(runs: Runs) -> str:
    """Return a table of the largest excess of each block, in percent; a column for each weight."""
    weights, lines = sorted(runs.by("rho_o")), []
    for names, own in _blocks(runs):
        known = [
            [one for one in own.select(rho_o=rho_o).values("excess") if not np.isnan(one)]
            for rho_o in weights
        ]
        lines.append((*names, *(f"{100 * max(some):.4f}" if some else "" for some in known)))
    header = " | ".join(["recipe | task | size", *(f"rho_o = {rho_o:g}" for rho_o in weights)])
    return table(header, lines)


def _plot(runs: Runs, task: str, size: str) -> str:
    """Accuracy against the gap: published, both recipes, and the other methods."""
    names = ("faithful", "ours")
    curves = {name: runs.select(recipe=name, task=task, size=size) for name in names}
    for method in (*OTHERS, "constant"):
        curves[method.replace("_", " ")] = runs.select(task=task, method=method)
    cells = published_cells().items()
    points = {"published": [Point(abs(spd), a) for c, (a, spd) in cells if c[2:4] == (task, size)]}
    for name, own in curves.items():
        if own:
            points[name] = [
                Point(abs(p.spd.mean), p.accuracy.mean, p.spd.error, p.accuracy.error)
                for p in curve(own)
            ]
    return frontier(points)


# What the paper claims

PAGE, FIGURE3 = "table2/table2.md", "table2/figure3.svg"


def claims(runs: Runs) -> Iterator[Finding]:
    """Those about table 2 and about figure 3."""
    yield from cells_beaten(runs)
    yield from figure3(runs)


def cells_beaten(runs: Runs) -> Iterator[Finding]:
    """How many of the 30 cells are beaten, by each rule; those that learned something decide."""
    whole = runs.select(recipe="ours") and runs.select(recipe="faithful")
    cells = published_next_to(runs)
    learned = [one for one in cells if not one.below_constant]
    for how, count in beaten(cells).items():
        if "constant" not in how:
            verdict, ours = rules.UNDECIDED, ""
            if learned:
                n = sum(one.rules()[how] for one in learned)
                verdict = rules.YES if n == len(learned) else rules.PARTLY if n else rules.NO
            if whole:
                ours = f"{sum(count)}: Law School {count[0]} of 20, Dutch {count[1]} of 10"
            yield Finding(f"table 2: cells beaten {how}", "30", ours, verdict, PAGE)


def figure3(runs: Runs) -> Iterator[Finding]:
    """Trends in rho_o with the paper's settings, for all tables and both sizes."""
    faithful = runs.select(recipe="faithful")
    if not published_cells().keys() <= faithful.by().keys():
        return
    fairer, lost = {}, {}
    for task in TASKS:
        constants = runs.select(method="constant", task=task)
        for size in SIZES:
            own, name = faithful.select(task=task, size=size), f"{task.replace('_', ' ')}, {size}"
            free, fair, most = (own.select(rho_o=rho_o) for rho_o in (0.0, 10.0, 10000.0))
            fairer[name] = of_learned(0 - smaller_gap(free, fair), constants, free, fair)
            fallen = 0 - free.less(most, "accuracy")
            lost[name] = of_learned(fallen, constants, free, most)
    yield of_curves("figure 3: the gap is smaller at rho_o = 10 than at 0", fairer)
    yield of_curves("figure 3: accuracy is lower at rho_o = 10,000 than at 0", lost)
    yield _sizes_alike(runs)


def smaller_gap(free: Runs, fair: Runs) -> Mean:
    """By how much the size of the SPD falls, seed by seed."""
    return mean_of(abs(before) - abs(after) for after, before in fair.pairs(free, "spd"))


def of_curves(claim: str, excesses: Mapping[str, Mean]) -> Finding:
    """Return a finding about a claim that should hold on every curve."""
    deciding = {name: one for name, one in excesses.items() if one.n}
    failed = tuple(name for name, one in deciding.items() if verdict_of(one) != rules.YES)
    ours = f"on {len(deciding) - len(failed)} of {len(deciding)} curves"
    if nothing := len(excesses) - len(deciding):
        ours += f"; {rules.NOTHING} on {nothing}"
    return Finding(claim, "it is", ours, verdict_of_cells(excesses.values()), FIGURE3, failed)


def _sizes_alike(runs: Runs) -> Finding:
    """Accuracy of both sizes, next to the largest difference that is printed."""
    printed = {cell: accuracy for cell, (accuracy, _) in published_cells().items()}
    small = {cell: cell._replace(size="small") for cell in printed if cell.size == "train"}
    most = max(abs(printed[train] - printed[other]) for train, other in small.items())
    groups, differences = runs.by(), {}
    for train, other in small.items():
        both = groups[train], groups[other]
        difference = both[1].less(both[0], "accuracy")
        differences[train] = abs(
            of_learned(difference, runs.select(method="constant", task=train.task), *both)
        )
    failed = tuple(
        f"{cell.task.replace('_', ' ')} at rho_o = {cell.rho_o:g}"
        for cell, one in differences.items()
        if one.mean > most
    )
    largest = max((one.mean for one in differences.values() if one.n), default=math.nan)
    return Finding(
        "figure 3: accuracy is similar for both sizes; largest difference", f"{most:.3f}",
        f"{largest:.3f}", verdict_of(*(one - most for one in differences.values())), FIGURE3,
        failed,
    )  # fmt: skip


def is_our_release(cell: TableCell) -> bool:
    """Return whether a cell is distilled by our recipe, which is run on four seeds."""
    return (cell.recipe, cell.method) == ("ours", "single_shot")


TABLE2 = Experiment(
    name="table2", settings=tuple(cells()), run=run_cell, summary=show,
    smoke=(
        TableCell("faithful", "single_shot", "law_school_race", "small", 10.0),
        TableCell("ours", "single_shot", "law_school_race", "small", 10.0),
        TableCell("ours", "central", "law_school_race", "", 10.0),
        TableCell("ours", "surrogate", "law_school_race", "", 10.0),
        TableCell("ours", "constant", "law_school_race", "", 0.0),
    ),
    seeds=20, most_seeds=lambda cell: 4 if is_our_release(cell) else math.inf,
    file="{recipe}.csv", sources=lambda cell: SOURCES[TASKS[cell.task].dataset],
    behind=behind, parallel=True,
)  # fmt: skip
