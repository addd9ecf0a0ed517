"""Which of the published cells are beaten, and by what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks import showing
from benchmarks.harness import Run
from benchmarks.showing import Mean
from benchmarks.table2.cells import TableCell, TableValues

TableRuns = Sequence[Run[TableCell, TableValues]]


class CurvePoint(NamedTuple):
    """A curve at one rho_o, over seeds.

    Attributes:
        rho_o: weight of the penalty.
        accuracy: over seeds.
        spd: signed, over seeds.
        sizes: of the SPD's sizes.
    """

    rho_o: float
    accuracy: Mean
    spd: Mean
    sizes: Mean

    def __str__(self) -> str:
        """As in the tables."""
        return f"{self.accuracy.text(error=True)} | {self.spd.text('+.4f', error=True)}"


def curve(runs: TableRuns) -> list[CurvePoint]:
    """One point for each rho_o."""
    groups = sorted(showing.by(runs, lambda cell: cell.rho_o).items())
    return [
        CurvePoint(
            rho,
            showing.means(own, "accuracy"),
            showing.means(own, "spd"),
            showing.mean_of(abs(run.values.spd) for run in own),
        )
        for rho, own in groups
    ]


def published_cells() -> dict[TableCell, tuple[float, float]]:
    """Accuracy and SPD of the 30 cells as published."""
    return {
        TableCell(
            "faithful", "single_shot", line["task"], line["synthetic_size"], float(line["rho_o"])
        ): (float(line["accuracy"]), float(line["spd"]))
        for line in showing.published("wu_2024_table2")
    }


class Answer(NamedTuple):
    """How our curve stands against a published cell.

    Attributes:
        point: of the curve, that is ahead by most standard errors, in accuracy or in |mean SPD|,
            whichever it is ahead by less in.
        margin: by how many; negative where it is behind.
    """

    point: CurvePoint
    margin: float

    @property
    def beaten(self) -> bool:
        """Whether it has higher accuracy and smaller |mean SPD|, both."""
        return self.margin > 0

    def __str__(self) -> str:
        """In words."""
        word = "yes" if self.beaten else "no"
        if self.point.accuracy.n == 1:
            return f"{word}, on one seed"
        return word if abs(self.margin) > 1 else f"{word}, within one standard error"


class PublishedCell(NamedTuple):
    """A cell and our runs next to it.

    Attributes:
        cell: of the faithful recipe.
        accuracy: as published.
        spd: as published.
        faithful: the cell's own point, if it was run.
        ours: our curve for its task and size.
        constant: accuracy of the more frequent label for everybody, if known; its SPD is 0.
    """

    cell: TableCell
    accuracy: float
    spd: float
    faithful: CurvePoint | None
    ours: Sequence[CurvePoint]
    constant: float | None

    def beaten_by(self, points: Iterable[CurvePoint | None], *, of_sizes: bool = False) -> bool:
        """Whether a point has higher accuracy and smaller |mean SPD|, or mean |SPD|."""

        def gap(point: CurvePoint) -> float:
            return point.sizes.mean if of_sizes else abs(point.spd.mean)

        return any(
            point.accuracy.mean > self.accuracy and gap(point) < abs(self.spd)
            for point in points
            if point
        )

    def same_rho(self) -> list[CurvePoint]:
        """Our point at the cell's rho_o, alone."""
        return [point for point in self.ours if point.rho_o == self.cell.rho_o]

    def below_constant(self, accuracy: float) -> bool:
        """Whether the constant classifier is as accurate, and therefore better: it has no gap."""
        return bool(showing.mark(accuracy, self.constant))


def published_next_to(runs: TableRuns) -> list[PublishedCell]:
    """All 30."""
    found = []
    for cell, (accuracy, spd) in published_cells().items():
        faithful = curve(showing.select(runs, **cell._asdict()))
        constant = showing.select(runs, method="constant", task=cell.task)
        found.append(
            PublishedCell(
                cell,
                accuracy,
                spd,
                faithful[0] if faithful else None,
                curve(single_shot(runs, "ours", cell)),
                showing.means(constant, "accuracy").mean if constant else None,
            )
        )
    return found


def answer(accuracy: float, spd: float, points: Iterable[CurvePoint]) -> Answer | None:
    """Our best point against a published cell; None where there are no runs."""

    def margin(point: CurvePoint) -> float:
        ahead = (point.accuracy.mean - accuracy) / max(point.accuracy.error, 1e-6)
        return min(ahead, (abs(spd) - abs(point.spd.mean)) / max(point.spd.error, 1e-6))

    answers = (Answer(point, margin(point)) for point in points)
    return max(answers, key=lambda one: one.margin, default=None)


def single_shot(runs: TableRuns, recipe: str, cell: TableCell) -> TableRuns:
    """Single-shot with a recipe, at all weights."""
    return showing.select(runs, recipe=recipe, method="single_shot", task=cell.task, size=cell.size)


class Count(NamedTuple):
    """Cells that are beaten: those of Law School, where a constant does well, and of Dutch."""

    law_school: int
    dutch: int

    def __str__(self) -> str:
        """In words."""
        return f"{sum(self)}: Law School {self.law_school} of 20, Dutch {self.dutch} of 10"


def that_learned(runs: TableRuns) -> list[PublishedCell]:
    """The cells that the constant classifier does not beat."""
    return [one for one in published_next_to(runs) if not one.below_constant(one.accuracy)]


def beaten(
    runs: TableRuns, which: Callable[[TableRuns], list[PublishedCell]] = published_next_to
) -> dict[str, Count]:
    """How many cells are beaten, by several rules; of all 30, or of some."""
    rules: dict[str, Callable[[PublishedCell], bool]] = {
        "by some point of our curve": lambda one: one.beaten_by(one.ours),
        "by some point of our curve, by the mean size of the SPD": lambda one: one.beaten_by(
            one.ours, of_sizes=True
        ),
        "by our point at the same rho_o": lambda one: one.beaten_by(one.same_rho()),
        "by the faithful recipe at the same rho_o": lambda one: one.beaten_by([one.faithful]),
        "by the constant classifier": lambda one: one.below_constant(one.accuracy),
    }
    found = which(runs)
    return {how: _count(one.cell for one in found if rule(one)) for how, rule in rules.items()}


def _count(some: Iterable[TableCell]) -> Count:
    dutch = [cell.task == "dutch_gender" for cell in some]
    return Count(len(dutch) - sum(dutch), sum(dutch))
