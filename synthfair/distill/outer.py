"""Adam on the synthetic features: init, step, run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from synthfair.config import DistillConfig
from synthfair.distill import inner
from synthfair.distill.implicit import hessian_factor, implicit_vjp
from synthfair.distill.problem import Problem
from synthfair.model import Params

CHUNK = 50
"""Steps in one compiled call: enough to cost nothing, few enough to show and to interrupt."""


class OuterState(NamedTuple):
    """All that a step needs; saving it and going on gives the same numbers as never stopping.

    Attributes:
        x: [N_s, d] synthetic features.
        adam: optax's state.
        params: theta at the x before this one, where the next inner solve starts.
        factor: Cholesky factor of the inner Hessian there; the identity before the first step.
        step: number of steps taken, each with a record.
        last: the step that judges its x and leaves it; smaller once a run has stopped early.
    """

    x: jax.Array
    adam: optax.OptState
    params: Params
    factor: jax.Array
    step: jax.Array
    last: jax.Array


class Record(NamedTuple):
    """What one step found at its x, before moving it.

    Attributes:
        objective: P(x).
        covariance: of group and score on the real rows, as the objective defines it.
        gradient_norm: of the inner problem, at its solution.
        inner_converged: whether the inner problem met its tolerance.
        inner_iterations: L-BFGS iterations.
    """

    objective: jax.Array | np.ndarray
    covariance: jax.Array | np.ndarray
    gradient_norm: jax.Array | np.ndarray
    inner_converged: jax.Array | np.ndarray
    inner_iterations: jax.Array | np.ndarray


class Knobs(NamedTuple):
    """How the problem is solved, as opposed to what is solved."""

    learning_rate: jax.Array | float = 0.01
    inner_tolerance: jax.Array | float = 1e-8
    inner_max_iterations: jax.Array | int = 100


def hypergradient(
    problem: Problem, params: Params, x: jax.Array, factor: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P(x) and dP/dx at the inner optimum theta(x).

        dP/dx = dP/dx (direct)  -  (d2 inner/(dtheta dx))' H^-1 dP/dtheta

    Wu et al. (2024) eq. (13); the direct part has the rho_s term as well as the lambda_x term.
    """
    value, (by_params, by_x) = jax.value_and_grad(problem.outer, argnums=(0, 1))(params, x)
    through_theta = implicit_vjp(problem.inner, params, x, by_params, factor)
    return value, by_x + through_theta


@jax.jit
def init(problem: Problem, x: jax.Array, steps: jax.Array | int) -> OuterState:
    """State before the first of ``steps`` steps, from the first features x [N_s, d]."""
    n_inputs = jax.eval_shape(problem.rows, x).a.shape[1]
    params = problem.model.init(n_inputs)
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    factor = jnp.eye(n_params, dtype=x.dtype)
    step, last = jnp.zeros((), int), jnp.asarray(steps, int)
    return OuterState(x, optax.adam(1.0).init(x), params, factor, step, last)


def step(problem: Problem, state: OuterState, knobs: Knobs) -> tuple[OuterState, Record]:
    """One step of Adam on P(x)."""
    x = state.x
    solution = inner.solve(
        problem.training_loss,
        state.params,
        problem.rows(x),
        factor=state.factor,
        tolerance=knobs.inner_tolerance,
        max_iterations=knobs.inner_max_iterations,
    )
    factor = hessian_factor(problem.inner, solution.params, x)
    value, gradient = hypergradient(problem, solution.params, x, factor)
    updates, adam = optax.adam(knobs.learning_rate).update(gradient, state.adam)
    record = Record(
        value,
        problem.objective.covariance(solution.params),
        solution.gradient_norm,
        solution.converged,
        solution.iterations.astype(int),
    )
    x = x + jnp.asarray(updates)
    return OuterState(x, adam, solution.params, factor, state.step + 1, state.last), record


def _chunk(problem: Problem, state: OuterState, knobs: Knobs) -> tuple[OuterState, Record]:
    """CHUNK steps, idle after step ``last``, which judges its x and leaves it where it is."""

    def work(state: OuterState) -> tuple[OuterState, Record]:
        moved, record = step(problem, state, knobs)
        x = jnp.where(state.step < state.last, moved.x, state.x)
        return moved._replace(x=x), record

    zero = jnp.zeros((), state.x.dtype)
    nothing = Record(zero, zero, zero, jnp.zeros((), bool), jnp.zeros((), int))

    def work_or_idle(state: OuterState, _: None) -> tuple[OuterState, Record]:
        return jax.lax.cond(state.step <= state.last, work, lambda state: (state, nothing), state)

    return jax.lax.scan(work_or_idle, state, None, length=CHUNK)


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
    return jax.jit(_chunk, compiler_options=options)


def run(
    problem: Problem, state: OuterState, config: DistillConfig
) -> Iterator[tuple[OuterState, Record]]:
    """Adam in compiled chunks, so that a caller may show, save or interrupt between them.

    Args:
        problem: what is minimised.
        state: from :func:`init`, or one that an earlier run yielded.
        config: its learning rate and tolerances.

    Yields:
        The state after a chunk, and the records [up to CHUNK] of its steps, as NumPy arrays. The
        x after the last step is judged, too, so that there is one more record than steps.
    """
    chunk = _compiled_chunk()
    tolerance = config.inner_tolerance or inner.default_tolerance()
    knobs = Knobs(config.learning_rate, tolerance, config.inner_max_iterations)
    while (first := int(state.step)) <= (last := int(state.last)):
        state, records = chunk(problem, state, knobs)
        records = Record(*(np.asarray(field)[: last + 1 - first] for field in records))
        before, after = records.objective[0], records.objective[-1]
        if config.stop_tolerance and before - after < config.stop_tolerance * abs(before):
            state = state._replace(last=jnp.minimum(state.last, state.step))
        yield state, records
