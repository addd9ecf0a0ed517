"""The outer loop over the synthetic features: init, step, run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.config import DistillConfig
from synthfair.distill import adam, gauss_newton, inner
from synthfair.distill.judge import Judged, Record, judge, no_record
from synthfair.distill.problem import Problem
from synthfair.model import Params

CHUNK = 50
"""Steps in one compiled call: enough to cost nothing, few enough to show and to interrupt."""

OPTIMIZERS = {"adam": adam, "gauss_newton": gauss_newton}
"""An optimiser is a module with init(problem, judged), move(problem, judged, memory, rate), and
restart(memory, x), for when P has become another."""

Optimizer = Literal["adam", "gauss_newton"]


class OuterState(NamedTuple):
    """All that a step needs; saving it and going on gives the same numbers as never stopping.

    Attributes:
        x: [N_s, d] synthetic features; the next to judge, or, at the end, those reached.
        params: theta near x, where the next inner solve starts.
        factor: Cholesky factor of the inner Hessian there; the identity before the first step.
        memory: the optimiser's own.
        step: number of steps taken, each with a record.
        last: the step that judges its x and leaves it; smaller once a run has stopped early.
    """

    x: jax.Array
    params: Params
    factor: jax.Array
    memory: Any
    step: jax.Array
    last: jax.Array


class Knobs(NamedTuple):
    """How the problem is solved, as opposed to what is solved."""

    learning_rate: jax.Array | float = 0.01
    inner_tolerance: jax.Array | float = 1e-8
    inner_max_iterations: jax.Array | int = 100


@partial(jax.jit, static_argnames=("optimizer",))
def init(
    problem: Problem, x: jax.Array, steps: jax.Array | int, *, optimizer: Optimizer = "adam"
) -> OuterState:
    """State before the first of ``steps`` steps, from the first features x [N_s, d]."""
    n_inputs = jax.eval_shape(problem.rows, x).a.shape[1]
    params = problem.model.init(n_inputs)
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    factor = jnp.eye(n_params, dtype=x.dtype)
    start = Judged(x, params, factor, jnp.zeros_like(x), no_record(x.dtype))
    memory = OPTIMIZERS[optimizer].init(problem, start)
    return OuterState(x, params, factor, memory, jnp.zeros((), int), jnp.asarray(steps, int))


def step(
    problem: Problem, state: OuterState, knobs: Knobs, *, optimizer: Optimizer = "adam"
) -> tuple[OuterState, Record]:
    """Judges x, and moves it unless this is the last step."""
    judged = judge(
        problem,
        state.x,
        state.params,
        state.factor,
        tolerance=knobs.inner_tolerance,
        max_iterations=knobs.inner_max_iterations,
    )
    move = OPTIMIZERS[optimizer].move
    reached, moved, memory = move(problem, judged, state.memory, knobs.learning_rate)
    x = jnp.where(state.step < state.last, moved, reached.x)
    after = OuterState(x, reached.params, reached.factor, memory, state.step + 1, state.last)
    return after, reached.record


def _chunk(
    problem: Problem, state: OuterState, knobs: Knobs, *, optimizer: Optimizer
) -> tuple[OuterState, Record]:
    """CHUNK steps and their records, or those up to step ``last`` and blank records."""

    def one(i: jax.Array, carry: tuple[OuterState, Record]) -> tuple[OuterState, Record]:
        state, records = carry
        state, record = step(problem, state, knobs, optimizer=optimizer)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), records, record)

    blank = jax.tree.map(lambda field: jnp.zeros(CHUNK, field.dtype), no_record(state.x.dtype))
    steps = jnp.minimum(CHUNK, state.last + 1 - state.step)
    return jax.lax.fori_loop(0, steps, one, (state, blank))


@cache
def _compiled_chunk() -> Callable[..., tuple[OuterState, Record]]:
    """:func:`_chunk`, compiled without XLA's fusion emitters on a CPU.

    They cost about a third of the compilation and make these small loops no faster.
    """
    options = {"xla_cpu_use_fusion_emitters": False} if jax.default_backend() == "cpu" else {}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        options = {}
    return jax.jit(_chunk, compiler_options=options, static_argnames=("optimizer",))


def restart(state: OuterState, steps: int, config: DistillConfig) -> OuterState:
    """Goes on from the same x for so many steps, where P has become another."""
    memory = OPTIMIZERS[config.optimizer].restart(state.memory, state.x)
    return state._replace(memory=memory, last=state.step + steps - 1)


def advance(
    problem: Problem, state: OuterState, config: DistillConfig
) -> tuple[OuterState, Record]:
    """One compiled chunk of steps, or fewer where ``state.last`` comes first.

    Returns:
        The state after it, and the records [up to CHUNK] of its steps, as NumPy arrays.
    """
    tolerance = config.inner_tolerance or inner.default_tolerance()
    knobs = Knobs(config.learning_rate, tolerance, config.inner_max_iterations)
    first, last = int(state.step), int(state.last)
    state, records = _compiled_chunk()(problem, state, knobs, optimizer=config.optimizer)
    return state, Record(*(np.asarray(field)[: last + 1 - first] for field in records))


def run(
    problem: Problem, state: OuterState, config: DistillConfig
) -> Iterator[tuple[OuterState, Record]]:
    """Optimises in compiled chunks, so that a caller may show, save or interrupt between them.

    Args:
        problem: what is minimised.
        state: from :func:`init` for this optimizer, or one that an earlier run yielded.
        config: its optimizer, learning rate and tolerances.

    Yields:
        As :func:`advance` returns. The x after the last step is judged, too, so that there is one
        more record than steps.
    """
    while int(state.step) <= int(state.last):
        state, records = advance(problem, state, config)
        before, after = records.objective[0], records.objective[-1]
        if config.stop_tolerance and before - after < config.stop_tolerance * abs(before):
            state = state._replace(last=jnp.minimum(state.last, state.step))
        yield state, records
