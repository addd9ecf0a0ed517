"""Accuracy and SPD against epsilon.

    python -m benchmarks.privacy                    # 10 seeds; goes on where it stopped
    python -m benchmarks.privacy --seeds 1 --output elsewhere

Law School by race and Dutch with the settings in configs/, delta = 1 / N^1.1 with N a client's
training rows; private runs start in the middle of the range, as is the default with epsilon. Each
client spends epsilon. Beside it the non-private run, and local randomisation of (s, y): each row's
pair of group and label is replaced by a random one so that epsilon holds for the pair (k-ary
randomised response), and the rows are then distilled without further noise. That protects neither
the features nor whether a row is there at all. Noise comes from the system, so that a repetition
differs within the errors shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import track

from benchmarks import use_float64
from benchmarks.lines import append_line, read_runs
from benchmarks.privacy.show import plot, table
from synthfair.compare.federation import Federation, federate
from synthfair.compare.methods import run_method
from synthfair.config import DistillConfig, load_distill_config
from synthfair.data.datasets import load_dataset
from synthfair.data.encode import Encoded
from synthfair.data.partition import partition
from synthfair.files import write_text

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "privacy"

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


class Task(NamedTuple):
    """A table cut into clients."""

    table: str
    sensitive: str
    clients: int
    settings: Path


TASKS = {
    "law_school_race": Task("law_school", "race", 2, ROOT / "configs/law_school/race.toml"),
    "dutch_gender": Task("dutch", "sex", 4, ROOT / "configs/dutch/gender.toml"),
}


class Run(NamedTuple):
    """A line of runs.csv."""

    task: str
    method: str
    epsilon: float
    seed: int
    accuracy: float
    spd: float


KINDS = {
    "task": str,
    "method": str,
    "epsilon": float,
    "seed": int,
    "accuracy": float,
    "spd": float,
}
"""Types of the columns."""


def federation(task: Task, seed: int) -> Federation:
    """The clients of one seed."""
    rows, schema = load_dataset(task.table)
    schema = schema.with_sensitive(task.sensitive) if task.sensitive != schema.sensitive else schema
    return federate(partition(rows, clients=task.clients, seed=seed), schema)


def randomised(real: Encoded, epsilon: float, n_groups: int, seed: int) -> Encoded:
    """The rows with (s, y) kept with the odds exp(epsilon) against each other pair."""
    rng, k = np.random.default_rng(seed), 2 * n_groups
    pairs = 2 * real.s + (real.y > 0)
    keep = rng.random(len(pairs)) < np.exp(epsilon) / (np.exp(epsilon) + k - 1)
    others = (pairs + rng.integers(1, k, len(pairs))) % k
    told = np.where(keep, pairs, others)
    return Encoded(real.x, told // 2, np.where(told % 2, 1.0, -1.0))


def run(name: str, method: str, epsilon: float, seed: int) -> Run:
    """One method with one budget on one seed."""
    clients = federation(TASKS[name], seed)
    config = load_distill_config(TASKS[name].settings, seed=seed)
    if method == "private":
        delta = len(clients.train[0].y) ** -1.1
        changes = {
            "epsilon": epsilon,
            "delta": delta,
            "start": "middle",
        }  # the default with epsilon
        config = DistillConfig(**config.model_dump() | changes)
    if method == "randomised":
        noisy = [
            randomised(r, epsilon, clients.n_groups, seed + i) for i, r in enumerate(clients.train)
        ]
        clients = clients._replace(train=tuple(noisy))
    overall = run_method("single_shot", clients, config)[0].evaluation.overall
    return Run(name, method, epsilon, seed, overall["accuracy"].value, overall["spd"].value)


def wanted(seeds: int) -> list[tuple[str, str, float, int]]:
    """All runs, seeds first."""
    methods = [("plain", np.inf), *((m, e) for m in ("private", "randomised") for e in EPSILONS)]
    return [(task, *method, seed) for seed in range(seeds) for method in methods for task in TASKS]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="Number of seeds. Default: 10.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    use_float64()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "runs.csv"
    done = {made[:4] for made in read_runs(path, Run, tuple(KINDS.values()))}
    todo = [one for one in wanted(args.seeds) if one not in done]
    for one in track(todo, description="privacy"):
        append_line(path, Run._fields, run(*one))
    runs = read_runs(path, Run, tuple(KINDS.values()))
    write_text(args.output / "privacy.md", table(runs))
    for task in TASKS:
        write_text(args.output / f"{task}.svg", plot([r for r in runs if r.task == task]))
    print(table(runs))


if __name__ == "__main__":
    main()
