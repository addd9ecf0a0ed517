"""Table 2 of Wu, Curtis and Robinson (2024): accuracy and SPD for three tasks, two sizes, rho_o.

    python -m benchmarks.table2 run --recipe ours       # every run, one line a run; resumes
    python -m benchmarks.table2 run --recipe faithful
    python -m benchmarks.table2 sweep                   # what the paper leaves out, swept once
    python -m benchmarks.table2 show                    # Markdown and plots from the runs at hand

Two recipes. **faithful**: the paper's settings: no intercept, covariance penalty, Adam, first
features normal, labels copied or balanced. **ours**: see :data:`OURS`; beside it, on the same
splits and seeds, the methods that one would otherwise use.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks import scaling
from benchmarks.optimum import excess
from synthfair.cli.show import use_float64
from synthfair.compare import Federation, Fitted, federate, measure

RESULTS = Path(__file__).parent / "results" / "table2"

RHO_FAITHFUL = (0.0, 10.0, 100.0, 1000.0, 10000.0)
RHO_OURS = (0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0)
SIZES = ("train", "small")
RHO_OTHERS = (0.0, 10.0, 100.0)
SEEDS_OF_EXCESS = 3
"""Finding the optimum of F takes longer than distilling; so many seeds are enough to judge by."""

OTHERS = ("central", "local", "fedavg", "exponentiated_gradient")


@dataclass(frozen=True)
class Task:
    """One block of the table.

    Attributes:
        dataset: name of the public table.
        sensitive: its sensitive attribute.
        clients: how many.
        small: number of synthetic rows at the small size.
        temperature: of our recipe; chosen by ``benchmarks.recipes`` on training rows.
        steps: of our recipe.
    """

    dataset: str
    sensitive: str
    clients: int
    small: int
    temperature: float
    steps: int = 100


TASKS = {
    "law_school_race": Task("law_school", "race", 2, 800, 8.0, steps=200),
    "law_school_gender": Task("law_school", "male", 2, 800, 8.0, steps=200),
    "dutch_gender": Task("dutch", "sex", 4, 1200, 4.0),
}

FAITHFUL = {
    "intercept": False,
    "penalty": "covariance",
    "optimizer": "adam",
    "start": "normal",
    "steps": 1000,
    "learning_rate": 0.01,
}
"""The paper's settings; the learning rate, and the scaling below, are ours to choose: see sweep."""

SCALING = "range"

OURS = {
    "intercept": True,
    "penalty": "selection_rate",
    "optimizer": "gauss_newton",
    "start": "range",
}
"""One recipe for a task and all its cells; temperature and steps differ between tasks."""


class Run(NamedTuple):
    """One line of the CSV.

    Attributes:
        excess: of the outer objective over the optimum of F, relative, the largest of all clients.
        nearest: smallest distance of a real training row and a synthetic row of its client.
        converged: whether every problem solved on the way met its tolerance.
    """

    recipe: str
    method: str
    task: str
    size: str
    rho_o: float
    seed: int
    accuracy: float
    spd: float
    covariance: float
    excess: float
    nearest: float
    converged: bool
    seconds: float


class Unit(NamedTuple):
    """What one resumable step of work makes: a curve over rho_o."""

    recipe: str
    method: str
    task: str
    size: str
    seed: int


def units(recipe: str, seeds: int) -> Iterator[Unit]:
    """All work of a recipe, seeds first, so that an interrupted benchmark has whole tables."""
    for seed in range(seeds):
        for task in TASKS:
            for size in SIZES:
                yield Unit(recipe, "single_shot", task, size, seed)
            if recipe == "ours":
                for method in OTHERS:
                    yield Unit(recipe, method, task, "", seed)


def settings(unit: Unit, rho_o: float, n_train: int, **changes: Any) -> sf.DistillConfig:
    """The configuration of one cell."""
    task, given = TASKS[unit.task], FAITHFUL if unit.recipe == "faithful" else OURS
    n_synthetic = n_train // 4 * 4 if unit.size == "train" else task.small
    size: dict[str, Any] = {"labels": "balanced", "n_synthetic": n_synthetic}
    if unit.size == "train" and unit.recipe == "faithful":
        size = {"labels": "copy"}
    common = {"lambda_x": 1e-4, "temperature": task.temperature, "steps": task.steps}
    cell = {"rho_o": rho_o, "seed": unit.seed}
    return sf.DistillConfig.model_validate(common | given | size | cell | changes)


def federation(unit: Unit, how: str = "range") -> Federation:
    """The clients of a task, split with the unit's seed."""
    task = TASKS[unit.task]
    table, schema = sf.load_dataset(task.dataset, task.sensitive)
    clients = sf.partition(table, clients=task.clients, seed=unit.seed)
    return scaling.rescaled(federate(clients, schema), how)


def curve(
    unit: Unit, rhos: tuple[float, ...], *, judge: bool = True, **changes: Any
) -> Iterator[Run]:
    """Runs a unit's cells; clients and cells of one shape share one compilation.

    Args:
        unit: what to run.
        rhos: values of rho_o.
        judge: whether the optimum of F is sought, for the first seeds.
        changes: of the settings, or of the scaling.
    """
    how = str(changes.pop("scaling", SCALING if unit.recipe == "faithful" else "range"))
    clients = federation(unit, how)
    n_train = len(clients.train[0].y)
    for rho_o in rhos:
        config = settings(unit, rho_o, n_train, **changes)
        report = sf.ServerConfig(resamples=1)
        outcome, fitted = measure(unit.method, clients, config, report)
        overall = outcome.evaluation.overall
        judged = judge and unit.seed < SEEDS_OF_EXCESS
        yield Run(
            recipe=unit.recipe,
            method=unit.method,
            task=unit.task,
            size=unit.size,
            rho_o=rho_o,
            seed=unit.seed,
            accuracy=round(overall["accuracy"].value, 6),
            spd=round(overall["spd"].value, 6),
            covariance=round(overall["covariance"].value, 6),
            excess=excess(clients, fitted, config) if judged else np.nan,
            nearest=nearest(clients, fitted),
            converged=outcome.converged,
            seconds=round(outcome.seconds, 2),
        )


def nearest(clients: Federation, fitted: Fitted) -> float:
    """Smallest ||x_i - x_hat_j|| of any client; not-a-number where nothing is distilled."""
    from scipy.spatial import KDTree

    if not fitted.distillations:
        return np.nan
    pairs = zip(clients.train, fitted.distillations, strict=True)
    return float(min(KDTree(d.release.x).query(real.x)[0].min() for real, d in pairs))


def read_runs(path: Path) -> list[Run]:
    """The runs at hand."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_parsed(row) for row in csv.DictReader(file)]


def _parsed(row: dict[str, str]) -> Run:
    numbers = {k: float(v) for k, v in row.items() if k not in ("recipe", "method", "task", "size")}
    whole = {"seed": int(numbers["seed"]), "converged": bool(numbers["converged"])}
    return Run(**{**row, **numbers, **whole})  # type: ignore[arg-type]


def append_runs(path: Path, runs: list[Run]) -> None:
    """Adds whole units at once, so that an interruption leaves none half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(Run._fields)
        writer.writerows([[int(v) if isinstance(v, bool) else v for v in run] for run in runs])


def run(recipe: str, seeds: int, output: Path, *, rhos: tuple[float, ...]) -> None:
    """Makes the runs that are not at hand yet."""
    from rich.progress import track

    path = output / f"{recipe}.csv"
    done = {Unit(*r[:4], r.seed) for r in read_runs(path)}
    todo = [unit for unit in units(recipe, seeds) if unit not in done]
    for unit in track(todo, description=f"table 2, {recipe}"):
        others = unit.method not in ("single_shot", "central")
        append_runs(path, list(curve(unit, RHO_OTHERS if others else rhos)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["run", "sweep", "show"])
    parser.add_argument("--recipe", choices=["faithful", "ours"], default="ours")
    parser.add_argument("--seeds", type=int, default=20, help="Number of seeds. Default: 20.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    parser.add_argument("--smoke", action="store_true", help="One seed, two rho_o: for CI.")
    args = parser.parse_args()
    use_float64()
    if args.action == "run":
        rhos = RHO_FAITHFUL if args.recipe == "faithful" else RHO_OURS
        seeds = 1 if args.smoke else args.seeds
        run(args.recipe, seeds, args.output, rhos=rhos[1:3] if args.smoke else rhos)
    elif args.action == "sweep":
        from benchmarks.table2_sweep import sweep

        sweep(args.output)
    else:
        from benchmarks.table2_show import show

        show(args.output)


if __name__ == "__main__":
    main()
