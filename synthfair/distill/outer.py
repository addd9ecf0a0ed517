"""The outer loop over the synthetic features: init, step, run."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import DistillConfig
from synthfair.distill import adam, gauss_newton, inner, linear
from synthfair.distill.judge import InnerSolver, Judged, Record, Solvers, judge, no_record
from synthfair.distill.objective import PenalizedLoss
from synthfair.distill.problem import Problem
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.model import LinearModel, Params
from synthfair.privacy.objective import PrivateObjective
from synthfair.traces import recalled

CHUNK = 50
"""Steps in one compiled call, but for the first: enough to cost nothing, few enough to show and to
interrupt."""

BOUNCE = 1e-5
"""How far above the lowest P(x) of the last chunk a run may end, relative to it."""

LARGE = 50_000
"""Numbers in x from which a faster step is worth a longer compilation, and Adam moves x widened."""

OPTIMIZERS = {"adam": adam, "gauss_newton": gauss_newton}
"""An optimiser is a module with init(problem, judged), move(problem, judged, memory, rate), and
restart(memory, x), for when P has become another. Adam's memory can be widened, as x is."""

_COMPILING = threading.Lock()
"""Held where a chunk is compiled, or, once it is, while it is started: of threads that distil
clients of one shape the first compiles, and all run."""

Optimizer = Literal["adam", "gauss_newton"]

Stackable = TypeVar("Stackable", Problem, "OuterState")
_Count = TypeVar("_Count", int, jax.Array)


class OuterState(NamedTuple):
    """All that a step needs; saving it and going on gives the same numbers as never stopping.

    Attributes:
        x: [d, N_s] synthetic features; the next to judge, or, at the end, those reached.
        params: theta near x, where the next inner solve starts; at the end, theta(x).
        curvature: what the linear solver knows of the inner Hessian there.
        memory: the optimiser's own.
        step: number of steps taken, each with a record.
        last: the step that judges its x and leaves it; smaller once a run ends before its time.
    """

    x: jax.Array
    params: Params
    curvature: jax.Array
    memory: Any
    step: jax.Array
    last: jax.Array


class Knobs(NamedTuple):
    """How the problem is solved, as opposed to what is solved."""

    learning_rate: jax.Array | float = 0.01
    inner_tolerance: jax.Array | float = 1e-8
    inner_max_iterations: jax.Array | int = 100


class Method(NamedTuple):
    """By what the problem is solved; chosen when compiling.

    Attributes:
        optimizer: what moves x.
        solvers: what finds theta(x) and its derivative.
        widened: whether x, in a chunk of steps, is what :meth:`Problem.widen` makes of it.
    """

    optimizer: Optimizer = "adam"
    solvers: Solvers = Solvers()
    widened: bool = False


def method_of(config: DistillConfig, *, n_params: int) -> Method:
    """The method that the settings name, for so many params."""
    solver = linear.choose(config.linear_solver, optimizer=config.optimizer, n_params=n_params)
    # L-BFGS learns the curvature from a factor, or, with few params, in some tens of iterations.
    training: InnerSolver = "lbfgs" if n_params < linear.LARGE else "newton"
    if config.inner_solver != "auto":
        training = config.inner_solver
    return Method(config.optimizer, Solvers(training, solver))


def init(
    problem: Problem, x: jax.Array, config: DistillConfig, *, steps: int | None = None
) -> OuterState:
    """State before the first of some steps, those of the settings if not given.

    Args:
        problem: what is minimised.
        x: [d, N_s] first features.
        config: its steps, and its choice of solvers.
        steps: at least 1.
    """
    # NumPy's arrays are put on the device without compiling.
    x, params = jax.device_put((x, problem.model.init(len(x) + len(problem.beside))))
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    method = method_of(config, n_params=n_params)
    curvature = linear.SOLVERS[method.solvers.linear].forget(np.zeros(n_params, x.dtype))
    nothing = jax.device_put(np.zeros(x.shape, x.dtype))
    start = Judged(x, params, curvature, nothing, no_record(x.dtype))
    memory = OPTIMIZERS[method.optimizer].init(problem, start)
    counts = np.zeros((), int), np.asarray(config.steps if steps is None else steps, int)
    return OuterState(x, params, curvature, *jax.device_put((memory, *counts)))


def step(
    problem: Problem,
    state: OuterState,
    knobs: Knobs,
    *,
    method: Method = Method(),  # noqa: B008 - immutable
) -> tuple[OuterState, Record]:
    """Judges x, and moves it unless this is the last step."""
    judged = judge(
        problem,
        state.x,
        state.params,
        state.curvature,
        tolerance=knobs.inner_tolerance,
        max_iterations=knobs.inner_max_iterations,
        solvers=method.solvers,
    )
    move = OPTIMIZERS[method.optimizer].move
    reached, moved, near, memory = move(problem, judged, state.memory, knobs.learning_rate)
    x, params = jax.tree.map(
        lambda new, old: jnp.where(state.step < state.last, new, old),
        (moved, near),
        (reached.x, reached.params),
    )
    after = OuterState(x, params, reached.curvature, memory, state.step + 1, state.last)
    return after, reached.record


def _chunk(
    problem: Problem, state: OuterState, knobs: Knobs, *, method: Method
) -> tuple[OuterState, Record]:
    """:func:`_steps`, from its kept trace where there is one."""
    if not _is_known(problem):
        return _steps(problem, state, knobs, method=method)
    leaves, structure = jax.tree.flatten((problem, state, knobs))

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(_steps(*jax.tree.unflatten(structure, leaves), method=method))

    after = jax.tree.structure((state, no_record(state.x.dtype)))
    return jax.tree.unflatten(after, recalled(flat, leaves, name=f"{structure} {method}"))


def _is_known(problem: Problem) -> bool:
    """Whether its kind is told by names and numbers alone: what comes from elsewhere may not be."""
    objective = problem.objective
    if type(objective) not in (PenalizedLoss, PrivateObjective):
        return False
    static = [
        getattr(part, field.name)
        for part in (problem, objective)
        for field in dataclasses.fields(part)  # pyright: ignore[reportArgumentType]
        if field.metadata.get("static")
    ]
    plain = (str, int, CovariancePenalty, SelectionRatePenalty)
    return all(type(each) in plain or _is_default(each) for each in static)


def _is_default(model: object) -> bool:
    return type(model) is LinearModel and model == LinearModel()


def _steps(
    problem: Problem, state: OuterState, knobs: Knobs, *, method: Method
) -> tuple[OuterState, Record]:
    """The steps of the next chunk and their records, and blank records up to CHUNK.

    Of one problem, or of a batch: then all of the state, and the arrays of the problem, have a
    first axis more, and the steps go on until the last of them is done.
    """
    if not method.widened:
        return _loop(problem, state, knobs, method=method)
    x = problem.widen(state.x)
    wide = state._replace(x=x, memory=adam.widened(state.memory, x.shape))
    after, records = _loop(problem.widened(), wide, knobs, method=method)
    d, n_rows = state.x.shape[-2:]
    x, memory = after.x[..., :d, :n_rows], adam.narrowed(after.memory, d, n_rows)
    return after._replace(x=x, memory=memory), records


def _loop(
    problem: Problem, state: OuterState, knobs: Knobs, *, method: Method
) -> tuple[OuterState, Record]:
    def take(problem: Problem, state: OuterState) -> tuple[OuterState, Record]:
        return step(problem, state, knobs, method=method)

    if state.step.ndim:
        shared = jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, problem)
        take = jax.vmap(take, in_axes=(shared, 0))

    def one(i: jax.Array, carry: tuple[OuterState, Record]) -> tuple[OuterState, Record]:
        state, records = carry
        state, record = take(problem, state)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), records, record)

    blank = jax.tree.map(
        lambda field: jnp.zeros((CHUNK, *state.step.shape), field.dtype), no_record(state.x.dtype)
    )
    steps = _next_chunk(jnp.max(state.last - state.step) + 1)
    return jax.lax.fori_loop(0, steps, one, (state, blank))


@cache
def _compiled_chunk(*, large: bool, sharded: bool) -> Callable[..., tuple[OuterState, Record]]:
    """:func:`_chunk`, or, where x lies on several devices, :func:`_steps`.

    On a CPU with what makes steps fast where x is large, or compilation quick.

    XLA's fusion emitters make steps of small x a third faster, but compilation takes a second
    longer. Without them, LLVM gets the code in two pieces rather than 32, of which each does much
    again: 1.1 s become 0.95 on two cores. XLA's region analysis finds that the loop can move x in
    place: without it x and most of what is carried is copied in each step, a sixth of the time of
    a large one.
    """
    on_large = {"xla_cpu_copy_insertion_use_region_analysis": True}
    on_small = {
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 2,
    }
    options = {} if jax.default_backend() != "cpu" else on_large if large else on_small
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        options = {}
    chunk = _steps if sharded else _chunk
    return jax.jit(chunk, compiler_options=options, static_argnames=("method",))


def compilations() -> int:
    """How often chunks were compiled in this process; problems of one shape share one."""
    kinds = itertools.product((False, True), repeat=2)
    chunks = (_compiled_chunk(large=large, sharded=sharded) for large, sharded in kinds)
    return sum(chunk._cache_size() for chunk in chunks)  # pyright: ignore[reportFunctionMemberAccess]


def restart(state: OuterState, steps: int, config: DistillConfig) -> OuterState:
    """Goes on from the same x for so many steps, where P has become another."""
    memory = OPTIMIZERS[config.optimizer].restart(state.memory, state.x)
    return state._replace(memory=memory, last=state.step + steps - 1)


def _steps_left(state: OuterState) -> int:
    """Of the problem of a batch that needs most, the last x's judgement counted."""
    return int(np.max(np.asarray(state.last) - np.asarray(state.step))) + 1


def _next_chunk(left: _Count) -> _Count:
    """How many steps to take of those left: so many that whole chunks are left."""
    return (left > 0) * ((left - 1) % CHUNK + 1)


def advance(
    problem: Problem, state: OuterState, config: DistillConfig
) -> tuple[OuterState, Record]:
    """One compiled chunk of steps, or the fewer after which whole chunks are left.

    Returns:
        The state after it, and the records [up to CHUNK] of its steps, as NumPy arrays; of a batch
        [up to CHUNK, B].
    """
    tolerance = config.inner_tolerance or inner.default_tolerance()
    knobs = Knobs(config.learning_rate, tolerance, config.inner_max_iterations)
    method, large = method_of(config, n_params=state.curvature.shape[-1]), state.x.size >= LARGE
    method = method._replace(widened=large and config.optimizer == "adam")
    taken = _next_chunk(_steps_left(state))
    with _COMPILING:
        if len(devices := state.x.devices()) == 1:
            # What a kept trace returns is tied to its device; were the first state not, it would be
            # compiled twice.
            state = jax.device_put(state, *devices)
        chunk = _compiled_chunk(large=large, sharded=len(devices) > 1)
        state, records = chunk(problem, state, knobs, method=method)
    return state, Record(*(np.asarray(field)[:taken] for field in records))


def run(
    problem: Problem, state: OuterState, config: DistillConfig
) -> Iterator[tuple[OuterState, Record]]:
    """Optimises in compiled chunks, so that a caller may show, save or interrupt between them.

    Args:
        problem: what is minimised; or a batch, from :func:`stack`.
        state: from :func:`init` for these solvers, or one that an earlier run yielded; or stacked.
        config: its optimizer, learning rate and tolerances.

    Yields:
        As :func:`advance` returns. The x after the last step is judged, too, so that there is one
        more record than steps. There are fewer where the run stops early; or, if it may not, where
        Adam has ended above the lowest P(x) of the last chunk, to which it then goes back. In a
        batch a problem that is done, as its ``last`` says, is judged at the same x until all are.
    """
    while _steps_left(state) > 0:
        before = state
        state, records = advance(problem, before, config)
        if config.stop_tolerance:
            state = _stop_where_enough(state, records, config.stop_tolerance)
        elif config.optimizer == "adam" and not _steps_left(state):
            state, records = _go_back_to_lowest(problem, before, (state, records), config)
        yield state, records


def _stop_where_enough(state: OuterState, records: Record, tolerance: float) -> OuterState:
    """The x after a whole chunk that gained less than this, relatively, is the last to judge."""
    first, latest = records.objective[0], records.objective[-1]
    enough = (first - latest < tolerance * np.abs(first)) & (len(records.objective) == CHUNK)
    last = jnp.where(enough, jnp.minimum(state.last, state.step), state.last)
    return state._replace(last=last)


def _go_back_to_lowest(
    problem: Problem, before: OuterState, end: tuple[OuterState, Record], config: DistillConfig
) -> tuple[OuterState, Record]:
    """The last chunk up to its lowest P(x), where it ends above it by more than :data:`BOUNCE`.

    Near an optimum Adam's second moments forget how steep it is, and a step goes too far. The chunk
    is made again, as keeping each x that may turn out to be the lowest would cost in every step.
    """
    found = end[1].objective
    objective = np.where(end[1].inner_converged, found, np.inf)  # else it is not P(x)
    lowest = objective.min(axis=0)
    above = found[-1] > lowest + BOUNCE * np.abs(lowest)
    above &= np.isfinite(found).all(axis=0)  # what diverges is to be seen
    if not above.any():
        return end
    last = np.where(above, before.step + objective.argmin(axis=0), before.last)
    return advance(problem, before._replace(last=last.astype(before.last.dtype)), config)


def stack(parts: Sequence[Stackable]) -> Stackable:
    """Problems, or states, of the same shapes as a batch of them.

    Numbers that stand in a problem itself, such as rho_o, must be the same in all, and stay.

    Raises:
        ValueError: shapes, models, penalties or numbers differ.
    """

    def stacked(*leaves: Any) -> Any:
        if isinstance(leaves[0], jax.Array):
            return jnp.stack(leaves)
        if any(leaf != leaves[0] for leaf in leaves):
            raise ValueError(f"a batch needs the same number in all of it, not {leaves}")
        return leaves[0]

    return jax.tree.map(stacked, parts[0], *parts[1:])
