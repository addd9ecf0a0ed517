"""Figure 2 of Wu, Curtis and Robinson (2024): rho_o against rho_s, as heat maps.

    python -m benchmarks.figure2        # 3 seeds; goes on where it stopped

Law School by race, lambda_theta = 1e-4, N_s = N with labels copied, the faithful recipe of table 2.
The paper does not give its grid; ours is that of table 2 in both directions.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Experiment, committed, main
from benchmarks.runs import Runs
from benchmarks.showing import as_svg, panels
from benchmarks.table2.cells import RHO_FAITHFUL, TableCell, TableValues, config_of, run_cell
from synthfair.data.datasets import SOURCES


class HeatSetting(NamedTuple):
    """The weights of both penalties."""

    rho_s: float
    rho_o: float

    @property
    def cell(self) -> TableCell:
        """The cell of table 2 whose settings these are, but for the changes."""
        return TableCell("faithful", "single_shot", "law_school_race", "train", self.rho_o)

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the settings of the cell."""
        return {"rho_s": self.rho_s, "lambda_theta": 1e-4}


def run_weights(setting: HeatSetting, seed: int, *, smoke: bool) -> TableValues:
    """Trains as for a cell of table 2."""
    return run_cell(setting.cell, seed, smoke=smoke, excess=False, **setting.changes)


def draw(runs: Runs) -> dict[str, str]:
    """Heat maps of accuracy, covariance and SPD, means over seeds."""
    across, up = sorted(runs.by("rho_o")), sorted(runs.by("rho_s"))
    groups = runs.by("rho_s", "rho_o")
    constants = committed("table2", "table2").select(method="constant", task="law_school_race")
    figure, three = panels(1, 3, 13, 4)
    for axes, name in zip(three, ("accuracy", "covariance", "spd"), strict=True):
        cells = [[groups.get((s, o), Runs()).mean(name).mean for o in across] for s in up]
        values = np.array(cells)
        image = axes.imshow(values, cmap="cividis", origin="lower")
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (i, j), value in np.ndenumerate(values):
            look = {"color": "white" if value < middle else "black", "fontsize": 8}
            axes.text(j, i, f"{value:.3f}", ha="center", va="center", **look)
        axes.set_xticks(range(len(across)), [f"{rho:g}" for rho in across])
        axes.set_yticks(range(len(up)), [f"{rho:g}" for rho in up])
        title = name.replace("spd", "SPD")
        if name == "accuracy" and constants:
            title += f" (constant classifier: {constants.mean(name).mean:.3f})"
        axes.set(xlabel="rho_o", ylabel="rho_s", title=title)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return {"figure2.svg": as_svg(figure)}


# What the paper claims


FIGURE2 = Experiment(
    name="runs", settings=tuple(HeatSetting(*one) for one in product(RHO_FAITHFUL, RHO_FAITHFUL)),
    run=run_weights, summary=draw, smoke=(HeatSetting(10.0, 10.0),), seeds=3,
    sources=lambda _: SOURCES["law_school"],
    behind=lambda setting: (config_of(setting.cell, **setting.changes),), parallel=True,
)  # fmt: skip

EXPERIMENTS = (FIGURE2,)

if __name__ == "__main__":
    main(__doc__, "figure2", *EXPERIMENTS)
