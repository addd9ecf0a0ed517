"""One upload or many rounds: accuracy against SPD, with what each method sends.

    python -m benchmarks.methods                    # 3 seeds; goes on where it stopped
    python -m benchmarks.methods --seeds 1 --output elsewhere

Law School by race, Dutch and Adult by sex, each cut into 2 clients: the same splits, seeds and
logistic model for all. Weights are rho_o = 0, 10, 100; methods with a tolerance take 1 / rho_o for
it, and have no constraint for 0. Private methods protect one row, with epsilon = 1 and delta = 1 /
N^1.1, N the rows of a client: of FPFL each row is a user by itself. Settings are in this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks import use_float64
from benchmarks.lines import append_line, read_runs
from benchmarks.methods.show import plot, table
from synthfair.compare.federation import Federation, federate
from synthfair.compare.methods import RoundOptions, run_method
from synthfair.config import DistillConfig, TrainConfig
from synthfair.data.datasets import load_dataset
from synthfair.data.partition import partition
from synthfair.federated import UserAssignment
from synthfair.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "methods"

TABLES = {"law_school": "race", "dutch": "sex", "adult": "sex"}
WEIGHTS = (0.0, 10.0, 100.0)
EPSILON = 1.0

PLAIN_ROUNDS = TrainConfig(rounds=1000, learning_rate=3.0, multiplier_rate=1.0)
"""Of FPFL on two clients, all of them in every round."""

PRIVATE_ROUNDS = {
    "rounds": 150,
    "cohort": 2000,
    "learning_rate": 2.0,
    "multiplier_rate": 0.3,
    "clip": 3.0,
    "epsilon": EPSILON,
}
"""Of FPFL on single rows."""


class Run(NamedTuple):
    """A line of runs.csv."""

    table: str
    method: str
    weight: float
    seed: int
    accuracy: float
    spd: float
    rounds: int
    bytes_sent: int
    seconds: float
    converged: int


KINDS: tuple[Callable[[str], Any], ...] = (
    str, str, float, int, float, float, int, int, float, int
)  # fmt: skip
"""Types of the columns."""

Measure = Callable[[Federation, DistillConfig], tuple]


def delta(clients: Federation) -> float:
    """1 / N^1.1, with N a client's training rows."""
    return len(clients.train[0].y) ** -1.1


def single_shot(clients: Federation, config: DistillConfig) -> tuple:
    """One upload."""
    return run_method("single_shot", clients, config)


def private_single_shot(clients: Federation, config: DistillConfig) -> tuple:
    """One upload with an epsilon."""
    asked = {"epsilon": EPSILON, "delta": delta(clients), "start": "middle"}
    return run_method("single_shot", clients, DistillConfig(**config.model_dump() | asked))


def central(clients: Federation, config: DistillConfig) -> tuple:
    """All rows in one place."""
    return run_method("central", clients, config)


def fedavg(clients: Federation, config: DistillConfig) -> tuple:
    """Federated averaging with the same penalty."""
    return run_method("fedavg", clients, config)


def fpfl(clients: Federation, config: DistillConfig) -> tuple:
    """Differential multipliers, the clients being the users."""
    return run_method("fpfl", clients, config, rounds=RoundOptions(PLAIN_ROUNDS))


def private_fpfl(clients: Federation, config: DistillConfig) -> tuple:
    """The same with an epsilon for each row."""
    settings = TrainConfig(**PRIVATE_ROUNDS, delta=delta(clients))
    return run_method(
        "fpfl", clients, config, rounds=RoundOptions(settings, UserAssignment(each_row=True))
    )


def two_phase(clients: Federation, config: DistillConfig) -> tuple:
    """A student of a fair teacher, with an epsilon that is conditional on the teacher."""
    return run_method(
        "two_phase", clients, config, rounds=RoundOptions(_two_phases(clients, False))
    )


def two_phase_end_to_end(clients: Federation, config: DistillConfig) -> tuple:
    """The same with private teachers."""
    return run_method("two_phase", clients, config, rounds=RoundOptions(_two_phases(clients, True)))


def _two_phases(clients: Federation, end_to_end: bool) -> TrainConfig:
    return TrainConfig(
        method="two_phase",
        end_to_end=end_to_end,
        clip=1.5,
        epsilon=EPSILON,
        delta=delta(clients),
    )


METHODS: dict[str, Measure] = {
    "central": central,
    "single-shot": single_shot,
    "single-shot, epsilon = 1": private_single_shot,
    "FedAvg": fedavg,
    "FPFL": fpfl,
    "FPFL, epsilon = 1": private_fpfl,
    "two-phase, epsilon = 1 if the teacher tells nothing": two_phase,
    "two-phase end to end, epsilon = 1": two_phase_end_to_end,
}
"""By the name they are shown under."""


def run(name: str, method: str, weight: float, seed: int) -> Run:
    """One method with one weight on one seed."""
    rows, schema = load_dataset(name, TABLES[name])
    clients = federate(partition(rows, clients=2, seed=seed), schema)
    config = DistillConfig(rho_o=weight, n_synthetic=800, seed=seed)
    outcome, _ = METHODS[method](clients, config)
    overall, cost = outcome.evaluation.overall, outcome.cost
    return Run(
        name, method, weight, seed,
        overall["accuracy"].value, overall["spd"].value,
        cost.rounds, cost.bytes_sent, outcome.seconds, int(outcome.converged is not False),
    )  # fmt: skip


def wanted(seeds: int) -> list[tuple[str, str, float, int]]:
    """All runs, seeds first."""
    return [
        (name, method, weight, seed)
        for seed in range(seeds)
        for name in TABLES
        for method in METHODS
        for weight in WEIGHTS
    ]


def place(made: Run) -> tuple[int, int, float, int]:
    """Of a run in the table."""
    return list(TABLES).index(made.table), list(METHODS).index(made.method), made.weight, made.seed


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="Number of seeds. Default: 3.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    use_float64()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "runs.csv"
    done = {made[:4] for made in read_runs(path, Run, KINDS)}
    for one in track([one for one in wanted(args.seeds) if one not in done], "methods"):
        append_line(path, Run._fields, run(*one))
    runs = sorted(read_runs(path, Run, KINDS), key=place)
    write_text(args.output / "methods.md", table(runs))
    write_text(args.output / "frontier.svg", plot(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
