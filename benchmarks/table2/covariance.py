"""What the covariance penalty of the paper can reach on Dutch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from benchmarks.harness import Experiment
from benchmarks.runs import AccuracySpd, Runs
from benchmarks.showing import page, pair_text
from benchmarks.table2.beaten import published_cells
from benchmarks.table2.cells import RHO_FAITHFUL, SIZES, TableCell, config_of, run_cell
from synthfair.data.datasets import SOURCES


class CovarianceSetting(NamedTuple):
    """The paper's penalty on all rows of Dutch in one place; its model has no intercept."""

    intercept: bool
    rho_o: float

    @property
    def cell(self) -> TableCell:
        """The cell of which these are the settings, but for the intercept."""
        return TableCell("faithful", "central", "dutch_gender", "train", self.rho_o)


def run_covariance(setting: CovarianceSetting, seed: int, *, smoke: bool) -> AccuracySpd:
    """Central training with the faithful settings: what distillation can at best come to."""
    intercept = setting.intercept
    values = run_cell(setting.cell, seed, smoke=smoke, excess=False, intercept=intercept)
    return AccuracySpd(values.accuracy, values.spd)


def show_covariance(runs: Runs) -> dict[str, str]:
    """Return the page by file name."""
    return {"covariance.md": page("table2/covariance", runs, rows=covariance_lines(runs))}


def covariance_lines(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Next to the published cells of Dutch, accuracy and SPD."""
    theirs = {
        (cell.size, cell.rho_o): f"{accuracy:.3f} / {spd:.3f}"
        for cell, (accuracy, spd) in published_cells().items()
        if cell.task == "dutch_gender"
    }
    for rho_o, own in runs.by("rho_o").items():
        ours = (pair_text(own.select(intercept=one), error=True) for one in (False, True))
        yield rho_o, *(theirs[size, rho_o] for size in SIZES), *ours


COVARIANCE = Experiment(
    name="covariance",
    settings=tuple(CovarianceSetting(*one) for one in product((False, True), RHO_FAITHFUL[1:])),
    run=run_covariance, summary=show_covariance, smoke=(CovarianceSetting(False, 10.0),), seeds=20,
    sources=lambda _: SOURCES["dutch"], behind=lambda setting: (config_of(setting.cell),),
    default=False,
)  # fmt: skip
