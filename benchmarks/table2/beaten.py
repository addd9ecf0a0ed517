"""Which of the published cells are beaten, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.runs import Mean, Runs
from benchmarks.showing import mark, published
from benchmarks.table2.cells import TableCell


class CurvePoint(NamedTuple):
    """A curve at one rho_o, over seeds.

    Attributes:
        rho_o: weight of the penalty.
        accuracy: over seeds.
        spd: signed, over seeds.
    """

    rho_o: float
    accuracy: Mean
    spd: Mean

    def text(self, sign: str = "") -> str:
        """Two cells of a table, with a mark behind the accuracy."""
        accuracy = f"{self.accuracy.text(error=True)}{sign}"
        return f"{accuracy} | {self.spd.text('+.4f', error=True)}"

    def margin(self, accuracy: float, spd: float) -> float:
        """By how many standard errors it is ahead of both numbers; negative where it is behind."""
        ahead = (self.accuracy.mean - accuracy) / max(self.accuracy.error, 1e-6)
        return min(ahead, (abs(spd) - abs(self.spd.mean)) / max(self.spd.error, 1e-6))


def curve(runs: Runs) -> list[CurvePoint]:
    """One point for each rho_o."""
    return [
        CurvePoint(rho, own.mean("accuracy"), own.mean("spd"))
        for rho, own in sorted(runs.by("rho_o").items())
    ]


@cache
def published_cells() -> dict[TableCell, tuple[float, float]]:
    """Accuracy and SPD of the 30 cells as published."""
    values = {}
    for line in published("wu_2024_table2"):
        where = line["task"], line["synthetic_size"], float(line["rho_o"])
        cell = TableCell("faithful", "single_shot", *where)
        values[cell] = float(line["accuracy"]), float(line["spd"])
    return values


class PublishedCell(NamedTuple):
    """A cell and our runs next to it.

    Attributes:
        cell: of the faithful recipe.
        accuracy: as published.
        spd: as published.
        faithful: the cell's own point, if it was run.
        ours: our curve for its task, of the small size.
        constant: accuracy of the more frequent label for everybody, if known; its SPD is 0.
    """

    cell: TableCell
    accuracy: float
    spd: float
    faithful: Sequence[CurvePoint]
    ours: Sequence[CurvePoint]
    constant: float | None

    @property
    def below_constant(self) -> bool:
        """Whether the constant classifier is as accurate, and therefore better: it has no gap."""
        return bool(mark(self.accuracy, self.constant))

    def answer(self) -> tuple[CurvePoint, str] | None:
        """Our point that is ahead by most, and whether it beats the cell; None without runs."""
        if not self.ours:
            return None
        margins = [point.margin(self.accuracy, self.spd) for point in self.ours]
        best = max(range(len(margins)), key=margins.__getitem__)
        word = "yes" if margins[best] > 0 else "no"
        if self.ours[best].accuracy.n == 1:
            word += ", on one seed"
        elif abs(margins[best]) <= 1:
            word += ", within one standard error"
        return self.ours[best], word

    def rules(self) -> dict[str, bool]:
        """Return by which rules it is beaten, in accuracy and in |mean SPD|."""

        def beaten_by(points: Iterable[CurvePoint]) -> bool:
            return any(
                point.accuracy.mean > self.accuracy and abs(point.spd.mean) < abs(self.spd)
                for point in points
            )

        same, curve = [one for one in self.ours if one.rho_o == self.cell.rho_o], self.ours
        return {
            "by some point of our curve": beaten_by(curve),
            "by our point at the same rho_o": beaten_by(same),
            "by the faithful recipe at the same rho_o": beaten_by(self.faithful),
            "by the constant classifier": self.below_constant,
        }


def published_next_to(runs: Runs) -> list[PublishedCell]:
    """All 30."""
    every = []
    for cell, (accuracy, spd) in published_cells().items():
        ours = curve(runs.select(recipe="ours", method=cell.method, task=cell.task))
        constant = runs.select(method="constant", task=cell.task)
        known = constant.mean("accuracy").mean if constant else None
        faithful = curve(runs.select(**cell._asdict()))
        every.append(PublishedCell(cell, accuracy, spd, faithful, ours, known))
    return every


def beaten(cells: Sequence[PublishedCell]) -> dict[str, tuple[int, int]]:
    """How many cells of Law School and of Dutch are beaten, by each rule."""
    rules = [(one.rules(), one.cell.task == "dutch_gender") for one in cells]
    return {
        how: (
            sum(won[how] and not on_dutch for won, on_dutch in rules),
            sum(won[how] and on_dutch for won, on_dutch in rules),
        )
        for how in rules[0][0]
    }
