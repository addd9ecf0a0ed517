"""What the covariance penalty of the paper can reach on Dutch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from benchmarks.findings import Finding, compared, what_does_not
from benchmarks.harness import Experiment, committed
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
    """Return the page by file name: the table, and what does not reproduce."""
    parts = {"rows": covariance_lines(runs), "missed": what_does_not(claim(runs))}
    return {"covariance.md": page("table2/covariance", runs, **parts)}


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


def claim(runs: Runs) -> Iterator[Finding]:
    """Yield the claim about the least SPD printed for Dutch, next to central training."""
    least, cell = min((s, c) for c, (_, s) in published_cells().items() if c.task == "dutch_gender")
    free, own = (runs.select(intercept=one, rho_o=cell.rho_o) for one in (False, True))
    if not (free and own):
        return
    constants = committed("table2", "table2").select(method="constant", task=cell.task)
    spd, other = free.mean("spd"), own.mean("spd")
    yield compared(
        f"table 2: the covariance lowers the SPD of Dutch so far, rho_o = {cell.rho_o:g}",
        f"{least:.3f}", f"{spd.text('.3f', error=True)} with all rows in one place"
        f" ({other.text('.3f', error=True)} with an intercept)", spd - least,
        "table2/covariance.md",
        ahead={"central training": free.less(constants, "accuracy")},
    )  # fmt: skip


COVARIANCE = Experiment(
    name="covariance",
    settings=tuple(CovarianceSetting(*one) for one in product((False, True), RHO_FAITHFUL[1:])),
    run=run_covariance, summary=show_covariance, smoke=(CovarianceSetting(False, 10.0),), seeds=20,
    sources=lambda _: SOURCES["dutch"], behind=lambda setting: (config_of(setting.cell),),
    default=False,
)  # fmt: skip
