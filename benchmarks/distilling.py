"""The one file of the benchmarks that knows how distillation looks inside."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import synthfair as sf
from synthfair.distill import inner, outer
from synthfair.distill.problem import make_problem
from synthfair.model import LinearModel, Rows

Prepared = tuple[Any, jax.Array]
"""A client's bilevel problem, and the first synthetic features."""


class Steps(NamedTuple):
    """What a run of all outer steps reached.

    Attributes:
        x: [N_s, d] synthetic features at the end.
        theta: the inner solution there.
        seconds: of all steps.
        evaluations: of the inner objective and its gradient in a step, on average: one for each
            iteration and one before.
        worst_gradient: largest gradient norm of the inner problem in any step.
        objectives: [steps + 1] P(x) at each.
        converged: whether all inner problems were solved.
    """

    x: np.ndarray
    theta: np.ndarray
    seconds: float
    evaluations: float
    worst_gradient: float
    objectives: np.ndarray
    converged: bool


def prepare(real: sf.Encoded, config: sf.DistillConfig) -> Prepared:
    """A client's problem, of two groups."""
    return make_problem(real, config, n_groups=2)


def first_rows(real: sf.Encoded, config: sf.DistillConfig) -> sf.Encoded:
    """The synthetic rows before the first step."""
    problem, x = prepare(real, config)
    return sf.Encoded(np.asarray(x.T), np.asarray(problem.s), np.asarray(problem.y))


def run_steps(prepared: Prepared, config: sf.DistillConfig) -> Steps:
    """All steps, in the chunks that the client takes."""
    problem, x = prepared
    start, chunks = time.perf_counter(), []
    state = outer.init(problem, x, config)
    for chunk, records in outer.run(problem, state, config):
        state = chunk
        chunks.append(records)
    jax.block_until_ready(state.x)
    seconds = time.perf_counter() - start
    iterations, norms, objectives, converged = (
        np.concatenate([getattr(records, name) for records in chunks])
        for name in ("inner_iterations", "gradient_norm", "objective", "inner_converged")
    )
    return Steps(
        np.asarray(state.x.T), np.asarray(state.params), seconds, float(iterations.mean()) + 1,
        float(norms.max()), objectives, bool(converged.all()),
    )  # fmt: skip


def train_inner(a: np.ndarray, s: np.ndarray, y: np.ndarray, lambda_theta: float) -> np.ndarray:
    """Our solution of the inner problem for rows with model inputs a [N_s, n]."""
    rows = Rows(jnp.asarray(a), jnp.asarray(s), jnp.asarray(y))
    return np.asarray(inner.train(rows, lambda_theta, model=LinearModel()).params)


def outer_objective(real: sf.Encoded, config: sf.DistillConfig) -> Any:
    """F(theta) of a client's real rows: a pytree that is called with theta."""
    return prepare(real, config)[0].objective


def solvers(config: sf.DistillConfig, n_params: int) -> object:
    """Those that are taken for so many params."""
    return outer.method_of(config, n_params=n_params)
