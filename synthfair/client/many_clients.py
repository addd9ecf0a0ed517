"""Many clients in one process, for simulations: those of one shape are distilled together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from synthfair.client.distillation import (
    ClientProblem,
    Distillation,
    distill_prepared,
    finished,
    joined,
    refuse_divergence,
)
from synthfair.client.fair_task import FairTask, check_rows
from synthfair.client.run import Run
from synthfair.config import DistillConfig
from synthfair.config.rules import PenaltyName
from synthfair.data.batches import RealRows
from synthfair.data.encode import Encoded, encode_own
from synthfair.data.schema import Schema
from synthfair.distill.problem import MOST_PADDED, OuterState, StepRecord, init, run
from synthfair.distill.solvers import choose_method
from synthfair.distill.start import ROWS_PER_PAIR
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, padded_size

if TYPE_CHECKING:
    import pandas as pd

BATCH_BYTES = {"cpu": 2**20}
"""Of what is distilled together, by JAX's backend. On a CPU many small clients at once save the
cost of starting each operation, but must stay in its caches between two of them."""

BATCH_BYTES_ELSEWHERE = 2**30
"""On accelerators, whose memory is large and fast."""

WORKING_COPIES = 10
"""Arrays as large as the synthetic inputs that a step works on."""

Table: TypeAlias = "pd.DataFrame | Encoded | RealRows"

OnClients = Callable[[int, int], None]
"""Called with the number of clients that are done, and of all."""


def distill_clients(
    clients: Sequence[Table] | Mapping[str, Table],
    schema: Schema,
    config: DistillConfig | None = None,
    *,
    model: Model | None = None,
    penalty: Penalty | PenaltyName | None = None,
    progress: OnClients | None = None,
) -> list[Distillation]:
    """:func:`distill_table` of each client, batched through vmap.

    The numbers are those of one client after the other, but for rounding, which Adam magnifies once
    it oscillates near an optimum. Clients with nearly equally many rows, see
    :func:`synthfair.model.padded_size`, share a compilation and go in batches that fit memory; so
    do, of an own penalty or ``labels="copy"``, those with equally many. With ``max_gap``,
    whose search differs between clients, they go one by one. It warns of what is clipped likewise.

    Args:
        clients: the table of each, or its rows encoded, or gathered with weights; by name or in
            order.
        schema: theirs.
        config: settings of all, the seed included; the defaults if not given.
        model: see :func:`synthfair.client.from_table.distill_table`.
        penalty: see there.
        progress: called after each batch.

    Raises:
        InputError: a client's rows do not fit the schema, cannot be distilled with these settings,
            or diverge.
        KeyboardInterrupt: once the steps that are computed at the moment are done.
    """
    config = config or DistillConfig()
    if isinstance(penalty, str):
        config, penalty = config.replace(penalty=penalty), None
    given = (
        clients
        if isinstance(clients, Mapping)
        else {f"client {i}": one for i, one in enumerate(clients)}
    )
    named = {name: _encoded(one, schema, name) for name, one in given.items()}
    if config.epsilon is None:  # a refusal that depends on the rows would tell of them
        for name, real in named.items():
            check_rows(real, schema, config, source=name)
    stop = threading.Event()
    as_here = _settings_of_this_thread()

    def distilled(batch: _Batch) -> dict[str, Distillation]:
        with as_here():
            return _distill_batch(batch, schema, config, model=model, penalty=penalty, stop=stop)

    done: dict[str, Distillation] = {}
    # Compiled code runs without Python's lock, and on a CPU much of it on one core.
    with ThreadPoolExecutor(_workers()) as pool:
        try:
            for found in pool.map(distilled, _batches(named, config, penalty)):
                done |= found
                if progress:
                    progress(len(done), len(clients))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [done[name] for name in named]


def _encoded(client: Table, schema: Schema, name: str) -> Encoded | RealRows:
    is_encoded = isinstance(client, Encoded | RealRows)
    return client if is_encoded else encode_own(client, schema, source=name)


def _workers() -> int:
    if jax.default_backend() != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # the cores that this process may use, not all there are
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _settings_of_this_thread() -> Callable[[], AbstractContextManager[None]]:
    """Enters JAX's settings as they are here: ``with jax.enable_x64(...)`` holds for one thread."""
    double, device = (
        getattr(jax.config, name) for name in ("jax_enable_x64", "jax_default_device")
    )

    @contextmanager
    def entered() -> Iterator[None]:
        with jax.enable_x64(double), jax.default_device(device):
            yield

    return entered


class _Batch(NamedTuple):
    """Clients of one shape, by name; compiled for so many, of which the last is repeated."""

    clients: dict[str, Encoded | RealRows]
    size: int


def _batches(
    clients: dict[str, Encoded | RealRows], config: DistillConfig, penalty: Penalty | None
) -> Iterator[_Batch]:
    """Clients whose problems have one shape, as many as fit."""
    budget = BATCH_BYTES.get(jax.default_backend(), BATCH_BYTES_ELSEWHERE)
    exact = penalty is not None or config.labels == "copy"
    by_size: dict[int, list[str]] = {}
    for name, real in clients.items():
        n = len(real.y)
        size = n if exact or n > MOST_PADDED else padded_size(n, least=1)
        by_size.setdefault(size, []).append(name)
    for _, names in sorted(by_size.items()):
        fitting = max(1, budget // _working_bytes(clients[names[0]], config))
        most = 1 if config.max_gap else min(fitting, len(names))
        for i in range(0, len(names), most):
            yield _Batch({name: clients[name] for name in names[i : i + most]}, most)


def _working_bytes(real: Encoded | RealRows, config: DistillConfig) -> int:
    """That distilling a client takes, roughly."""
    n_rows, d = (real.encoded if isinstance(real, RealRows) else real).x.shape
    n_synthetic = config.n_synthetic or (n_rows if config.labels == "copy" else 4 * ROWS_PER_PAIR)
    return 8 * d * (n_rows + WORKING_COPIES * n_synthetic + d)


def _distill_batch(
    batch: _Batch,
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None,
    penalty: Penalty | None,
    stop: threading.Event,
) -> dict[str, Distillation]:
    """A batch at once; one client by itself needs no batch."""

    def end_if_stopped(*_: object) -> None:
        if stop.is_set():
            raise InterruptedError("another batch failed, or was interrupted")

    prepared: dict[str, ClientProblem] = {}
    task = FairTask(schema, config, model, penalty)
    for name, real in batch.clients.items():
        try:
            prepared[name] = task.prepare(task.measure(task.gather(real)))
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
    if batch.size == 1:
        ((name, alone),) = prepared.items()
        found = distill_prepared(alone, schema, config, Run(name, end_if_stopped))
        return {name: found}
    problems = [each.problem for each in prepared.values()]
    problems += problems[-1:] * (batch.size - len(problems))  # another size would be compiled anew
    method = choose_method(problems[0], config)
    first = [init(problem, method, steps=config.steps) for problem in problems]
    problem, state = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *each) for each in (problems, first)
    )
    chunks, parts = run(problem, state, method, stop_tolerance=config.stop_tolerance), []
    for state, records in chunks:
        end_if_stopped()
        for i, name in enumerate(prepared):
            mine, taken = _at(state, i), len(records.objective)
            left = int(mine.last) + 1 - (int(mine.step) - taken)  # of this chunk, if any
            own = _until(records, i, min(left, taken) - 1)
            refuse_divergence(mine.best, own, step=int(mine.step), source=name)
        parts.append(records)
    history = joined(parts)
    return {
        name: finished(each, schema, config, _at(state, i), _until(history, i, int(state.last[i])))
        for i, (name, each) in enumerate(prepared.items())
    }


def _at(state: OuterState, i: int) -> OuterState:
    """The state of one problem of a batch."""
    return jax.tree.map(lambda leaf: leaf[i], state)


def _until(history: StepRecord, i: int, last: int) -> StepRecord:
    """The records of one problem of a batch, up to its last step."""
    return StepRecord(*(field[: max(last + 1, 0), i] for field in history))
