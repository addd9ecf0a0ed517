"""How long an outer step takes, against other packages and against the machine's limits.

    python -m benchmarks.speed                        # the peers need .[bench]
    python -m benchmarks.speed --steps 100 --peers jaxopt --output quick

One Law School client (sensitive: race), covariance penalty, rho_o = 10, no intercept, 1,000 steps
of Adam, double precision. All start from the same synthetic rows and must end at the same
objective. Times are after compilation, all in one run: on a shared machine, ratios are what counts.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import synthfair as sf
from benchmarks import use_float64
from benchmarks.limits import Ceilings, measured_ceilings, work_of_step
from benchmarks.peers.problem import PeerRun, peer_problem
from synthfair.compare import federate
from synthfair.data.encode import Encoded
from synthfair.distill import inner, outer
from synthfair.distill.problem import Problem, make_problem
from synthfair.files import write_text

RESULTS = Path(__file__).parent / "results" / "speed"

ALL_ROWS, SMALL = 8319, 800
PEERS = ("torch", "jaxopt")
GOALS = {
    ("torch", ALL_ROWS): 60,
    ("torch", SMALL): 25,
    ("jaxopt", ALL_ROWS): 5,
    ("jaxopt", SMALL): 3,
}
"""How many times faster than a peer we want to be."""

TIMES_FLOOR = 4
"""How many times the machine's limit we want to stay below, with all rows."""


class Timed(NamedTuple):
    """One line of the table.

    Attributes:
        name: of the package.
        n_synthetic: number of synthetic rows.
        seconds: of all steps, after compilation.
        first: seconds of compilation.
        objective: P(x) at the end, by one judge for all.
        gradient_norm: of the inner problem, at what our own solver finds there.
    """

    name: str
    n_synthetic: int
    seconds: float
    first: float
    objective: float
    gradient_norm: float


def config_of(n_synthetic: int, steps: int) -> sf.DistillConfig:
    """The settings of a size; with all rows, groups and labels are copied."""
    size: dict[str, Any] = {"labels": "balanced", "n_synthetic": n_synthetic}
    if n_synthetic == ALL_ROWS:
        size = {"labels": "copy"}
    given = {"intercept": False, "rho_o": 10.0, "start": "normal", "steps": steps, **size}
    return sf.DistillConfig.model_validate(given)


def one_client() -> Encoded:
    """Its training rows."""
    table, schema = sf.load_dataset("law_school", "race")
    return federate(sf.partition(table, clients=2, seed=0), schema).train[0]


class Ours(NamedTuple):
    """What a run of ours reached.

    Attributes:
        x: [N_s, d] synthetic features after the last step.
        theta: the inner solution there.
        seconds: of all steps.
        evaluations: of the inner objective and its gradient in a step, on average.
    """

    x: jax.Array
    theta: jax.Array
    seconds: float
    evaluations: float


def run_ours(problem: Problem, x: jax.Array, config: sf.DistillConfig) -> Ours:
    """All steps, in the chunks that the client takes."""
    state = outer.init(problem, x, config)
    start, iterations = time.perf_counter(), []
    for chunk, records in outer.run(problem, state, config):
        state = chunk
        iterations.append(records.inner_iterations)
    jax.block_until_ready(state.x)
    seconds = time.perf_counter() - start
    return Ours(state.x, state.params, seconds, float(np.concatenate(iterations).mean()) + 1)


def time_ours(real: Encoded, config: sf.DistillConfig) -> tuple[Timed, float]:
    """The second of two runs, as the first compiles; and its evaluations in a step."""
    problem, x = make_problem(real, config, n_groups=2)
    first, second = (run_ours(problem, x, config) for _ in range(2))
    compiling = first.seconds - second.seconds
    run = PeerRun(np.asarray(second.x), np.asarray(second.theta), second.seconds, compiling)
    return judged("synthfair", problem, run), second.evaluations


def time_peer(name: str, real: Encoded, config: sf.DistillConfig) -> Timed:
    """A peer on the same problem."""
    peer = importlib.import_module(f"benchmarks.peers.with_{name}")
    run = peer.distil(peer_problem(real, config), config.steps)
    problem, _ = make_problem(real, config, n_groups=2)
    return judged(name, problem, run)


def judged(name: str, problem: Problem, run: PeerRun) -> Timed:
    """Evaluates P(x) at an inner solution of our own, and the gradient at the package's."""
    x, theta = jnp.asarray(run.x), jnp.asarray(run.theta)
    solution = inner.train(problem.rows(x), problem.lambda_theta, model=problem.model)
    value = float(problem.outer(solution.params, x))
    norm = float(jnp.linalg.norm(jax.grad(problem.inner)(theta, x)))
    return Timed(name, len(x), run.seconds, run.first, value, norm)


def table(lines: list[Timed], floors: dict[int, float], steps: int) -> str:
    """Markdown: times, ratios, and how near all are to the best objective."""
    text = [
        "| N_s | package | s | s to compile | ours is faster by | goal | ms a step | objective over"
        " the best | inner gradient |",
        "|---" * 9 + "|",
    ]
    for line in lines:
        same = [other for other in lines if other.n_synthetic == line.n_synthetic]
        ours = next(other for other in same if other.name == "synthfair")
        best = min(other.objective for other in same)
        goal = GOALS.get((line.name, line.n_synthetic), "")
        text.append(
            f"| {line.n_synthetic} | {line.name} | {line.seconds:.2f} | {line.first:.2f} |"
            f" {line.seconds / ours.seconds:.1f} | {goal} | {1e3 * line.seconds / steps:.2f} |"
            f" {line.objective / best - 1:.1e} | {line.gradient_norm:.1e} |"
        )
    text += [
        "",
        "| N_s | ms a step | machine's limit, ms | times the limit | goal |",
        "|---" * 5 + "|",
    ]
    for line in lines:
        if line.name == "synthfair":
            floor, goal = (
                floors[line.n_synthetic],
                TIMES_FLOOR if line.n_synthetic == ALL_ROWS else "",
            )
            text.append(
                f"| {line.n_synthetic} | {1e3 * line.seconds / steps:.3f} | {1e3 * floor:.3f} |"
                f" {line.seconds / steps / floor:.1f} | {goal} |"
            )
    return "\n".join(text) + "\n"


def floor_of(real: Encoded, n_synthetic: int, evaluations: float, ceilings: Ceilings) -> float:
    """Seconds that one step takes at the machine's limits."""
    work = work_of_step(len(real.y), n_synthetic, real.x.shape[1] + 1, evaluations)
    return sum(phase.seconds(ceilings) for phase in work)


def main() -> None:
    """Prints and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="Outer steps. Default: 1000.")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS, help="Default: all.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args()
    use_float64()
    real, ceilings = one_client(), measured_ceilings()
    lines, floors = [], {}
    for n_synthetic in (SMALL, ALL_ROWS):
        config = config_of(n_synthetic, args.steps)
        ours, evaluations = time_ours(real, config)
        floors[n_synthetic] = floor_of(real, n_synthetic, evaluations, ceilings)
        lines += [ours, *(time_peer(name, real, config) for name in args.peers)]
    text = table(lines, floors, args.steps)
    text += (
        f"\nThis machine: {ceilings.flops / 1e9:.1f} GFLOP/s (matrix product),"
        f" {ceilings.bandwidth / 1e9:.1f} GB/s (copy); {args.steps} steps.\n"
    )
    args.output.mkdir(parents=True, exist_ok=True)
    write_text(args.output / "speed.md", text)
    print(text)


if __name__ == "__main__":
    main()
