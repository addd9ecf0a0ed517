"""Times ours and the peers on one problem, turn by turn."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.distilling import Problem, Steps, prepare, run_steps, train_inner
from benchmarks.harness import Experiment
from benchmarks.peers import with_scipy
from benchmarks.peers.problem import TURNS, Peer, PeerProblem, Reached, parts, peer_problem
from benchmarks.speed.limits import measured_ceilings
from benchmarks.speed.pages import (
    ALL_ROWS,
    OURS,
    SMALL,
    InnerSetting,
    InnerValues,
    StepsSetting,
    StepsValues,
    show_inner,
    show_steps,
)
from synthfair.compare import federate

PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("with_torch", {}),
    "torch-1": ("with_torch", {"threads": 1}),
    "torch-early": ("with_torch", {"tolerance_change": 1e-9}),
    "jaxopt": ("with_jaxopt", {}),
}
"""Module and settings of each. PyTorch with the threads that it takes, and with one: its threads
wait for each other busily, so that on small problems, or where another process holds a core, one is
faster. And with its own ``tolerance_change``, which ends the inner solve before its tolerance."""


def config_of(n_synthetic: int, steps: int) -> sf.DistillConfig:
    """The settings of a size; with all rows, groups and labels are copied.

    The inner tolerance is the peers', there in the Euclidean norm of the gradient, ours in the
    metric of the Hessian.
    """
    size = {"labels": "copy"} if n_synthetic == ALL_ROWS else {"n_synthetic": n_synthetic}
    given = {"intercept": False, "start": "normal", "inner_tolerance": 1e-7}
    return sf.DistillConfig.model_validate(given | size | {"steps": steps})


@lru_cache(maxsize=1)
def _prepared(n_synthetic: int, steps: int) -> tuple[PeerProblem, Problem, float]:
    """One client's problem for the peers and for us, and our seconds of compiling."""
    rows, schema = sf.load_dataset("law_school", "race")
    real = federate(sf.partition(rows, clients=2, seed=0), schema).train[0]
    config = config_of(n_synthetic, steps)
    problem = prepare(real, config)
    first, second = (run_steps(problem, config).seconds for _ in range(2))
    return peer_problem(real, problem, config), problem, first - second


class Turns(NamedTuple):
    """What a package reached, and in what time.

    Attributes:
        reached: x and theta.
        objectives: [steps] P(x) as the package itself found it.
        first: seconds of compiling or warming up.
        seconds: of all steps, at the pace of each of its turns.
        ours: of all steps of ours around each turn: the mean of a run before it and one after.
    """

    reached: Reached
    objectives: np.ndarray
    first: float
    seconds: tuple[float, ...]
    ours: tuple[float, ...]


def take_turns(peer: Peer, steps: int, run_ours: Callable[[], float]) -> Turns:
    """Runs a peer, and ours before each of its turns and after the last."""
    first, _ = _timed(peer)
    seconds, objectives, around = [], [], [run_ours()]
    for part in parts(steps):
        took, found = _timed(peer)
        seconds.append(took * steps / part)
        objectives.append(found)
        around.append(run_ours())
    ours = tuple((before + after) / 2 for before, after in pairwise(around))
    return Turns(_end(peer), np.concatenate(objectives), first, tuple(seconds), ours)


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


def run_steps_of(setting: StepsSetting, _seed: int, *, smoke: bool) -> StepsValues:
    """A peer, with a whole run of ours before each of its turns and after the last; or ours."""
    steps = 10 if smoke else 1000
    config = config_of(setting.n_synthetic, steps)
    plain, problem, compiling = _prepared(setting.n_synthetic, steps)
    made: list[Steps] = []

    def run_ours() -> float:
        made.append(run_steps(problem, config))
        return made[-1].seconds

    if setting.package == OURS:
        # A busy minute only ever lowers what the machine can do.
        sizes = (300, 10**6) if smoke else (3000, 25 * 10**6)
        before = measured_ceilings(*sizes)
        seconds = tuple(run_ours() for _ in range(1 + TURNS))
        ceilings = tuple(map(max, before, measured_ceilings(*sizes)))
        reached = Reached(made[-1].x, made[-1].theta)
        objectives = np.asarray(made[-1].records.objective)
        turns = Turns(reached, objectives, compiling, seconds, seconds)
    else:
        module, settings = PEERS[setting.package]
        peer = importlib.import_module(f"benchmarks.peers.{module}")
        turns, ceilings = take_turns(peer.distil(plain, steps, **settings), steps, run_ours), (0, 0)
    return values_of(turns, steps, plain, made, ceilings)


def values_of(
    turns: Turns, steps: int, plain: PeerProblem, made: list[Steps], ceilings: tuple[float, ...]
) -> StepsValues:
    """All that is shown; P(x) with theta(x) by one solver for all packages."""
    x, theta = turns.reached
    ratios = [their / our for their, our in zip(turns.seconds, turns.ours, strict=True)]
    return StepsValues(
        *(len(plain.y), plain.a.shape[1], steps),
        *(statistics.median(turns.seconds), min(turns.seconds), max(turns.seconds), turns.first),
        *(statistics.median(ratios), min(ratios), max(ratios)),
        ratio_of_totals=sum(turns.seconds) / sum(turns.ours),
        ours_fastest=min(one.seconds for one in made),
        objective=plain.outer(plain.solve(x), x),
        gradient_norm=float(np.linalg.norm(plain.inner_gradient(theta, x))),
        evaluations=float(made[-1].records.inner_iterations.mean()) + 1,
        worst_gradient=float(made[-1].records.gradient_norm.max()),
        flops=ceilings[0],
        bytes=ceilings[1],
    )


def run_inner(setting: InnerSetting, _seed: int, *, smoke: bool) -> InnerValues:
    """Ours and SciPy's inner solve from theta = 0 at the first x, by turns."""
    plain, _, _ = _prepared(setting.n_synthetic, 10 if smoke else 1000)
    a = plain.inputs(plain.x)
    solvers = {
        OURS: lambda: train_inner(a, plain.s_hat, plain.y_hat, plain.lambda_theta),
        "scipy": lambda: with_scipy.solve(plain, plain.x),
    }
    thetas = {name: solve() for name, solve in solvers.items()}  # ours compiles
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    for name in [*solvers] * (2 if smoke else 15):
        start = time.perf_counter()
        solvers[name]()
        seconds[name].append(time.perf_counter() - start)
    norms = (float(np.linalg.norm(plain.inner_gradient(t, plain.x))) for t in thetas.values())
    distance = float(np.abs(thetas["scipy"] - thetas[OURS]).max())
    return InnerValues._make((*map(statistics.median, seconds.values()), *norms, distance))


STEPS = Experiment(
    name="runs",
    settings=tuple(StepsSetting(*one) for one in product((SMALL, ALL_ROWS), (OURS, *PEERS))),
    run=run_steps_of,
    summary=show_steps,
    # PyTorch is in the extra `bench` alone.
    smoke=tuple(
        StepsSetting(SMALL, package)
        for package in (OURS, "jaxopt", *(["torch"] if find_spec("torch") else []))
    ),
)

INNER = Experiment(
    name="inner",
    settings=(InnerSetting(SMALL), InnerSetting(ALL_ROWS)),
    run=run_inner,
    summary=show_inner,
    smoke=(InnerSetting(SMALL),),
)
