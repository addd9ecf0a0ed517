"""The outer loop over the synthetic features: init, step, run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from synthfair.config import DistillConfig
from synthfair.distill import inner, linear
from synthfair.distill.gauss_newton import GaussNewton
from synthfair.distill.hypergradient import (
    Iterate,
    Solvers,
    StepRecord,
    absolute_eigen,
    empty_record,
    evaluate,
    hessian_of,
)
from synthfair.distill.problem import Problem
from synthfair.errors import InputError
from synthfair.model import Params

CHUNK = 50
"""Steps in one compiled call, but for the first: enough to cost nothing, few enough to show and to
interrupt."""

LARGEST = 1e18
"""Of an entry of Adam's gradient, in size: its square must be a number in single precision."""

_COMPILING = threading.Lock()
"""Held where a chunk is compiled, or, once it is, while it is started: of threads that distil
clients of one shape the first compiles, and all run."""

Stackable = TypeVar("Stackable", Problem, "OuterState")
_Count = TypeVar("_Count", int, jax.Array)


class Optimizer(Protocol):
    """What moves x; hashable, as it is chosen when compiling."""

    def init(self, point: Iterate) -> Any:
        """The optimizer's state before the first step from a point."""
        ...

    def step(self, problem: Problem, point: Iterate, state: Any) -> tuple[jax.Array, Any]:
        """The next x [d, N_s], and the state there."""
        ...


@dataclass(frozen=True)
class GradientDescent:
    """Any optimizer of optax, along the hypergradient.

    Attributes:
        transformation: such as ``optax.adam(0.01)``.
    """

    transformation: optax.GradientTransformation

    def init(self, point: Iterate) -> Any:
        """Optax's state."""
        return self.transformation.init(point.x)

    def step(self, problem: Problem, point: Iterate, state: Any) -> tuple[jax.Array, Any]:  # noqa: ARG002
        """Adds optax's update."""
        update = optax.with_extra_args_support(self.transformation).update
        found = {"value": point.record.objective, "grad": point.gradient}
        updates, state = update(point.gradient, state, point.x, **found)
        return optax.apply_updates(point.x, updates), state  # pyright: ignore


@cache
def adam(learning_rate: float) -> GradientDescent:
    """Adam as Wu et al. (2024) use it, Kingma and Ba (2015), algorithm 1, in single precision.

    The moments only say how far a step goes, and take half of the memory so. The gradient's entries
    are clipped at :data:`LARGEST`. x, theta and P have the precision that they have.
    """
    moments = optax.scale_by_adam()

    def single(tree: Any) -> Any:
        clip = partial(jnp.clip, min=-LARGEST, max=LARGEST)
        return jax.tree.map(lambda leaf: clip(leaf).astype(np.float32), tree)

    def init(params: optax.Params) -> optax.OptState:
        return moments.init(single(params))

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,  # noqa: ARG001 - Adam needs none
    ) -> tuple[optax.Updates, optax.OptState]:
        short, state = moments.update(single(updates), state)
        return jax.tree.map(lambda u, s: -learning_rate * s.astype(u.dtype), updates, short), state

    return GradientDescent(optax.GradientTransformation(init, update))


class Best(NamedTuple):
    """The x of least P(x) so far, theta(x), and what was found there."""

    x: jax.Array
    params: Params
    record: StepRecord


class OuterState(NamedTuple):
    """All that a step needs; saving it and going on gives the same numbers as never stopping.

    Attributes:
        x: [d, N_s] synthetic features, the next to evaluate.
        params: theta near x, where the next inner solve starts.
        curvature: what the linear solver remembers of the inner Hessian there.
        optimizer: the optimizer's own.
        best: where P was least, among x whose inner problem converged.
        step: number of x evaluated.
        last: the step that is the last; smaller once a run ends before its time.
    """

    x: jax.Array
    params: Params
    curvature: jax.Array
    optimizer: Any
    best: Best
    step: jax.Array
    last: jax.Array


@dataclass(frozen=True)
class Method:
    """By what a problem is solved.

    Attributes:
        optimizer: of x.
        solvers: of the inner problem.
    """

    optimizer: Optimizer
    solvers: Solvers


def method_of(
    problem: Problem,
    config: DistillConfig,
    *,
    optimizer: optax.GradientTransformation | None = None,
) -> Method:
    """What the settings name for a problem; another optimizer of x, if given.

    Raises:
        InputError: the settings name a custom optimizer, and none is given, or one that cannot be
            used.
    """
    n_params = _first_params(problem)[1]
    solver = linear.choose(config.linear_solver, optimizer=config.optimizer, n_params=n_params)
    training = config.inner_solver
    if training == "auto":
        # L-BFGS learns the curvature from a factor, or, with few params, in some tens of steps.
        training = "lbfgs" if n_params < linear.LARGE else "newton"
    tolerance = config.inner_tolerance or inner.default_tolerance()
    solvers = Solvers(training, solver, tolerance, config.inner_max_iterations)
    if optimizer is not None:
        _require_usable(optimizer, problem.start)
        return Method(GradientDescent(optimizer), solvers)
    if config.optimizer == "custom":
        raise InputError("optimizer: custom is one given in Python, by distill_table(optimizer=)")
    gauss_newton = config.optimizer == "gauss_newton"
    return Method(GaussNewton() if gauss_newton else adam(config.learning_rate), solvers)


def _require_usable(optimizer: optax.GradientTransformation, x: jax.Array) -> None:
    """Refuses what cannot move x by its gradient and P(x) alone, before anything is computed."""

    def once(x: jax.Array) -> tuple[Any, Any]:
        state, update = optimizer.init(x), optax.with_extra_args_support(optimizer).update
        return state, update(x, state, x, value=jnp.sum(x), grad=x)

    try:
        state, _ = jax.eval_shape(once, x)
    except Exception as error:  # whatever a user's own code raises
        raise InputError(
            f"optimizer: cannot be used with the gradient and the value of P(x) alone: {error}"
        ) from error
    kinds = [leaf.dtype for leaf in jax.tree.leaves(state)]
    if any(jnp.issubdtype(kind, jax.dtypes.extended) for kind in kinds):
        raise InputError("optimizer: its state holds random keys, which a checkpoint cannot save")


def init(problem: Problem, method: Method, *, steps: int) -> OuterState:
    """State before the first of some steps, at least 1."""
    x, (params, n_params) = problem.start, _first_params(problem)
    curvature = linear.SOLVERS[method.solvers.linear].init(np.zeros(n_params, x.dtype))
    return _state(x, params, curvature, method, first=0, last=steps)


def _first_params(problem: Problem) -> tuple[Params, int]:
    """Params before training, and how many numbers they are."""
    params = problem.model.init(len(problem.start) + len(problem.others))
    return params, sum(leaf.size for leaf in jax.tree.leaves(params))


def restart(state: OuterState, method: Method, *, steps: int) -> OuterState:
    """Goes on from the best x for so many steps, where P has become another."""
    x, params, _ = state.best
    first = int(state.step)
    return _state(x, params, state.curvature, method, first=first, last=first + steps)


def _state(
    x: jax.Array, params: Params, curvature: jax.Array, method: Method, *, first: int, last: int
) -> OuterState:
    # NumPy's arrays are put on the device without compiling.
    gradient, record, *counts = jax.device_put(
        (np.zeros(x.shape, x.dtype), empty_record(x.dtype), np.asarray(first), np.asarray(last))
    )
    memory = jax.device_put(method.optimizer.init(Iterate(x, params, curvature, gradient, record)))
    return OuterState(x, params, curvature, memory, Best(x, params, record), *counts)


def step(
    problem: Problem, state: OuterState, solvers: Solvers, *, optimizer: Optimizer
) -> tuple[OuterState, StepRecord]:
    """Evaluates x, and moves it."""
    point = evaluate(problem, state.x, state.params, state.curvature, solvers)
    x, memory = optimizer.step(problem, point, state.optimizer)
    found, so_far = point.record, state.best.record
    lower = found.objective < so_far.objective
    # A theta that is not the inner optimum may look good, and a server would not find it.
    now, then = found.inner_converged, so_far.inner_converged
    better = ((now & ~then) | ((now == then) & lower)) & (state.step <= state.last)
    here = Best(point.x, point.params, point.record)
    best = jax.lax.cond(better, lambda: here, lambda: state.best)
    after = OuterState(x, point.params, point.curvature, memory, best, state.step + 1, state.last)
    return after, point.record


@partial(jax.jit, static_argnames="optimizer")
def _chunk(
    problem: Problem, state: OuterState, solvers: Solvers, *, optimizer: Optimizer
) -> tuple[OuterState, StepRecord]:
    """The steps of the next chunk and their records, and blank records up to CHUNK.

    Of one problem, or of a batch: then all of the state, and the arrays of the problem, have a
    first axis more, and the steps go on until the last of them is done.
    """

    def take(problem: Problem, state: OuterState) -> tuple[OuterState, StepRecord]:
        return step(problem, state, solvers, optimizer=optimizer)

    if state.step.ndim:
        shared = jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, problem)
        take = jax.vmap(take, in_axes=(shared, 0))

    def one(i: jax.Array, carry: tuple[OuterState, StepRecord]) -> tuple[OuterState, StepRecord]:
        state, records = carry
        state, record = take(problem, state)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), records, record)

    blank = jax.tree.map(
        lambda field: jnp.zeros((CHUNK, *state.step.shape), field.dtype),
        empty_record(state.x.dtype),
    )
    steps = _next_chunk(jnp.max(state.last - state.step) + 1)
    return jax.lax.fori_loop(0, steps, one, (state, blank))


def _steps_left(state: OuterState) -> int:
    """Of the problem of a batch that needs most, the last evaluation counted."""
    return int(np.max(np.asarray(state.last) - np.asarray(state.step))) + 1


def _next_chunk(left: _Count) -> _Count:
    """How many steps to take of those left: so many that whole chunks are left."""
    return (left > 0) * ((left - 1) % CHUNK + 1)


def advance(problem: Problem, state: OuterState, method: Method) -> tuple[OuterState, StepRecord]:
    """One compiled chunk of steps, or the fewer after which whole chunks are left.

    Returns:
        The state after it, and the records [up to CHUNK] of its steps, as NumPy arrays; of a batch
        [up to CHUNK, B].
    """
    taken = _next_chunk(_steps_left(state))
    with _COMPILING:
        state, records = _chunk(problem, state, method.solvers, optimizer=method.optimizer)
    return state, StepRecord(*(np.asarray(field)[:taken] for field in records))


def run(
    problem: Problem, state: OuterState, method: Method, *, stop_tolerance: float = 0.0
) -> Iterator[tuple[OuterState, StepRecord]]:
    """Optimises in compiled chunks, so that a caller may show, save or interrupt between them.

    Args:
        problem: what is minimised; or a batch, from :func:`stack`.
        state: from :func:`init`, or one that an earlier run yielded; or stacked.
        method: optimizer and solvers.
        stop_tolerance: ends the run once a whole chunk lowers P(x) by less than this, relatively;
            0 never does.

    Yields:
        As :func:`advance` returns. There is one more record than steps, as the x after the last
        step is evaluated, too.
    """
    while _steps_left(state) > 0:
        state, records = advance(problem, state, method)
        if stop_tolerance and len(records.objective) == CHUNK:
            first, latest = records.objective[0], records.objective[-1]
            enough = first - latest < stop_tolerance * np.abs(first)
            last = jnp.where(enough, jnp.minimum(state.last, state.step - 1), state.last)
            state = state._replace(last=last)
        yield state, records


def outer_excess(problem: Problem, best: Best) -> float:
    """How far P(x) is above min F, which no P(x) is below, as a share of F of the untrained model.

        (1/2 g' |B|^-1 g + P(x) - F(theta)) / F(theta_0),    g = dF/dtheta,    B = d2F/dtheta2.

    The first term, half the squared Newton decrement, estimates F(theta) - min F (Boyd and
    Vandenberghe 2004, eq. 9.30): the many features in x can nearly always reach that minimum. |B|
    has the absolute eigenvalues of B, as F may be concave in places. P(x) - F(theta), the ridge on
    x and the rho_s penalty, counts as a whole.
    """
    excess, whole = map(float, _excess(problem, best.params, jnp.asarray(best.record.objective)))
    return 0.0 if excess == 0 else excess / whole if whole else np.inf


@jax.jit
def _excess(problem: Problem, params: Params, objective: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The numerator and the denominator of :func:`outer_excess`."""
    value, slope = jax.value_and_grad(problem.objective)(params)
    values, vectors = absolute_eigen(hessian_of(problem.objective, params))
    along = ravel_pytree(slope)[0] @ vectors
    decrement = 0.5 * jnp.sum(along**2 / jnp.where(along == 0, 1.0, values))
    return decrement + objective - value, problem.objective(_first_params(problem)[0])


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
