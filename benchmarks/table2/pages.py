"""Table 2: the published numbers next to ours, as Markdown and plots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Experiment
from benchmarks.runs import Mean, Runs
from benchmarks.showing import Point, frontier, mark, page, table
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
    """Return the differences to central training."""
    ceiling = []
    for (_, task, size), own in _blocks(ours):
        central = ours.select(method="central", task=task)
        for gap in gaps_to_ceiling(own, central):
            spd = gap.spd._replace(mean=gap.spd_more)
            off = (one.text("+.4f", error=True) for one in (gap.accuracy, spd))
            ceiling.append((task, size, gap.rho_o, gap.accuracy.n, *off))
    return {"ceiling": ceiling}


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
