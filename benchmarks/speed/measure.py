"""Times ours and the peers on one problem, turn by turn, and judges what each has reached."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from synthfair.distill.judge import Record

import synthfair as sf
from benchmarks.peers import with_scipy
from benchmarks.peers.problem import Peer, Reached, parts, peer_problem
from synthfair.compare import federate
from synthfair.data.encode import Encoded
from synthfair.distill import inner, outer
from synthfair.distill.problem import Problem, make_problem

ALL_ROWS, SMALL = 8319, 800
OURS = "synthfair"
TOLERANCE = 1e-7
"""Of the inner solve, as in the peers; there in the Euclidean norm of the gradient, ours in the
metric of the Hessian."""

PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("with_torch", {}),
    "torch-1": ("with_torch", {"threads": 1}),
    "torch-early": ("with_torch", {"tolerance_change": 1e-9}),
    "jaxopt": ("with_jaxopt", {}),
}
"""Module and settings of each. PyTorch with the threads that it takes, and with one: its threads
wait for each other busily, so that on small problems, or where another process holds a core, one is
faster. And with its own ``tolerance_change``, which ends the inner solve before its tolerance."""


class Timed(NamedTuple):
    """A package on one problem.

    Attributes:
        name: of the package.
        seconds: of all steps, after compilation, at the pace of each of its turns.
        ours: of all steps of ours beside each turn: the mean of a run before it and one after; of
            ours itself the same as ``seconds``.
        first: seconds of compiling or warming up.
        objective: P(x) at the end, by one judge for all.
        gradient_norm: Euclidean, of the inner objective at the theta that the package returned.
    """

    name: str
    seconds: tuple[float, ...]
    ours: tuple[float, ...]
    first: float
    objective: float
    gradient_norm: float

    @property
    def median(self) -> float:
        """Of its turns."""
        return statistics.median(self.seconds)

    @property
    def ratios(self) -> list[float]:
        """To ours, turn by turn; ascending."""
        return sorted(their / our for their, our in zip(self.seconds, self.ours, strict=True))

    @property
    def ratio(self) -> float:
        """Of the turns, the median."""
        return statistics.median(self.ratios)

    @property
    def ratio_of_totals(self) -> float:
        """Of all turns together, in which long ones meet no more stalls than short ones."""
        return sum(self.seconds) / sum(self.ours)


class InnerTimed(NamedTuple):
    """One inner solve from a cold start at the first x.

    Attributes:
        name: of the package.
        seconds: median of some solves, after compilation.
        gradient_norm: Euclidean, of the inner objective.
        distance: largest difference of an entry of theta from ours.
    """

    name: str
    seconds: float
    gradient_norm: float
    distance: float


class Measured(NamedTuple):
    """All of one number of synthetic rows.

    Attributes:
        n_real: N.
        n_synthetic: N_s.
        n_inputs: n.
        steps: outer steps of a run.
        evaluations: of the inner objective and its gradient in a step of ours, on average.
        worst_gradient: largest gradient norm of the inner problem in any step of ours.
        packages: ours first.
        inner: the inner problem alone, ours first.
    """

    n_real: int
    n_synthetic: int
    n_inputs: int
    steps: int
    evaluations: float
    worst_gradient: float
    packages: Sequence[Timed]
    inner: Sequence[InnerTimed]

    @property
    def ours(self) -> Timed:
        """The first package."""
        return self.packages[0]

    @property
    def fastest_step(self) -> float:
        """Seconds of one of our outer steps in the fastest run, which is nearest to undisturbed."""
        return min(self.ours.seconds) / self.steps


def config_of(n_synthetic: int, steps: int) -> sf.DistillConfig:
    """The settings of a size; with all rows, groups and labels are copied."""
    size: dict[str, Any] = {"labels": "balanced", "n_synthetic": n_synthetic}
    if n_synthetic == ALL_ROWS:
        size = {"labels": "copy"}
    size |= {"rho_o": 10.0, "steps": steps, "inner_tolerance": TOLERANCE}
    given = {"intercept": False, "start": "normal", **size}
    return sf.DistillConfig.model_validate(given)


def one_client() -> Encoded:
    """Its training rows."""
    table, schema = sf.load_dataset("law_school", "race")
    return federate(sf.partition(table, clients=2, seed=0), schema).train[0]


def measure(real: Encoded, config: sf.DistillConfig, peers: Sequence[str]) -> Measured:
    """Each peer, with a whole run of ours before each of its turns and after the last."""
    problem, x = make_problem(real, config, n_groups=2)
    compiling, last = (run_ours(problem, x, config) for _ in range(2))
    seconds = [last.seconds]

    def run_again() -> float:
        seconds.append(run_ours(problem, x, config).seconds)
        return seconds[-1]

    theirs = [
        judged(name, problem, take_turns(peer_at_work(name, real, config), config.steps, run_again))
        for name in peers
    ]
    first = compiling.seconds - statistics.median(seconds)
    reached = Reached(np.asarray(last.x), np.asarray(last.theta))
    ours = Run(reached, last.objectives, first, tuple(seconds), tuple(seconds))
    return Measured(
        n_real=len(real.y),
        n_synthetic=x.shape[1],
        n_inputs=len(last.theta),
        steps=config.steps,
        evaluations=last.evaluations,
        worst_gradient=last.worst_gradient,
        packages=(judged(OURS, problem, ours), *theirs),
        inner=tuple(time_inner(real, problem, x, config)),
    )


class OurRun(NamedTuple):
    """What a run of ours reached.

    Attributes:
        x: [N_s, d] synthetic features where the run ended.
        theta: the inner solution there.
        seconds: of all steps.
        evaluations: see :class:`Measured`; one for each iteration and one before, as nearly
            always the line search takes its first step.
        worst_gradient: see :class:`Measured`.
        objectives: [steps + 1] P(x) at each; fewer where the run ended at a lower one.
    """

    x: jax.Array
    theta: jax.Array
    seconds: float
    evaluations: float
    worst_gradient: float
    objectives: np.ndarray


def run_ours(problem: Problem, x: jax.Array, config: sf.DistillConfig) -> OurRun:
    """All steps, in the chunks that the client takes."""
    start, chunks = time.perf_counter(), []
    state = outer.init(problem, x, config)
    for chunk, records in outer.run(problem, state, config):
        state = chunk
        chunks.append(records)
    jax.block_until_ready(state.x)
    seconds = time.perf_counter() - start
    every = Record(*(np.concatenate(field) for field in zip(*chunks, strict=True)))
    evaluations, worst = float(every.inner_iterations.mean()) + 1, float(every.gradient_norm.max())
    objectives = np.asarray(every.objective)
    return OurRun(state.x.T, state.params, seconds, evaluations, worst, objectives)


class Run(NamedTuple):
    """What a package reached, and in what time.

    Attributes:
        reached: x and theta.
        objectives: [steps] P(x) as the package itself found it.
        first: seconds of compiling or warming up.
        seconds: see :class:`Timed`.
        ours: see :class:`Timed`.
    """

    reached: Reached
    objectives: np.ndarray
    first: float
    seconds: tuple[float, ...]
    ours: tuple[float, ...]


def peer_at_work(name: str, real: Encoded, config: sf.DistillConfig) -> Peer:
    """A peer on the same problem."""
    module, settings = PEERS[name]
    peer = importlib.import_module(f"benchmarks.peers.{module}")
    return peer.distil(peer_problem(real, config), config.steps, **settings)


def take_turns(peer: Peer, steps: int, run_again: Callable[[], float]) -> Run:
    """Runs a peer, and ours before each of its turns and after the last."""
    first, _ = _timed(peer)
    seconds, objectives, beside = [], [], [run_again()]
    for part in parts(steps):
        took, found = _timed(peer)
        seconds.append(took * steps / part)
        objectives.append(found)
        beside.append(run_again())
    ours = tuple((before + after) / 2 for before, after in pairwise(beside))
    return Run(_end(peer), np.concatenate(objectives), first, tuple(seconds), ours)


def _timed(peer: Peer) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    found = next(peer)
    return time.perf_counter() - start, found


def _end(peer: Peer) -> Reached:
    try:
        next(peer)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a peer took more turns than there are")


def judged(name: str, problem: Problem, run: Run) -> Timed:
    """P(x) with theta(x) by our own solver, and the gradient at the theta that was returned."""
    x = jnp.asarray(run.reached.x.T)
    solution = inner.train(problem.rows(x), problem.lambda_theta, model=problem.model)
    return Timed(
        name=name,
        seconds=run.seconds,
        ours=run.ours,
        first=run.first,
        objective=float(problem.outer(solution.params, x)),
        gradient_norm=gradient_norm(problem, run.reached.theta, x),
    )


def gradient_norm(problem: Problem, theta: np.ndarray | jax.Array, x: jax.Array) -> float:
    """Euclidean norm of the inner gradient in theta."""
    return float(jnp.linalg.norm(jax.grad(problem.inner)(jnp.asarray(theta), x)))


def time_inner(
    real: Encoded, problem: Problem, x: jax.Array, config: sf.DistillConfig, repeats: int = 15
) -> Iterator[InnerTimed]:
    """Ours and SciPy's inner solve, by turns."""
    rows, plain, first = problem.rows(x), peer_problem(real, config), np.asarray(x.T)

    def ours() -> np.ndarray:
        return np.asarray(inner.train(rows, problem.lambda_theta, model=problem.model).params)

    def scipy() -> np.ndarray:
        return with_scipy.solve(plain, first)

    thetas = {OURS: ours(), "scipy": scipy()}  # ours compiles
    seconds = {name: [] for name in thetas}
    for _ in range(repeats):
        for name, solve in ((OURS, ours), ("scipy", scipy)):
            start = time.perf_counter()
            solve()
            seconds[name].append(time.perf_counter() - start)
    for name, theta in thetas.items():
        distance = float(np.abs(theta - thetas[OURS]).max())
        median = statistics.median(seconds[name])
        yield InnerTimed(name, median, gradient_norm(problem, theta, x), distance)
