"""Ours and the peers on one problem, turn by turn."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.distilling import Problem, Steps, prepare, run_steps
from benchmarks.harness import Experiment
from benchmarks.peers.problem import TURNS, Peer, PeerProblem, Reached, parts, peer_problem
from benchmarks.runs import Runs
from benchmarks.showing import page
from synthfair.compare import federate

ALL_ROWS, SMALL = 8319, 800
OURS = "synthfair"


class StepsSetting(NamedTuple):
    """A package on a problem of one size."""

    n_synthetic: int
    package: str


class StepsValues(NamedTuple):
    """Of all steps.

    Attributes:
        n_real: N.
        n_inputs: n.
        steps: outer steps of a run.
        seconds: median over the package's turns, after compilation, at each one's pace.
        least: of the turns.
        most: of the turns.
        first: seconds of compiling or warming up.
        ratio: of a turn to the runs of ours around it, the median.
        ratio_least: of the turns.
        ratio_most: of the turns.
        ratio_of_totals: of all turns together, in which long ones meet no more stalls than short
            ones.
        objective: P(x) at the end, evaluated in one way for all.
        gradient_norm: Euclidean, of the inner objective at the theta that the package returned.
        worst_gradient: largest gradient norm of the inner problem in any step of ours.
    """

    n_real: int
    n_inputs: int
    steps: int
    seconds: float
    least: float
    most: float
    first: float
    ratio: float
    ratio_least: float
    ratio_most: float
    ratio_of_totals: float
    objective: float
    gradient_norm: float
    worst_gradient: float


# What is measured

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
    """Return the settings of a size; with all rows, groups and labels are copied.

    The inner tolerance is the peers', there in the Euclidean norm of the gradient, ours in the
    metric of the Hessian.
    """
    size = {"labels": "copy"} if n_synthetic == ALL_ROWS else {"n_synthetic": n_synthetic}
    given = {"intercept": False, "start": "normal", "inner_tolerance": 1e-7, "group_input": True}
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
    """Run a peer, and ours before each of its turns and after the last; return both times."""

    def timed() -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        values = next(peer)
        return time.perf_counter() - start, values

    first, _ = timed()
    seconds, objectives, around = [], [], [run_ours()]
    for part in parts(steps):
        took, values = timed()
        seconds.append(took * steps / part)
        objectives.append(values)
        around.append(run_ours())
    ours = tuple((before + after) / 2 for before, after in pairwise(around))
    return Turns(next(peer), np.concatenate(objectives), first, tuple(seconds), ours)


def run_steps_of(setting: StepsSetting, _seed: int, *, smoke: bool) -> StepsValues:
    """Measure a peer, with a whole run of ours around each of its turns; or ours alone."""
    steps = 10 if smoke else 1000
    config = config_of(setting.n_synthetic, steps)
    plain, problem, compiling = _prepared(setting.n_synthetic, steps)
    runs: list[Steps] = []

    def run_ours() -> float:
        runs.append(run_steps(problem, config))
        return runs[-1].seconds

    if setting.package == OURS:
        seconds = tuple(run_ours() for _ in range(1 + TURNS))
        reached = Reached(runs[-1].x, runs[-1].theta)
        objectives = np.asarray(runs[-1].records.objective)
        turns = Turns(reached, objectives, compiling, seconds, seconds)
    else:
        module, settings = PEERS[setting.package]
        peer = importlib.import_module(f"benchmarks.peers.{module}")
        turns = take_turns(peer.distil(plain, steps, **settings), steps, run_ours)
    return values_of(turns, steps, plain, runs)


def values_of(turns: Turns, steps: int, plain: PeerProblem, runs: list[Steps]) -> StepsValues:
    """All that is shown; P(x) with theta(x) by one solver for all packages."""
    x, theta = turns.reached
    ratios = [their / our for their, our in zip(turns.seconds, turns.ours, strict=True)]
    return StepsValues(
        *(len(plain.y), plain.a.shape[1], steps),
        *(statistics.median(turns.seconds), min(turns.seconds), max(turns.seconds), turns.first),
        *(statistics.median(ratios), min(ratios), max(ratios)),
        ratio_of_totals=sum(turns.seconds) / sum(turns.ours),
        objective=plain.outer(plain.solve(x), x),
        gradient_norm=float(np.linalg.norm(plain.inner(theta, plain.inputs(x))[1])),
        worst_gradient=float(runs[-1].records.gradient_norm.max()),
    )


# What is shown


def show_steps(runs: Runs) -> dict[str, str]:
    """Return all tables."""
    sizes = runs.by("n_synthetic").items()
    worst = (f"{max(own.values('worst_gradient')):.1e} at N_s = {size}" for size, own in sizes)
    text = page(
        "speed/speed",
        steps=steps(runs),
        worst=", ".join(worst),
        answers=answers(runs),
    )
    return {"speed.md": text}


def steps(runs: Runs) -> Iterator[str]:
    """Seconds and ratios."""
    for (size, package), _, one, _ in runs:
        yield (
            f"{size} | {package} | {one.seconds:.2f} | {one.least:.2f}, {one.most:.2f}"
            f" | {1e3 * one.seconds / one.steps:.3f} | {one.first:.1f} | {one.ratio:.1f}"
            f" | {one.ratio_least:.1f}, {one.ratio_most:.1f} | {one.ratio_of_totals:.1f}"
        )


def answers(runs: Runs) -> Iterator[str]:
    """How near each package came to the best, and to inner stationarity."""
    for size, own in runs.by("n_synthetic").items():
        best = min(own.values("objective"))
        for (_, package), _, one, _ in own:
            above, norm = one.objective / best - 1, one.gradient_norm
            yield (f"{size} | {package} | {one.objective:.8f} | {above:.1e} | {norm:.1e}")


STEPS = Experiment(
    name="runs",
    settings=tuple(StepsSetting(*one) for one in product((SMALL, ALL_ROWS), (OURS, *PEERS))),
    run=run_steps_of, summary=show_steps,
    # PyTorch is in the extra `bench` alone.
    smoke=tuple(
        StepsSetting(SMALL, package)
        for package in (OURS, "jaxopt", *(["torch"] if find_spec("torch") else []))
    ),
)  # fmt: skip
