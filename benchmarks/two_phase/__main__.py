"""Accuracy and gap against epsilon: two-phase, its end-to-end variant, and the baselines B1, B2.

    python -m benchmarks.two_phase              # 3 seeds; goes on where it stopped
    python -m benchmarks.two_phase --seeds 1 --output elsewhere
    python -m benchmarks.two_phase --seeds 1 --epsilons 2 --tables adult --published --output wide

Adult, Bank and Dutch, statistical parity (5 clients) and equalized odds (2 clients), delta = 1e-4;
every client spends epsilon. Kappa is as :mod:`benchmarks.two_phase.choose` chose it. The seed sets
split, batches and noise, so that a run can be repeated: such noise protects nobody.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import track

from benchmarks.lines import append_line, read_runs
from benchmarks.two_phase.choose import best
from benchmarks.two_phase.choose import read as read_tried
from benchmarks.two_phase.problem import (
    CLIENTS,
    HIDDEN,
    PUBLISHED_HIDDEN,
    RESULTS,
    TABLES,
    Problem,
    make_problem,
)
from benchmarks.two_phase.show import plot, table
from synthfair.federated.algorithm import Algorithm
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import run
from synthfair.federated.fair_sgd import FairSgd
from synthfair.federated.parity import ParityNotion
from synthfair.federated.two_phase import make_two_phase
from synthfair.federated.users import Users
from synthfair.files import write_text
from synthfair.model import Params

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0)
DELTA = 1e-4
RATE = 2.0
"""Of phase 2, chosen in :mod:`benchmarks.two_phase.rates`. With the published 0.25 students on Bank
do not leave the more frequent label in the steps there are."""

ROUNDS, LOCAL_EPOCHS = 4, 5

Kappas = dict[tuple[str, str, bool], tuple[float, float]]
"""By table, notion and whether end to end: start and step."""


class Run(NamedTuple):
    """A line of runs.csv; the noise is 0 where there is no epsilon."""

    table: str
    notion: ParityNotion
    method: str
    epsilon: float
    seed: int
    accuracy: float
    gap: float
    noise: float


KINDS = (str, str, str, float, int, float, float, float)
"""Types of the columns."""


def kappas() -> Kappas:
    """What was chosen on training rows."""
    chosen = {task: best(lines) for task, lines in read_tried().items()}
    return {task: (one.kappa, one.kappa_rate) for task, one in chosen.items()}


def trained(algorithm: Algorithm, users: Users, seed: int) -> Params:
    """By all clients in every round."""
    everyone = Cohorts(len(users), len(users))
    done = run(algorithm, users, everyone, rounds=ROUNDS, seed=seed, chunk=ROUNDS)
    return algorithm.params(done.state)


def baseline(problem: Problem, kappa: tuple[float, float], seed: int) -> Params:
    """B2, or B1 with a kappa of 0 that stays there: then one compiled code serves both."""
    steps = problem.users.steps(batch=500, epochs=LOCAL_EPOCHS)
    algorithm = FairSgd(
        problem.model, problem.parity, kappa=kappa[0], kappa_rate=kappa[1], local_steps=steps
    )
    return trained(algorithm, problem.users, seed)


def private(
    problem: Problem, kappa: tuple[float, float], epsilon: float, seed: int, *, end_to_end: bool
) -> tuple[Params, float]:
    """Both phases, and the noise that epsilon takes."""
    method = make_two_phase(
        problem.model,
        problem.parity,
        problem.users,
        end_to_end=end_to_end,
        local_epochs=LOCAL_EPOCHS,
        learning_rate=RATE,
        kappa=kappa[0],
        kappa_rate=kappa[1],
    ).for_budget(problem.users, ROUNDS, epsilon=epsilon, delta=DELTA)
    taught = method.teach(problem.users, seed)
    # The student by itself is the same algorithm, and one compiled code for both variants.
    return trained(method.student, taught, seed), float(method.student.noise)


Wanted = tuple[str, ParityNotion, str, float, int]


def one_run(task: Wanted, chosen: Kappas, *, published: bool) -> Run:
    """One line."""
    name, notion, method, epsilon, seed = task
    hidden = PUBLISHED_HIDDEN[name] if published else HIDDEN
    problem = make_problem(name, notion, seed, hidden)
    end_to_end, noise = method == "end_to_end", 0.0
    kappa = chosen[name, notion, end_to_end]
    if method in ("B1", "B2"):
        params = baseline(problem, (0.0, 0.0) if method == "B1" else kappa, seed)
    else:
        params, noise = private(problem, kappa, epsilon, seed, end_to_end=end_to_end)
    return Run(*task, *problem.judge_test(params), noise)


def wanted(tables: Sequence[str], epsilons: Sequence[float], seeds: int) -> list[Wanted]:
    """All runs, seeds first."""
    methods = [("B1", np.inf), ("B2", np.inf)]
    methods += [(m, e) for m in ("two_phase", "end_to_end") for e in epsilons]
    return [
        (name, notion, *method, seed)
        for seed in range(seeds)
        for name in tables
        for notion in CLIENTS
        for method in methods
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="Number of seeds. Default: 3.")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--published", action="store_true", help="Networks as wide as published.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    path, chosen = args.output / "runs.csv", kappas()
    done = {made[:5] for made in read_runs(path, Run, KINDS)}
    tasks = wanted(args.tables, args.epsilons, args.seeds)
    for task in track([one for one in tasks if one not in done], description="two_phase"):
        append_line(path, Run._fields, one_run(task, chosen, published=args.published))
    runs = read_runs(path, Run, KINDS)
    write_text(args.output / "two_phase.md", table(runs))
    for notion in CLIENTS:
        own = [made for made in runs if made.notion == notion]
        write_text(args.output / f"{notion}.svg", plot(own))
    print(table(runs))


if __name__ == "__main__":
    main()
