"""Table 2 of Wu, Curtis and Robinson (2024): accuracy and SPD for three tasks, two sizes, rho_o.

    python -m benchmarks.table2                  # every run, one line a run; resumes; then show
    python -m benchmarks.table2 --seeds 1        # a quick look
    python -m benchmarks.table2 sweep            # what the paper leaves out, swept once
    python -m benchmarks.table2 show             # Markdown and plots from the runs at hand

Two recipes. **faithful**: the paper's settings: no intercept, covariance penalty, Adam, first
features normal, labels copied or balanced. **ours**: see :data:`OURS`; beside it, on the same
splits and seeds, the methods that one would otherwise use.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks import compilations, scaling, use_float64
from benchmarks.compilations import Compiled
from benchmarks.optimum import excess
from synthfair.compare import Federation, Fitted, federate, run_method
from synthfair.files import write_text

RESULTS = Path(__file__).parent / "results" / "table2"

RHO_FAITHFUL = (0.0, 10.0, 100.0, 1000.0, 10000.0)
RHO_OURS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10000.0)
SIZES = ("train", "small")
RHO_OTHERS = (0.0, 10.0, 100.0)
RHO_SMOKE = (10.0, 100.0)
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
    """

    dataset: str
    sensitive: str
    clients: int
    small: int
    temperature: float


TASKS = {
    "law_school_race": Task("law_school", "race", 2, 800, 8.0),
    "law_school_gender": Task("law_school", "male", 2, 800, 16.0),
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
    "start": "middle",
    "steps": 300,
    "stop_tolerance": 1e-6,
}
"""One recipe for a task and all its cells; only the temperature differs between tasks. Most runs
stop after 100 steps."""

GRIDS = {"faithful": RHO_FAITHFUL, "ours": RHO_OURS}


class Run(NamedTuple):
    """One line of the CSV.

    Attributes:
        excess: of the outer objective over the optimum of F, relative, the largest of all clients.
        nearest: smallest distance of a real training row and a synthetic row of its client.
        converged: whether every problem solved on the way met its tolerance.
        settings: fingerprint of the configuration and the scaling.
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
    settings: str

    @property
    def cell(self) -> tuple[Unit, float]:
        """What was run."""
        return Unit(self.recipe, self.method, self.task, self.size, self.seed), self.rho_o


class Unit(NamedTuple):
    """What one resumable step of work makes: a curve over rho_o."""

    recipe: str
    method: str
    task: str
    size: str
    seed: int


def units(recipe: str, seed: int) -> Iterator[Unit]:
    """All work of a recipe and a seed."""
    for task in TASKS:
        for size in SIZES:
            yield Unit(recipe, "single_shot", task, size, seed)
        if recipe == "ours":
            for method in OTHERS:
                yield Unit(recipe, method, task, "", seed)


@cache
def n_train(task: str) -> int:
    """Training rows of one client, whatever the seed."""
    return len(federation(Unit("ours", "central", task, "", 0)).train[0].y)


def settings(unit: Unit, rho_o: float, **changes: Any) -> sf.DistillConfig:
    """The configuration of one cell."""
    task, given = TASKS[unit.task], FAITHFUL if unit.recipe == "faithful" else OURS
    n_synthetic = n_train(unit.task) // 4 * 4 if unit.size == "train" else task.small
    size: dict[str, Any] = {"labels": "balanced", "n_synthetic": n_synthetic}
    if unit.size == "train" and unit.recipe == "faithful":
        size = {"labels": "copy"}
    common = {"lambda_x": 1e-4, "temperature": task.temperature}
    cell = {"rho_o": rho_o, "seed": unit.seed}
    return sf.DistillConfig.model_validate(common | given | size | cell | changes)


def fingerprint(config: sf.DistillConfig, how: str) -> str:
    """Of all that a run's numbers depend on, but for the code; all inner solvers find the same."""
    settings = config.model_dump_json(exclude={"inner_solver", "linear_solver"})
    return hashlib.sha256(f"{settings} {how}".encode()).hexdigest()[:12]


def scaling_of(recipe: str) -> str:
    """See :mod:`benchmarks.scaling`."""
    return SCALING if recipe == "faithful" else "range"


def federation(unit: Unit, how: str = "range") -> Federation:
    """The clients of a task, split with the unit's seed."""
    task = TASKS[unit.task]
    table, schema = sf.load_dataset(task.dataset, task.sensitive)
    clients = sf.partition(table, clients=task.clients, seed=unit.seed)
    return scaling.rescaled(federate(clients, schema), how)


def curve(
    unit: Unit,
    rhos: Sequence[float],
    *,
    judge: bool = True,
    how: str | None = None,
    **changes: Any,
) -> list[Run]:
    """Runs a unit's cells; clients and cells of one shape share one compilation.

    Args:
        unit: what to run.
        rhos: values of rho_o.
        judge: whether the optimum of F is sought, for the first seeds.
        how: features are scaled; the recipe's way if not given.
        changes: of the settings.
    """
    how = how or scaling_of(unit.recipe)
    clients = federation(unit, how)
    judge = judge and unit.seed < SEEDS_OF_EXCESS
    configs = [settings(unit, rho_o, **changes) for rho_o in rhos]
    return [_cell(unit, clients, config, how, judge=judge) for config in configs]


def _cell(
    unit: Unit, clients: Federation, config: sf.DistillConfig, how: str, *, judge: bool
) -> Run:
    outcome, fitted = run_method(unit.method, clients, config, sf.ServerConfig(resamples=1))
    compilations.note(clients, fitted, config)
    overall = outcome.evaluation.overall
    return Run(
        recipe=unit.recipe,
        method=unit.method,
        task=unit.task,
        size=unit.size,
        rho_o=config.rho_o,
        seed=unit.seed,
        accuracy=round(overall["accuracy"].value, 6),
        spd=round(overall["spd"].value, 6),
        covariance=round(overall["covariance"].value, 6),
        excess=excess(clients, fitted, config) if judge else np.nan,
        nearest=nearest(clients, fitted),
        converged=outcome.converged is not False,
        seconds=round(outcome.seconds, 2),
        settings=fingerprint(config, how),
    )


def nearest(clients: Federation, fitted: Fitted) -> float:
    """Smallest ||x_i - x_hat_j|| of any client; not-a-number where nothing is distilled."""
    from scipy.spatial import KDTree

    if not fitted.distillations:
        return np.nan
    pairs = zip(clients.train, fitted.distillations, strict=True)
    return float(min(KDTree(d.release.x).query(real.x)[0].min() for real, d in pairs))


def read_runs(path: Path) -> list[Run]:
    """The runs at hand. A line that was cut off is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_parsed(row) for row in csv.DictReader(file) if None not in row.values()]


def _parsed(row: dict[str, str]) -> Run:
    words = ("recipe", "method", "task", "size", "settings")
    numbers = {k: float(v) for k, v in row.items() if k not in words}
    whole = {"seed": int(numbers["seed"]), "converged": bool(numbers["converged"])}
    return Run(**{**row, **numbers, **whole})  # type: ignore[arg-type]


def append_runs(path: Path, runs: Sequence[Run]) -> None:
    """Adds whole units at once, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Run._fields)
    for run in [*read_runs(path), *runs]:
        writer.writerow([int(v) if isinstance(v, bool) else v for v in run])
    write_text(path, text.getvalue())


def missing(
    unit: Unit, rhos: Sequence[float], runs: Sequence[Run], **changes: Any
) -> tuple[float, ...]:
    """The values of rho_o that are not among the runs.

    Raises:
        SystemExit: a run at hand has other settings: it belongs to another table.
    """
    here = {run.rho_o: run.settings for run in runs if run.cell[0] == unit}
    for rho_o, found in here.items():
        if found != fingerprint(settings(unit, rho_o, **changes), scaling_of(unit.recipe)):
            raise SystemExit(
                f"{unit}, rho_o = {rho_o:g}: the run at hand has other settings; name another"
                " --output, or delete the old results"
            )
    return tuple(rho_o for rho_o in rhos if rho_o not in here)


def run(recipes: Sequence[str], seeds: int, output: Path, *, workers: int, smoke: bool) -> None:
    """Makes the runs that are not at hand yet, seeds first: interrupted, it leaves whole tables."""
    from rich.progress import track

    at_hand = {recipe: read_runs(output / f"{recipe}.csv") for recipe in recipes}
    todo: list[tuple[Unit, tuple[float, ...]]] = []
    for seed in range(seeds):
        for recipe in recipes:
            for unit in units(recipe, seed):
                rhos = missing(unit, grid(unit, smoke=smoke), at_hand[recipe])
                todo += [(unit, rhos)] if rhos else []
    counts: list[Compiled] = []
    for runs, count in track(_made(todo, workers), description="table 2", total=len(todo)):
        append_runs(output / f"{runs[0].recipe}.csv", runs)
        counts.append(count)
    if counts:
        print(compilations.summary(counts))


def grid(unit: Unit, *, smoke: bool) -> tuple[float, ...]:
    """The values of rho_o that a unit is run with."""
    if smoke:
        return RHO_SMOKE
    return GRIDS[unit.recipe] if unit.method in ("single_shot", "central") else RHO_OTHERS


def counted(unit: Unit, rhos: Sequence[float]) -> tuple[list[Run], Compiled]:
    """:func:`curve`, and what its process has compiled so far."""
    return curve(unit, rhos), compilations.compiled()


def _made(
    todo: Sequence[tuple[Unit, tuple[float, ...]]], workers: int
) -> Iterator[tuple[list[Run], Compiled]]:
    """The runs of each unit, as they come, from so many processes."""
    # Each worker is one thread's worth: BLAS threads of several would only be in their way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    fresh = multiprocessing.get_context("spawn")  # a forked JAX may lock up
    with ProcessPoolExecutor(workers, fresh, initializer=use_float64) as pool:
        futures = [pool.submit(counted, *work) for work in todo]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = ["all", "run", "sweep", "show"]
    parser.add_argument("action", nargs="?", choices=actions, default="all")
    parser.add_argument("--recipe", choices=[*GRIDS], help="One recipe alone. Default: both.")
    parser.add_argument("--seeds", type=_positive, default=20, help="Number of seeds. Default: 20.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    parser.add_argument("--smoke", action="store_true", help="One seed, two rho_o: for CI.")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--workers", type=_positive, default=cores, help="Processes. Default: one a core."
    )
    args = parser.parse_args()
    if args.action in ("all", "run"):
        recipes = [args.recipe] if args.recipe else [*GRIDS]
        seeds = 1 if args.smoke else args.seeds
        run(recipes, seeds, args.output, workers=args.workers, smoke=args.smoke)
    if args.action in ("all", "show"):
        from benchmarks.table2_show import show

        show(args.output)
    if args.action == "sweep":
        from benchmarks.table2_sweep import sweep

        use_float64()
        sweep(args.output)


if __name__ == "__main__":
    main()
