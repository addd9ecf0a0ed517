"""Many clients in one process, for simulations: those of one shape are distilled together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from synthfair.client.routine import (
    Distillation,
    check_rows,
    distill_rows,
    make_release,
    refuse_divergence,
)
from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill import outer
from synthfair.distill.judge import Record
from synthfair.distill.outer import OuterState
from synthfair.distill.problem import Problem, make_problem
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model
from synthfair.release import make_header

BATCH_BYTES = {"cpu": 2**20}
"""Of features that are distilled together, by JAX's backend. On a CPU many small clients at once
save the cost of starting each operation, but must stay in its caches between two of them."""

BATCH_BYTES_ELSEWHERE = 2**28
"""On accelerators, whose memory is fast."""

Progress = Callable[[int, int], None]
"""Called with the number of clients that are done, and of all."""


def distill_clients(
    clients: Sequence[Encoded],
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    progress: Progress | None = None,
) -> list[Distillation]:
    """:func:`synthfair.client.routine.distill_rows` of each client, batched through vmap.

    The numbers are those of one client after the other, but for rounding. Clients with equally
    many rows share a compilation and go in batches that fit memory; with ``max_gap``, whose search
    differs between clients, they go one by one.

    Args:
        clients: encoded rows of each.
        schema: theirs.
        config: settings of all, the seed included; the defaults if not given.
        model: see :func:`synthfair.client.routine.distill_table`.
        penalty: see there.
        progress: called after each batch.

    Raises:
        InputError: a client's rows cannot be distilled with these settings, or diverge.
    """
    config = config or DistillConfig()
    named = {f"client {i}": real for i, real in enumerate(clients)}
    for name, real in named.items():
        check_rows(real, schema, config, source=name)

    def distilled(batch: dict[str, Encoded]) -> dict[str, Distillation]:
        return _distill_batch(batch, schema, config, model=model, penalty=penalty)

    done: dict[str, Distillation] = {}
    # Compiled code runs without Python's lock, and much of it on one core.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(distilled, _batches(named, config)):
            done |= found
            if progress:
                progress(len(done), len(clients))
    return [done[name] for name in named]


def _batches(clients: dict[str, Encoded], config: DistillConfig) -> Iterator[dict[str, Encoded]]:
    """Clients of equally many rows, as many as fit."""
    fitting = BATCH_BYTES.get(jax.default_backend(), BATCH_BYTES_ELSEWHERE)
    sizes = sorted({len(real.y) for real in clients.values()})
    for size in sizes:
        names = [name for name, real in clients.items() if len(real.y) == size]
        most = 1 if config.max_gap else max(1, fitting // clients[names[0]].x.nbytes)
        for i in range(0, len(names), most):
            yield {name: clients[name] for name in names[i : i + most]}


def _distill_batch(
    batch: dict[str, Encoded],
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None,
    penalty: Penalty | None,
) -> dict[str, Distillation]:
    """A batch at once; one client by itself needs no batch."""
    if len(batch) == 1:
        ((name, real),) = batch.items()
        alone = distill_rows(real, schema, config, model=model, penalty=penalty, source=name)
        return {name: alone}
    n_groups = len(schema.groups)
    pairs = [
        make_problem(real, config, n_groups=n_groups, model=model, penalty=penalty)
        for real in batch.values()
    ]
    problems = [problem for problem, _ in pairs]
    header = make_header(config, schema, model=problems[0].model, penalty=problems[0].penalty)
    state, history = _run(problems, [x for _, x in pairs], config, names=list(batch))
    x, last = np.asarray(state.x), np.asarray(state.last)
    return {
        name: Distillation(
            make_release(header, schema, x[i], problems[i]),
            Record(*(field[: last[i] + 1, i] for field in history)),
            config.rho_o,
        )
        for i, name in enumerate(batch)
    }


def _run(
    problems: list[Problem], starts: list[jax.Array], config: DistillConfig, *, names: list[str]
) -> tuple[OuterState, Record]:
    """The state at the end, and records [steps, B]."""
    first = [outer.init(problem, x, config) for problem, x in zip(problems, starts, strict=True)]
    state, parts = outer.stack(first), []
    for reached, records in outer.run(outer.stack(problems), state, config):
        state, step = reached, int(np.max(reached.step))
        for i, (name, x) in enumerate(zip(names, np.asarray(state.x), strict=True)):
            own = Record(*(field[:, i] for field in records))
            refuse_divergence(x, own, step=step, source=f"{name}: ")
        parts.append(records)
    return state, Record(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
