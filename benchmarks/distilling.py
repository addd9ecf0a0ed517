"""The one file of the benchmarks that knows how distillation looks inside."""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np

import synthfair as sf
from synthfair.distill.problem import Problem, StepRecord, init, make_problem, run
from synthfair.distill.solvers import choose_method


class Steps(NamedTuple):
    """What a run of all outer steps reached.

    Attributes:
        x: [N_s, d] synthetic features of the least P(x).
        theta: the inner solution there.
        seconds: of all steps.
        records: [steps + 1] of each x.
    """

    x: np.ndarray
    theta: np.ndarray
    seconds: float
    records: StepRecord


def prepare(real: sf.Encoded, config: sf.DistillConfig) -> Problem:
    """Return a client's bilevel problem, of two groups."""
    return make_problem(real, config, n_groups=2)


def first_rows(problem: Problem) -> sf.Encoded:
    """Return the synthetic rows before the first step."""
    return sf.Encoded(*(np.asarray(part) for part in (problem.start.T, problem.s, problem.y)))


def run_steps(problem: Problem, config: sf.DistillConfig) -> Steps:
    """All steps, in the chunks that the client takes."""
    start, method = time.perf_counter(), choose_method(problem, config)
    state, chunks = init(problem, method), []
    for chunk, records in run(problem, state, method, steps=config.steps):
        state = chunk
        chunks.append(records)
    x, theta, _ = jax.block_until_ready(state.best)
    seconds = time.perf_counter() - start
    records = StepRecord(*map(np.concatenate, zip(*chunks, strict=True)))
    return Steps(np.asarray(x.T), np.asarray(theta), seconds, records)


def solvers(problem: Problem, config: sf.DistillConfig) -> object:
    """Those that the settings name."""
    return choose_method(problem, config)
